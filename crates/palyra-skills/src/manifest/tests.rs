//! Manifests that are accepted, and many more that are not.

use super::*;

/// A manifest with something in each section.
const WEATHER: &str = r#"
format = 1

[metadata]
skill_id = "acme.weather"
version = "1.2.0"
publisher = "acme"
name = "Weather"
description = "Forecasts."

[entrypoints]
module = "modules/weather.wasm"

[[entrypoints.tools]]
id = "forecast"
description = "Tells the weather of a city."
risk = "high"
[entrypoints.tools.input_schema]
type = "object"
required = ["city"]
properties.city = { type = "string", maxLength = 80 }
[entrypoints.tools.output_schema]
type = "object"

[capabilities.filesystem]
read_roots = ["data", "*"]
write_roots = ["out/weather"]

[capabilities.http]
egress = ["api.example.org", "*.cdn.example.org"]

[[capabilities.secrets]]
scope = "global"
key = "weather_token"

[capabilities.storage]
max_bytes = 65536

[capabilities.quotas]
fuel_budget = 1_000_000
max_memory_bytes = 67108864
wall_clock_ms = 5000

[[capabilities.wildcards]]
capability = "filesystem.read_roots"
pattern = "*"
reason = "Reads whatever table the caller names."

[[capabilities.wildcards]]
capability = "http.egress"
pattern = "*.cdn.example.org"
reason = "One host per region."

[compat]
required_protocol_major = 1
min_palyra_version = "0.1.0"
"#;

fn refused(from: &str, to: &str) -> ManifestError {
    assert!(WEATHER.contains(from), "{from}");
    Manifest::parse(WEATHER.replacen(from, to, 1).as_bytes()).unwrap_err()
}

#[test]
fn a_whole_manifest_is_read() {
    let manifest = Manifest::parse(WEATHER.as_bytes()).unwrap();
    assert_eq!(manifest.kind, SkillKind::Component);
    assert_eq!(manifest.metadata.skill_id.as_str(), "acme.weather");
    let tool = &manifest.tools[0];
    assert_eq!(tool.code, ToolCode::Module("modules/weather.wasm".to_owned()));
    assert_eq!(tool.input_schema["properties"]["city"]["maxLength"], 80);
    assert_eq!(manifest.capabilities.quotas.wall_clock_ms, 5000);
    assert_eq!(manifest.capabilities.egress[1].to_string(), "*.cdn.example.org");
    assert_eq!(manifest.tool_capabilities().len(), 3);
    assert_eq!(manifest.risk_of(tool), RiskLevel::Critical, "it uses a secret, whatever it says");
}

#[test]
fn unknown_words_are_refused_with_place_and_suggestion() {
    let error = refused("version = \"1.2.0\"", "verison = \"1.2.0\"");
    assert_eq!(error.to_string(), "skill.toml, line 6, column 1: there is no key `verison`; did you mean `version`?");
    let error = refused("risk = \"high\"", "risk = \"hihg\"");
    assert_eq!(error.to_string(), "skill.toml, line 17, column 8: there is no value `hihg`; did you mean `high`?");
    assert_eq!(refused("[capabilities.http]", "[capabilities.htp]").code(), "manifest_unknown_key");
    assert_eq!(refused("filesystem.read_roots", "filesystem.read").code(), "manifest_unknown_value");
}

#[test]
fn every_wildcard_is_opted_in() {
    let error = refused("\"data\", \"*\"", "\"data\", \"*\"]\nwrite_roots = [\"*\"");
    assert_eq!(error.code(), "manifest_syntax", "the key stands twice");
    let error = refused("\"out/weather\"", "\"*\"");
    assert_eq!((error.code(), error.position.line), ("manifest_wildcard", 27));
    assert_eq!(refused("\"api.example.org\"", "\"api.example.org:*\"").code(), "manifest_wildcard");
    assert_eq!(refused("key = \"weather_token\"", "key = \"*\"").code(), "manifest_wildcard");
    assert_eq!(refused("pattern = \"*\"\n", "pattern = \"data\"\n").code(), "manifest_value");
    assert_eq!(refused("\"Reads whatever table the caller names.\"", "\" \"").code(), "manifest_value");
}

#[test]
fn a_skill_belongs_to_its_publisher() {
    assert_eq!(refused("skill_id = \"acme.weather\"", "skill_id = \"other.weather\"").code(), "manifest_foreign_id");
    assert_eq!(refused("skill_id = \"acme.weather\"", "skill_id = \"acme.../x\"").code(), "manifest_name");
    assert_eq!(refused("publisher = \"acme\"", "publisher = \"../acme\"").code(), "manifest_name");
}

