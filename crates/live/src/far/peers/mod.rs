//! Direct links between the ends of two lenders, by which pages go from card to card and not through the
//! borrower, who says who may come (`PeerAdmit`), where to go (`PeerReach`), and for each piece what may be read
//! at the one end (`PeerLend`) and into what it goes at the other (`PeerFetch`). No byte beyond that is read or
//! written, whatever the two lenders do.
//!
//! Whoever has the key of an end's lease makes the connections ([`PeerWays`]). A direct link that breaks is not
//! mended: the borrower is told, and brings the pages another way.

mod fetch;
mod lent;
mod source;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use farside_link::{Config, Frame, Lease, Tag};
use farside_linux::shared::SharedMemory;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::line::Line;
use super::shadow::Refusal;
use fetch::{Answers, Fetching};
use lent::Piece;
use source::Lending;

/// Other ends at a time of each kind, at most: as many as a space has cards.
const PEERS_MAX: usize = farside_types::MAX_CARDS;

/// Who may come to an end, and read what it is lent: the data of `PeerAdmit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerAdmission {
    /// The number that it says.
    pub session: u64,
    /// The certificate that it shows, DER.
    pub certificate: Vec<u8>,
}

/// A lender's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerPlace {
    /// The lender's host, by its name.
    pub host: String,
    /// The lease that it is the end of.
    pub device: String,
    /// Of that lease.
    pub epoch: u64,
    /// The certificate that it shows, DER.
    pub certificate: Vec<u8>,
}

/// How another lender's end is reached: the data of `PeerReach`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerWay {
    /// The number to say there.
    pub session: u64,
    /// Which end it is.
    pub place: PeerPlace,
}

/// Whoever has the key of an end's lease.
pub trait PeerWays: Send + Sync {
    /// Connects to another lender's end. It may take seconds.
    ///
    /// # Errors
    /// It is not there, is not who it has to be, or is a host that this one does not go to.
    fn reach(&self, way: &PeerWay) -> io::Result<Line>;

    /// Gives whoever shows that certificate and says that number to `come`, until what this returns is dropped.
    fn admit(&self, admission: PeerAdmission, come: Come) -> Box<dyn Send>;
}

/// Takes the connection of another lender's end, in a thread that it may keep.
pub type Come = Box<dyn Fn(Line) + Send + Sync>;

/// See the module: all the direct links of one program at one end.
pub(super) struct Peers {
    ways: Arc<dyn PeerWays>,
    /// What the direct links that come have to agree on: this end's lease.
    lease: Lease,
    memory: Arc<SharedMemory>,
    /// Who may come, and what they are lent.
    lending: HashMap<u32, (Arc<Lending>, Box<dyn Send>)>,
    /// Who was gone to.
    fetching: HashMap<u32, Arc<Fetching>>,
    answered: Arc<OwnedFd>,
    /// Answers about ends that others have taken the place of.
    late: Answers,
}

