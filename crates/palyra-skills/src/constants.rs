//! The fixed names and limits of the artifact format. `docs/formats/skill.md` is written from the same figures.

/// What an artifact's file name ends in.
pub const ARTIFACT_EXTENSION: &str = "palyra-skill";
/// The manifest.
pub const MANIFEST_ENTRY: &str = "skill.toml";
/// The signature over every other entry.
pub const SIGNATURE_ENTRY: &str = "signature.json";
/// The bill of materials.
pub const SBOM_ENTRY: &str = "sbom.cdx.json";
/// How the artifact was built.
pub const PROVENANCE_ENTRY: &str = "provenance.json";
/// The instructions of an imported Agent Skills folder.
pub const INSTRUCTIONS_ENTRY: &str = "SKILL.md";
/// The tool by which a model reads them, which every skill of that kind has.
pub const INSTRUCTIONS_TOOL: &str = "instructions";
/// The most files of an Agent Skills folder.
pub const MAX_INSTRUCTIONS_FILES: usize = 250;
/// Where components are.
pub const MODULES_FOLDER: &str = "modules/";
/// Where static files are.
pub const ASSETS_FOLDER: &str = "assets/";
/// Where the scripts of an Agent Skills folder are.
pub const SCRIPTS_FOLDER: &str = "scripts/";

/// The form of every document in an artifact that this version reads and writes.
pub const FORMAT: u32 = 1;
/// The package of the WIT world that a component implements.
pub const WORLD_PACKAGE: &str = "palyra:skill";
/// The major version of that package, which a manifest's `required_protocol_major` is compared with.
pub const PROTOCOL_MAJOR: u32 = 1;

/// The largest manifest.
pub const MAX_MANIFEST_BYTES: usize = 256 << 10;
/// The largest signature document.
pub const MAX_SIGNATURE_BYTES: usize = 4 << 10;
/// The largest bill of materials.
pub const MAX_SBOM_BYTES: usize = 8 << 20;
/// The largest provenance.
pub const MAX_PROVENANCE_BYTES: usize = 1 << 20;
/// The most tools of one skill.
pub const MAX_TOOLS: usize = 64;
/// The most components of one skill.
pub const MAX_MODULES: usize = 16;
