//! Generates the wire types and services from `proto/`, without needing protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = "../../proto";
    println!("cargo:rerun-if-changed={root}");
    let descriptors = protox::compile(["palyra/v1/palyra.proto"], [root])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
