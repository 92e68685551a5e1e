//! A device that does DMA where it may not, at a lender's end that is also the borrower's. Its checks are taken
//! away in turn.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_fabric::Refusal;
use farside_linux::lock::lock;
use farside_linux::shared::SharedMemory;
use farside_vfio_user::Errno;
use farside_vfio_user::client::MapRequest;
use farside_vfio_user::device::region;
use farside_vfio_user::unix::UnixClient;

use super::here::serve_one;
use super::hostile_device::{
    Answers, Attack, FORBIDDEN, How, PAGE, READ_AND_WRITE, READ_ONLY, WRITE_ONLY, WRITTEN,
    forbidden, serve,
};
use super::lender::Lent;
use crate::end::tally::{Count, Counted, Refused, Tally, TallyReader};
use crate::ends::{Unchecked, take_away};

const LIMIT: Duration = Duration::from_secs(20);
/// What is in memory that only the client may read.
const SECRET: u8 = 0x5a;

struct Rig {
    client: UnixClient,
    memory: SharedMemory,
    answers: Answers,
    counted: TallyReader,
    folder: PathBuf,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Rig {
    /// Without these checks.
    fn without(checks: &'static [Unchecked]) -> Rig {
        let name = format!("fshd{}-{}", std::process::id(), checks.len());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let (device, socket) = (folder.join("device"), folder.join("client"));
        let answers = serve(&device);
        let counted = TallyReader::new().unwrap();
        let tally = Tally::of(counted.file().try_clone_to_owned().unwrap()).unwrap();
        let lent = Lent {
            name: "lease".to_owned(),
            epoch: 7,
            device: "nic0".to_owned(),
            socket: device,
            tally: Arc::new(tally),
        };
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            checks.iter().for_each(|&check| take_away(check));
            let (client, _) = listener.accept().unwrap();
            let _ = serve_one(&lent, client, true);
        });
        let mut client = UnixClient::connect(&socket, LIMIT).unwrap();
        let memory = SharedMemory::new(5 * PAGE).unwrap();
        memory.write(4 * PAGE, &[SECRET; PAGE as usize]).unwrap();
        for (address, readable, writable) in
            [(READ_AND_WRITE, true, true), (READ_ONLY, true, false), (WRITE_ONLY, false, true)]
        {
            let offset = address - READ_AND_WRITE;
            let map = MapRequest { address, size: PAGE, readable, writable, offset };
            client.dma_map(&map, Some(memory.file().as_fd())).unwrap();
        }
        Rig { client, memory, answers, counted, folder }
    }

    fn attack(&mut self, attack: Attack) {
        self.client.region_write(region::BAR0, 0, &attack.words()).unwrap();
    }

    /// What the last attack was answered with.
    fn answer(&self) -> Result<Vec<u8>, Errno> {
        self.await_that("an answer", || !lock(&self.answers).is_empty());
        lock(&self.answers).remove(0)
    }

    fn refused(&self, what: Refused) -> u64 {
        self.counted.read().of(Count::Refused(what))
    }

    fn await_refused(&self, what: Refused, count: u64) {
        self.await_that("it is counted", || self.refused(what) >= count);
        assert_eq!(self.refused(what), count, "{what:?}");
    }

    fn await_that(&self, what: &str, is_so: impl Fn() -> bool) {
        let end = Instant::now() + LIMIT;
        while !is_so() {
            let counted: Counted = self.counted.read();
            assert!(Instant::now() < end, "{what}: {counted:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn memory(&self, at: u64) -> Vec<u8> {
        let mut bytes = vec![0; PAGE as usize];
        self.memory.read(at - READ_AND_WRITE, &mut bytes).unwrap();
        bytes
    }

    /// Nothing has come into the client's memory.
    fn is_untouched(&self) -> bool {
        let zeros = (READ_AND_WRITE..WRITE_ONLY).step_by(PAGE as usize);
        let mut zeros = zeros.flat_map(|at| self.memory(at));
        zeros.all(|byte| byte == 0) && self.memory(WRITE_ONLY).iter().all(|byte| *byte == SECRET)
    }
}

#[test]
fn what_a_device_sends_that_it_may_not_is_refused_and_counted_and_does_not_land() {
    let mut rig = Rig::without(&[]);
    for (attack, _) in FORBIDDEN {
        rig.attack(attack);
        if attack.how != How::Post {
            assert_eq!(rig.answer(), Err(Errno::FAULT), "{attack:x?}");
        }
    }
    // What makes no sense is refused before anybody looks where it is to go.
    rig.attack(Attack::new(How::Short, READ_AND_WRITE, 64));
    assert_eq!(rig.answer(), Err(Errno::INVAL));
    for (what, kind) in Refused::ALL {
        rig.await_refused(what, forbidden(kind));
    }
    assert!(rig.is_untouched());

    // The control: by the same way comes what is allowed.
    rig.attack(Attack::new(How::Write, READ_AND_WRITE, PAGE));
    assert_eq!(rig.answer(), Ok(Vec::new()));
    rig.await_that("it lands", || rig.memory(READ_AND_WRITE).iter().all(|it| *it == WRITTEN));
    rig.attack(Attack::new(How::Read, READ_ONLY, 64));
    assert_eq!(rig.answer(), Ok(vec![0; 64]));
}

/// Negative control: without the look at the lender's end the device believes that it wrote. The borrower's end,
/// which has the same windows, refuses it and says so.
#[test]
fn control_a_lenders_end_that_does_not_look_is_stopped_by_the_borrowers() {
    let mut rig = Rig::without(&[Unchecked::AtLender]);
    rig.attack(Attack::new(How::Write, READ_ONLY, 64));
    assert_eq!(rig.answer(), Ok(Vec::new()), "the device was not stopped");
    rig.await_refused(Refused::Borrower, 1);
    // The lender's end has counted what it let through.
    rig.await_refused(Refused::Dma(Refusal::Rights), 1);
    assert!(rig.is_untouched());
}

/// Negative control: without both it lands.
#[test]
fn control_where_nobody_looks_it_lands() {
    let mut rig = Rig::without(&[Unchecked::AtLender, Unchecked::AtBorrower]);
    rig.attack(Attack::new(How::Write, READ_ONLY, 64));
    assert_eq!(rig.answer(), Ok(Vec::new()));
    rig.await_that("it lands", || rig.memory(READ_ONLY)[..64] == [WRITTEN; 64]);
}
