//! The driver's counts against the definitions of the uniform schemes (GRIT, section II-B), each
//! written down again in a few lines; and the order of the accesses.

use proptest::prelude::*;

use super::*;
use farside_workloads::Trace;
use farside_workloads::order::accesses;
use farside_workloads::{
    BLOCK_LINES, Buffer, BufferKind, Cursor, Group, Instruction, Launch, Line, Lines, Place,
    Script, Step,
};

const SCHEMES: [&str; 4] = ["on-touch", "first-touch", "access-counter", "duplication"];

/// What is the same for every definition.
struct Definition {
    /// By page; 0 is the host, `n + 1` GPU n.
    owner: Vec<usize>,
    /// By page: memories with a copy, a bit each. Only duplication has several.
    copies: Vec<u32>,
    /// By page: GPUs that map it, a bit each.
    mapped: Vec<u32>,
    /// By GPU and group.
    remote: Vec<Vec<u32>>,
    options: Options,
    counts: Vec<Counts>,
}

impl Definition {
    fn new(pages: usize, gpus: usize, options: &Options) -> Definition {
        Definition {
            owner: vec![0; pages],
            copies: vec![1; pages],
            mapped: vec![0; pages],
            remote: vec![vec![0; pages]; gpus],
            options: options.clone(),
            counts: vec![Counts::default(); gpus],
        }
    }

    fn access(&mut self, scheme: &str, gpu: usize, page: usize, write: bool) {
        let local = match scheme {
            "on-touch" => self.on_touch(gpu, page),
            // These differ in what a counter does.
            "first-touch" | "access-counter" => self.first_touch(gpu, page),
            _ => self.duplication(gpu, page, write),
        };
        let counts = &mut self.counts[gpu];
        counts.reads += u64::from(!write);
        counts.writes += u64::from(write);
        counts.local += u64::from(local);
        counts.remote += u64::from(!local);
        if !local {
            self.count(scheme, gpu, page);
        }
    }

    /// A page moves to whoever touches it.
    fn on_touch(&mut self, gpu: usize, page: usize) -> bool {
        if self.owner[page] != gpu + 1 {
            self.counts[gpu].local_faults += 1;
            self.counts[gpu].migrations += 1;
            self.owner[page] = gpu + 1;
        }
        true
    }

    /// The first one has it; others map it there.
    fn first_touch(&mut self, gpu: usize, page: usize) -> bool {
        if self.owner[page] == 0 {
            self.counts[gpu].local_faults += 1;
            self.counts[gpu].migrations += 1;
            self.owner[page] = gpu + 1;
        }
        self.owner[page] == gpu + 1 || self.map(gpu, page)
    }

    /// Faults unless it is mapped over the link. Always remote.
    fn map(&mut self, gpu: usize, page: usize) -> bool {
        if self.mapped[page] & 1 << gpu == 0 {
            self.counts[gpu].local_faults += 1;
            self.counts[gpu].remote_maps += 1;
            self.mapped[page] |= 1 << gpu;
        }
        false
    }

    /// At the threshold the group moves, under the scheme that has counters.
    fn count(&mut self, scheme: &str, gpu: usize, page: usize) {
        let size = self.options.counter_group_pages as usize;
        let count = &mut self.remote[gpu][page / size];
        *count += 1;
        if *count < self.options.counter_threshold {
            return;
        }
        *count = 0;
        self.counts[gpu].notices += 1;
        let first = page / size * size;
        for page in first..(first + size).min(self.owner.len()) {
            if scheme == "access-counter" && self.owner[page] != gpu + 1 {
                self.counts[gpu].migrations += 1;
                self.owner[page] = gpu + 1;
                self.mapped[page] = 0;
            }
        }
    }

