//! The session with the client: one whose device works on mapped memory, or, from the first memory on
//! that is shared without a descriptor, one by which all threads reach it by messages.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use farside_card::interface::by_messages::{INTERRUPT, INTERRUPTS_CAPABILITY, interrupt_to_bytes};
use farside_linux::lock::lock;
use farside_vfio_user::server::Device;
use farside_vfio_user::unix::{Connection, Session, SessionError, SharedSession, Wanted};
use farside_vfio_user::wire::Command;
use farside_vfio_user::{Capabilities, Errno};

use crate::serve::leased_function::LeasedFunction;

/// How long the client may take to answer for its memory. One that stands still ends its lease.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// What this side says in VERSION to what a client offers: a client that takes no descriptors may want
/// its interrupts as messages.
pub(super) fn agree(
    leased: Weak<LeasedFunction>,
) -> impl FnMut(&Capabilities) -> Result<Capabilities, Errno> + Send + 'static {
    move |theirs| {
        let mut ours = Capabilities::new();
        if let Some(wish) = theirs.get(INTERRUPTS_CAPABILITY).filter(|wish| **wish == true) {
            leased.upgrade().iter().for_each(|leased| leased.staging.wants_interrupts());
            ours.insert(INTERRUPTS_CAPABILITY.to_owned(), wish.clone());
        }
        Ok(ours)
    }
}

pub(super) enum Talk {
    Alone(Box<Session>),
    Shared(Arc<SharedSession<Connection>>),
    /// A session could not be shared; the lease ends.
    Over(io::Error),
}

impl Talk {
    pub(super) fn new(session: Session) -> Talk {
        Talk::Alone(Box::new(session))
    }

    /// Lets all threads reach the client by the session, if they cannot yet.
    pub(super) fn share(&mut self, leased: &Arc<LeasedFunction>) {
        if !matches!(self, Talk::Alone(_)) {
            return;
        }
        let gone = Talk::Over(io::Error::from(io::ErrorKind::BrokenPipe));
        let Talk::Alone(session) = std::mem::replace(self, gone) else { return };
        let wake = Arc::downgrade(leased);
        let wake = move || wake.upgrade().iter().for_each(|leased| leased.wake());
        match SharedSession::new(*session, ANSWER_LIMIT, wake) {
            Ok(shared) => {
                let shared = Arc::new(shared);
                if leased.staging.tells_interrupts() {
                    tell_interrupts(leased, &shared);
                }
                leased.staging.connect(Arc::clone(&shared) as Arc<_>);
                *self = Talk::Shared(shared);
            }
            Err(error) => *self = Talk::Over(error),
        }
    }

    pub(super) fn step(&mut self, device: &mut impl Device) -> Result<bool, SessionError> {
        match self {
            Talk::Alone(session) => session.step(device),
            Talk::Shared(shared) => shared.step(device),
            Talk::Over(error) => Err(SessionError::Io(io::Error::from(error.kind()))),
        }
    }

    pub(super) fn wanted(&self) -> io::Result<Wanted> {
        match self {
            Talk::Alone(session) => session.wanted(),
            Talk::Shared(shared) => shared.wanted(),
            Talk::Over(error) => Err(io::Error::from(error.kind())),
        }
    }

    /// Whether a version is agreed.
    pub(super) fn is_negotiated(&self) -> bool {
        let of = |session: &Session| session.server.negotiated().is_some();
        match self {
            Talk::Alone(session) => of(session),
            Talk::Shared(shared) => shared.with(|session| of(session)),
            Talk::Over(_) => false,
        }
    }

    /// Ends the connection.
    pub(super) fn shutdown(&self) {
        // It may have ended already.
        let _ = match self {
            Talk::Alone(session) => session.connection.shutdown(),
            Talk::Shared(shared) => shared.with(|session| session.connection.shutdown()),
            Talk::Over(_) => Ok(()),
        };
    }
}

/// Has interrupts without an event descriptor go to the client as messages. They come behind what the
/// function wrote before: that was answered.
fn tell_interrupts(leased: &Arc<LeasedFunction>, shared: &Arc<SharedSession<Connection>>) {
    let (weak, shared) = (Arc::downgrade(leased), Arc::clone(shared));
    lock(&leased.interrupts).otherwise(move |index, vector| {
        let told = shared.notify(Command(INTERRUPT), &interrupt_to_bytes(index, vector));
        if let (Err(error), Some(leased)) = (told, weak.upgrade()) {
            // One that is lost would leave a program asleep.
            tracing::warn!(%error, index, vector, "a client is not told of an interrupt");
            leased.end_lease("its client does not read what it is told");
        }
        Ok(())
    });
}
