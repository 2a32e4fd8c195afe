//! The environment in the form that Windows takes: `NAME=VALUE` after `NAME=VALUE`, sorted, each with an end mark, and
//! one more.

use crate::error::SandboxError;

const EQUALS: u16 = b'=' as u16;

/// The block of these variables.
pub(super) fn environment_block(
    variables: impl IntoIterator<Item = (Vec<u16>, Vec<u16>)>,
) -> Result<Vec<u16>, SandboxError> {
    let mut variables: Vec<_> = variables.into_iter().map(|(name, value)| (upper(&name), name, value)).collect();
    variables.sort();
    let mut block = Vec::new();
    let mut before: Option<&[u16]> = None;
    for (key, name, value) in &variables {
        let refuse = || SandboxError::EnvironmentRefused { name: String::from_utf16_lossy(name) };
        // A second variable of a name that differs in case only: which one holds would be the program's choice.
        if name.is_empty() || name.contains(&EQUALS) || before == Some(key) {
            return Err(refuse());
        }
        if name.contains(&0) || value.contains(&0) {
            return Err(SandboxError::NulByte { what: "an environment variable".into() });
        }
        block.extend_from_slice(name);
        block.push(EQUALS);
        block.extend_from_slice(value);
        block.push(0);
        before = Some(key);
    }
    // An empty block has two end marks as well.
    if block.is_empty() {
        block.push(0);
    }
    block.push(0);
    Ok(block)
}

/// A name as Windows compares it.
fn upper(name: &[u16]) -> Vec<u16> {
    char::decode_utf16(name.iter().copied())
        .flat_map(|unit| match unit {
            Ok(c) => {
                let mut upper = c.to_uppercase();
                // Windows changes one character into one: `ß` stays.
                let single = upper.next().filter(|_| upper.next().is_none()).unwrap_or(c);
                single.encode_utf16(&mut [0; 2]).to_vec()
            }
            Err(lone) => vec![lone.unpaired_surrogate()],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn wide(text: &str) -> Vec<u16> {
        text.encode_utf16().collect()
    }

    fn block(variables: &[(&str, &str)]) -> Result<String, SandboxError> {
        environment_block(variables.iter().map(|(name, value)| (wide(name), wide(value))))
            .map(|units| String::from_utf16(&units).unwrap())
    }

    #[test]
    fn blocks() {
        assert_eq!(block(&[]).unwrap(), "\0\0");
        assert_eq!(block(&[("b", "2"), ("A", "1=x"), ("C", "")]).unwrap(), "A=1=x\0b=2\0C=\0\0");
        for (bad, code) in [
            (&[("A\0", "x")][..], "sandbox_nul_byte"),
            (&[("A", "x\0")], "sandbox_nul_byte"),
            (&[("A=B", "x")], "sandbox_environment_refused"),
            (&[("", "x")], "sandbox_environment_refused"),
            (&[("Path", "x"), ("PATH", "y")], "sandbox_environment_refused"),
            (&[("é", "x"), ("É", "y")], "sandbox_environment_refused"),
        ] {
            assert_eq!(block(bad).unwrap_err().code(), code, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_block_reads_back_as_its_variables(variables in prop::collection::btree_map("[A-Z_]{1,8}", "[^\0]{0,12}", 0..8)) {
            let units = environment_block(variables.iter().map(|(n, v)| (wide(n), wide(v)))).unwrap();
            let text = String::from_utf16(&units).unwrap();
            let lines = text.strip_suffix("\0\0").unwrap();
            let read: BTreeMap<String, String> = lines
                .split('\0')
                .filter(|line| !line.is_empty())
                .map(|line| line.split_once('=').unwrap())
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            prop_assert_eq!(read, variables);
        }

        #[test]
        fn no_unit_breaks_it(name in prop::collection::vec(any::<u16>(), 0..6), value in prop::collection::vec(any::<u16>(), 0..6)) {
            if let Ok(units) = environment_block([(name.clone(), value.clone())]) {
                prop_assert_eq!(units, [&name[..], &[EQUALS], &value, &[0, 0]].concat());
            }
        }
    }
}
