//! Times and byte counts in readable form.

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
}
