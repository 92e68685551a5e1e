//! Random valid conversations in both directions, cut and interleaved anyhow, against a model.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::linux::fs::MetadataExt;
use std::sync::Arc;

use farside_vfio_user::client::{ClientEvent, MapRequest};
use farside_vfio_user::device::region;
use farside_vfio_user::server::RegionAccess;
use farside_vfio_user::{
    Client, DeviceInfo, DmaUnmap, Errno, Event, Limits, Region, Reply, RequestError, RequestId,
    Server, Token,
};
use proptest::prelude::*;

const REGION_BYTES: usize = 64;
const PAGE: u64 = 0x100;
const PAGES: u64 = 8;

/// One step of a conversation.
#[derive(Clone, Debug)]
enum Step {
    Read {
        offset: u8,
        count: u8,
    },
    Write {
        offset: u8,
        data: Vec<u8>,
        posted: bool,
    },
    Multi(Vec<(u8, u8)>),
    Map {
        page: u8,
        pages: u8,
        with_fd: bool,
    },
    Unmap {
        page: u8,
        pages: u8,
    },
    UnmapAll,
    /// The device reads or writes the client's memory.
    DmaRead {
        address: u16,
        count: u8,
    },
    DmaWrite {
        address: u16,
        data: Vec<u8>,
    },
    /// Up to so many bytes travel.
    ToServer(u16),
    ToClient(u16),
    /// The device takes so many events and answers so many tokens, newest first or oldest first.
    Serve {
        take: u8,
        answer: u8,
        newest: bool,
    },
    /// The client takes events and answers DMA requests.
    Take,
}

fn step() -> impl Strategy<Value = Step> {
    let data = || prop::collection::vec(any::<u8>(), 1..9);
    prop_oneof![
        (0u8..70, 0u8..9).prop_map(|(offset, count)| Step::Read { offset, count }),
        (0u8..70, data(), any::<bool>()).prop_map(|(offset, data, posted)| Step::Write {
            offset,
            data,
            posted
        }),
        prop::collection::vec((0u8..66, any::<u8>()), 0..4).prop_map(Step::Multi),
        (0u8..8, 0u8..4, any::<bool>()).prop_map(|(page, pages, with_fd)| Step::Map {
            page,
            pages,
            with_fd
        }),
        (0u8..8, 0u8..4).prop_map(|(page, pages)| Step::Unmap { page, pages }),
        Just(Step::UnmapAll),
        (0u16..0x900, 0u8..40).prop_map(|(address, count)| Step::DmaRead { address, count }),
        (0u16..0x900, data()).prop_map(|(address, data)| Step::DmaWrite { address, data }),
        (0u16..100).prop_map(Step::ToServer),
        (0u16..100).prop_map(Step::ToClient),
        (0u8..4, 0u8..4, any::<bool>()).prop_map(|(take, answer, newest)| Step::Serve {
            take,
            answer,
            newest
        }),
        Just(Step::Take),
    ]
}

/// What a reply must be.
#[derive(Debug, PartialEq)]
enum Outcome {
    Data(Vec<u8>),
    Done,
    Error(Errno),
}

/// A token with the answer that the device will give: it acts when it takes a command, and may
/// answer later.
struct Owed {
    token: Token,
    data: Option<Vec<u8>>,
}

struct Conversation {
    client: Client,
    server: Server,
    /// The device, and the model of it: commands act in the order they were made.
    registers: [u8; REGION_BYTES],
    model: [u8; REGION_BYTES],
    model_maps: BTreeMap<u64, u64>,
    expected: BTreeMap<RequestId, Outcome>,
    owed: VecDeque<Owed>,
    /// Inodes of the descriptors that maps came with, in the order they were given.
    given: VecDeque<Option<u64>>,
    /// The client's memory, and the model of it: DMA acts in the order it was asked for.
    client_memory: Vec<u8>,
    model_memory: Vec<u8>,
    dma_expected: BTreeMap<RequestId, Vec<u8>>,
    dma_answered: usize,
    fds: Vec<Arc<OwnedFd>>,
}

