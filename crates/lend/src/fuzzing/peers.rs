//! What the daemons of other hosts say: to a lender, and to a borrower.

use std::time::Duration;

use farside_lease::borrower::{Action, Answer, Config, Event, Message};
use farside_lease::{BootTime, Borrower, DeviceName, DeviceSet, Epoch, LeaseId, RequestId, Text};
use prost::Message as _;

use super::input::Input;
use crate::daemon::attacked::{Asked, ask};
use crate::proto;

const HOSTS: [&str; 4] = ["a", "b", "c", "127.0.0.1:1"];
const DEVICES: [&str; 4] = ["card0", "card1", "card9", "card0@a"];

/// What a host with a certificate asks of the daemon of another, in messages of its own making or bytes
/// that may be one. Gives how many calls did well.
pub fn peers(input: &[u8]) -> usize {
    let mut input = Input(input);
    let mut well = 0;
    while !input.is_empty() {
        let asked = if input.byte() < 200 { made(&mut input) } else { decoded(&mut input) };
        well += usize::from(asked.is_some_and(ask));
    }
    well
}

fn made(input: &mut Input<'_>) -> Option<Asked> {
    let lease = |input: &mut Input<'_>| proto::LeaseId {
        device: input.name(&DEVICES),
        epoch: input.number(),
    };
    Some(match input.byte() % 5 {
        0 => Asked::Join(proto::JoinRequest {
            secret: input.name(&["", "00", "secret"]),
            host: input.name(&HOSTS),
            public_key: input.bytes(),
            address: input.name(&HOSTS),
        }),
        1 => Asked::List(proto::ListRequest { address: input.name(&HOSTS) }),
        2 => Asked::Borrow(proto::BorrowRequest {
            request: input.number(),
            devices: input.several(|input| input.name(&DEVICES)),
            user: input.name(&["", "uid0", "x y"]),
            wait_ns: input.number(),
            end: input.bytes(),
            plain: input.byte() % 2 == 0,
        }),
        3 => Asked::Renew(proto::RenewRequest {
            request: input.number(),
            leases: input.several(lease),
        }),
        _ => Asked::Return(proto::ReturnRequest {
            request: input.number(),
            leases: input.several(lease),
        }),
    })
}

fn decoded(input: &mut Input<'_>) -> Option<Asked> {
    let (which, bytes) = (input.byte() % 5, input.bytes());
    let bytes = &*bytes;
    Some(match which {
        0 => Asked::Join(proto::JoinRequest::decode(bytes).ok()?),
        1 => Asked::List(proto::ListRequest::decode(bytes).ok()?),
        2 => Asked::Borrow(proto::BorrowRequest::decode(bytes).ok()?),
        3 => Asked::Renew(proto::RenewRequest::decode(bytes).ok()?),
        _ => Asked::Return(proto::ReturnRequest::decode(bytes).ok()?),
    })
}

/// What a lender says to a borrower: answers to what was asked and to what was not, with any epochs and
/// durations. Gives how many leases the borrower has had.
pub fn lender(input: &[u8]) -> usize {
    let mut input = Input(input);
    let mut now = BootTime(1);
    let mut borrower = Borrower::new(Config::default(), RequestId(0), now);
    let (mut last, mut wanted, mut got) = (RequestId(0), Vec::new(), 0);
    while !input.is_empty() {
        now = now.after(Duration::from_millis(input.number().min(5000)));
        if input.byte() < 40 {
            let names = input.several(|input| DeviceName::new(&input.name(&DEVICES)));
            let names: Result<Vec<DeviceName>, _> = names.into_iter().collect();
            let devices = names.ok().and_then(|names| DeviceSet::new(names).ok());
            let Some(devices) = devices else { continue };
            wanted = devices.iter().cloned().collect();
            let wait = Duration::from_nanos(input.number());
            last = borrower.borrow(now, None, devices, None, wait).unwrap_or(last);
        } else if let Some(event) = said(&mut input, last, &wanted) {
            borrower.handle(now, event);
        }
        for _ in 0..10_000 {
            match borrower.poll_action() {
                None => break,
                Some(Action::Got { leases, .. }) => {
                    got += leases.len();
                }
                Some(Action::Send(Message::Renew { request, .. })) => last = request,
                Some(_) => {}
            }
        }
        assert!(borrower.poll_action().is_none(), "a borrower has things to do for ever");
    }
    got
}

fn said(input: &mut Input<'_>, last: RequestId, wanted: &[DeviceName]) -> Option<Event> {
    let request = if input.byte() < 220 { last } else { RequestId(input.number()) };
    let lease = |input: &mut Input<'_>| {
        let device = DeviceName::new(&input.name(&DEVICES)).ok()?;
        Some(LeaseId { device, epoch: Epoch(input.number()) })
    };
    let why = || Text::from("why not");
    let span = |input: &mut Input<'_>| Duration::from_nanos(input.number());
    Some(match input.byte() % 7 {
        0 => Event::Queued { request, before: input.number() as usize },
        1 | 2 => {
            let leases = if input.byte() < 200 {
                let epoch = Epoch(input.number());
                wanted.iter().map(|device| LeaseId { device: device.clone(), epoch }).collect()
            } else {
                input.several(lease).into_iter().flatten().collect()
            };
            Event::Granted { request, leases, duration: span(input) }
        }
        3 => Event::Refused { request, why: why() },
        4 => {
            let answer = |input: &mut Input<'_>| {
                let recalled_within = (input.byte() < 50).then(|| span(input));
                let result = if input.byte() < 200 { Ok(span(input)) } else { Err(why()) };
                Some(Answer { lease: lease(input)?, result, recalled_within })
            };
            let answers = input.several(answer).into_iter().flatten().collect();
            Event::Renewed { request, answers }
        }
        5 => Event::Recalled { lease: lease(input)?, within: span(input), by: why() },
        _ => Event::Ended { lease: lease(input)?, why: why() },
    })
}
