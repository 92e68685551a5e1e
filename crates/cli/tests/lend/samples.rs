//! Devices as others have published them, borrowed as they are: `scripts/lend/samples.sh` builds them.

use std::sync::Arc;

use farside_vfio_user::IrqAction;
use farside_vfio_user::device::{irq, region};

use super::foreign::{await_event, borrowed_by, connect, event, read};
use super::*;

/// A sample's program, if it was built.
fn sample(name: &str) -> Option<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/samples/bin");
    let program = PathBuf::from(folder).join(name);
    if !program.exists() {
        eprintln!("NOT RUN: {name} is not there; scripts/lend/samples.sh builds it");
        return None;
    }
    Some(program)
}

/// A device that ends with its client, and whoever starts it again.
struct Served(Child);

impl Served {
    fn start(program: &std::path::Path, socket: &std::path::Path) -> Served {
        let again = "trap 'kill $!; exit' TERM; while :; do rm -f \"$1\"; \"$0\" --socket-path \"$1\" & wait $!; done";
        let mut command = Command::new("sh");
        command.args(["-c", again]).arg(program).arg(socket).stdin(Stdio::null());
        Served(
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("there is a shell"),
        )
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// A lends a sample, B borrows it, then A itself.
fn each_borrower(program: &str, use_it: impl Fn(&Held)) {
    let Some(program) = sample(program) else { return };
    let folder = Folder::new();
    let socket = folder.0.join("nic.sock");
    let _served = Served::start(&program, &socket);
    await_that(LIMIT, "it is served", || socket.exists());
    let [a, b] = ["a", "b"].map(|name| Host::new(&folder, name));
    let (address, _) = a.up(&format!("nic0={}", socket.display()), "10");
    b.join(&a, &address, "b");
    a.await_state("free", LIMIT);
    for host in [&b, &a] {
        let borrowed = borrowed_by(host);
        use_it(&borrowed);
        drop(borrowed);
        a.await_state("free", LIMIT);
    }
}

/// The sample of the crate `vfio_user`: a PCI-IDIO-16, which raises its pin at every third read.
#[test]
fn the_sample_of_the_published_crate_is_borrowed() {
    each_borrower("gpio", |borrowed| {
        let mut client = connect(borrowed);
        assert_eq!(read(&mut client, region::CONFIG, 0).unwrap(), 0x0dc8_494f);
        let pin = event();
        client.irqs_assign(irq::INTX, 0, &[Arc::clone(&pin)], IrqAction::Trigger).unwrap();
        let mut values = Vec::new();
        for _ in 0..9 {
            let mut byte = [0];
            client.region_read(region::BAR2, 0, &mut byte).unwrap();
            values.push(byte[0]);
            let limit = if byte[0] == 1 { LIMIT } else { Duration::ZERO };
            assert_eq!(await_event(&pin, limit), u64::from(byte[0]), "{values:?}");
        }
        assert_eq!(values, [0, 0, 1, 0, 0, 1, 0, 0, 1]);
    });
}
