//! Writes the Rust of the protocols of the lending daemons from their descriptions. The result is checked
//! in, so that whoever builds Farside needs no compiler of protocols.

use std::path::Path;

use sha2::{Digest, Sha256};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const PACKAGE: &str = "farside.lend.v1";

/// What commands print as JSON.
const PRINTED: &[&str] = &[
    "Peer", "Device", "Held", "HostDevices", "StatusReply", "UpReply", "InviteReply",
    "JoinPeersReply", "AvailableReply", "RulesReply", "Rule", "Traffic", "RefusedAccesses",
];
const SERIALIZED: &str = "#[derive(serde::Serialize)]";

fn main() -> Outcome {
    let mut between_daemons = tonic_prost_build::configure();
    for printed in PRINTED {
        between_daemons = between_daemons.type_attribute(format!(".{PACKAGE}.{printed}"), SERIALIZED);
    }
    let state = "#[serde(serialize_with = \"crate::words::state\")]";
    let between_daemons = between_daemons.field_attribute(format!(".{PACKAGE}.Device.state"), state);
    write("farside/lend/v1/lend.proto", "farside.lend.v1.rs", between_daemons)?;
    // Only tests serve it.
    let etcd = tonic_prost_build::configure().server_mod_attribute(".", "#[cfg(test)]");
    write("etcdserverpb/rpc.proto", "etcdserverpb.rs", etcd)
}

fn write(proto: &str, code: &str, build: tonic_prost_build::Builder) -> Outcome {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (protos, out) = (crate_folder.join("proto"), crate_folder.join("src/generated"));
    let described = protox::compile([proto], [&protos])?;
    std::fs::create_dir_all(&out)?;
    build.out_dir(&out).compile_fds(described)?;
    let written = out.join(code);
    let code = std::fs::read_to_string(&written)?;
    // A test compares this line with the description.
    let digest: String =
        Sha256::digest(std::fs::read(protos.join(proto))?).iter().map(|b| format!("{b:02x}")).collect();
    let file = Path::new(proto).file_name().unwrap_or_default().to_string_lossy();
    std::fs::write(&written, format!("// of {file} {digest}\n{code}"))?;
    println!("{} written", written.display());
    Ok(())
}
