//! A card that is reached by messages and reaches out: a real one behind a relay that asks the program,
//! between the card's own messages, for memory that was never shared.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside::CardPlace;
use farside_card::interface::by_messages::{INTERRUPT, interrupt_to_bytes};
use farside_vfio_user::wire::{Command, HEADER_SIZE, Header};

/// So much is asked for on a connection, at most.
const ASKED_MAX: usize = 20_000;
/// The flag of a reply that is an error, and of a command that wants no reply.
const ERROR: u32 = 1 << 5;
const NO_REPLY: u32 = 1 << 4;
/// The bits of the flags that say what a message is, and a reply.
const KIND: u32 = 0xf;
const REPLY: u32 = 1;

/// Something that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// DMA_READ or DMA_WRITE.
    pub command: Command,
    /// The first address.
    pub address: u64,
    /// Bytes.
    pub count: u64,
    /// Whether all of it lies in memory that the program had mapped for its card when it answered.
    pub is_shared: bool,
    /// What the program answered: whether it did what was asked.
    pub granted: Option<bool>,
}

/// What the intruder knows of a connection.
#[derive(Debug, Default)]
struct Known {
    /// Address and size of what is mapped.
    maps: Vec<(u64, u64)>,
    asked: Vec<Asked>,
    /// Requests that wait for an answer, by the ids that the program sees.
    open: HashMap<u16, Who>,
    next_id: u16,
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug)]
enum Who {
    /// The card, which calls it so.
    Card(u16),
    /// The intruder, for this of what was asked.
    Intruder(usize),
}

impl Known {
    /// Whether all of it lies in memory that the program has mapped.
    fn has_mapped(&self, address: u64, count: u64) -> bool {
        let inside = |&(start, size): &(u64, u64)| {
            address >= start && address - start < size && count <= size - (address - start)
        };
        self.maps.iter().any(inside)
    }

    /// An id that no request has that is open.
    fn id_for(&mut self, who: Who) -> u16 {
        loop {
            self.next_id = self.next_id.wrapping_add(1);
            if !self.open.contains_key(&self.next_id) {
                self.open.insert(self.next_id, who);
                return self.next_id;
            }
        }
    }
}

/// See the module; ends when dropped.
#[derive(Debug)]
pub struct Intruder {
    socket: PathBuf,
    known: Arc<Mutex<Known>>,
    over: Arc<AtomicBool>,
}

impl Intruder {
    /// Listens at `socket` and passes on to the function behind `real`. With `floods` it tells of
    /// interrupts without end as well.
    ///
    /// # Panics
    /// If the socket cannot be made.
    pub fn start(socket: PathBuf, real: PathBuf, floods: bool) -> Intruder {
        let listener = UnixListener::bind(&socket).expect("a socket in a folder of the test");
        let (known, over) = (Arc::<Mutex<Known>>::default(), Arc::new(AtomicBool::new(false)));
        let (shared, ends) = (Arc::clone(&known), Arc::clone(&over));
        std::thread::spawn(move || {
            for program in listener.incoming().flatten() {
                if ends.load(SeqCst) {
                    return;
                }
                let (known, real) = (Arc::clone(&shared), real.clone());
                std::thread::spawn(move || relay(program, &real, &known, floods));
            }
        });
        Intruder { socket, known, over }
    }

    /// Where it is.
    pub fn place(&self) -> CardPlace {
        CardPlace::Messages(self.socket.clone())
    }

    /// What was asked for and answered so far.
    pub fn asked(&self) -> Vec<Asked> {
        let known = self.known.lock().expect("nobody panicked");
        known.asked.iter().filter(|asked| asked.granted.is_some()).cloned().collect()
    }
}

impl Drop for Intruder {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        // The listener looks up.
        let _ = UnixStream::connect(&self.socket);
    }
}

fn relay(program: UnixStream, real: &Path, known: &Mutex<Known>, floods: bool) {
    let Ok(card) = UnixStream::connect(real) else { return };
    *known.lock().expect("nobody panicked") = Known::default();
    let down = Mutex::new(&program);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while let Ok((header, mut bytes)) = receive(&program) {
                if !note(known, &header, &mut bytes) && (&card).write_all(&bytes).is_err() {
                    break;
                }
            }
            let _ = card.shutdown(Shutdown::Write);
        });
        scope.spawn(|| {
            while !over.load(SeqCst) && intrude(known, &down, floods).is_ok() {
                std::thread::sleep(Duration::from_millis(if floods { 0 } else { 2 }));
            }
        });
        while let Ok((header, mut bytes)) = receive(&card) {
            if header.flags & (KIND | NO_REPLY) == 0 {
                let mut known = known.lock().expect("nobody panicked");
                let id = known.id_for(Who::Card(header.id));
                bytes[..2].copy_from_slice(&id.to_le_bytes());
            }
            if send(&down, &bytes).is_err() {
                break;
            }
        }
        over.store(true, SeqCst);
        let _ = program.shutdown(Shutdown::Both);
        let _ = card.shutdown(Shutdown::Both);
    });
}

