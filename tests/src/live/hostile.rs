//! A card that lies: a real one behind a relay that changes what it says.
//!
//! The relay passes the messages of a program and its card on, whole, with their descriptors. What it
//! is told to lie about it changes on the way: replies, descriptors, silence. It keeps what the
//! program shares with its card, so it can also write into the rings, and signal, whatever it likes.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside::CardPlace;
use farside_card::interface::{ENTRY_BYTES, Entry, RingHeader, RingKind, pci, register};
use farside_linux::shared::SharedMemory;
use farside_vfio_user::wire::{Command, HEADER_SIZE, Header};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Descriptors of one message, at most.
const FDS_MAX: usize = 16;

/// One message with what belongs to it.
#[derive(Debug)]
pub struct Message {
    /// Its header, of which the size is set when it is sent.
    pub header: Header,
    /// What follows the header.
    pub payload: Vec<u8>,
    /// The descriptors that come with it.
    pub fds: Vec<OwnedFd>,
}

/// An answer of the card, before the program gets it.
#[derive(Debug)]
pub struct Answer<'a> {
    /// What the program asked: the payload of its command.
    pub question: &'a [u8],
    /// What the card says.
    pub message: &'a mut Message,
}

impl Answer<'_> {
    /// Whether it answers this command.
    pub fn is_to(&self, command: Command) -> bool {
        self.message.header.command == command
    }

    /// Whether it is the value of a register.
    pub fn is_register(&self, offset: u64) -> bool {
        self.is_to(Command::REGION_READ)
            && word(self.question, 0) == offset
            && half(self.question, 8) == pci::BAR_REGISTERS as u32
    }

    /// Whether it is about a region.
    pub fn is_region(&self, command: Command, region: usize) -> bool {
        self.is_to(command) && half(self.question, 8) == region as u32
    }

    /// Replaces bytes of what it says.
    pub fn patch(&mut self, at: usize, bytes: &[u8]) {
        self.message.payload[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is passed on.
    Pass,
    /// It never comes, nor does anything after it.
    Silence,
    /// So many of its bytes come, and then nothing ever.
    Half(usize),
    /// One of its bytes comes every so often.
    Drip(Duration),
    /// It comes after so long.
    Late(Duration),
    /// It comes behind requests of the card's own, of which there is no end.
    Flood,
    /// It comes with another size in its header.
    Sized(u32),
    /// The connection ends.
    End,
}

/// Changes answers.
pub type Lie = Box<dyn FnMut(&mut Answer<'_>) -> Fate + Send>;

/// Writes into rings, from the time when the card is told to start, until [`Rings::is_over`].
pub type Scribble = Box<dyn FnOnce(&Rings) + Send>;

/// What a card lies about.
pub struct Lies {
    /// In its answers.
    pub answers: Lie,
    /// In its rings.
    pub rings: Option<Scribble>,
}

impl std::fmt::Debug for Lies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lies")
    }
}

/// What a program shares with its card, seen from a card that lies.
#[derive(Debug)]
pub struct Rings {
    control: SharedMemory,
    bases: [u64; 4],
    entries: [u32; 4],
    events: Vec<OwnedFd>,
    over: Arc<AtomicBool>,
}

impl Rings {
    /// Whether the connection has ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Entries of a ring.
    pub fn entries(&self, kind: RingKind) -> u32 {
        self.entries[kind.index()]
    }

    /// Reads a word of a ring's header.
    pub fn header(&self, kind: RingKind, word: u64) -> u32 {
        self.control.load(self.bases[kind.index()] + word).expect("within the rings")
    }

    /// Writes a word of a ring's header.
    pub fn set_header(&self, kind: RingKind, word: u64, value: u32) {
        self.control.store(self.bases[kind.index()] + word, value).expect("within the rings");
    }

    /// Writes an entry behind the last and publishes it, whether there is room or not.
    pub fn say(&self, kind: RingKind, entry: &Entry) {
        let index = self.header(kind, RingHeader::PRODUCER);
        let slot = u64::from(index % self.entries(kind));
        let at = self.bases[kind.index()] + RingHeader::BYTES + slot * ENTRY_BYTES;
        let bytes: Vec<u8> = entry.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.control.write(at, &bytes).expect("within the rings");
        self.set_header(kind, RingHeader::PRODUCER, index.wrapping_add(1));
        self.signal();
    }

    /// The entry that was written last.
    pub fn last(&self, kind: RingKind) -> Entry {
        let index = self.header(kind, RingHeader::PRODUCER).wrapping_sub(1);
        let slot = u64::from(index % self.entries(kind));
        let at = self.bases[kind.index()] + RingHeader::BYTES + slot * ENTRY_BYTES;
        let mut bytes = [0; ENTRY_BYTES as usize];
        self.control.read(at, &mut bytes).expect("within the rings");
        bytemuck::pod_read_unaligned(&bytes)
    }

