//! Numbers and formats as Fortran programs write them.
//!
//! ```text
//! 1.0D+03   1.0d3   1.0+3   1.0E+003        1000 each: D and Q for E, or a sign alone
//! (3E25.16)  (1P,4D20.12)  (10F7.0)  (16I5)  n numbers a line, in fields of w characters
//! ```
//!
//! Source: ISO/IEC 1539-1:2010, sections 10.7.2.2 (I), 10.7.2.3 (F, E, D) and 10.8.5 (P).

use super::matrix_market::whole_number;
use crate::scalar::Scalar;

/// Number of bytes of the longest number.
const NUMBER_BYTES: usize = 256;

/// Parses a number that is all of `word`; `shift` is added to the exponent of a number that states
/// none, and `point` digits are behind the point of a number without a point.
///
/// The result is rounded once. A sign alone begins an exponent only behind a point.
pub(super) fn number<T: Scalar>(word: &[u8], shift: i32, point: u32) -> Option<T> {
    if word.len() > NUMBER_BYTES {
        return None;
    }
    let signed = usize::from(matches!(word.first(), Some(b'+' | b'-')));
    let is_mantissa = |b: &u8| b.is_ascii_digit() || *b == b'.';
    let len = signed + word[signed..].iter().take_while(|b| is_mantissa(b)).count();
    let (mantissa, rest) = word.split_at(len);
    let has_point = mantissa.contains(&b'.');
    if !mantissa.iter().any(u8::is_ascii_digit) {
        return None;
    }
    let stated = match rest {
        [] => None,
        [b'e' | b'E' | b'd' | b'D' | b'q' | b'Q', exponent @ ..] => Some(integer(exponent)?),
        [b'+' | b'-', ..] if has_point => Some(integer(rest)?),
        _ => return None,
    };
    let behind = if has_point { 0 } else { point as i32 };
    let exponent = stated.unwrap_or(shift).checked_sub(behind)?;
    let mantissa = std::str::from_utf8(mantissa).ok()?;
    let plain = format!("{mantissa}e{exponent}");
    let (value, len) = T::parse_prefix(plain.as_bytes())?;
    (len == plain.len()).then_some(value)
}

