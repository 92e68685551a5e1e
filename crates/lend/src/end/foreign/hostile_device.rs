//! A vfio-user device for tests which does DMA where it may not: it looks at no map that it was given, and sends
//! messages that are made by hand. Also for the tests of whole hosts, which include this file.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use farside_linux::lock::lock;
use farside_vfio_user::device::region;
use farside_vfio_user::unix::Connection;
use farside_vfio_user::wire::{ACCESS_SIZE, Command, HEADER_SIZE, Header};
use farside_vfio_user::{DeviceInfo, Errno, Event, Limits, Region, Server};

/// What the client of this device maps: a page of each kind, with a page between them that is not.
pub(crate) const PAGE: u64 = 4096;
pub(crate) const READ_AND_WRITE: u64 = 0x4000_0000;
pub(crate) const READ_ONLY: u64 = READ_AND_WRITE + 2 * PAGE;
pub(crate) const WRITE_ONLY: u64 = READ_AND_WRITE + 4 * PAGE;

/// What the device writes.
pub(crate) const WRITTEN: u8 = 0xdd;

/// Bits of a header's flags: it is a reply, wants none, is an error.
const REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// How the device goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Read,
    Write,
    /// Without wanting an answer.
    Post,
    /// With less data than it says.
    Short,
}

/// An access to its client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attack {
    pub(crate) how: How,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

const HOWS: [How; 4] = [How::Read, How::Write, How::Post, How::Short];

impl Attack {
    pub(crate) const fn new(how: How, address: u64, bytes: u64) -> Attack {
        Attack { how, address, bytes }
    }

    /// What its register is written with, at the beginning of BAR0, so that the device does this.
    pub(crate) fn words(self) -> Vec<u8> {
        [self.address, self.bytes, self.how as u64].map(u64::to_le_bytes).concat()
    }

    fn of(words: &[u8]) -> Option<Attack> {
        let word = |at: usize| Some(u64::from_le_bytes(*words.get(8 * at..)?.first_chunk()?));
        Some(Attack { address: word(0)?, bytes: word(1)?, how: *HOWS.get(word(2)? as usize)? })
    }

    /// The message of it.
    fn message(self, id: u16) -> Vec<u8> {
        let (command, data) = match self.how {
            How::Read => (Command::DMA_READ, 0),
            How::Write | How::Post => (Command::DMA_WRITE, self.bytes),
            How::Short => (Command::DMA_WRITE, self.bytes / 2),
        };
        let mut payload = [self.address, self.bytes].map(u64::to_le_bytes).concat();
        payload.resize(payload.len() + data as usize, WRITTEN);
        let mut header = Header::command(id, command, payload.len());
        if self.how == How::Post {
            header.flags |= NO_REPLY;
        }
        [&header.encode()[..], &payload].concat()
    }
}

/// What it may not, each with what it is counted as. An access of no window is refused by where it begins.
pub(crate) const FORBIDDEN: [(Attack, &str); 12] = [
    (Attack::new(How::Write, READ_AND_WRITE - PAGE, 64), "dma-outside"),
    (Attack::new(How::Read, READ_AND_WRITE - PAGE, 64), "dma-outside"),
    (Attack::new(How::Post, READ_AND_WRITE - 8, 64), "dma-outside"),
    (Attack::new(How::Write, READ_AND_WRITE + PAGE, PAGE), "dma-outside"),
    (Attack::new(How::Read, 0, 8), "dma-outside"),
    (Attack::new(How::Write, u64::MAX - 7, 64), "dma-outside"),
    (Attack::new(How::Write, READ_AND_WRITE + PAGE - 32, 64), "dma-beyond-end"),
    (Attack::new(How::Read, READ_AND_WRITE + PAGE - 1, 2), "dma-beyond-end"),
    (Attack::new(How::Read, READ_ONLY, 1 << 19), "dma-beyond-end"),
    (Attack::new(How::Write, READ_ONLY, 64), "dma-rights"),
    (Attack::new(How::Post, READ_ONLY, PAGE), "dma-rights"),
    (Attack::new(How::Read, WRITE_ONLY, 64), "dma-rights"),
];