    /// Room in a ring of which the program takes what is said.
    pub fn has_room(&self, kind: RingKind) -> bool {
        let used = self.header(kind, RingHeader::PRODUCER);
        used.wrapping_sub(self.header(kind, RingHeader::CONSUMER)) < self.entries(kind)
    }

    /// Raises all interrupts.
    pub fn signal(&self) {
        for event in &self.events {
            // Full is as good.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }
}

/// What is known of a connection.
#[derive(Debug, Default)]
struct Known {
    questions: HashMap<u16, Vec<u8>>,
    control: Option<(OwnedFd, u64, u64)>,
    bases: [u64; 4],
    entries: [u32; 4],
    events: Vec<OwnedFd>,
    starts: bool,
}

/// A card that lies; it ends when dropped.
#[derive(Debug)]
pub struct HostileCard {
    socket: PathBuf,
    over: Arc<AtomicBool>,
}

impl HostileCard {
    /// Listens at `socket` and passes on to the card behind `real`. `lies` is asked for every
    /// connection.
    ///
    /// # Panics
    /// If it cannot listen there.
    pub fn start(
        socket: PathBuf,
        real: PathBuf,
        lies: impl Fn() -> Lies + Send + 'static,
    ) -> HostileCard {
        let listener = UnixListener::bind(&socket).expect("a socket for a test");
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        std::thread::spawn(move || {
            for program in listener.incoming().map_while(Result::ok) {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let (lies, real) = (lies(), real.clone());
                std::thread::spawn(move || relay(program, &real, lies));
            }
        });
        HostileCard { socket, over }
    }

    /// Where it is.
    pub fn place(&self) -> CardPlace {
        CardPlace::Socket(self.socket.clone())
    }

    /// The same, of which no memory and no descriptor is shared.
    pub fn place_by_messages(&self) -> CardPlace {
        CardPlace::Messages(self.socket.clone())
    }
}

impl Drop for HostileCard {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // The listener looks up.
        let _ = UnixStream::connect(&self.socket);
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes messages on until one of the two hangs up.
fn relay(program: UnixStream, real: &Path, lies: Lies) {
    // The card may be at work to clean up behind the connection before.
    let card = (0..200).find_map(|_| {
        let card = UnixStream::connect(real).ok();
        card.or_else(|| {
            std::thread::sleep(Duration::from_millis(10));
            None
        })
    });
    let Some(card) = card else { return };
    let known = Arc::new(Mutex::new(Known::default()));
    let over = Arc::new(AtomicBool::new(false));
    let up = {
        let (program, card) = (clone_of(&program), clone_of(&card));
        let known = Arc::clone(&known);
        std::thread::spawn(move || {
            while let Ok(mut message) = receive(&program) {
                note(&known, &mut message);
                if send(&card, &message, usize::MAX).is_err() {
                    break;
                }
            }
            let _ = card.shutdown(std::net::Shutdown::Both);
        })
    };
    let Lies { mut answers, mut rings } = lies;
    let mut scribbler = None;
    while let Ok(mut message) = receive(&card) {
        let question = lock(&known).questions.remove(&message.header.id).unwrap_or_default();
        let fate = answers(&mut Answer { question: &question, message: &mut message });
        if !deliver(&program, &message, fate) {
            break;
        }
        if rings.is_some() {
            let there = rings_of(&mut lock(&known), &over);
            scribbler = there.and_then(|there| {
                let scribble = rings.take()?;
                Some(std::thread::spawn(move || scribble(&there)))
            });
        }
    }
    over.store(true, Ordering::SeqCst);
    let _ = program.shutdown(std::net::Shutdown::Both);
    let _ = up.join();
    let _ = scribbler.map(std::thread::JoinHandle::join);
}

/// Whether the connection goes on.
fn deliver(program: &UnixStream, message: &Message, fate: Fate) -> bool {
    match fate {
        Fate::Pass => send(program, message, usize::MAX).is_ok(),
        Fate::Sized(size) => {
            let header = Header { size, ..message.header };
            send_as(program, header, message, usize::MAX).is_ok()
        }
        Fate::Silence => {
            await_end(program);
            false
        }
        Fate::Half(bytes) => {
            let _ = send(program, message, bytes);
            await_end(program);
            false
        }
        Fate::Late(after) => {
            std::thread::sleep(after);
            send(program, message, usize::MAX).is_ok()
        }
        Fate::Flood => {
            let mut request = Header::command(0, Command::DMA_READ, 16).encode().to_vec();
            // Address 0, one byte.
            request.extend([0; 8]);
            request.extend(1u64.to_ne_bytes());
            while send_bytes(program, &request, &[]).is_ok() {}
            false
        }
        Fate::Drip(every) => {
            let mut bytes = header_of(message).encode().to_vec();
            bytes.extend(&message.payload);
            for byte in bytes {
                std::thread::sleep(every);
                if send_bytes(program, &[byte], &[]).is_err() {
                    return false;
                }
            }
            true
        }
        Fate::End => false,
    }
}

/// Waits until the program hangs up.
fn await_end(program: &UnixStream) {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(program, PollFlags::RDHUP)];
    let _ = poll(&mut fds, None);
}

/// Keeps what the program shares.
fn note(known: &Mutex<Known>, message: &mut Message) {
    let mut known = lock(known);
    let payload = &message.payload;
    let own = |fd: &OwnedFd| fd.try_clone().expect("a descriptor");
    match message.header.command {
        Command::DMA_MAP if known.control.is_none() => {
            let fd = message.fds.first().map(own);
            known.control = fd.map(|fd| (fd, word(payload, 16), word(payload, 24)));
        }
        Command::DEVICE_SET_IRQS if !message.fds.is_empty() => {
            known.events = message.fds.iter().map(own).collect();
        }
        Command::REGION_WRITE => {
            let (offset, value) = (word(payload, 0), &payload[16..]);
            for kind in RingKind::ALL {
                let first = register::ring(kind);
                if offset == first + register::RING_BASE && value.len() == 8 {
                    known.bases[kind.index()] = word(value, 0);
                }
                if offset == first + register::RING_ENTRIES {
                    known.entries[kind.index()] = half(value, 0);
                }
            }
            known.starts |=
                offset == register::CONTROL && half(value, 0) == register::CONTROL_ENABLE;
        }
        _ => {}
    }
    known.questions.insert(message.header.id, message.payload.clone());
}

/// The rings, once the card has been told to start.
fn rings_of(known: &mut Known, over: &Arc<AtomicBool>) -> Option<Rings> {
    if !known.starts {
        return None;
    }
    let (fd, bus, bytes) = known.control.take()?;
    let control = SharedMemory::of_file(fd, 0, bytes).ok()?;
    Some(Rings {
        control,
        bases: known.bases.map(|base| base - bus),
        entries: known.entries,
        events: std::mem::take(&mut known.events),
        over: Arc::clone(over),
    })
}

/// Reads one message whole.
fn receive(from: &UnixStream) -> io::Result<Message> {
    let mut fds = Vec::new();
    let mut header = [0; HEADER_SIZE];
    fill(from, &mut header, &mut fds)?;
    let header = Header::decode(&header);
    let mut payload = vec![0; (header.size as usize).saturating_sub(HEADER_SIZE)];
    fill(from, &mut payload, &mut fds)?;
    Ok(Message { header, payload, fds })
}

fn fill(from: &UnixStream, mut into: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<()> {
    while !into.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(into)];
        let got = recvmsg(from, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                fds.extend(passed);
            }
        }
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        into = &mut into[got.bytes..];
    }
    Ok(())
}

