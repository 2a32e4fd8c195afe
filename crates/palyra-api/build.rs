//! Generates the wire types and services from `proto/`, without needing protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = "../../proto";
    println!("cargo:rerun-if-changed={root}");
    let rooms = ["palyra", "effects", "vault", "devices", "memory", "routines", "runs", "console", "skills"];
    let files = rooms.map(|name| format!("palyra/v1/{name}.proto"));
    let descriptors = protox::compile(files, [root])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