    /// Readers have copies; a write leaves the writer's alone.
    fn duplication(&mut self, gpu: usize, page: usize, write: bool) -> bool {
        let mine = 1 << (gpu + 1);
        let (copies, counts) = (&mut self.copies[page], &mut self.counts[gpu]);
        let has = *copies & mine != 0;
        if has && (!write || *copies == mine) {
            return true;
        }
        match has {
            true => counts.protection_faults += 1,
            false => counts.local_faults += 1,
        }
        match (write, copies.count_ones()) {
            (false, _) => counts.duplications += 1,
            (true, 1) => counts.migrations += 1,
            (true, _) => counts.collapses += 1,
        }
        *copies = if write { mine } else { *copies | mine };
        true
    }
}

/// The counts of a definition for a workload whose buffers are in one block each.
fn defined(workload: &dyn Workload, scheme: &str, options: &Options) -> Vec<Counts> {
    const PAGES: usize = 512;
    let gpus = options.gpus_for(workload);
    // Pages behind the end of a buffer are in no group: each buffer is defined by itself.
    let mut definitions: Vec<Definition> = Vec::new();
    for buffer in workload.buffers() {
        let pages = buffer.bytes.div_ceil(4096) as usize;
        for block in 0..pages.div_ceil(PAGES) {
            let here = (pages - block * PAGES).min(PAGES);
            definitions.push(Definition::new(here, gpus as usize, options));
        }
    }
    for access in shared_accesses(workload, gpus, options.units) {
        let page = access.line.0 as usize / 64;
        let gpu = usize::from(access.place.gpu);
        definitions[page / PAGES].access(scheme, gpu, page % PAGES, access.write);
    }
    let mut counts = vec![Counts::default(); gpus as usize];
    for definition in definitions {
        for (sum, part) in counts.iter_mut().zip(&definition.counts) {
            *sum = sum.plus(part);
        }
    }
    counts
}

fn agree(workload: &dyn Workload, options: &Options) {
    for scheme in SCHEMES {
        let report = replay(workload, scheme, options).unwrap();
        assert_eq!(report.gpus, defined(workload, scheme, options), "{scheme}");
    }
}

/// `(gpu, compute unit, page, write)`.
fn trace(steps: &[(u8, u8, u32, bool)]) -> Trace {
    let access = |&(gpu, unit, page, write)| {
        (gpu, unit, farside_workloads::Access { page, bytes: 64, write })
    };
    let (first, second) = steps.split_at(steps.len() / 2);
    let launches = [first, second].map(|steps| steps.iter().map(access).collect());
    Trace::from_accesses("random", &[20 * 4096, 4 * 4096], &launches).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_driver_does_what_the_definitions_say(
        steps in prop::collection::vec((0..3u8, 0..2u8, 0..24u32, any::<bool>()), 1..300),
        counter_threshold in 1..20u32,
        group in 0..5u32,
    ) {
        let counter_group_pages = 1 << group;
        let gpus = Some(3);
        let options = Options { gpus, counter_threshold, counter_group_pages, ..Options::default() };
        agree(&trace(&steps), &options);
    }

    /// A GPU that is full sends pages away and every access still finds its page.
    #[test]
    fn small_gpus_evict_and_go_on(
        steps in prop::collection::vec((0..3u8, 0..2u8, 0..24u32, any::<bool>()), 50..300),
        percent in 10..60u32,
    ) {
        let trace = trace(&steps);
        let options =
            Options { gpus: Some(3), capacity_percent: Some(percent), ..Options::default() };
        for scheme in SCHEMES {
            let report = replay(&trace, scheme, &options).unwrap();
            prop_assert_eq!(report.total.accesses(), steps.len() as u64);
        }
    }
}

#[test]
fn the_bundled_excerpts_agree_with_the_definitions() {
    for name in Trace::BUNDLED {
        agree(&Trace::bundled(name).unwrap(), &Options::default());
    }
}

