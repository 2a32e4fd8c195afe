//! Worlds of skills: the interface package with exactly the imports that one skill uses.

use crate::error::BuildError;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use wit_parser::{Resolve, WorldId};

/// The package of interfaces, as guests see it.
pub const SKILL_WIT: &str = include_str!("../../../wit/skill.wit");

/// The interfaces of ours that a skill may import.
pub const INTERFACES: [&str; 4] = ["log", "http", "secrets", "storage"];

/// WASI, each package after those that it needs.
const WASI: [(&str, &str); 7] = [
    ("io.wit", include_str!("../../../wit/deps/io.wit")),
    ("clocks.wit", include_str!("../../../wit/deps/clocks.wit")),
    ("random.wit", include_str!("../../../wit/deps/random.wit")),
    ("filesystem.wit", include_str!("../../../wit/deps/filesystem.wit")),
    ("sockets.wit", include_str!("../../../wit/deps/sockets.wit")),
    ("cli.wit", include_str!("../../../wit/deps/cli.wit")),
    ("http.wit", include_str!("../../../wit/deps/http.wit")),
];

/// The world of one skill, resolved.
pub(crate) struct Wit {
    pub(crate) resolve: Resolve,
    pub(crate) world: WorldId,
}

impl Wit {
    /// A world with these imports, by their full names.
    pub(crate) fn with_interfaces(imports: &BTreeSet<String>) -> Result<Self, BuildError> {
        let failed = |error: &dyn std::fmt::Display| BuildError::Component(format!("{error:#}"));
        let mut resolve = Resolve::default();
        for (name, text) in WASI {
            resolve.push_str(name, text).map_err(|error| failed(&error))?;
        }
        resolve.push_str("skill.wit", SKILL_WIT).map_err(|error| failed(&error))?;
        let own = resolve.push_str("built.wit", &own_world(imports)).map_err(|error| failed(&error))?;
        let world = resolve.select_world(&[own], Some("built")).map_err(|error| failed(&error))?;
        Ok(Self { resolve, world })
    }
}

fn own_world(imports: &BTreeSet<String>) -> String {
    let mut text = "package palyra:built;\n\nworld built {\n".to_owned();
    for import in imports {
        // Writing to a string cannot fail.
        let _infallible = writeln!(text, "    import {import};");
    }
    text.push_str("    export palyra:skill/tools@1.0.0;\n}\n");
    text
}

/// The package of interfaces with one more world, `built`, that imports these of our interfaces: for toolchains that
/// import everything that a world names.
#[must_use]
pub fn world_text(interfaces: &BTreeSet<&str>) -> String {
    let mut text = SKILL_WIT.to_owned();
    text.push_str("\n/// What this skill uses.\nworld built {\n");
    for interface in interfaces {
        let _infallible = writeln!(text, "    import {interface};");
    }
    text.push_str("    export tools;\n}\n");
    text
}

/// Names among these that are interfaces of the component model: `package:name/interface@version`.
pub(crate) fn interfaces_of<'a>(imports: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    imports.filter(|import| import.contains(':') && import.contains('/')).map(str::to_owned).collect()
}
