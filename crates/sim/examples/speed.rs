//! How fast the simulator is, and how much memory a page costs.
//!
//! ```text
//! cargo run --release -p farside-sim --example speed              # speed of two programs
//! cargo run --release -p farside-sim --example speed -- memory    # 3 GB of footprint under GRIT
//! ```

use std::sync::Arc;
use std::time::Instant;

use farside_sim::{SimError, Simulation, Spec};
use farside_svm::placement::by_name;
use farside_workloads::{
    Buffer, BufferKind, Cursor, Instruction, LINE_BYTES, Launch, Line, Lines, Workload, first_lines,
};

/// Reads one buffer and writes another, some times over: each wavefront 16 lines at a time.
#[derive(Debug)]
struct Sweep {
    name: &'static str,
    buffers: Vec<Buffer>,
    firsts: Vec<Line>,
    /// Lines of each buffer.
    lines: u32,
    /// Lines that a wavefront reads.
    per_wave: u32,
    /// Whether every wavefront reads from the beginning on, instead of its own part.
    shared: bool,
    launches: u32,
}

const WAVES: u16 = 4;
const LINES: u32 = 16;

impl Sweep {
    fn new(name: &'static str, mib: u64, per_wave: u32, shared: bool, launches: u32) -> Sweep {
        let bytes = mib << 19;
        let buffer = |name: &str| Buffer { name: name.to_owned(), bytes, kind: BufferKind::Data };
        let buffers = vec![buffer("in"), buffer("out")];
        let firsts = first_lines(&buffers);
        let lines = (bytes / LINE_BYTES) as u32;
        Sweep { name, buffers, firsts, lines, per_wave, shared, launches }
    }
}

impl Workload for Sweep {
    fn name(&self) -> &str {
        self.name
    }

    fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    fn launches(&self) -> u32 {
        self.launches
    }

    fn launch(&self, _: u32) -> Launch {
        let groups = self.lines / self.per_wave / u32::from(WAVES);
        Launch { groups, waves: WAVES, groups_per_unit: 8, code: None }
    }

    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        let wave = at.group * u32::from(WAVES) + u32::from(at.wave);
        let (round, phase) = (at.step / 4, at.step % 4);
        at.step += 1;
        if round * LINES >= self.per_wave {
            return Instruction::End;
        }
        let own = wave * self.per_wave + round * LINES;
        let shared = (wave * 37 + round) * LINES % self.lines;
        let source = if self.shared { shared } else { own };
        match phase {
            0 => {
                (0..LINES).for_each(|i| lines.push(Line(self.firsts[0].0 + source + i)));
                Instruction::Load
            }
            1 => Instruction::Wait,
            2 => Instruction::Compute(20),
            _ => {
                (0..LINES).for_each(|i| lines.push(Line(self.firsts[1].0 + own + i)));
                Instruction::Store
            }
        }
    }
}

fn run(program: Sweep, scheme: &str) -> Result<(), SimError> {
    let program: Arc<dyn Workload> = Arc::new(program);
    let pages: u64 = program.buffers().iter().map(|buffer| buffer.bytes.div_ceil(4_096)).sum();
    let placement = by_name(scheme)?;
    let before = resident_bytes();
    let clock = Clock::start();
    let simulation = Simulation::with_placement(&Spec::default(), &program, placement, false)?;
    let ready = clock.seconds();
    let outcome = simulation.run(|_| ())?;
    let seconds = clock.seconds() - ready;
    let accesses = outcome.total.accesses();
    println!(
        "{} {scheme}: {accesses} lines in {seconds:.2} s, {:.2} million a second; {} events, {} faults; \
         set up in {ready:.2} s; simulated {}",
        program.name(),
        accesses as f64 / seconds / 1e6,
        outcome.events,
        outcome.total.faults,
        outcome.time,
    );
    let bytes = peak_bytes().saturating_sub(before);
    println!("  {pages} pages, {} MB at most, {} bytes a page", bytes >> 20, bytes / pages);
    Ok(())
}

/// Time that this process has had a processor, so that others on the machine do not count; plain
/// time where the system does not tell.
struct Clock {
    start: Instant,
    ran: Option<u64>,
}

impl Clock {
    fn start() -> Clock {
        Clock { start: Instant::now(), ran: ran_nanos() }
    }

    fn seconds(&self) -> f64 {
        match (self.ran, ran_nanos()) {
            (Some(before), Some(now)) => (now - before) as f64 / 1e9,
            _ => self.start.elapsed().as_secs_f64(),
        }
    }
}

fn ran_nanos() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// A field of this process's status, in bytes; 0 where there is none.
fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next());
    number.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10
}

fn resident_bytes() -> u64 {
    status("VmRSS")
}

fn peak_bytes() -> u64 {
    status("VmHWM")
}

fn main() -> Result<(), SimError> {
    if std::env::args().nth(1).as_deref() == Some("memory") {
        let scheme = std::env::args().nth(2).unwrap_or_else(|| "grit".to_owned());
        return run(Sweep::new("large", 3_072, 4_096, false, 1), &scheme);
    }
    for scheme in ["on-touch", "duplication"] {
        run(Sweep::new("own", 32, 256, false, 8), scheme)?;
        run(Sweep::new("shared", 32, 256, true, 8), scheme)?;
    }
    Ok(())
}