/// Parses an exponent of at most 6 digits; more would be no number of any use.
fn integer(text: &[u8]) -> Option<i32> {
    let digits = text.strip_prefix(b"+").or(text.strip_prefix(b"-")).unwrap_or(text);
    if digits.is_empty() || digits.len() > 6 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The format of the lines of an array: `count` fields of `width` characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineFormat {
    /// Number of fields in a line.
    pub count: usize,
    /// Width of a field in characters.
    pub width: usize,
    /// True for I, false for E, D, F and G.
    pub integer: bool,
    /// Digits behind the point of a number without a point.
    point: u32,
    /// Exponent of a number that states none, from a scale factor.
    shift: i32,
}

impl LineFormat {
    /// Parses a format with one repeated field, such as `(1P,3E25.16)` or `(16I5)`.
    pub fn parse(text: &[u8]) -> Option<LineFormat> {
        let text: Vec<u8> =
            text.iter().filter(|b| !b.is_ascii_whitespace()).map(u8::to_ascii_uppercase).collect();
        let text = std::str::from_utf8(&text).ok()?;
        let mut inner = text.strip_prefix('(')?.strip_suffix(')')?;
        let mut scale = 0;
        if let Some((factor, rest)) = inner.split_once('P')
            && let Ok(factor) = factor.parse::<i32>()
        {
            scale = factor;
            inner = rest.strip_prefix(',').unwrap_or(rest);
        }
        let mut count = number_at_start(&mut inner).unwrap_or(1);
        if let Some(group) = inner.strip_prefix('(') {
            inner = group.strip_suffix(')')?;
            if let Some((factor, rest)) = inner.split_once('P') {
                scale = factor.parse().ok()?;
                inner = rest.strip_prefix(',').unwrap_or(rest);
            }
            count = count.checked_mul(number_at_start(&mut inner).unwrap_or(1))?;
        }
        let kind = inner.bytes().next().filter(|kind| b"IEDFG".contains(kind))?;
        inner = &inner[1..];
        let width = number_at_start(&mut inner)?;
        let mut point = 0;
        if let Some(rest) = inner.strip_prefix('.') {
            inner = rest;
            point = number_at_start(&mut inner)?;
        }
        if let Some(rest) = inner.strip_prefix('E') {
            inner = rest;
            number_at_start(&mut inner)?;
        }
        let fits = (1..=1000).contains(&count) && (1..=NUMBER_BYTES).contains(&width);
        (inner.is_empty() && fits && point <= width && scale.abs() <= 99).then_some(LineFormat {
            count,
            width,
            integer: kind == b'I',
            point: if kind == b'I' { 0 } else { point as u32 },
            shift: if kind == b'I' { 0 } else { -scale },
        })
    }

    /// Parses a field as a value.
    pub fn value<T: Scalar>(&self, field: &[u8]) -> Option<T> {
        let field = field.trim_ascii();
        // Nearly all numbers are written with a point and an `E`, as other programs write them.
        if self.shift == 0 && (self.point == 0 || field.contains(&b'.')) {
            let plain = T::parse_prefix(field).filter(|&(_, len)| len == field.len());
            if let Some((value, _)) = plain {
                return Some(value);
            }
        }
        number(field, self.shift, self.point)
    }

    /// Parses a field as a whole number that is not negative.
    pub fn whole(&self, field: &[u8]) -> Option<u64> {
        let field = field.trim_ascii();
        whole_number(field.strip_prefix(b"+").unwrap_or(field))
    }
}

/// Takes the digits at the start of `text`.
fn number_at_start(text: &mut &str) -> Option<usize> {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(len);
    let number = digits.parse().ok()?;
    *text = rest;
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_of_fortran_are_read_where_they_mean_one_thing() {
        let read = |word: &str| number::<f64>(word.as_bytes(), 0, 0);
        for word in ["1.0D+03", "1.0d3", "1.0+3", "1.0E+003", "1Q3", "+1000", "1.D3", ".1+4"] {
            assert_eq!(read(word), Some(1000.0), "{word}");
        }
        assert_eq!(read("-2.5-2"), Some(-0.025));
        for word in
            ["", "+", ".", "1+3", "1.0D", "1.0+", "1.0D+-3", "1.0Dx", "1.2.3", "nan", "1d1d1"]
        {
            assert_eq!(read(word), None, "{word}");
        }
        assert_eq!(number::<f32>(b"1.00000005960464477539062500000001D0", 0, 0), Some(1.000_000_1));
    }

    #[test]
    fn formats_of_lines_are_understood() {
        let read =
            |text: &str| LineFormat::parse(text.as_bytes()).map(|f| (f.count, f.width, f.integer));
        assert_eq!(read("(40I2)"), Some((40, 2, true)));
        assert_eq!(read("(3E25.16)  "), Some((3, 25, false)));
        assert_eq!(read("( 1P, 5D16.8 )"), Some((5, 16, false)));
        assert_eq!(read("(1P5E16.8E3)"), Some((5, 16, false)));
        assert_eq!(read("(4(1PE20.12))"), Some((4, 20, false)));
        assert_eq!(read("(F8.3)"), Some((1, 8, false)));
        for wrong in
            ["", "40I2", "()", "(I)", "(0I5)", "(3E25.16,I2)", "(A80)", "(3E25.16", "(9E9)9"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let format = LineFormat::parse(b"(1P,3F8.3)").expect("a format");
        assert_eq!(format.value::<f64>(b"   12.50"), Some(1.25), "the scale factor divides");
        assert_eq!(format.value::<f64>(b"  12.5E0"), Some(12.5), "but not with an exponent");
        let format = LineFormat::parse(b"(3F8.3)").expect("a format");
        assert_eq!(format.value::<f64>(b"   12500"), Some(12.5), "the point is implied");
    }
}
