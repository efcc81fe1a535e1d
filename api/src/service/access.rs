//! Tokens: who may ask, and who may also measure.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::Service;
use super::failure::{Failure, ROLE, TOKEN};
use super::places::Client;
use super::routes::is_open;

/// Minimum length of a token, so that it cannot be guessed.
const SHORTEST: usize = 16;

/// Permission of the holder of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ask for everything that times nothing.
    Read,
    /// Also measure and train, which occupies a device and changes what is stored.
    Write,
}

impl Role {
    /// Refuses a request that needs the role write; `what` names what it asks for.
    ///
    /// # Errors
    /// 403 for the role read.
    pub fn check_writes(self, what: &str) -> Result<(), Failure> {
        if self == Role::Write {
            return Ok(());
        }
        let stated = format!(
            "this token has the role read; {what} needs one with the role write, which the operator of \
             this service has"
        );
        Err(Failure::new(&ROLE, stated))
    }
}

/// The tokens of a service; without any, every request may do everything.
#[derive(Clone, Default)]
pub struct Tokens(Vec<(Role, String)>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

impl Tokens {
    /// Parses one token a line, `read TOKEN` or `write TOKEN`; empty lines and lines that start with
    /// `#` are skipped.
    ///
    /// # Errors
    /// The number of the first wrong line, with the reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (role, token) = match line.split_once(char::is_whitespace) {
                Some(("read", token)) => (Role::Read, token.trim()),
                Some(("write", token)) => (Role::Write, token.trim()),
                _ => {
                    return Err(format!(
                        "line {} is neither 'read TOKEN' nor 'write TOKEN'",
                        i + 1
                    ));
                }
            };
            if token.len() < SHORTEST {
                let length = token.len();
                return Err(format!(
                    "the token in line {} has {length} characters; it must have {SHORTEST} or more",
                    i + 1
                ));
            }
            tokens.push((role, token.to_string()));
        }
        match tokens.is_empty() {
            true => Err("it has no token; add a line 'read TOKEN' or 'write TOKEN'".into()),
            false => Ok(Tokens(tokens)),
        }
    }

    /// Returns the number of this token and its role, if it is known. Takes as long for every token
    /// of the same length.
    fn find(&self, token: &str) -> Option<(usize, Role)> {
        let mut found = None;
        for (i, (role, known)) in self.0.iter().enumerate() {
            if bool::from(known.as_bytes().ct_eq(token.as_bytes())) {
                found = Some((i, *role));
            }
        }
        found
    }
}

/// Refuses a request without a known token; notes the role of its token, and its client: the token,
/// or the address where none is needed.
pub async fn checked(
    State(service): State<Arc<Service>>,
    mut request: Request,
    next: Next,
) -> Response {
    let settings = service.settings();
    let tokens = &settings.tokens;
    let path = request.extensions().get::<MatchedPath>();
    if tokens.0.is_empty() || path.is_some_and(|path| is_open(path.as_str())) {
        let address = request.extensions().get().map(|&ConnectInfo::<SocketAddr>(at)| at.ip());
        let client = address.map(|address| address.to_string()).unwrap_or_default();
        request.extensions_mut().insert(Client(client));
        request.extensions_mut().insert(Role::Write);
        return next.run(request).await;
    }
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = given.and_then(|value| value.strip_prefix("Bearer "));
    match token.and_then(|token| tokens.find(token.trim())) {
        Some((number, role)) => {
            request.extensions_mut().insert(Client(format!("token {number}")));
            request.extensions_mut().insert(role);
            next.run(request).await
        }
        None => {
            let stated = "this service needs a token: send `Authorization: Bearer TOKEN`; its operator \
                          has the tokens";
            Failure::new(&TOKEN, stated).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_roles_and_wrong_lines_are_named() {
        let text = "# team\n\nread 0123456789abcdef\nwrite fedcba9876543210\n";
        let tokens = Tokens::parse(text).expect("legal");
        assert_eq!(tokens.find("0123456789abcdef"), Some((0, Role::Read)));
        assert_eq!(tokens.find("fedcba9876543210"), Some((1, Role::Write)));
        for unknown in ["", "0123456789abcdeF", "0123456789abcdef0"] {
            assert_eq!(tokens.find(unknown), None);
        }
        assert_eq!(format!("{tokens:?}"), "2 tokens");
        for (text, stated) in
            [("", "no token"), ("read x", "line 1"), ("\nadmin 0123456789abcdef", "line 2")]
        {
            let error = Tokens::parse(text).expect_err("wrong");
            assert!(error.contains(stated), "{error}");
        }
    }
}
