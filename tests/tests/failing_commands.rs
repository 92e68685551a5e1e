//! Every command of every chain fails, once, twice, and for ever, in each way that a command can:
//! bytes stay right, whoever asked is told, nothing waits for ever, nothing is tried for ever, and
//! what works again is used again (invariant 40).
//!
//! A scenario is run once to count its commands. Then it is run again for each of them, with that
//! command failing. What must hold is what the harness judges: an error needs a reason, bytes are
//! those of a flat memory, the machine's tables are in the directory, and at the end every frame can
//! be had again.

use std::collections::BTreeSet;

use farside_svm::{Advice, Mutation, Request, StepErrorKind};
use farside_types::{Access, CardId, JobId, MemoryId, PageRange, Rights, StreamId};
use harness::{Failure, Sabotage, Script, Setup, WordAccess, World};

const A: CardId = CardId(0);
const B: CardId = CardId(1);
const C: CardId = CardId(2);

type Checked = Result<(), Failure>;

/// Something that a program does. What fails in it is nobody's business here.
struct Scenario {
    name: &'static str,
    setup: fn() -> Setup,
    play: fn(&mut World) -> Checked,
}

fn increments(range: PageRange) -> Vec<WordAccess> {
    range.pages().map(|page| WordAccess::increment(page, 0)).collect()
}

fn loads(range: PageRange) -> Vec<WordAccess> {
    range.pages().map(|page| WordAccess::load(page, 0)).collect()
}

/// The program's own threads write every page.
fn host_writes(world: &mut World, range: PageRange) -> Checked {
    world.cpu(increments(range));
    world.drive()
}

/// A kernel writes every page.
fn card_writes(world: &mut World, card: CardId, range: PageRange) -> Checked {
    world.launch(card, StreamId(0), Script::accesses(increments(range), 2))?;
    world.drive()
}

/// Kernels that have touched every page and go on, so that taking one away has to be waited for.
fn hold(
    world: &mut World,
    cards: &[CardId],
    accesses: &[WordAccess],
) -> Result<Vec<JobId>, Failure> {
    let mut jobs = Vec::new();
    for &card in cards {
        let script = Script::accesses(accesses.to_vec(), 2).lingering();
        jobs.push(world.launch(card, StreamId(10 + u32::from(card.0)), script)?);
    }
    world.drive()?;
    Ok(jobs)
}

fn let_go(world: &mut World, jobs: Vec<JobId>) -> Checked {
    jobs.into_iter().for_each(|job| world.stop_job(job));
    world.drive()
}

/// Asks for something, whatever the answer.
fn ask(world: &mut World, request: Request) -> Checked {
    let _ = world.ask(request)?;
    Ok(())
}

/// Memory, if there is some to be had.
fn alloc(world: &mut World, pages: u64) -> Result<Option<PageRange>, Failure> {
    let bytes = pages * farside_types::PAGE_SIZE as u64;
    match world.ask(Request::Alloc { bytes, name: "".into() })? {
        Ok(farside_svm::Outcome::Allocated(range)) => Ok(Some(range)),
        _ => Ok(None),
    }
}

fn there_and_back(world: &mut World) -> Checked {
    let Some(range) = alloc(world, 4)? else { return Ok(()) };
    host_writes(world, range)?;
    card_writes(world, A, range)?;
    host_writes(world, range)?;
    ask(world, Request::Free { addr: range.start.addr() })?;
    Ok(())
}

fn from_a_card_that_runs(world: &mut World) -> Checked {
    let Some(range) = alloc(world, 3)? else { return Ok(()) };
    let jobs = hold(world, &[A], &increments(range))?;
    host_writes(world, range)?;
    card_writes(world, B, range)?;
    ask(world, Request::Protect { range, rights: Rights::Read })?;
    ask(world, Request::Free { addr: range.start.addr() })?;
    let_go(world, jobs)
}

fn copies_and_their_end(world: &mut World) -> Checked {
    let Some(range) = alloc(world, 3)? else { return Ok(()) };
    host_writes(world, range)?;
    ask(world, Request::Advise { range, advice: Advice::ReadMostly(true) })?;
    let jobs = hold(world, &[A, B], &loads(range))?;
    world.cpu(loads(range));
    world.drive()?;
    card_writes(world, B, range)?;
    host_writes(world, range)?;
    ask(world, Request::Free { addr: range.start.addr() })?;
    let_go(world, jobs)
}