/// The numbers that others can compare with: they are in `docs/workloads.md` too.
#[test]
fn the_bundled_excerpts_have_these_counts() {
    // Local faults, protection faults, migrations, duplications, collapses, remote accesses, notices.
    let expected = [
        ("mm", "on-touch", [33_024, 0, 33_024, 0, 0, 0, 0]),
        ("mm", "first-touch", [1_344, 0, 528, 0, 0, 24_576, 96]),
        ("mm", "access-counter", [2_131, 0, 2_064, 0, 0, 24_588, 96]),
        ("mm", "duplication", [1_344, 0, 256, 1_088, 0, 0, 0]),
        ("st", "on-touch", [18_920, 0, 18_920, 0, 0, 0, 0]),
        ("st", "first-touch", [312, 0, 80, 0, 0, 14_772, 48]),
        ("st", "access-counter", [884, 0, 844, 0, 0, 14_824, 48]),
        ("st", "duplication", [7_608, 72, 7_224, 384, 72, 0, 0]),
    ];
    for (name, scheme, counts) in expected {
        let trace = Trace::bundled(name).unwrap();
        let total = replay(&trace, scheme, &Options::default()).unwrap().total;
        let found = [
            total.local_faults,
            total.protection_faults,
            total.migrations,
            total.duplications,
            total.collapses,
            total.remote,
            total.notices,
        ];
        assert_eq!(found, counts, "{name} {scheme}");
    }
}

#[test]
fn reports_are_kept_by_page_on_request() {
    let trace = trace(&[(0, 0, 3, false), (1, 0, 3, true), (0, 0, 21, true)]);
    let options = Options { per_page: true, ..Options::default() };
    let report = replay(&trace, "on-touch", &options).unwrap();
    let page = |gpus, reads, writes, moves| PageCounts {
        gpus,
        reads,
        writes,
        remote: 0,
        faults: moves,
        copies: moves,
    };
    // The second buffer begins at page 512.
    assert_eq!(report.by_page, [(3, page(0b11, 1, 1, 2)), (513, page(0b1, 0, 1, 1))]);
    assert!(replay(&trace, "on-touch", &Options::default()).unwrap().by_page.is_empty());
}

#[test]
fn options_that_cannot_be_are_named() {
    let trace = trace(&[(0, 0, 3, false), (1, 0, 3, true)]);
    let refused = |options: Options| replay(&trace, "on-touch", &options).unwrap_err().to_string();
    let base = Options::default;
    assert!(refused(Options { gpus: Some(1), ..base() }).contains("gpus is 1"));
    assert!(refused(Options { gpus: Some(17), ..base() }).contains("gpus is 17"));
    assert!(refused(Options { units: 0, ..base() }).contains("units is 0"));
    assert!(refused(Options { counter_threshold: 0, ..base() }).contains("counter_threshold"));
    assert!(refused(Options { counter_group_pages: 3, ..base() }).contains("counter_group_pages"));
    assert!(refused(Options { capacity_percent: Some(0), ..base() }).contains("capacity_percent"));
    assert!(replay(&trace, "in-touch", &base()).unwrap_err().to_string().contains("in-touch"));
}

/// On each of two GPUs a wavefront reads its arguments (line 0) and writes a line of data.
fn with_arguments() -> Script {
    let group = |gpu| Group {
        place: Some(Place { gpu, unit: 0 }),
        waves: vec![vec![
            Step::LoadScalar(vec![Line(0)]),
            Step::Store(vec![Line(BLOCK_LINES + u32::from(gpu))]),
        ]],
    };
    Script::new("arguments", &[4096, 2 * 4096]).with_launch(vec![group(0), group(1)])
}

#[test]
fn what_every_gpu_has_its_own_copy_of_is_left_out() {
    let options = Options { per_page: true, ..Options::default() };
    let of = |script: &Script| replay(script, "on-touch", &options).unwrap();
    let (shared, own) = (of(&with_arguments()), of(&with_arguments().per_gpu(0)));
    assert_eq!((shared.pages, shared.total.reads, shared.total.writes), (3, 2, 2));
    assert_eq!((shared.total.faults(), shared.by_page.len()), (4, 2));
    assert_eq!((own.pages, own.total.reads, own.total.writes), (2, 0, 2));
    assert_eq!((own.total.faults(), own.total.migrations), (2, 2));
    let pages: Vec<u32> = own.by_page.iter().map(|(page, _)| *page).collect();
    assert_eq!(pages, [512], "pages are numbered as before");
}