impl Peers {
    pub(super) fn new(
        ways: Arc<dyn PeerWays>,
        lease: Lease,
        memory: Arc<SharedMemory>,
    ) -> io::Result<Peers> {
        let answered = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Peers {
            ways,
            lease,
            memory,
            lending: HashMap::new(),
            fetching: HashMap::new(),
            answered: Arc::new(answered),
            late: Answers::new(),
        })
    }

    /// Becomes readable when there is something for the borrower.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.answered.as_fd()
    }

    /// What the borrower has posted; `false`: it is about something else.
    pub(super) fn posted(&mut self, frame: &Frame<&[u8]>) -> Result<bool, Refusal> {
        match *frame {
            Frame::PeerAdmit { peer, data } => self.admit(peer, data)?,
            Frame::PeerReach { peer, data } => self.reach(peer, data)?,
            Frame::PeerLend { peer, transfer, offset, bytes } => {
                let piece = self.piece(offset, bytes)?;
                let (lending, _) = self.lending.get(&peer).ok_or(Refusal::Order)?;
                lending.change(|lent| lent.lend(transfer, piece))?;
            }
            Frame::PeerEnd { peer, transfer } => {
                if let Some((lending, _)) = self.lending.get(&peer) {
                    lending.change(|lent| lent.end(transfer));
                }
                if let Some(fetching) = self.fetching.get(&peer) {
                    fetching.end(transfer);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What the borrower asks; `false`: it is about something else.
    pub(super) fn request(&self, tag: Tag, frame: &Frame<&[u8]>) -> Result<bool, Refusal> {
        let fetching = |peer| self.fetching.get(&peer).ok_or(Refusal::Order);
        match *frame {
            Frame::PeerReady { peer } => fetching(peer)?.is_ready(tag),
            Frame::PeerFetch { peer, transfer, offset, bytes } => {
                let into = self.piece(offset, bytes)?;
                fetching(peer)?.fetch(tag, transfer, into);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Answers to what the borrower has asked.
    pub(super) fn answers(&mut self) -> impl Iterator<Item = (Tag, Frame<Vec<u8>>)> {
        // It does not block.
        let _ = rustix::io::read(&*self.answered, &mut [0; 8]);
        let answers = self.fetching.values().flat_map(|fetching| fetching.take_answers());
        self.late.drain(..).chain(answers).map(|(tag, result)| {
            let failed = |errno: Errno| Frame::Failed { errno: errno.raw_os_error() as u32 };
            (tag, result.map_or_else(failed, |()| Frame::Done))
        })
    }

    /// Bytes that other ends have read here, and that were read from them.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let lent = self.lending.values().map(|(lending, _)| lending.bytes_read());
        (lent.sum(), self.fetching.values().map(|fetching| fetching.bytes()).sum())
    }

    fn piece(&self, offset: u64, bytes: u32) -> Result<Piece, Refusal> {
        let end = offset.checked_add(bytes.into()).filter(|&end| end <= self.memory.bytes());
        end.filter(|_| bytes > 0).map(|_| Piece { offset, bytes }).ok_or(Refusal::Memory)
    }

    /// Another end may come.
    fn admit(&mut self, peer: u32, data: &[u8]) -> Result<(), Refusal> {
        let admission: PeerAdmission =
            serde_json::from_slice(data).map_err(|_| Refusal::Malformed)?;
        self.forget_lending(peer);
        if self.lending.len() >= PEERS_MAX {
            return Err(Refusal::Order);
        }
        let lending = Arc::new(Lending::new().map_err(|_| Refusal::Order)?);
        let (shared, memory) = (Arc::clone(&lending), Arc::clone(&self.memory));
        let config = Config::new(self.lease.clone()).straight();
        let come = move |line| {
            source::serve(config.clone(), line, Arc::clone(&shared), Arc::clone(&memory));
        };
        let admitted = self.ways.admit(admission, Box::new(come));
        self.lending.insert(peer, (lending, admitted));
        Ok(())
    }

    /// Another end is to be gone to, in a thread of its own.
    fn reach(&mut self, peer: u32, data: &[u8]) -> Result<(), Refusal> {
        let way: PeerWay = serde_json::from_slice(data).map_err(|_| Refusal::Malformed)?;
        if let Some(before) = self.fetching.remove(&peer) {
            before.is_down(Errno::CANCELED);
            self.late.extend(before.take_answers());
        }
        if self.fetching.len() >= PEERS_MAX {
            return Err(Refusal::Order);
        }
        let fetching =
            Arc::new(Fetching::new(Arc::clone(&self.answered)).map_err(|_| Refusal::Order)?);
        self.fetching.insert(peer, Arc::clone(&fetching));
        let (ways, memory) = (Arc::clone(&self.ways), Arc::clone(&self.memory));
        let run = move || {
            let lease = Lease { device: way.place.device.clone(), epoch: way.place.epoch };
            let config = Config::new(lease).straight();
            fetch::run(config, way.session, || ways.reach(&way), &fetching, memory);
        };
        let builder = std::thread::Builder::new().name("farside-fetch".into());
        builder.spawn(run).map(drop).map_err(|_| Refusal::Order)
    }

    fn forget_lending(&mut self, peer: u32) {
        if let Some((lending, admitted)) = self.lending.remove(&peer) {
            // First nobody comes any more, then nobody is there.
            drop(admitted);
            lending.change(|lent| lent.end_all());
        }
    }
}

impl Drop for Peers {
    /// When this returns nobody reads or writes the card's memory by a direct link.
    fn drop(&mut self) {
        let peers: Vec<u32> = self.lending.keys().copied().collect();
        peers.into_iter().for_each(|peer| self.forget_lending(peer));
        self.fetching.values().for_each(|fetching| fetching.is_down(Errno::CANCELED));
    }
}