/// Three cards read at once: while the host is stopped for the first the others wait, and then the third gets its copies
/// beside those of the second. At last one has all to itself.
fn read_at_once(world: &mut World) -> Checked {
    let Some(range) = alloc(world, 2)? else { return Ok(()) };
    host_writes(world, range)?;
    let jobs = hold(world, &[A, B, C], &loads(range))?;
    card_writes(world, B, range)?;
    host_writes(world, range)?;
    ask(world, Request::Free { addr: range.start.addr() })?;
    let_go(world, jobs)
}

/// What a card has read and another writes stays on the first, which the other maps; then it goes elsewhere.
fn written_at_its_reader(world: &mut World) -> Checked {
    let Some(range) = alloc(world, 3)? else { return Ok(()) };
    host_writes(world, range)?;
    let jobs = hold(world, &[A], &loads(range))?;
    card_writes(world, B, range)?;
    card_writes(world, A, range)?;
    host_writes(world, range)?;
    ask(world, Request::Free { addr: range.start.addr() })?;
    let_go(world, jobs)
}

fn what_the_program_asks_for(world: &mut World) -> Checked {
    let Some(range) = alloc(world, 6)? else { return Ok(()) };
    host_writes(world, range)?;
    for to in [A.memory(), B.memory(), MemoryId::HOST] {
        ask(world, Request::Migrate { range, to })?;
    }
    ask(world, Request::Pin { range, at: A.memory() })?;
    card_writes(world, B, range)?;
    ask(world, Request::Unpin { range })?;
    ask(world, Request::Prefetch { range, to: B.memory(), access: Access::Write })?;
    ask(world, Request::Trim)?;
    ask(world, Request::Free { addr: range.start.addr() })?;
    Ok(())
}

fn a_card_that_is_full(world: &mut World) -> Checked {
    let Some(range) = alloc(world, 14)? else { return Ok(()) };
    host_writes(world, range)?;
    card_writes(world, A, range)?;
    card_writes(world, A, range)?;
    world.cpu(loads(range));
    world.drive()
}

/// Pages on loan that are written, or not, come home from a card that runs: by the host, by others, off a full card.
fn loans(world: &mut World) -> Checked {
    let Some(range) = alloc(world, 6)? else { return Ok(()) };
    host_writes(world, range)?;
    let jobs = hold(world, &[A], &loads(range))?;
    let written = PageRange::new(range.start.offset(1), 2);
    jobs.iter().for_each(|&job| world.give_work(job, increments(written)));
    world.drive()?;
    ask(world, Request::Migrate { range: PageRange::new(range.start, 2), to: MemoryId::HOST })?;
    card_writes(world, B, PageRange::new(range.start.offset(2), 2))?;
    let Some(more) = alloc(world, 8)? else { return Ok(()) };
    host_writes(world, more)?;
    jobs.iter().for_each(|&job| world.give_work(job, loads(more)));
    world.drive()?;
    world.cpu(loads(range));
    world.drive()?;
    jobs.iter().for_each(|&job| world.give_work(job, loads(range)));
    world.drive()?;
    ask(world, Request::Free { addr: range.start.addr() })?;
    let_go(world, jobs)?;
    world.cpu(loads(more));
    world.drive()
}

fn lending() -> Setup {
    let mut setup = Setup::plain(&[8, 8]).lending();
    setup.lends = 1000;
    setup
}

fn groups(world: &mut World) -> Checked {
    let Some(range) = alloc(world, 6)? else { return Ok(()) };
    host_writes(world, PageRange::new(range.start, 3))?;
    for card in [A, B] {
        let script = Script::group(vec![(range, Access::Write)]);
        world.launch(card, StreamId(u32::from(card.0)), script)?;
    }
    world.drive()?;
    world.cpu(loads(range));
    world.drive()
}

fn pages_that_end_with_an_error(world: &mut World) -> Checked {
    let Some(range) = alloc(world, 4)? else { return Ok(()) };
    card_writes(world, A, range)?;
    world.reset_card(A)?;
    world.drive()?;
    world.cpu(loads(range));
    world.drive()?;
    card_writes(world, B, range)?;
    ask(world, Request::Free { addr: range.start.addr() })?;
    // The same addresses, which are to work again.
    let Some(range) = alloc(world, 4)? else { return Ok(()) };
    host_writes(world, range)?;
    card_writes(world, B, range)
}

fn readers() -> Setup {
    Setup { scheme: "farside".to_owned(), ..Setup::with_dma(&[8, 8, 8], true) }
}

const PLAIN: fn() -> Setup = || Setup::plain(&[8, 8]);