fn inode(fd: OwnedFd) -> u64 {
    File::from(fd).metadata().unwrap().st_ino()
}

impl Conversation {
    fn new() -> Conversation {
        let limits = Limits {
            max_outstanding: 64,
            max_queued_bytes: 2048,
            pgsizes: PAGE,
            ..Limits::default()
        };
        let info = DeviceInfo::pci().region(region::BAR0, Region::read_write(REGION_BYTES as u64));
        let memory: Vec<u8> = (0..PAGE * (PAGES + 4)).map(|i| i as u8).collect();
        let files = ["/dev/null", "/dev/zero", "/dev/full"];
        let mut conversation = Conversation {
            client: Client::new(limits),
            server: Server::new(info, limits).unwrap(),
            registers: [0; REGION_BYTES],
            model: [0; REGION_BYTES],
            model_maps: BTreeMap::new(),
            expected: BTreeMap::new(),
            owed: VecDeque::new(),
            given: VecDeque::new(),
            client_memory: memory.clone(),
            model_memory: memory,
            dma_expected: BTreeMap::new(),
            dma_answered: 0,
            fds: files.map(|path| Arc::new(File::open(path).unwrap().into())).to_vec(),
        };
        let request = conversation.client.negotiate().unwrap();
        conversation.expected.insert(request, Outcome::Done);
        conversation.settle();
        conversation
    }

