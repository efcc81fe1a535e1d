//! The address of a shared database, whose password is never shown.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A URL as `postgres://user:password@host:5432/database?sslmode=verify-full`.
///
/// Parsing never fails, so that no message of the command line repeats a wrong one.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(String);

impl FromStr for Address {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Address(text.to_string()))
    }
}

impl Address {
    /// Tells whether no database is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the URL with its password.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else {
            return f.write_str("(an address that is no URL)");
        };
        // A password may hold any character, so everything up to the last @ may belong to it.
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (user.split(':').next().unwrap_or_default(), place),
            None => ("", rest),
        };
        let place = place.split('?').next().unwrap_or_default();
        let host = place.split('/').next().unwrap_or_default();
        let port = host.rsplit(']').next().and_then(|host| host.split_once(':'));
        if port.is_some_and(|(_, port)| !port.chars().all(|c| c.is_ascii_digit() || c == ',')) {
            return write!(f, "{scheme}://(not shown)");
        }
        let at = if user.is_empty() { "" } else { "@" };
        write!(f, "{scheme}://{user}{at}{place}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let shown = |text: &str| text.parse::<Address>().expect("it never fails").to_string();
        assert_eq!(shown("postgres://a:s3cret@h:5432/d?sslmode=require"), "postgres://a@h:5432/d");
        assert_eq!(shown("postgres://h/d"), "postgres://h/d");
        assert_eq!(shown("postgres://[::1]:5432/d"), "postgres://[::1]:5432/d");
        assert_eq!(shown("postgres:///d?host=/run/x&password=s3cret"), "postgres:///d");
        for odd in [
            "postgres://a:s3cret",
            "postgres://a:s3cret/x",
            "postgres://a:s3/cr?et@s3cret@h/d",
            "host=h password=s3cret",
            "postgres://a:x@s3cret:s3cret",
        ] {
            let address: Address = odd.parse().expect("it never fails");
            let both = format!("{address} {address:?}");
            assert!(!both.contains("s3cret:") && !both.contains(":s3cret"), "{both}");
            assert!(!both.contains("=s3cret") && !both.contains("cr?et"), "{both}");
        }
    }
}