#[test]
fn the_room_of_a_gpu_is_a_share_of_what_is_shared() {
    // One page of four fits: with the arguments' hundred pages it would be all.
    let steps = (0..4).map(|page| Step::Store(vec![Line(BLOCK_LINES + 64 * page)])).collect();
    let group = Group { place: Some(Place { gpu: 0, unit: 0 }), waves: vec![steps] };
    let script = Script::new("room", &[100 * 4096, 4 * 4096]).with_launch(vec![group]).per_gpu(0);
    let options = Options { capacity_percent: Some(25), ..Options::default() };
    assert_eq!(replay(&script, "on-touch", &options).unwrap().total.evictions, 3);
}

#[test]
fn a_line_in_no_buffer_is_an_error_that_names_it() {
    for line in [64, 70, BLOCK_LINES, u32::MAX] {
        let steps = vec![Step::Load(vec![Line(3)]), Step::Store(vec![Line(line)])];
        let group = Group { place: Some(Place { gpu: 1, unit: 2 }), waves: vec![steps] };
        let script = Script::new("wild", &[4096]).with_launch(vec![group]);
        let error = replay(&script, "on-touch", &Options::default()).unwrap_err().to_string();
        let expected = format!(
            "access 1: launch 0 of wild accesses line {line} on GPU 1, compute unit 2, which is in none"
        );
        assert!(error.starts_with(&expected), "{error}");
    }
}

/// Two wavefronts a work-group, each: a load of line `10 * group + wave`, a barrier, a store.
#[derive(Debug)]
struct Barriers(Vec<Buffer>);

impl Workload for Barriers {
    fn name(&self) -> &str {
        "barriers"
    }

    fn buffers(&self) -> &[Buffer] {
        &self.0
    }

    fn launches(&self) -> u32 {
        1
    }

    fn launch(&self, _: u32) -> Launch {
        Launch { groups: 5, waves: 2, groups_per_unit: 1, code: None }
    }

    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        at.step += 1;
        let line = Line(10 * at.group + u32::from(at.wave));
        match at.step {
            1 => {
                lines.push(line);
                Instruction::Load
            }
            2 => Instruction::Barrier,
            3 => {
                lines.push(line);
                Instruction::Store
            }
            _ => Instruction::End,
        }
    }
}

#[test]
fn compute_units_take_turns_and_wavefronts_stop_at_barriers() {
    let workload =
        Barriers(vec![Buffer { name: "data".to_owned(), bytes: 4096, kind: BufferKind::Data }]);
    let order = |gpus, units| -> Vec<(u8, u8, u32, bool)> {
        accesses(&workload, gpus, units)
            .map(|a| (a.place.gpu, a.place.unit, a.line.0, a.write))
            .collect()
    };
    // One GPU, one compute unit: group after group.
    let alone: Vec<_> = order(1, 1).iter().map(|a| (a.2, a.3)).take(5).collect();
    assert_eq!(alone, [(0, false), (1, false), (0, true), (1, true), (10, false)]);
    // Two GPUs: three groups and two. Two compute units: GPU 0 has 0, 2 and 1; GPU 1 has 3 and 4.
    let turns: Vec<_> = order(2, 2).into_iter().take(5).collect();
    let first = |gpu, unit, group: u32| (gpu, unit, 10 * group, false);
    assert_eq!(turns[..4], [first(0, 0, 0), first(1, 0, 3), first(0, 1, 1), first(1, 1, 4)]);
    assert_eq!(turns[4], (0, 0, 1, false));
    assert_eq!(order(2, 2).len(), 20);
    assert_eq!(order(16, 64).len(), 20);
}

#[test]
fn recorded_work_groups_run_where_they_ran() {
    let trace = trace(&[(0, 1, 0, false), (2, 0, 1, false), (0, 1, 2, true), (2, 0, 3, false)]);
    let places = accesses(&trace, 3, 2).map(|a| (a.launch, a.place));
    let place = |gpu, unit| Place { gpu, unit };
    let expected = [(0, place(2, 0)), (0, place(0, 1)), (1, place(2, 0)), (1, place(0, 1))];
    assert_eq!(places.collect::<Vec<_>>(), expected);
}