    fn expect(&mut self, request: Result<RequestId, RequestError>, outcome: Outcome) -> bool {
        match request {
            Ok(request) => {
                self.expected.insert(request, outcome);
                true
            }
            Err(RequestError::TooManyOutstanding { .. } | RequestError::QueueFull { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Read { offset, count } => self.read(usize::from(offset), usize::from(count)),
            Step::Write { offset, data, posted } => self.write(usize::from(offset), &data, posted),
            Step::Multi(writes) => self.multi(&writes),
            Step::Map { page, pages, with_fd } => {
                self.map(u64::from(page), u64::from(pages), with_fd)
            }
            Step::Unmap { page, pages } => self.unmap(u64::from(page), u64::from(pages)),
            Step::UnmapAll => {
                let request = self.client.dma_unmap(DmaUnmap::All);
                if self.expect(request, Outcome::Done) {
                    self.model_maps.clear();
                }
            }
            Step::DmaRead { address, count } => {
                let (from, count) = (usize::from(address), usize::from(count));
                if let Ok(id) = self.server.bus().dma_read(from as u64, count as u32) {
                    let data = self.model_memory[from..from + count].to_vec();
                    self.dma_expected.insert(id, data);
                }
            }
            Step::DmaWrite { address, data } => {
                let from = usize::from(address);
                if let Ok(id) = self.server.bus().dma_write(from as u64, &data) {
                    self.model_memory[from..from + data.len()].copy_from_slice(&data);
                    self.dma_expected.insert(id, Vec::new());
                }
            }
            Step::ToServer(count) => drop(self.send_up(usize::from(count))),
            Step::ToClient(count) => drop(self.send_down(usize::from(count))),
            Step::Serve { take, answer, newest } => {
                self.serve(take.into());
                self.answer(answer.into(), newest);
            }
            Step::Take => self.take(),
        }
    }

    fn read(&mut self, offset: usize, count: usize) {
        let access =
            RegionAccess { region: region::BAR0, offset: offset as u64, count: count as u32 };
        let outcome = match self.model.get(offset..offset + count) {
            Some(data) => Outcome::Data(data.to_vec()),
            None => Outcome::Error(Errno::INVAL),
        };
        let request = self.client.region_read(access);
        self.expect(request, outcome);
    }

    fn write(&mut self, offset: usize, data: &[u8], posted: bool) {
        let place = self.model.get_mut(offset..offset + data.len());
        let outcome = if place.is_some() { Outcome::Done } else { Outcome::Error(Errno::INVAL) };
        let made = if posted {
            self.client.region_write_posted(region::BAR0, offset as u64, data).is_ok()
        } else {
            let request = self.client.region_write(region::BAR0, offset as u64, data);
            self.expect(request, outcome)
        };
        if let (true, Some(place)) = (made, self.model.get_mut(offset..offset + data.len())) {
            place.copy_from_slice(data);
        }
    }

    fn multi(&mut self, writes: &[(u8, u8)]) {
        let bytes: Vec<[u8; 1]> = writes.iter().map(|write| [write.1]).collect();
        let list: Vec<(u32, u64, &[u8])> = writes
            .iter()
            .zip(&bytes)
            .map(|(write, byte)| (region::BAR0, u64::from(write.0), &byte[..]))
            .collect();
        let good = writes.iter().all(|write| usize::from(write.0) < REGION_BYTES);
        let outcome = if good { Outcome::Done } else { Outcome::Error(Errno::INVAL) };
        let request = self.client.region_write_multi(&list);
        if self.expect(request, outcome) && good {
            writes.iter().for_each(|write| self.model[usize::from(write.0)] = write.1);
        }
    }

    fn map(&mut self, page: u64, pages: u64, with_fd: bool) {
        let (start, end) = (page * PAGE, (page + pages) * PAGE);
        let overlaps = self.model_maps.iter().any(|(a, size)| start < a + size && *a < end);
        let outcome = match (pages, overlaps) {
            (0, _) => Outcome::Error(Errno::INVAL),
            (_, true) => Outcome::Error(Errno::EXIST),
            (_, false) => Outcome::Done,
        };
        let good = outcome == Outcome::Done;
        let map = MapRequest {
            address: start,
            size: end - start,
            readable: true,
            writable: true,
            offset: 0,
        };
        let fd = with_fd.then(|| Arc::clone(&self.fds[(page % 3) as usize]));
        let number = fd.as_ref().map(|fd| inode(fd.try_clone().unwrap()));
        let request = self.client.dma_map(&map, fd);
        if self.expect(request, outcome) && good {
            self.model_maps.insert(start, end - start);
            self.given.push_back(number);
        }
    }

    fn unmap(&mut self, page: u64, pages: u64) {
        let (address, size) = (page * PAGE, pages * PAGE);
        let end = address + size;
        let touched = |(&start, &bytes): (&u64, &u64)| start < end && address < start + bytes;
        let inside = |(&start, &bytes): (&u64, &u64)| address <= start && start + bytes <= end;
        let cut = self.model_maps.iter().any(|map| touched(map) && !inside(map));
        let outcome = if cut || size == 0 { Outcome::Error(Errno::INVAL) } else { Outcome::Done };
        let good = outcome == Outcome::Done;
        let request = self.client.dma_unmap(DmaUnmap::Range { address, size });
        if self.expect(request, outcome) && good {
            self.model_maps.retain(|start, bytes| !inside((start, bytes)));
        }
    }

    /// Carries bytes as a socket does: descriptors go with the first byte of their message.
    fn send_up(&mut self, count: usize) -> bool {
        let Some(transmit) = self.client.transmit() else { return false };
        if !self.server.wants_input() {
            return false;
        }
        let count = count.min(transmit.bytes.len()).max(1);
        let fds = transmit.fds.iter().map(|fd| fd.try_clone().unwrap()).collect();
        let space = self.server.space();
        let count = count.min(space.len());
        space[..count].copy_from_slice(&transmit.bytes[..count]);
        self.server.received(count, fds).unwrap();
        self.client.sent(count);
        true
    }

    fn send_down(&mut self, count: usize) -> bool {
        let Some(transmit) = self.server.transmit() else { return false };
        if !self.client.wants_input() {
            return false;
        }
        let count = count.min(transmit.bytes.len()).max(1);
        self.client.receive(&transmit.bytes[..count], Vec::new()).unwrap();
        self.server.sent(count);
        true
    }

    /// The device takes events and acts on them.
    fn serve(&mut self, count: usize) {
        for _ in 0..count {
            let Some(event) = self.server.poll().unwrap() else { return };
            let (token, data) = match event {
                Event::RegionRead { token, access } => {
                    let from = access.offset as usize;
                    let data = self.registers[from..from + access.count as usize].to_vec();
                    (token, Some(data))
                }
                Event::RegionWrite { token, access, data } => {
                    let from = access.offset as usize;
                    self.registers[from..from + data.len()].copy_from_slice(data);
                    (token, None)
                }
                Event::RegionWriteMulti { token, writes } => {
                    for write in writes {
                        self.registers[write.access.offset as usize] = write.data()[0];
                    }
                    (token, None)
                }
                Event::DmaMap { token, map } => {
                    assert_eq!(self.given.pop_front(), Some(map.fd.map(inode)));
                    (token, None)
                }
                Event::DmaUnmap { token, .. } => (token, None),
                Event::DmaDone { request, result } => {
                    assert_eq!(result.unwrap(), self.dma_expected.remove(&request).unwrap());
                    self.dma_answered += 1;
                    continue;
                }
                Event::Negotiated(_) => continue,
                other => panic!("{other:?}"),
            };
            self.owed.push_back(Owed { token, data });
        }
    }

    fn answer(&mut self, count: usize, newest: bool) {
        for _ in 0..count {
            let owed = if newest { self.owed.pop_back() } else { self.owed.pop_front() };
            let Some(Owed { token, data }) = owed else { return };
            match data {
                Some(data) => self.server.complete_read(token, |to| {
                    to.copy_from_slice(&data);
                    Ok(())
                }),
                None => self.server.complete(token, Ok(())),
            }
        }
    }

    fn take(&mut self) {
        while let Some(event) = self.client.poll().unwrap() {
            match event {
                ClientEvent::Reply { request, reply } => {
                    let outcome = match reply {
                        Ok(Reply::Data(data)) => Outcome::Data(data.to_vec()),
                        Ok(_) => Outcome::Done,
                        Err(errno) => Outcome::Error(errno),
                    };
                    assert_eq!(self.expected.remove(&request), Some(outcome));
                }
                ClientEvent::DmaRead { token, address, count } => {
                    let from = address as usize;
                    let data = self.client_memory[from..from + count as usize].to_vec();
                    self.client.complete(token, |to| {
                        to.copy_from_slice(&data);
                        Ok(())
                    });
                }
                ClientEvent::DmaWrite { token, address, data } => {
                    let from = address as usize;
                    self.client_memory[from..from + data.len()].copy_from_slice(data);
                    self.client.complete(token, |_| Ok(()));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Everything travels and is answered.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let moved = self.send_up(usize::MAX) | self.send_down(usize::MAX);
            self.serve(usize::MAX);
            self.answer(usize::MAX, false);
            self.take();
            let idle = self.client.transmit().is_none() && self.server.transmit().is_none();
            if idle && !moved {
                return;
            }
        }
        panic!("the conversation does not come to rest");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]
    #[test]
    fn any_conversation_equals_the_model(steps in prop::collection::vec(step(), 1..200)) {
        let mut conversation = Conversation::new();
        let mut asked = 0;
        for step in steps {
            let before = conversation.dma_expected.len();
            conversation.step(step);
            asked += usize::from(conversation.dma_expected.len() > before);
        }
        conversation.settle();
        prop_assert!(conversation.expected.is_empty(), "{:?}", conversation.expected);
        prop_assert!(conversation.dma_expected.is_empty());
        prop_assert!(conversation.dma_answered >= asked);
        prop_assert_eq!(conversation.registers, conversation.model);
        prop_assert_eq!(conversation.client_memory, conversation.model_memory);
        let maps: BTreeMap<u64, u64> = conversation.server.maps().map(|m| (m.0, m.1)).collect();
        prop_assert_eq!(maps, conversation.model_maps);
        prop_assert!(conversation.given.is_empty());
    }
}
