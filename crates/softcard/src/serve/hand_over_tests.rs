//! Functions that the card's owner hands on and takes back.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farside_card::interface::{pci, register};
use farside_linux::card_memory::CardMemory;
use farside_linux::shared::SharedMemory;
use farside_types::PAGE_SIZE;
use farside_vfio_user::Limits;
use farside_vfio_user::unix::{CallError, Connection, NoMemory, UnixClient};

use super::{
    CONTROL_SOCKET, CardConfig, CardServer, HolderId, hand_on, mutation, process, read_status,
    socket_name, take_back,
};

const FRAMES: u32 = 512;
/// How long anything may take that is not bounded more narrowly.
const LIMIT: Duration = Duration::from_secs(10);

/// A card of two functions.
struct Card {
    _server: CardServer,
    folder: PathBuf,
}

impl Card {
    fn start() -> Card {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fho{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        let config = CardConfig { functions: 2, frames: FRAMES, ..CardConfig::new(&folder) };
        Card { _server: CardServer::start(config).expect("a card is served"), folder }
    }

    /// A client of a function that is handed on.
    fn hand_on(&self, holder: u64) -> Client {
        let given = hand_on(&self.folder, HolderId(holder)).expect("a function is free");
        Client::over(given)
    }

    fn holders(&self) -> Vec<Option<HolderId>> {
        let status = read_status(&self.folder).expect("the card says what it does");
        let users = status.functions.iter().filter_map(|function| function.user.as_ref());
        users.map(|user| user.holder).collect()
    }

    /// Takes back what a holder has, and waits until it is.
    fn take_back(&self, holder: u64) -> u32 {
        let count = take_back(&self.folder, HolderId(holder)).expect("the card hears its owner");
        let end = Instant::now() + LIMIT;
        while self.holders().contains(&Some(HolderId(holder))) {
            assert!(Instant::now() < end, "it still has it");
            std::thread::sleep(Duration::from_millis(1));
        }
        count
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A client, and its mapping of the function's memory.
struct Client {
    client: UnixClient,
    memory: SharedMemory,
}

impl Client {
    fn over(given: OwnedFd) -> Client {
        let connection = Connection::new(UnixStream::from(given));
        let client = UnixClient::new(connection, Limits::default(), LIMIT, Box::new(NoMemory));
        let mut client = client.expect("it is served");
        let info = client.region_info(pci::BAR_MEMORY as u32).expect("the function has memory");
        let file = info.fd.expect("its memory can be mapped");
        let bytes = u64::from(FRAMES) * PAGE_SIZE as u64;
        let memory = SharedMemory::of_file(file, info.offset, bytes).expect("it is mapped");
        Client { client, memory }
    }

    fn magic(&mut self) -> Result<u32, CallError> {
        let mut bytes = [0; 4];
        let registers = pci::BAR_REGISTERS as u32;
        self.client.region_read(registers, register::MAGIC, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// What a second client finds after a first one that was stopped, lost the function and woke; and that client,
/// which still has it.
fn seen_by_the_next(card: &Card) -> ((u32, u32), Client) {
    let mut first = card.hand_on(1);
    first.memory.store(0, 0x1111).unwrap();
    assert_eq!(card.take_back(1), 1);
    let mut second = card.hand_on(2);
    let found = second.memory.load(0).unwrap();
    // It knows of nothing: its mapping is there.
    first.memory.store(PAGE_SIZE as u64, 0x2222).unwrap();
    assert!(matches!(first.magic(), Err(CallError::Closed)), "it still reaches the function");
    assert_eq!(second.magic().expect("the next one is served"), register::MAGIC_VALUE);
    let late = second.memory.load(PAGE_SIZE as u64).unwrap();
    ((found, late), second)
}

#[test]
fn what_is_taken_back_reaches_nothing_that_the_next_one_has() {
    let card = Card::start();
    let (seen, _second) = seen_by_the_next(&card);
    assert_eq!(seen, (0, 0));
    assert_eq!(card.take_back(2), 1);
    assert_eq!(card.take_back(2), 0, "it is taken back once");
}

/// Control: with one memory for all, the next one sees what is left, and what a former one writes.
#[test]
fn control_a_generation_that_is_kept_is_seen() {
    let kept = CardMemory::file_of(FRAMES).unwrap();
    mutation::keep_generation(&kept);
    let card = Card::start();
    assert_eq!(seen_by_the_next(&card).0, (0x1111, 0x2222));
}

#[test]
fn functions_of_others_are_left_alone_and_none_is_handed_on_twice() {
    let card = Card::start();
    // One that came by itself.
    let direct = UnixClient::connect(card.folder.join(socket_name(0)), LIMIT);
    let mut direct = direct.expect("it is served");
    let mut borrowed = card.hand_on(7);
    let busy = hand_on(&card.folder, HolderId(8)).unwrap_err();
    assert_eq!(busy.kind(), std::io::ErrorKind::ResourceBusy);
    assert_eq!(card.holders(), [None, Some(HolderId(7))]);
    assert_eq!(card.take_back(9), 0);
    borrowed.magic().expect("it goes on");
    assert_eq!(card.take_back(7), 1);
    let mut bytes = [0; 4];
    direct.region_read(pci::BAR_REGISTERS as u32, register::MAGIC, &mut bytes).expect("it goes on");
    // Whoever hangs up frees its function, as ever.
    drop(card.hand_on(10));
    let end = Instant::now() + LIMIT;
    while card.holders().len() > 1 {
        assert!(Instant::now() < end, "a function is not freed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_card_hears_nobody_but_its_owner() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT RUN: a process of another user's, which takes root to make");
        return;
    }
    let card = Card::start();
    let mut client = card.hand_on(1);
    let folder = card.folder.clone();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.join(CONTROL_SOCKET), open).unwrap();
    // SAFETY: the body takes no lock but the allocator's.
    let stranger = unsafe {
        process::fork(|| {
            if libc::setuid(65534) != 0 {
                return 2;
            }
            i32::from(take_back(&folder, HolderId(1)).is_ok())
        })
    };
    let ended = stranger.unwrap().await_end(Instant::now() + LIMIT);
    assert_eq!(ended, Some(process::Ended::Code(0)));
    assert_eq!(card.holders(), [Some(HolderId(1))]);
    client.magic().expect("it goes on");
}

#[test]
fn nonsense_and_silence_are_hung_up_on() {
    use std::io::{Read, Write};
    let card = Card::start();
    let mut bytes = [[9u8; 16]; 2];
    bytes[1][..8].copy_from_slice(&2u64.to_ne_bytes());
    for sent in [&bytes[0][..], &bytes[1][..7], &[]] {
        let mut caller = UnixStream::connect(card.folder.join(CONTROL_SOCKET)).unwrap();
        caller.set_read_timeout(Some(LIMIT)).unwrap();
        caller.write_all(sent).unwrap();
        let mut answer = Vec::new();
        let _ = caller.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
    }
    assert_eq!(card.take_back(1), 0);
}
