//! Manifests.

use crate::{MANIFEST, Vector};

const CHANGES: [(&str, &str, &str, &str, &str); 26] = [
    ("unknown-key", "version = ", "verison = ", "a key that does not exist", "manifest_unknown_key"),
    (
        "unknown-section",
        "[capabilities.http]",
        "[capabilities.https]",
        "a section that does not exist",
        "manifest_unknown_key",
    ),
    ("unknown-risk", "risk = \"low\"", "risk = \"none\"", "a risk that does not exist", "manifest_unknown_value"),
    ("other-format", "format = 1", "format = 2", "another form", "manifest_format"),
    ("no-format", "format = 1\n", "", "no form", "manifest_syntax"),
    ("no-toml", "[metadata]", "[metadata", "no TOML", "manifest_syntax"),
    ("missing-name", "name = \"Echo\"\n", "", "no name", "manifest_syntax"),
    ("id-traversal", "\"acme.echo\"", "\"acme.../echo\"", "an id that leads elsewhere", "manifest_name"),
    ("id-capitals", "\"acme.echo\"", "\"Acme.Echo\"", "an id with capital letters", "manifest_name"),
    ("id-alone", "\"acme.echo\"", "\"echo\"", "an id without a publisher", "manifest_name"),
    ("id-foreign", "\"acme.echo\"", "\"umbrella.echo\"", "an id of another publisher", "manifest_foreign_id"),
    ("version-short", "\"1.2.0\"", "\"1.2\"", "a version that is no SemVer", "manifest_name"),
    ("version-build", "\"1.2.0\"", "\"1.2.0+7\"", "a version with build metadata", "manifest_name"),
    ("module-outside", "modules/echo.wasm", "../echo.wasm", "a component elsewhere", "manifest_path"),
    ("root-traversal", "[\"data\"]", "[\"data/../..\"]", "a root that leads out", "manifest_path"),
    ("root-absolute", "[\"data\"]", "[\"/etc\"]", "an absolute root", "manifest_path"),
    ("root-wildcard", "[\"data\"]", "[\"*\"]", "a wildcard without a reason", "manifest_wildcard"),
    (
        "host-wildcard",
        "\"api.example.org\"",
        "\"*.example.org\"",
        "a host wildcard without a reason",
        "manifest_wildcard",
    ),
    ("host-everything", "\"api.example.org\"", "\"*\"", "every host", "manifest_value"),
    ("host-url", "\"api.example.org\"", "\"https://api.example.org\"", "a URL instead of a host", "manifest_value"),
    ("host-ambiguous", "\"api.example.org\"", "\"127.1:80\"", "an ambiguous address", "manifest_value"),
    ("secret-wildcard", "\"echo_token\"", "\"*\"", "a secret wildcard without a reason", "manifest_wildcard"),
    ("quota-zero", "fuel_budget = 1_000_000", "fuel_budget = 0", "no fuel", "manifest_value"),
    ("schema-array", "type = \"object\"", "type = \"array\"", "a schema that is not for objects", "manifest_schema"),
    (
        "schema-remote",
        "type = \"object\"",
        "type = \"object\"\n\"$ref\" = \"https://example.org/s\"",
        "a schema elsewhere",
        "manifest_schema",
    ),
    (
        "schema-backtracking",
        "type = \"object\"",
        "type = \"object\"\nproperties.x.pattern = '(a+)+\\1'",
        "a pattern that can stall",
        "manifest_schema",
    ),
];

pub(crate) fn vectors() -> Vec<Vector> {
    let opted_in = MANIFEST.replacen("[\"data\"]", "[\"*\"]", 1).replacen(
        "[compat]",
        "[[capabilities.wildcards]]\ncapability = \"filesystem.read_roots\"\npattern = \"*\"\nreason = \"Reads what it is told to.\"\n\n[compat]",
        1,
    );
    let tool =
        MANIFEST.split("[[entrypoints.tools]]").nth(1).and_then(|rest| rest.split("[capabilities").next()).unwrap();
    let twice = MANIFEST.replacen(
        "[capabilities.filesystem]",
        &format!("[[entrypoints.tools]]{tool}[capabilities.filesystem]"),
        1,
    );
    let mut all = vec![
        Vector::new("good", "a manifest", "ok", MANIFEST.as_bytes().to_vec()),
        Vector::new("good-wildcard", "a wildcard with a reason", "ok", opted_in.as_bytes().to_vec()),
        Vector::new("tool-twice", "two tools of one name", "manifest_duplicate", twice.into_bytes()),
        Vector::new("not-text", "no text", "manifest_not_text", vec![0xff, 0xfe]),
    ];
    for (name, from, to, shows, expect) in CHANGES {
        assert!(MANIFEST.contains(from), "{from}");
        all.push(Vector::new(name, shows, expect, MANIFEST.replacen(from, to, 1).into_bytes()));
    }
    all
}
