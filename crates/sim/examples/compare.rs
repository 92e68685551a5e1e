//! Replays recorded traces under several placement schemes and prints them side by side.
//!
//! ```text
//! cargo run --release -p farside-sim --example compare -- mm.timing.bin.zst st.timing.bin.zst
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use farside_sim::{SimError, Spec, Trace, compare};

const SCHEMES: [&str; 3] = ["on-touch", "access-counter", "duplication"];

fn main() -> Result<(), SimError> {
    let spec = Spec::preset("grit-table-1")?;
    let mut paths = std::env::args().skip(1).peekable();
    if paths.peek().is_none() {
        eprintln!("usage: compare NAME.bin.zst ...   (NAME.json lies beside each)");
        std::process::exit(2);
    }
    for path in paths {
        let trace = Arc::new(Trace::open(Path::new(&path))?);
        let started = Instant::now();
        let comparison = compare(&spec, &trace, &SCHEMES, |scheme, progress| {
            let percent = 100 * progress.retired / progress.total.max(1);
            eprint!("\r{path} {scheme}: {percent} %   ");
        })?;
        let accesses = trace.accesses() as f64 * SCHEMES.len() as f64;
        let rate = accesses / started.elapsed().as_secs_f64() / 1e6;
        eprintln!("\r{path}: {rate:.2} million accesses a second");
        println!("{comparison}");
    }
    Ok(())
}
