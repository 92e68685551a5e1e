//! Devices that are not ready at once.

use std::os::unix::net::UnixListener;
use std::sync::Arc;

use super::here::refuse;
use super::hostile_device::serve;
use super::lender::{Lent, connect};
use crate::end::tally::Tally;

/// Its server may still be busy with the client before, have ended with it, or be started again.
#[test]
fn a_device_whose_former_client_has_just_gone_is_waited_for() {
    let folder = std::env::temp_dir().join(format!("fslt{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("device");
    let listener = UnixListener::bind(&socket).unwrap();
    let served = socket.clone();
    let server = std::thread::spawn(move || {
        refuse(listener.accept().unwrap().0);
        drop(listener.accept().unwrap());
        std::fs::remove_file(&served).unwrap();
        drop(listener);
        serve(&served)
    });
    let lent = Lent {
        name: "lease".to_owned(),
        epoch: 7,
        device: "nic0".to_owned(),
        socket,
        tally: Arc::new(Tally::unseen()),
    };
    connect(&lent, true).map(drop).unwrap();
    server.join().unwrap();
    // And that to be reset as well.
    connect(&lent, false).map(drop).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}
