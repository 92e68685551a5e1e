//! Faults of cards in processes of their own, counted: instructions in user space, and system calls.

use std::time::Duration;

use farside::{Buffer, Error, Read, Space, Value};
use farside_types::PAGE_SIZE;

use super::card_process::CardProcess;
use super::far::{WORDS, link_pages, space_of_single_pages};
use super::steps::{Stepper, Steps, threads_named};
use super::{Row, Target, two_cpus};

/// Faults of the two runs that are counted: what begins and ends a run is in both.
const FEW: usize = 4;
const MORE: usize = 12;

/// Instructions at commit c74ecaf, of which half is promised.
const CARD_FAULT_BEFORE: f64 = 26_213.0;
const HOST_FAULT_BEFORE: f64 = 21_776.0;

/// What a fault takes of the threads of one side.
#[derive(Clone, Copy)]
struct Taken {
    instructions: f64,
    calls: f64,
}

pub(super) fn run() -> Result<Vec<Row>, Error> {
    let (_, server) = two_cpus();
    let card = CardProcess::start("steps", (64 * PAGE_SIZE) as u64, server)?;
    let space = space_of_single_pages(vec![card.place()])?;
    let mut list = space.alloc::<u64>(MORE * WORDS)?;
    // The first run starts the card's threads and looks kernels up.
    let start = link_pages(&mut list, MORE);
    chase(&space, &list, start, MORE)?;
    let in_card = |name| threads_named(name, &card.family());
    let reader = threads_named("farside-faults", &[std::process::id()]);

    let mut card_fault = |threads: &[u32]| {
        between(|faults| {
            let start = link_pages(&mut list, faults);
            counting(threads, || chase(&space, &list, start, faults))
        })
    };
    let elements = in_card("farside-0.");
    let card_fault = [card_fault(&reader)?, card_fault(&elements)?];
    let mut host_fault = |threads: &[u32]| {
        between(|faults| {
            space.migrate(&list, space.card(0)?)?;
            touch_beside_a_kernel(&space, &mut list, faults, threads)
        })
    };
    let host_fault = [host_fault(&reader)?, host_fault(&in_card("farside-fn"))?];
    Ok(vec![
        row("card fault, instructions in user space", CARD_FAULT_BEFORE, card_fault),
        row(
            "host fault beside a kernel, instructions in user space",
            HOST_FAULT_BEFORE,
            host_fault,
        ),
    ])
}

fn chase(space: &Space, list: &Buffer<u64>, start: u64, faults: usize) -> Result<(), Error> {
    let steps = Value(faults as u64);
    space.kernel("farside.chase").call((Read(list), Value(start), steps)).map(drop)
}

/// The host takes pages from a card on which something runs, so that every drain is waited for.
fn touch_beside_a_kernel(
    space: &Space,
    list: &mut Buffer<u64>,
    faults: usize,
    threads: &[u32],
) -> Result<Option<Steps>, Error> {
    space.scope(|scope| {
        let job = scope.kernel("farside.wait").launch_call(())?;
        std::thread::sleep(Duration::from_millis(20));
        let counted = counting(threads, || {
            (0..faults).for_each(|page| list[page * WORDS] = 1);
            Ok(())
        });
        job.cancel();
        counted
    })
}

/// Counts what threads do in `body`; `None` where they cannot be stepped through. Those of the other side are
/// left alone: if both were a thousand times slower, what they do now and then would be counted for each fault.
fn counting(
    threads: &[u32],
    body: impl FnOnce() -> Result<(), Error>,
) -> Result<Option<Steps>, Error> {
    let steppers: Option<Vec<Stepper>> = threads.iter().map(|&id| Stepper::start(id)).collect();
    let Some(steppers) = steppers.filter(|steppers| !steppers.is_empty()) else {
        body()?;
        return Ok(None);
    };
    let settled = || {
        let each = steppers.iter().map(Stepper::settled);
        each.collect::<Option<Vec<Steps>>>()
            .map(|all| all.into_iter().fold(Steps::default(), Steps::and))
    };
    let before = settled();
    body()?;
    Ok(settled().zip(before).map(|(after, before)| after.since(before)))
}

/// What one fault more takes: the difference of two runs.
fn between(
    mut run: impl FnMut(usize) -> Result<Option<Steps>, Error>,
) -> Result<Option<Taken>, Error> {
    let (few, more) = (run(FEW)?, run(MORE)?);
    let (Some(few), Some(more)) = (few, more) else { return Ok(None) };
    let each = |few: u64, more: u64| (more as f64 - few as f64) / (MORE - FEW) as f64;
    Ok(Some(Taken {
        instructions: each(few.instructions, more.instructions),
        calls: each(few.calls, more.calls),
    }))
}

fn row(name: &'static str, before: f64, sides: [Option<Taken>; 2]) -> Row {
    let (target, unit) = (Target::AtMost(0.5), "x commit c74ecaf");
    let [Some(program), Some(card)] = sides else {
        let why = "NOT COUNTED: threads cannot be stepped through here (ptrace)";
        return Row::not_measured(name, target, unit, why.to_owned());
    };
    let detail = format!(
        "program {:.0} and {:.1} system calls, card {:.0} and {:.1}; before {before:.0}",
        program.instructions, program.calls, card.instructions, card.calls
    );
    Row::new(name, (program.instructions + card.instructions) / before, target, unit, detail)
}
