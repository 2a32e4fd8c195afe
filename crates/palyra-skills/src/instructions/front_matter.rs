//! The head of a `SKILL.md`: a small YAML mapping between two lines of `---`.

use super::InstructionsError;
use crate::text::{Position, excerpt};
use saphyr_parser::{Event, Parser};
use std::collections::BTreeMap;

/// The largest head.
const MAX_HEAD: usize = 16 << 10;

/// Reads the texts of the head by their keys. Lists and mappings within it are passed over.
pub(super) fn front_matter(document: &str) -> Result<BTreeMap<String, String>, InstructionsError> {
    let rest = document.strip_prefix("---").and_then(|rest| rest.trim_start_matches(' ').split_once('\n'));
    let (_, rest) = rest.filter(|(first, _)| first.trim().is_empty()).ok_or(InstructionsError::NoHead)?;
    let end = rest.match_indices("---").map(|(at, _)| at).find(|at| {
        let begins_line = *at == 0 || rest[..*at].ends_with('\n');
        begins_line && rest[at + 3..].lines().next().is_none_or(|line| line.trim().is_empty())
    });
    let head = end.and_then(|end| rest.get(..end)).ok_or(InstructionsError::NoHead)?;
    if head.len() > MAX_HEAD {
        return Err(fault(1, format!("the head has more than {MAX_HEAD} bytes")));
    }
    let mut reader = Reader::default();
    for event in Parser::new_from_str(head) {
        let (event, span) = event.map_err(|e| fault(e.marker().line(), e.info().to_owned()))?;
        reader.take(event).map_err(|reason| fault(span.start.line(), reason.to_owned()))?;
    }
    Ok(reader.texts)
}

/// A fault at a line of the head, which begins in the second line of the document.
fn fault(line: usize, reason: String) -> InstructionsError {
    let position = Position { line: line + 1, column: 1 };
    InstructionsError::Head { position, reason: excerpt(&reason) }
}

#[derive(Default)]
struct Reader {
    depth: usize,
    documents: usize,
    /// The key whose value comes next.
    key: Option<String>,
    texts: BTreeMap<String, String>,
}

impl Reader {
    fn take(&mut self, event: Event<'_>) -> Result<(), &'static str> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 { Err("there is a second document") } else { Ok(()) }
            }
            // Anchors make a small text mean a large one, and tags make it mean something else.
            Event::Alias(_) => Err("aliases are not read"),
            Event::Scalar(_, _, anchor, ref tag) if anchor != 0 || tag.is_some() => {
                Err("anchors and tags are not read")
            }
            Event::Scalar(text, ..) => self.scalar(&text),
            Event::MappingStart(anchor, tag) => self.open(anchor != 0 || tag.is_some(), true),
            Event::SequenceStart(anchor, tag) => self.open(anchor != 0 || tag.is_some(), false),
            Event::MappingEnd | Event::SequenceEnd => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 1 {
                    self.key = None;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn scalar(&mut self, text: &str) -> Result<(), &'static str> {
        match (self.depth, self.key.take()) {
            (0, _) => Err("the head is not a list of keys and values"),
            (1, None) => {
                if self.texts.contains_key(text) {
                    return Err("a key appears twice");
                }
                self.key = Some(text.to_owned());
                Ok(())
            }
            (1, Some(key)) => {
                self.texts.insert(key, text.to_owned());
                Ok(())
            }
            (_, key) => {
                self.key = key;
                Ok(())
            }
        }
    }

    fn open(&mut self, is_odd: bool, is_mapping: bool) -> Result<(), &'static str> {
        if is_odd {
            return Err("anchors and tags are not read");
        }
        if self.depth == 0 && !is_mapping || self.depth == 1 && self.key.is_none() {
            return Err("the head is not a list of keys and values");
        }
        self.depth += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_yaml() {
        let head = front_matter(
            "---\nname: pdf-forms\ndescription: >\n  Fills forms\n  and more.\nmetadata:\n  author: x\nallowed-tools: [a, b]\nlicense: \"MIT\"\n---\n# Body\n",
        )
        .unwrap();
        assert_eq!(head["name"], "pdf-forms");
        assert_eq!(head["description"], "Fills forms and more.\n");
        assert_eq!(head["license"], "MIT");
        assert_eq!(head.len(), 3);
    }

    #[test]
    fn odd_heads_are_refused() {
        for (text, code) in [
            ("", "instructions_no_head"),
            ("# no head", "instructions_no_head"),
            ("---\nname: x\n", "instructions_no_head"),
            ("---\nname: x\nname: y\n---\n", "instructions_head"),
            ("---\nname: &a x\nother: *a\n---\n", "instructions_head"),
            ("---\nname: !!binary x\n---\n", "instructions_head"),
            ("---\n- a\n- b\n---\n", "instructions_head"),
            ("---\njust text\n---\n", "instructions_head"),
            ("---\n? [a]\n: b\n---\n", "instructions_head"),
            ("---\nname: \"x\n---\n", "instructions_head"),
        ] {
            assert_eq!(front_matter(text).unwrap_err().code(), code, "{text:?}");
        }
        let long = format!("---\nname: {}\n---\n", "x".repeat(MAX_HEAD));
        assert_eq!(front_matter(&long).unwrap_err().code(), "instructions_head");
    }
}
