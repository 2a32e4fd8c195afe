//! Words that mix alphabets.
//!
//! A path like `/srv/иван/project` is of two alphabets and means what it says. A single word of two is another matter:
//! a Cyrillic letter in the middle of a Latin word looks like its Latin twin, and the rule speaks of something else
//! than its author reads. Such words are allowed, because files can be called so, and pointed out.

use crate::nesting_guard;
use unicode_security::MixedScript as _;

/// The words in a rule's literals that mix alphabets.
pub(crate) fn mixed_words(rule: &str) -> impl Iterator<Item = &str> {
    let words = nesting_guard::strings(rule).flat_map(|(_, literal)| literal.split(|c: char| !c.is_alphanumeric()));
    words.filter(|word| !word.is_ascii() && !word.is_single_script())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_looked_at_one_by_one() {
        let found = |literal: &str| {
            let rule = format!("permit (principal, action, resource) when {{ context.x == \"{literal}\" }};");
            mixed_words(&rule).map(str::to_owned).collect::<Vec<_>>()
        };
        for fine in ["/srv/иван/project", "日本語テキスト/readme", "größe", "Ωμέγα/x", "src", "пример.txt"]
        {
            assert_eq!(found(fine), [""; 0], "{fine}");
        }
        assert_eq!(found("/srv/pаypal/x"), ["pаypal"]);
    }
}
