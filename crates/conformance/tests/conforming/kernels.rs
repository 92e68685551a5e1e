//! The kernels that the conformance suite uses, played one step at a time through the card.

use farside_card::interface::{ArgKind, KernelArg, Status, reason_to_word};
use farside_card::{Card, Function, Grant, JobEnd, Location, Need, Outcome, Raised};
use farside_types::{Access, Asid, JobId, PageNo, PageRange, PeId};

use super::{Wires, page_of};

pub(super) const NAMES: [&str; 6] = [
    "farside.nop",
    "farside.increment",
    "farside.sum",
    "farside.touch",
    "farside.hold",
    "farside.spin",
];
const WORDS: u64 = 512;

#[derive(PartialEq, Debug)]
enum State {
    /// It goes on at its next step.
    Ready,
    /// It stands in a fault.
    Standing,
    /// A fault was answered with memory.
    Granted(Grant),
    /// It holds memory until its word says 2.
    Holding(Grant),
    Over,
}

pub(super) struct Runner {
    pe: PeId,
    pub(super) job: JobId,
    asid: Asid,
    kernel: u32,
    args: Vec<KernelArg>,
    state: State,
    /// Pages that it has touched.
    done: u64,
    stopped: bool,
    cancelled: Option<JobEnd>,
    /// It gives back at once what it goes on using.
    holds_nothing: bool,
}

/// What a kernel works with in a step.
struct Machine<'a> {
    card: &'a mut Card,
    function: &'a mut Function,
    wires: &'a mut Wires,
    memory: &'a mut [u8],
}

impl Machine<'_> {
    fn word(&mut self, location: Location, index: usize) -> u64 {
        let page = page_of(location, self.wires, self.memory).unwrap();
        u64::from_le_bytes(page[index * 8..][..8].try_into().unwrap())
    }

    fn set_word(&mut self, location: Location, index: usize, value: u64) {
        let page = page_of(location, self.wires, self.memory).unwrap();
        page[index * 8..][..8].copy_from_slice(&value.to_le_bytes());
    }

    fn give_back(&mut self, grant: &Grant) {
        let drained = self.card.end(grant.access);
        self.function.drained(self.card, self.wires, &drained);
    }
}

impl Runner {
    pub(super) fn new(
        pe: PeId,
        job: JobId,
        asid: Asid,
        kernel: u32,
        args: Vec<KernelArg>,
        holds_nothing: bool,
    ) -> Runner {
        Runner {
            pe,
            job,
            asid,
            kernel,
            args,
            state: State::Ready,
            done: 0,
            stopped: false,
            cancelled: None,
            holds_nothing,
        }
    }

    /// One that is over.
    pub(super) fn idle() -> Runner {
        let mut runner = Runner::new(PeId(0), JobId(0), Asid(0), 0, Vec::new(), false);
        runner.state = State::Over;
        runner
    }

    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    pub(super) fn answer(&mut self, outcome: Outcome) {
        self.state = match outcome {
            Outcome::Granted(grant) => State::Granted(grant),
            Outcome::Retry => State::Ready,
            Outcome::Aborted => {
                self.stopped = true;
                State::Ready
            }
            Outcome::Cancelled(reason) => {
                let page = self.range().start.offset(self.done);
                let value = reason_to_word(reason).into();
                let message = reason.to_string();
                let end = JobEnd { status: Status::KernelFault, value, detail: page.0, message };
                self.cancelled = Some(end);
                State::Ready
            }
        };
    }

    fn range(&self) -> PageRange {
        let arg = &self.args[0];
        PageRange::new(PageNo(arg.word / 4096), arg.bytes.div_ceil(4096))
    }

    /// Goes on. Returns whether anything happened.
    pub(super) fn step(
        &mut self,
        card: &mut Card,
        function: &mut Function,
        wires: &mut Wires,
        memory: &mut [u8],
    ) -> bool {
        let mut machine = Machine { card, function, wires, memory };
        match std::mem::replace(&mut self.state, State::Standing) {
            State::Over => {
                self.state = State::Over;
                false
            }
            State::Standing => false,
            State::Holding(grant) => self.hold(grant, &mut machine),
            State::Granted(grant) => {
                self.use_grant(grant, &mut machine);
                true
            }
            State::Ready => {
                self.state = State::Ready;
                if let Some(end) = self.cancelled.take() {
                    self.end(end, &mut machine);
                } else if self.stopped {
                    let end = JobEnd::failed(Status::Aborted, String::new());
                    self.end(end, &mut machine);
                } else {
                    self.go_on(&mut machine);
                }
                true
            }
        }
    }