/// How many of these are counted as one kind.
pub(crate) fn forbidden(kind: &str) -> u64 {
    FORBIDDEN.iter().filter(|(_, counted_as)| *counted_as == kind).count() as u64
}

/// What its messages were answered with, in their order.
pub(crate) type Answers = Arc<Mutex<Vec<Result<Vec<u8>, Errno>>>>;

/// Serves it, one client after the other, until the test ends.
pub(crate) fn serve(socket: &Path) -> Answers {
    let listener = UnixListener::bind(socket).expect("a socket");
    let answers = Answers::default();
    let known = Arc::clone(&answers);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // Whoever has gone has gone.
            let _ = Hostile::new(client, Arc::clone(&known)).and_then(|mut device| device.run());
        }
    });
    answers
}

struct Hostile {
    stream: UnixStream,
    connection: Connection,
    server: Server,
    /// What has come, and is no whole message yet.
    received: Vec<u8>,
    fds: Vec<OwnedFd>,
    answers: Answers,
    next: u16,
}

impl Hostile {
    fn new(stream: UnixStream, answers: Answers) -> io::Result<Hostile> {
        let info = DeviceInfo::pci()
            .region(region::BAR0, Region::read_write(PAGE))
            .region(region::CONFIG, Region::read_write(256));
        Ok(Hostile {
            connection: Connection::new(stream.try_clone()?),
            stream,
            server: Server::new(info, Limits::default()).map_err(io::Error::other)?,
            received: Vec::new(),
            fds: Vec::new(),
            answers,
            next: 0x7000,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        loop {
            let mut bytes = [0; 4096];
            let count = self.connection.receive(&mut bytes, &mut self.fds)?;
            if count == 0 {
                return Ok(());
            }
            self.received.extend(&bytes[..count]);
            while let Some(message) = self.message() {
                self.take(&message)?;
            }
        }
    }

    fn message(&mut self) -> Option<Vec<u8>> {
        let size = Header::decode(self.received.first_chunk()?).size as usize;
        (self.received.len() >= size).then(|| self.received.drain(..size).collect())
    }

    /// The engine is given commands; it has asked nothing, so that all answers are to what was made by hand.
    fn take(&mut self, message: &[u8]) -> io::Result<()> {
        let header = Header::decode(message.first_chunk().expect("a header"));
        if header.flags & 0xf != REPLY {
            let fds = std::mem::take(&mut self.fds);
            self.server.receive(message, fds).map_err(io::Error::other)?;
            return self.obey();
        }
        let answer = if header.flags & ERROR != 0 {
            Err(Errno::new(header.error))
        } else {
            Ok(message.get(HEADER_SIZE + ACCESS_SIZE..).unwrap_or_default().to_vec())
        };
        lock(&self.answers).push(answer);
        Ok(())
    }

    fn obey(&mut self) -> io::Result<()> {
        let mut attacks = Vec::new();
        while let Some(event) = self.server.poll().map_err(io::Error::other)? {
            let token = match event {
                Event::RegionWrite { token, data, .. } => {
                    attacks.extend(Attack::of(data));
                    token
                }
                Event::RegionRead { token, .. }
                | Event::DmaMap { token, .. }
                | Event::DmaUnmap { token, .. }
                | Event::SetIrqs { token, .. }
                | Event::Reset { token } => token,
                _ => continue,
            };
            self.server.complete(token, Ok(()));
        }
        while let Some(transmit) = self.server.transmit() {
            let count = self.connection.send(transmit)?;
            self.server.sent(count);
        }
        for attack in attacks {
            self.next += 1;
            self.stream.write_all(&attack.message(self.next))?;
        }
        Ok(())
    }
}
