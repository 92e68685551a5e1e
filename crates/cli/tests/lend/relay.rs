//! A way between two hosts that can be cut.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use farside_linux::lock::lock;

/// Passes connections on to a host, and breaks them when it is told.
pub(super) struct Relay {
    pub(super) address: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    pub(super) fn to(host: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let open = Arc::new(Mutex::new(Vec::new()));
        let known = Arc::clone(&open);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(host) else { continue };
                let _ = (near.set_nodelay(true), far.set_nodelay(true));
                let clone = |stream: &TcpStream| stream.try_clone().unwrap();
                lock(&known).extend([clone(&near), clone(&far)]);
                for (mut from, mut to) in [(clone(&near), clone(&far)), (far, near)] {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Relay { address, open }
    }

    /// Cuts every connection there is; gives how many sockets that were.
    pub(super) fn cut(&self) -> usize {
        let open = std::mem::take(&mut *lock(&self.open));
        open.iter().filter(|stream| stream.shutdown(std::net::Shutdown::Both).is_ok()).count()
    }
}
