//! What the access counters say to a run of accesses, for the bench of those in VHDL
//! (`rtl/test/tb_access_counters.vhd`), which have to say the same.

use std::fmt::Write;
use std::path::Path;

use farside_card::{CounterGroup, CounterNotice, Counters};
use farside_types::{Asid, PageNo, PageRange};

const GROUPS: usize = 5;
const STEPS: usize = 4000;
/// Pages of the address spaces, of which there are few.
const PAGES: u64 = 1 << 10;

/// Numbers that look like chance, each below a bound.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 24) % bound
    }
}

/// What is done: a kind and three numbers.
type Step = [u64; 4];

/// Page `page` of space `space` was reached for, so many times.
const ACCESS: u64 = 0;
/// Pages from one to another of a space are cleared.
const CLEAR: u64 = 1;
/// All are, and there is another threshold.
const CLEAR_ALL: u64 = 2;
/// What is told is taken.
const TAKE: u64 = 3;

fn step(numbers: &mut Numbers) -> Step {
    // Few groups more than are counted, and sometimes many.
    let pages = if numbers.below(4) == 0 { PAGES } else { 7 * 16 };
    let space = numbers.below(2);
    let page = numbers.below(pages);
    match numbers.below(100) {
        0..2 => [CLEAR_ALL, numbers.below(12), 0, 0],
        2..5 => [CLEAR, space, page, (page + numbers.below(40)).min(PAGES - 1)],
        5..12 => [TAKE, 0, 0, 0],
        _ => [ACCESS, space, page, numbers.below(8)],
    }
}

fn carry_out(counters: &mut Counters, told: &mut Option<CounterNotice>, step: Step) {
    let [kind, first, second, third] = step;
    let asid = Asid(first as u16);
    match kind {
        ACCESS => counters.record(asid, PageNo(second), third as u32),
        CLEAR => counters.clear(asid, PageRange::new(PageNo(second), third + 1 - second)),
        CLEAR_ALL => counters.set_threshold(first as u32),
        _ => *told = None,
    }
    // It is shown until it is taken, whatever is counted or cleared meanwhile.
    if told.is_none() {
        *told = counters.next_notice();
    }
}

/// A line for each step: what is done; then whether a notice is shown, of which space and group, with which
/// count; and how many were forgotten.
fn trace() -> String {
    let mut counters = Counters::new(CounterGroup::Kib64, 9, GROUPS);
    let (mut told, mut numbers) = (None, Numbers(0x9e37_79b9_7f4a_7c15));
    let mut text = String::new();
    for _ in 0..STEPS {
        let step = step(&mut numbers);
        carry_out(&mut counters, &mut told, step);
        let [kind, first, second, third] = step;
        let forgotten = counters.forgotten();
        let (valid, space, group, count) = told.map_or((0, 0, 0, 0), |notice| {
            (1, notice.asid.0, notice.pages.start.0 / 16, notice.count)
        });
        writeln!(
            text,
            "{kind} {first} {second} {third} {valid} {space} {group} {count} {forgotten}"
        )
        .unwrap();
    }
    text
}

/// `FARSIDE_WRITE_TRACE=1` writes the file anew.
#[test]
fn the_bench_has_what_the_model_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rtl/test/access_counters.trace");
    let trace = trace();
    if std::env::var_os("FARSIDE_WRITE_TRACE").is_some() {
        std::fs::write(&path, &trace).unwrap();
    }
    let told = |line: &&str| line.split(' ').nth(4) == Some("1");
    let notices = trace.lines().filter(told).count();
    assert!(notices > STEPS / 10 && notices < STEPS * 9 / 10, "{notices} of {STEPS}");
    let forgotten = trace.lines().last().and_then(|line| line.rsplit(' ').next()).unwrap();
    assert!(forgotten.parse::<usize>().unwrap() > STEPS / 50, "{forgotten} were forgotten");
    assert!(std::fs::read_to_string(path).unwrap() == trace, "it is of another model");
}