#[test]
fn values_are_refused_by_kind_and_place() {
    for (from, to, code) in [
        ("format = 1", "format = 2", "manifest_format"),
        ("format = 1", "", "manifest_syntax"),
        ("format = 1", "format = \"1\"", "manifest_syntax"),
        ("version = \"1.2.0\"", "version = \"1.2\"", "manifest_name"),
        ("name = \"Weather\"", "name = \"\"", "manifest_value"),
        ("name = \"Weather\"", "name = \"We\\u202eather\"", "manifest_value"),
        ("id = \"forecast\"", "id = \"fore.cast\"", "manifest_name"),
        ("modules/weather.wasm", "modules/../weather.wasm", "manifest_path"),
        ("modules/weather.wasm", "weather.wasm", "manifest_path"),
        ("\"data\"", "\"../data\"", "manifest_path"),
        ("\"data\"", "\"/etc\"", "manifest_path"),
        ("\"data\"", "\"~/x\"", "manifest_path"),
        ("\"data\"", "\"a/*\"", "manifest_path"),
        ("\"data\"", "\".\"", "manifest_path"),
        ("\"data\"", "\"data\", \"data\"", "manifest_duplicate"),
        ("\"api.example.org\"", "\"*\"", "manifest_value"),
        ("\"api.example.org\"", "\"https://api.example.org\"", "manifest_value"),
        ("scope = \"global\"", "scope = \"../global\"", "manifest_value"),
        ("fuel_budget = 1_000_000", "fuel_budget = 0", "manifest_value"),
        ("fuel_budget = 1_000_000", "fuel_budget = -1", "manifest_syntax"),
        ("wall_clock_ms = 5000", "wall_clock_ms = 9223372036854775807", "manifest_value"),
        ("required_protocol_major = 1", "required_protocol_major = 0", "manifest_value"),
        ("min_palyra_version = \"0.1.0\"", "min_palyra_version = \"new\"", "manifest_name"),
        (
            "[entrypoints.tools.output_schema]\ntype = \"object\"",
            "[entrypoints.tools.output_schema]",
            "manifest_schema",
        ),
        ("type = \"object\"\nrequired", "type = \"array\"\nrequired", "manifest_schema"),
        ("maxLength = 80", "maxLength = \"80\"", "manifest_schema"),
        ("maxLength = 80", "pattern = \"(a+)+\\\\1\"", "manifest_schema"),
        ("maxLength = 80", "\"$ref\" = \"http://example.org/schema\"", "manifest_schema"),
        ("maxLength = 80", "default = 1979-05-27", "manifest_schema"),
        ("maxLength = 80", "default = nan", "manifest_schema"),
    ] {
        let error = refused(from, to);
        assert_eq!(error.code(), code, "{to}: {error}");
    }
}

#[test]
fn schemas_may_be_json_texts() {
    let as_text = WEATHER.replacen(
        "[entrypoints.tools.output_schema]\ntype = \"object\"",
        "[entrypoints.tools.output_schema]\ntype = \"object\"\nproperties.x = { enum = [1] }",
        1,
    );
    assert!(Manifest::parse(as_text.as_bytes()).is_ok());
    let text = r#"output_schema = '{"type":"object","properties":{"x":{"enum":[null]}}}'
risk = "high""#;
    let as_json = WEATHER.replacen("risk = \"high\"", text, 1).replacen(
        "[entrypoints.tools.output_schema]\ntype = \"object\"",
        "",
        1,
    );
    let manifest = Manifest::parse(as_json.as_bytes()).unwrap();
    assert_eq!(manifest.tools[0].output_schema["properties"]["x"]["enum"][0], serde_json::Value::Null);
    let twice = as_json.replace("\"type\":\"object\",", "\"type\":\"object\",\"type\":\"object\",");
    assert_eq!(Manifest::parse(twice.as_bytes()).unwrap_err().code(), "manifest_schema");
}

#[test]
fn instructions_name_scripts_and_no_modules() {
    let text = r#"
format = 1
kind = "instructions"
[metadata]
skill_id = "acme.pdf"
version = "1.0.0"
publisher = "acme"
name = "PDF"
[[entrypoints.tools]]
id = "fill"
description = "Fills a form."
risk = "high"
script = "scripts/fill.py"
interpreter = ["python3"]
input_schema = { type = "object" }
output_schema = { type = "object" }
[compat]
required_protocol_major = 1
min_palyra_version = "0.1.0"
"#;
    let manifest = Manifest::parse(text.as_bytes()).unwrap();
    assert!(manifest.tool_capabilities().contains(&ToolCapability::ProcessExec));
    for (from, to, code) in [
        ("scripts/fill.py", "fill.py", "manifest_path"),
        ("scripts/fill.py", "scripts/../fill.py", "manifest_path"),
        ("[\"python3\"]", "[]", "manifest_value"),
        ("[\"python3\"]", "[\"/usr/bin/python3\"]", "manifest_value"),
        ("[\"python3\"]", "[\"sh\", \"-c\", \"rm -rf x\"]", "manifest_value"),
        ("script = \"scripts/fill.py\"", "module = \"modules/a.wasm\"", "manifest_value"),
        ("kind = \"instructions\"", "kind = \"component\"", "manifest_value"),
        ("kind = \"instructions\"", "kind = \"plugin\"", "manifest_unknown_value"),
    ] {
        let error = Manifest::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err();
        assert_eq!(error.code(), code, "{to}: {error}");
    }
}

#[test]
fn what_is_no_text_or_too_much_is_refused() {
    assert_eq!(Manifest::parse(&[0xff]).unwrap_err().code(), "manifest_not_text");
    assert_eq!(Manifest::parse(&vec![b'#'; MAX_MANIFEST_BYTES + 1]).unwrap_err().code(), "manifest_too_large");
    let deep = format!("x = {}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(Manifest::parse(deep.as_bytes()).unwrap_err().code(), "manifest_syntax");
}
