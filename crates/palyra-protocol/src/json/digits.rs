//! Numbers as they were written.
//!
//! A parser hands on a long row of digits as the nearest double, and nobody can tell it from `1e23` any more. So where
//! it came by a double of that size, the text is looked at again.

/// As many digits as the largest integer has that every reader agrees about.
const EXACT_DIGITS: usize = 16;

/// Whether valid JSON has a number without an exponent that has more digits before its point than are exact.
pub(super) fn has_long_integer(json: &str) -> bool {
    let mut rest = json.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = match first {
            b'"' => after_string(behind),
            b'-' | b'0'..=b'9' => {
                let length = rest.iter().take_while(|byte| is_of_number(**byte)).count();
                let (number, behind) = rest.split_at(length);
                if is_long_integer(number) {
                    return true;
                }
                behind
            }
            _ => behind,
        };
    }
    false
}

fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
}

fn is_long_integer(number: &[u8]) -> bool {
    let digits = number.iter().skip_while(|byte| **byte == b'-').take_while(|byte| byte.is_ascii_digit()).count();
    digits > EXACT_DIGITS && !number.iter().any(|byte| matches!(byte, b'e' | b'E'))
}

/// What follows a string, whose first quote is gone already.
fn after_string(mut rest: &[u8]) -> &[u8] {
    loop {
        match rest {
            [b'\\', _, behind @ ..] | [b'\\', behind @ ..] => rest = behind,
            [b'"', behind @ ..] => return behind,
            [_, behind @ ..] => rest = behind,
            [] => return rest,
        }
    }
}