    fn end(&mut self, end: JobEnd, machine: &mut Machine) {
        self.state = State::Over;
        machine.function.job_ended(machine.card, machine.wires, self.job, &end);
    }

    fn go_on(&mut self, machine: &mut Machine) {
        let name = NAMES[self.kernel as usize];
        match (name, &self.args[..]) {
            ("farside.nop", []) => self.end(JobEnd::returned(0), machine),
            ("farside.spin", []) => {}
            ("farside.touch", [_]) => self.touch(machine),
            ("farside.increment" | "farside.sum" | "farside.hold", [arg]) => {
                let access = match arg.kind {
                    ArgKind::Read => Access::Read,
                    _ => Access::Write,
                };
                self.take([(self.range(), access)].into(), machine);
            }
            _ => {
                let message =
                    format!("{name} was given {} arguments; see its table", self.args.len());
                self.end(JobEnd::failed(Status::BadRequest, message), machine);
            }
        }
    }

    /// A word of each page, each by an access of its own.
    fn touch(&mut self, machine: &mut Machine) {
        let range = self.range();
        if self.done == range.count {
            return self.end(JobEnd::returned(self.done), machine);
        }
        let page = range.start.offset(self.done);
        for access in [Access::Read, Access::Write] {
            let Some(location) = machine.card.access(self.pe, self.asid, page, access) else {
                return self.raise(Need::Page(page, Access::Write), machine);
            };
            if access == Access::Write {
                self.touch_at(location, machine);
            }
        }
        machine.function.publish(machine.card, machine.wires);
    }

    fn touch_at(&mut self, location: Location, machine: &mut Machine) {
        let word = machine.word(location, 0);
        machine.set_word(location, 0, word + 1);
        self.done += 1;
    }

    fn take(&mut self, needs: std::sync::Arc<[(PageRange, Access)]>, machine: &mut Machine) {
        match machine.card.acquire(self.pe, self.asid, &needs) {
            Ok(grant) => self.state = State::Granted(grant),
            Err(_) => self.raise(Need::Group(needs), machine),
        }
    }

    fn raise(&mut self, need: Need, machine: &mut Machine) {
        if !machine.function.wants(self.job) {
            return;
        }
        let raised = machine.card.raise(self.pe, self.job, self.asid, need).unwrap();
        if raised != Raised::Full {
            self.state = State::Standing;
        }
        machine.function.publish(machine.card, machine.wires);
    }

    fn use_grant(&mut self, grant: Grant, machine: &mut Machine) {
        let pages: Vec<Location> = grant
            .runs
            .iter()
            .flat_map(|run| (0..run.count).map(|index| run.location.offset(index)))
            .collect();
        match NAMES[self.kernel as usize] {
            "farside.touch" => {
                self.touch_at(pages[0], machine);
                machine.give_back(&grant);
                self.state = State::Ready;
            }
            "farside.hold" => {
                machine.set_word(pages[0], 0, 1);
                if self.holds_nothing {
                    machine.give_back(&grant);
                }
                self.state = State::Holding(grant);
            }
            name => {
                let words = self.args[0].bytes / 8;
                let mut sum = 0u64;
                for index in 0..words {
                    let (page, at) = (pages[(index / WORDS) as usize], (index % WORDS) as usize);
                    let word = machine.word(page, at);
                    sum = sum.wrapping_add(word);
                    if name == "farside.increment" {
                        machine.set_word(page, at, word + 1);
                    }
                }
                machine.give_back(&grant);
                let value = if name == "farside.sum" { sum } else { words };
                self.end(JobEnd::returned(value), machine);
            }
        }
    }

    fn hold(&mut self, grant: Grant, machine: &mut Machine) -> bool {
        let place = grant.runs[0].location;
        if machine.word(place, 0) != 2 {
            self.state = State::Holding(grant);
            return false;
        }
        machine.give_back(&grant);
        self.end(JobEnd::returned(0), machine);
        true
    }
}
