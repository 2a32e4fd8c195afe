//! What a new skill begins with: a tool that greets, in each language, and a copy of the helper that it uses, so that
//! the project stands on its own.

use crate::project::{Language, NewSkill};

macro_rules! sdk {
    ($path:literal) => {
        include_str!(concat!("../../../sdk/", $path))
    };
}

/// Files of a template: their names and contents.
type Files<'a> = &'a [(&'static str, &'a str)];

/// The helper for C: its own files, and the bindings that it stands on.
pub(crate) const C_SDK: [(&str, &str); 4] = [
    ("palyra_skill.h", sdk!("c/palyra_skill.h")),
    ("palyra_skill.c", sdk!("c/palyra_skill.c")),
    ("palyra_bindings.h", sdk!("c/palyra_bindings.h")),
    ("palyra_bindings.c", sdk!("c/palyra_bindings.c")),
];

/// The helper for Python.
pub(crate) const PYTHON_SDK: &str = sdk!("python/palyra_skill.py");

/// The helper for JavaScript, and the script that builds.
pub(crate) const JS_SDK: &str = sdk!("js/palyra-skill.js");
pub(crate) const JS_BUILD: &str = sdk!("js/build.mjs");

const RUST_SDK: [(&str, &str); 8] = [
    ("palyra-plugins-sdk/Cargo.toml", sdk!("palyra-plugins-sdk/Cargo.toml")),
    ("palyra-plugins-sdk/src/lib.rs", sdk!("palyra-plugins-sdk/src/lib.rs")),
    ("palyra-plugins-sdk/src/bindings.rs", sdk!("palyra-plugins-sdk/src/bindings.rs")),
    ("palyra-plugins-sdk/src/http.rs", sdk!("palyra-plugins-sdk/src/http.rs")),
    ("palyra-plugins-sdk/src/log.rs", sdk!("palyra-plugins-sdk/src/log.rs")),
    ("palyra-plugins-sdk/src/secrets.rs", sdk!("palyra-plugins-sdk/src/secrets.rs")),
    ("palyra-plugins-sdk/src/storage.rs", sdk!("palyra-plugins-sdk/src/storage.rs")),
    ("palyra-plugins-sdk/src/tool.rs", sdk!("palyra-plugins-sdk/src/tool.rs")),
];

/// Every file of a new skill.
pub(crate) fn files(language: Language, skill: &NewSkill<'_>) -> Vec<(&'static str, String)> {
    let (own, copies): (Files<'_>, Files<'_>) = match language {
        Language::Rust => (
            &[
                ("Cargo.toml", sdk!("templates/rust/Cargo.toml.in")),
                ("src/lib.rs", sdk!("templates/rust/src/lib.rs.in")),
            ],
            &RUST_SDK,
        ),
        Language::C => (&[("skill.c", sdk!("templates/c/skill.c"))], &C_SDK),
        Language::Python => (
            &[
                ("app.py", sdk!("templates/python/app.py")),
                ("requirements.txt", sdk!("templates/python/requirements.txt")),
            ],
            &[("palyra_skill.py", PYTHON_SDK)],
        ),
        Language::JavaScript => (
            &[("skill.js", sdk!("templates/js/skill.js")), ("package.json", sdk!("templates/js/package.json"))],
            &[("palyra-skill.js", JS_SDK)],
        ),
        Language::Text => (&[("skill.wat", sdk!("templates/wat/skill.wat"))], &[]),
    };
    let manifest = match language {
        Language::Text => sdk!("templates/wat/skill.toml.in"),
        _ => sdk!("templates/skill.toml.in"),
    };
    let every: Files<'_> = &[("skill.toml", manifest), (".gitignore", sdk!("templates/gitignore"))];
    let id = skill.name.replace('-', "_");
    let filled = |text: &str| {
        let words =
            [("name", skill.name), ("id", &id), ("publisher", skill.publisher), ("palyra", skill.palyra_version)];
        words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(&format!("{{{{{word}}}}}"), value))
    };
    let own = own.iter().chain(every).map(|(path, text)| (*path, filled(text)));
    let copies = copies.iter().map(|(path, text)| (*path, (*text).to_owned()));
    own.chain(copies).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::Project;

    fn skill(name: &str) -> NewSkill<'_> {
        NewSkill { name, publisher: "acme", palyra_version: "0.1.0" }
    }

    #[test]
    fn every_language_begins_with_something_that_is_found() {
        let place = tempfile::tempdir().unwrap();
        for language in Language::ALL {
            let directory = place.path().join(language.word());
            Project::create(&directory, &skill("my-skill"), language).unwrap();
            assert_eq!(Project::find(&directory).unwrap().language, language);
            for file in [language.file(), "skill.toml"] {
                let text = std::fs::read_to_string(directory.join(file)).unwrap();
                assert!(!text.contains("{{"), "{text}");
            }
            assert_eq!(Project::create(&directory, &skill("my-skill"), language).unwrap_err().code(), "build_exists");
        }
        for bad in ["", "Skill", "1st", "a b", "../x", "a_b"] {
            let refused = Project::create(&place.path().join("new"), &skill(bad), Language::C).unwrap_err();
            assert_eq!(refused.code(), "build_name", "{bad}");
        }
        assert_eq!(Project::find(place.path()).unwrap_err().code(), "build_no_skill");
    }

    /// A new member of the SDK must be part of what a project is given.
    #[test]
    fn the_copy_of_the_sdk_is_complete() {
        let sdk = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/palyra-plugins-sdk/src");
        for file in std::fs::read_dir(sdk).unwrap() {
            let name = format!("palyra-plugins-sdk/src/{}", file.unwrap().file_name().into_string().unwrap());
            assert!(RUST_SDK.iter().any(|(path, _)| *path == name), "{name}");
        }
    }
}
