//! The header is what the sources say. FARSIDE_WRITE_HEADER=1 writes it anew.

use std::path::Path;

/// Texts that cbindgen makes of names, which have other names in C.
fn generated() -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("a configuration");
    let bindings = cbindgen::Builder::new().with_crate(here).with_config(config).generate();
    let mut header = Vec::new();
    bindings.expect("cbindgen understands the sources").write(&mut header);
    let header = String::from_utf8(header).expect("sources are UTF-8");
    // What is unsafe about a call is said once, in the rules of the header.
    let lines: Vec<_> = header.lines().map(str::trim_end).collect();
    let mut kept = Vec::new();
    let mut in_safety = false;
    for line in lines {
        in_safety = (in_safety || line == "// # Safety") && line.trim_start().starts_with("//");
        if !in_safety {
            kept.push(line);
        }
    }
    while let Some(at) = kept.windows(2).position(|two| two[0] == "//" && !two[1].starts_with("//"))
    {
        kept.remove(at);
    }
    kept.join("\n") + "\n"
}

#[test]
fn the_header_is_what_the_sources_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/farside.h");
    let generated = generated();
    if std::env::var_os("FARSIDE_WRITE_HEADER").is_some() {
        std::fs::write(&path, &generated).expect("the header can be written");
    }
    let stored = std::fs::read_to_string(&path).expect("include/farside.h is there");
    assert!(
        stored == generated,
        "include/farside.h is not what crates/c says; write it anew:\n\
         FARSIDE_WRITE_HEADER=1 cargo test -p farside-c --test header"
    );
}
