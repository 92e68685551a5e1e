//! Replays the hostile messages in `tests/corpus` and checks what the engine answers.
//!
//! A file is lines: `#` a comment, `>` bytes in hex that the peer sends in one read (`+1` at the end
//! of the line: with a descriptor), `<` what the engine must answer (`ok COMMAND`, or
//! `error COMMAND NUMBER`), and last `lives` or `fails`. A line `new` first means that no version has
//! been agreed yet.

#[path = "common/hostile.rs"]
#[allow(dead_code)]
mod hostile;

use std::collections::VecDeque;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use farside_vfio_user::client::ClientEvent;
use farside_vfio_user::wire::{HEADER_SIZE, Header};
use farside_vfio_user::{Client, Errno, Event, ProtocolError, Server};

/// What the files need of an engine.
trait Attacked {
    fn receive(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) -> Result<(), ProtocolError>;
    fn output(&mut self) -> Vec<u8>;
}

impl Attacked for Server {
    fn receive(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) -> Result<(), ProtocolError> {
        Server::receive(self, bytes, fds)?;
        loop {
            let token = match self.poll()? {
                None => return Ok(()),
                Some(
                    Event::RegionRead { token, .. }
                    | Event::RegionWrite { token, .. }
                    | Event::RegionWriteMulti { token, .. }
                    | Event::DmaMap { token, .. }
                    | Event::DmaUnmap { token, .. }
                    | Event::SetIrqs { token, .. }
                    | Event::Reset { token }
                    | Event::FeatureGet { token, .. }
                    | Event::FeatureSet { token, .. },
                ) => token,
                Some(Event::Other { token, .. }) => {
                    self.complete(token, Err(Errno::NOTSUP));
                    continue;
                }
                Some(_) => continue,
            };
            self.complete(token, Ok(()));
        }
    }

    fn output(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        while let Some(transmit) = self.transmit() {
            output.extend_from_slice(transmit.bytes);
            let count = transmit.bytes.len();
            self.sent(count);
        }
        output
    }
}

impl Attacked for Client {
    fn receive(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) -> Result<(), ProtocolError> {
        Client::receive(self, bytes, fds)?;
        while let Some(event) = self.poll()? {
            if let ClientEvent::Other { token, .. } = event {
                self.complete_other(token, Err(Errno::NOTSUP));
            }
        }
        Ok(())
    }

    fn output(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        while let Some(transmit) = self.transmit() {
            output.extend_from_slice(transmit.bytes);
            let count = transmit.bytes.len();
            self.sent(count);
        }
        output
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Answers in the words of the files.
fn answers(mut output: &[u8]) -> VecDeque<String> {
    let mut found = VecDeque::new();
    while let Some(bytes) = output.first_chunk::<HEADER_SIZE>() {
        let header = Header::decode(bytes);
        let command = header.command.0;
        found.push_back(match header.flags {
            1 => format!("ok {command}"),
            0x21 => format!("error {command} {}", header.error),
            other => panic!("flags {other:#x}"),
        });
        output = &output[header.size as usize..];
    }
    found
}

fn replay(path: &Path, mut engine: impl Attacked) {
    let name = path.display();
    let text = fs::read_to_string(path).unwrap();
    let mut answered = VecDeque::new();
    let mut failed = None;
    let mut verdict = false;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(bytes) = line.strip_prefix('>') {
            let (bytes, fds) =
                bytes.split_once('+').map_or((bytes, 0), |(b, n)| (b, n.parse().unwrap()));
            let fds = (0..fds).map(|_| fs::File::open("/dev/null").unwrap().into()).collect();
            failed = engine.receive(&hex(bytes), fds).err();
            answered.extend(answers(&engine.output()));
        } else if let Some(expected) = line.strip_prefix('<') {
            assert_eq!(answered.pop_front().as_deref(), Some(expected.trim()), "{name}");
        } else if line == "lives" || line == "fails" {
            assert_eq!(answered, [""; 0], "{name}: more answers than expected");
            assert_eq!(failed.is_some(), line == "fails", "{name}: {failed:?}");
            verdict = true;
        } else {
            assert!(line.starts_with('#') || line == "new", "{name}: {line}");
        }
    }
    assert!(verdict, "{name} says neither lives nor fails");
}

fn files(side: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(side);
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn is_new(path: &Path) -> bool {
    fs::read_to_string(path).unwrap().lines().any(|line| line.trim() == "new")
}

#[test]
fn hostile_clients() {
    let files = files("server");
    assert!(files.len() >= 20, "{} files", files.len());
    for path in files {
        if is_new(&path) {
            replay(&path, Server::new(hostile::info(), hostile::limits()).unwrap());
        } else {
            replay(&path, hostile::ready_server());
        }
    }
}

#[test]
fn hostile_servers() {
    let files = files("client");
    assert!(files.len() >= 8, "{} files", files.len());
    for path in files {
        replay(&path, hostile::busy_client(!is_new(&path)));
    }
}
