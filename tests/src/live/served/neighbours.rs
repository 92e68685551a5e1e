//! Hosts that reach each other: who is admitted at the end of one is led there from that of another.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_live::far::{Come, Line, PeerAdmission, PeerPlace, PeerWay, PeerWays};
use farside_vfio_user::unix::Plain;

/// See the module.
#[derive(Default)]
pub struct Neighbourhood {
    /// By number.
    admitted: Mutex<HashMap<u64, Guest>>,
    /// Direct links that were made and not cut.
    made: Mutex<Vec<UnixStream>>,
    count: AtomicU64,
    is_apart: AtomicBool,
}

/// Who may come.
#[derive(Clone)]
struct Guest {
    certificate: Vec<u8>,
    come: Arc<Come>,
}

impl std::fmt::Debug for Neighbourhood {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Neighbourhood").field("made", &self.made()).finish_non_exhaustive()
    }
}

impl Neighbourhood {
    /// Direct links that were made.
    pub fn made(&self) -> u64 {
        self.count.load(SeqCst)
    }

    /// Cuts all direct links.
    pub fn cut(&self) {
        for link in held(&self.made).drain(..) {
            let _ = link.shutdown(std::net::Shutdown::Both);
        }
    }

    /// No host reaches another any more, or all do again.
    pub fn set_apart(&self, is_apart: bool) {
        self.is_apart.store(is_apart, SeqCst);
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the ends of one host go by.
pub(super) struct Ways {
    neighbours: Arc<Neighbourhood>,
    own: PeerPlace,
}

impl Ways {
    pub(super) fn new(neighbours: &Arc<Neighbourhood>, own: &PeerPlace) -> Ways {
        Ways { neighbours: Arc::clone(neighbours), own: own.clone() }
    }
}

impl PeerWays for Ways {
    fn reach(&self, way: &PeerWay) -> io::Result<Line> {
        if self.neighbours.is_apart.load(SeqCst) {
            return Err(io::ErrorKind::HostUnreachable.into());
        }
        let known = held(&self.neighbours.admitted).get(&way.session).cloned();
        let known = known.filter(|guest| guest.certificate == self.own.certificate);
        let Guest { come, .. } = known.ok_or(io::ErrorKind::ConnectionRefused)?;
        let (near, far) = UnixStream::pair()?;
        held(&self.neighbours.made).push(near.try_clone()?);
        self.neighbours.count.fetch_add(1, SeqCst);
        let far = Line::new(Box::new(Plain::new(far)))?;
        std::thread::spawn(move || come(far));
        Line::new(Box::new(Plain::new(near)))
    }

    fn admit(&self, admission: PeerAdmission, come: Come) -> Box<dyn Send> {
        let PeerAdmission { session, certificate } = admission;
        held(&self.neighbours.admitted)
            .insert(session, Guest { certificate, come: Arc::new(come) });
        Box::new(Admitted(Arc::clone(&self.neighbours), session))
    }
}

struct Admitted(Arc<Neighbourhood>, u64);

impl Drop for Admitted {
    fn drop(&mut self) {
        held(&self.0.admitted).remove(&self.1);
    }
}
