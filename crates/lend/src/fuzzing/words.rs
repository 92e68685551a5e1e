//! Files and texts: tokens, tickets, ledgers, orders to the ends.

use std::os::fd::AsFd;
use std::time::Duration;

use farside_lease::lender::Event;
use farside_lease::{
    BootId, BootTime, BorrowerId, DeviceName, DeviceSet, Epoch, HostName, Ledger, Lender, Limits,
    RequestId,
};
use farside_live::lease::Ticket;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

use super::input::Input;
use crate::end::attacked;
use crate::pki::Token;

/// A text that somebody passes for a token.
pub fn token(input: &[u8]) -> usize {
    let text = String::from_utf8_lossy(input);
    let Ok(token) = text.parse::<Token>() else { return 0 };
    let again = token.to_string();
    assert_eq!(again.to_lowercase(), text.trim().to_lowercase(), "no two texts are one token");
    assert_eq!(again.parse::<Token>(), Ok(token));
    1
}

/// What stands in the folder of a lease.
pub fn ticket(input: &[u8]) -> usize {
    let Ok(ticket) = serde_json::from_slice::<Ticket>(input) else { return 0 };
    let text = serde_json::to_vec(&ticket).expect("a ticket is text");
    assert_eq!(serde_json::from_slice::<Ticket>(&text).expect("it reads back"), ticket);
    1
}

/// A ledger: one that a lender wrote, with records of any content and a damaged end behind it. What is
/// read reads back, and a lender goes on with it and gives no epoch again.
pub fn ledger(input: &[u8]) -> usize {
    let mut input = Input(input);
    let mut bytes = Ledger::fresh(BootId([1; 16]), Epoch(input.number())).bytes();
    while !input.is_empty() {
        match input.byte() {
            0..=199 => record(&mut bytes, &input.bytes()),
            200..=219 => bytes.extend(input.bytes()),
            220..=239 => {
                let at = usize::from(input.byte()) % bytes.len();
                bytes[at] ^= input.byte();
            }
            _ => bytes.truncate(bytes.len().saturating_sub(usize::from(input.byte()))),
        }
        if bytes.is_empty() {
            return 0;
        }
    }
    let Ok(ledger) = Ledger::read(&bytes) else { return 0 };
    assert_eq!(Ledger::read(&ledger.bytes()).as_ref(), Ok(&ledger));
    go_on(ledger);
    1
}

/// A record as the file has it: lengths and checksums are right.
fn record(bytes: &mut Vec<u8>, payload: &[u8]) {
    let length = (payload.len() as u32).to_le_bytes();
    bytes.extend(length);
    bytes.extend(crc32fast::hash(&length).to_le_bytes());
    bytes.extend(payload);
    bytes.extend(crc32fast::hash(payload).to_le_bytes());
}

fn go_on(ledger: Ledger) {
    let former = ledger.last_epoch();
    let mut lender = Lender::new(Limits::default(), ledger, BootId([2; 16]), BootTime(1));
    let device = DeviceName::new("card0").expect("a name");
    lender.handle(BootTime(2), Event::DeviceAdded { device: device.clone() });
    let borrower = BorrowerId { host: HostName::new("b").expect("a name"), user: None };
    let devices = DeviceSet::new([device]).expect("one");
    let (wait, duration) = (Duration::from_secs(1), None);
    let request = RequestId(u64::MAX);
    let borrow = Event::Borrow { request, borrower, devices, duration, wait };
    lender.handle(BootTime(3), borrow);
    for _ in 0..10_000 {
        if lender.poll_action().is_none() {
            assert!(lender.last_epoch() >= former);
            return;
        }
    }
    panic!("a lender has things to do for ever");
}

/// A packet to the process of an end, of which it takes one.
pub fn order(input: &[u8]) -> usize {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (near, far) = socketpair(kind.0, kind.1, kind.2, None).expect("a pair of sockets");
    if rustix::net::send(&near, input, SendFlags::DONTWAIT).is_err() {
        // Longer than a packet can be.
        return 0;
    }
    drop(near);
    usize::from(attacked(far.as_fd()))
}