/// Reads one message whole.
fn receive(mut from: &UnixStream) -> io::Result<(Header, Vec<u8>)> {
    let mut bytes = vec![0; HEADER_SIZE];
    from.read_exact(&mut bytes)?;
    let header = Header::decode(bytes[..].try_into().expect("as long as a header"));
    bytes.resize((header.size as usize).max(HEADER_SIZE), 0);
    from.read_exact(&mut bytes[HEADER_SIZE..])?;
    Ok((header, bytes))
}

fn send(to: &Mutex<&UnixStream>, bytes: &[u8]) -> io::Result<()> {
    // Held until all is written: messages of two senders must not mix.
    let to = to.lock().expect("nobody panicked");
    (&**to).write_all(bytes)
}

/// Keeps what the program maps. Whether this is an answer to the intruder, which the card never sees.
fn note(known: &Mutex<Known>, header: &Header, bytes: &mut [u8]) -> bool {
    let mut known = known.lock().expect("nobody panicked");
    let word = |at: usize| {
        let bytes = bytes.get(HEADER_SIZE + at..HEADER_SIZE + at + 8);
        bytes.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    };
    let is_reply = header.flags & KIND == REPLY;
    if header.command == Command::DMA_MAP && !is_reply {
        known.maps.push((word(16), word(24)));
    }
    let is_dma = matches!(header.command, Command::DMA_READ | Command::DMA_WRITE);
    let who = if is_reply && is_dma { known.open.remove(&header.id) } else { None };
    match who {
        Some(Who::Intruder(number)) => {
            // The program may have mapped it while it was asked, and said so before it answered.
            let (address, count) = (known.asked[number].address, known.asked[number].count);
            known.asked[number].is_shared |= known.has_mapped(address, count);
            known.asked[number].granted = Some(header.flags & ERROR == 0);
            true
        }
        Some(Who::Card(id)) => {
            bytes[..2].copy_from_slice(&id.to_le_bytes());
            false
        }
        None => false,
    }
}

/// Asks for what lies around everything that is mapped, and for a little that is mapped.
fn intrude(known: &Mutex<Known>, down: &Mutex<&UnixStream>, floods: bool) -> io::Result<()> {
    let maps = known.lock().expect("nobody panicked").maps.clone();
    // Before the memory of the program is mapped there is nothing to look for.
    if maps.len() < 2 {
        std::thread::sleep(Duration::from_millis(1));
        return Ok(());
    }
    for &(start, size) in &maps {
        let end = start + size;
        for (address, count) in [(end - 4, 8), (end, 8), (end, 4), (start - 8, 16), (start - 1, 1)]
        {
            ask(known, down, Command::DMA_READ, address, count)?;
            ask(known, down, Command::DMA_WRITE, address, count)?;
        }
        ask(known, down, Command::DMA_READ, end - 8, 8)?;
    }
    for (address, count) in [(0, 8), (u64::MAX - 3, 4), (u64::MAX, 64), (1 << 63, 4096)] {
        ask(known, down, Command::DMA_READ, address, count)?;
        ask(known, down, Command::DMA_WRITE, address, count)?;
    }
    for _ in 0..if floods { 500 } else { 1 } {
        tell(down, Command(INTERRUPT), &interrupt_to_bytes(2, 0))?;
    }
    tell(down, Command(INTERRUPT), &interrupt_to_bytes(2, u32::MAX))?;
    tell(down, Command(INTERRUPT), &[1; 3])?;
    tell(down, Command(INTERRUPT + 1), &[])
}

fn tell(down: &Mutex<&UnixStream>, command: Command, data: &[u8]) -> io::Result<()> {
    let mut header = Header::command(0, command, data.len());
    header.flags |= NO_REPLY;
    send(down, &[&header.encode()[..], data].concat())
}

fn ask(
    known: &Mutex<Known>,
    down: &Mutex<&UnixStream>,
    command: Command,
    address: u64,
    count: u64,
) -> io::Result<()> {
    let id = {
        let mut known = known.lock().expect("nobody panicked");
        let is_shared = known.has_mapped(address, count);
        if known.asked.len() >= ASKED_MAX {
            // Enough was tried.
            return Ok(());
        }
        // What is shared is read and left as it is.
        if is_shared && command == Command::DMA_WRITE {
            return Ok(());
        }
        known.asked.push(Asked { command, address, count, is_shared, granted: None });
        let number = known.asked.len() - 1;
        known.id_for(Who::Intruder(number))
    };
    let mut payload = [address.to_le_bytes(), count.to_le_bytes()].concat();
    if command == Command::DMA_WRITE {
        payload.resize(16 + count as usize, 0xa5);
    }
    let header = Header::command(id, command, payload.len());
    send(down, &[&header.encode()[..], &payload].concat())
}