const SCENARIOS: [Scenario; 12] = [
    Scenario { name: "there and back", setup: PLAIN, play: there_and_back },
    Scenario {
        name: "there and back by page DMA",
        setup: || Setup::with_dma(&[8, 8], false),
        play: there_and_back,
    },
    Scenario { name: "from a card that runs", setup: PLAIN, play: from_a_card_that_runs },
    Scenario { name: "copies and their end", setup: PLAIN, play: copies_and_their_end },
    Scenario { name: "read at once", setup: readers, play: read_at_once },
    Scenario {
        name: "written at its reader",
        setup: || Setup::with_dma(&[8, 8], true).cheap_to_bring(),
        play: written_at_its_reader,
    },
    Scenario { name: "requests", setup: PLAIN, play: what_the_program_asks_for },
    Scenario {
        name: "requests through bounce buffers",
        setup: || Setup::with_dma(&[8, 8], false),
        play: what_the_program_asks_for,
    },
    Scenario { name: "a full card", setup: PLAIN, play: a_card_that_is_full },
    Scenario { name: "loans", setup: lending, play: loans },
    Scenario { name: "groups", setup: PLAIN, play: groups },
    Scenario { name: "errors", setup: PLAIN, play: pages_that_end_with_an_error },
];

const KINDS: [StepErrorKind; 3] =
    [StepErrorKind::Transfer, StepErrorKind::Os(12), StepErrorKind::TimedOut];

/// Once, once again, and for ever.
const TIMES: [u32; 3] = [1, 2, u32::MAX];

/// Runs a scenario with one command failing; gives what was struck, and how many commands there were.
fn run(
    scenario: &Scenario,
    plan: Sabotage,
    mutation: Option<Mutation>,
) -> Result<(Vec<&'static str>, u64), Failure> {
    let mut setup = (scenario.setup)();
    setup.mutation = mutation;
    let mut world = World::new(setup);
    world.sabotage(plan);
    (scenario.play)(&mut world)?;
    let seen = world.end_sabotage();
    // Now that nothing fails any more, everything can be used again.
    world.tidy_up()?;
    Ok(seen)
}

#[test]
fn cards_that_read_at_once_get_their_copies_beside_others() {
    let mut world = World::new(readers());
    read_at_once(&mut world).expect("nothing fails");
    assert_eq!(world.driver.stats().followed, 2, "the third card, two pages");
}

fn commands_of(scenario: &Scenario) -> u64 {
    let never = Sabotage { at: u64::MAX, kind: StepErrorKind::Transfer, times: 0 };
    run(scenario, never, None).expect("nothing fails").1
}

#[test]
fn every_command_of_every_scenario_fails_once_twice_and_for_ever() {
    let mut struck = BTreeSet::new();
    let mut runs = 0;
    for scenario in &SCENARIOS {
        for at in 0..commands_of(scenario) {
            for (kind, times) in KINDS.iter().flat_map(|&kind| TIMES.map(|times| (kind, times))) {
                let plan = Sabotage { at, kind, times };
                match run(scenario, plan, None) {
                    Ok((names, _)) => struck.extend(names),
                    Err(failure) => panic!("{}, {plan:?}:\n{failure}", scenario.name),
                }
                runs += 1;
            }
        }
    }
    println!("{runs} runs; struck: {struck:?}");
    let all = [
        "host-unmap",
        "host-protect",
        "host-map",
        "host-release",
        "host-poison",
        "card-unmap",
        "card-protect",
        "card-map",
        "card-resume",
        "card-cancel",
        "card-launch",
        "copy",
        "fill",
    ];
    let missed: Vec<_> = all.into_iter().filter(|name| !struck.contains(name)).collect();
    assert!(missed.is_empty(), "no scenario has {missed:?}");
}

/// The rule is broken, and one of the runs must notice.
fn must_be_noticed(mutation: Mutation) {
    for scenario in &SCENARIOS {
        for at in 0..commands_of(scenario) {
            for times in TIMES {
                let plan = Sabotage { at, kind: StepErrorKind::Os(12), times };
                if let Err(failure) = run(scenario, plan, Some(mutation)) {
                    println!("{mutation:?} in {}: {}", scenario.name, failure.violation);
                    return;
                }
            }
        }
    }
    panic!("{mutation:?} was not noticed");
}

#[test]
fn control_an_agent_that_leaves_without_a_confirmed_unmap_is_noticed() {
    must_be_noticed(Mutation::LeaveUnconfirmed);
}

#[test]
fn control_a_failed_command_that_is_forgotten_is_noticed() {
    must_be_noticed(Mutation::ForgetFailedAnswers);
}

#[test]
fn control_a_step_that_is_tried_for_ever_is_noticed() {
    must_be_noticed(Mutation::RetryForever);
}
