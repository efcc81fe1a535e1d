//! Times, byte counts and whole numbers in readable form.

/// Formats seconds with three significant digits and a fitting unit: `1.50 us`, `22.1 ms`.
pub fn time(s: f64) -> String {
    match s {
        s if s >= 1.0 => digits(s, "s"),
        s if s >= 1e-3 => digits(s * 1e3, "ms"),
        s => digits(s * 1e6, "us"),
    }
}

/// Formats bytes with three significant digits and a fitting decimal unit: `512 B`, `67.9 kB`.
pub fn bytes(bytes: u64) -> String {
    match bytes as f64 {
        b if b >= 1e9 => digits(b / 1e9, "GB"),
        b if b >= 1e6 => digits(b / 1e6, "MB"),
        b if b >= 1e3 => digits(b / 1e3, "kB"),
        _ => format!("{bytes} B"),
    }
}

fn digits(number: f64, unit: &str) -> String {
    let places = match number {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        _ => 2,
    };
    format!("{number:.places$} {unit}")
}

/// Multiples that may follow a number, in lower case.
const MULTIPLES: [(&str, u64); 8] = [
    ("ki", 1 << 10),
    ("mi", 1 << 20),
    ("gi", 1 << 30),
    ("ti", 1 << 40),
    ("k", 1000),
    ("m", 1_000_000),
    ("g", 1_000_000_000),
    ("t", 1_000_000_000_000),
];

/// Parses a whole number as people write it: `1000000`, `1e6`, `1.5M`, `64G`, `512MiB`.
///
/// k, M, G and T stand for powers of 1000, Ki, Mi, Gi and Ti for powers of 1024, in either case; a B
/// for bytes may follow.
///
/// ```
/// use ellect::units::count;
///
/// assert_eq!(count("1.5M"), Ok(1_500_000));
/// assert_eq!(count("64GiB"), Ok(64 << 30));
/// ```
///
/// # Errors
/// Returns the reason as text if it is no whole number from 0 to 2^64 - 1.
pub fn count(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!("it is '{text}'; it must be a whole number, for instance 1000000, 1e6, 1.5M or 64G")
    };
    let lower = text.trim().to_ascii_lowercase();
    let plain = lower.strip_suffix('b').unwrap_or(&lower);
    let multiple = MULTIPLES.iter().find_map(|(end, by)| Some((plain.strip_suffix(end)?, *by)));
    let (number, by) = multiple.unwrap_or((plain, 1));
    whole(number.trim_end(), by).ok_or_else(wrong)
}

/// Returns `by` times a decimal number with an optional exponent, if that is whole.
fn whole(number: &str, by: u64) -> Option<u64> {
    let (mantissa, exponent) = number.split_once('e').unwrap_or((number, "0"));
    let (units, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{units}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let shift = exponent.parse::<i32>().ok()?.checked_sub(fraction.len() as i32)?;
    let all = digits.parse::<u128>().ok()?.checked_mul(u128::from(by))?;
    let power = |shift: u32| 10_u128.checked_pow(shift);
    let number = match u32::try_from(shift) {
        _ if all == 0 => 0,
        Ok(up) => all.checked_mul(power(up)?)?,
        Err(_) => {
            let down = power(shift.unsigned_abs())?;
            (all % down == 0).then_some(all / down)?
        }
    };
    number.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_suit() {
        let times = [(0.0, "0.00 us"), (1.5e-6, "1.50 us"), (0.0221, "22.1 ms"), (180.0, "180 s")];
        times.iter().for_each(|(s, text)| assert_eq!(time(*s), *text));
        let sizes = [(0, "0 B"), (512, "512 B"), (67_900, "67.9 kB"), (151_000_000_000, "151 GB")];
        sizes.iter().for_each(|(n, text)| assert_eq!(bytes(*n), *text));
    }

    #[test]
    fn whole_numbers_are_read_as_people_write_them() {
        let right = [
            ("0", 0),
            ("1000", 1000),
            ("1e6", 1_000_000),
            ("1E+6", 1_000_000),
            ("2.5e3", 2500),
            ("10e-1", 1),
            ("1.5M", 1_500_000),
            ("64G", 64_000_000_000),
            ("64gb", 64_000_000_000),
            ("0.5 KiB", 512),
            ("512B", 512),
            ("18446744073709551615", u64::MAX),
        ];
        right.iter().for_each(|(text, n)| assert_eq!(count(text), Ok(*n), "{text}"));
        let wrong = [
            "",
            " ",
            "-1",
            "1.5",
            "1e-1",
            "e6",
            "1e",
            "1e6.5",
            "0x10",
            "many",
            "1MM",
            "1 000",
            "nan",
            "18446744073709551616",
            "1e30",
            "1e999999999999",
            "16Ei",
            ".",
            "B",
            "\u{663}",
        ];
        wrong.iter().for_each(|text| assert!(count(text).is_err(), "{text}"));
        assert!(
            count("1e6.5").is_err_and(|why| why.contains("'1e6.5'; it must be a whole number"))
        );
    }
}