fn header_of(message: &Message) -> Header {
    Header { size: (HEADER_SIZE + message.payload.len()) as u32, ..message.header }
}

/// Sends the first `most` bytes of a message.
fn send(to: &UnixStream, message: &Message, most: usize) -> io::Result<()> {
    send_as(to, header_of(message), message, most)
}

fn send_as(to: &UnixStream, header: Header, message: &Message, most: usize) -> io::Result<()> {
    let mut bytes = header.encode().to_vec();
    bytes.extend(&message.payload);
    bytes.truncate(most);
    let fds: Vec<BorrowedFd<'_>> = message.fds.iter().map(AsFd::as_fd).collect();
    send_bytes(to, &bytes, &fds)
}

fn send_bytes(to: &UnixStream, mut bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut fds = fds;
    while !bytes.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        let sent = sendmsg(to, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        fds = &[];
        bytes = &bytes[sent..];
    }
    Ok(())
}

fn clone_of(stream: &UnixStream) -> UnixStream {
    stream.try_clone().expect("a descriptor")
}

/// The word at `at`, 0 beyond the end.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |bytes| u64::from_ne_bytes(bytes.try_into().expect("eight")))
}

/// The half word at `at`, 0 beyond the end.
fn half(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |bytes| u32::from_ne_bytes(bytes.try_into().expect("four")))
}
