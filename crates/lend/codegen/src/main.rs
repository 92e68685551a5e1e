//! Writes the Rust of the protocol between daemons from its description. The result is checked in, so
//! that whoever builds Farside needs no compiler of protocols.

use std::path::Path;

use sha2::{Digest, Sha256};

const PROTO: &str = "farside/lend/v1/lend.proto";
const PACKAGE: &str = "farside.lend.v1";

/// What commands print as JSON.
const PRINTED: &[&str] = &[
    "Peer", "Device", "Held", "HostDevices", "StatusReply", "UpReply", "InviteReply",
    "JoinPeersReply", "AvailableReply", "RulesReply", "Rule",
];
const SERIALIZED: &str = "#[derive(serde::Serialize)]";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (proto, out) = (crate_folder.join("proto"), crate_folder.join("src/generated"));
    let described = protox::compile([PROTO], [&proto])?;
    std::fs::create_dir_all(&out)?;
    let mut build = tonic_prost_build::configure().out_dir(&out);
    for printed in PRINTED {
        build = build.type_attribute(format!(".{PACKAGE}.{printed}"), SERIALIZED);
    }
    let state = "#[serde(serialize_with = \"crate::words::state\")]";
    build = build.field_attribute(format!(".{PACKAGE}.Device.state"), state);
    build.compile_fds(described)?;
    let written = out.join("farside.lend.v1.rs");
    let code = std::fs::read_to_string(&written)?;
    // A test compares this line with the description.
    let digest: String =
        Sha256::digest(std::fs::read(proto.join(PROTO))?).iter().map(|b| format!("{b:02x}")).collect();
    std::fs::write(&written, format!("// of lend.proto {digest}\n{code}"))?;
    println!("{} written", written.display());
    Ok(())
}
