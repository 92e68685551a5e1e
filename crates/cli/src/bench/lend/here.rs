//! What is borrowed on its own host: a card, whose memory is mapped as if it were not borrowed, and a
//! foreign device, whose registers are trapped; and the interrupts of one that is borrowed from another.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside::Space;
use farside_linux::lock::lock;
use farside_vfio_user::device::{irq, region};
use farside_vfio_user::unix::{Listener, Session, UnixClient};
use farside_vfio_user::{
    Bus, Device, DeviceInfo, Errno, Irq, IrqAction, IrqData, Region, Server, SetIrqs,
};
use rustix::event::{EventfdFlags, eventfd};

use super::super::{BenchError, Effort, Row, Target, median, pin};
use super::bulk::there_and_back;
use super::hosts::{Hosts, LIMIT, failed};
use super::peers::tcp_ping_pong;

/// Bytes that are moved.
const BYTES: usize = 64 << 20;
/// Registers that are read for each sample, and interrupts.
const READS: usize = 400;
const RAISES: usize = 100;
/// An interrupt comes when whoever waits for it sleeps.
const PAUSE: Duration = Duration::from_micros(300);

/// The rows.
pub(super) fn run(effort: Effort, hosts: &Hosts) -> Result<Vec<Row>, BenchError> {
    let device = Foreign::serve(hosts)?;
    let mut rows = vec![moves(effort, hosts)?];
    // Alone with its device, before it is lent.
    let direct = device.reads(effort)?;
    hosts.lend(NAME, &device.socket)?;
    rows.push(registers(effort, hosts, direct)?);
    rows.push(interrupts(effort, hosts, &device)?);
    Ok(rows)
}

fn moves(effort: Effort, hosts: &Hosts) -> Result<Row, BenchError> {
    let own = {
        let _pinned = pin(hosts.server_cpu());
        hosts.serve_card("card9")?
    };
    let (_borrowing, borrowed) = hosts.borrow("a")?;
    let tune = |config: &mut farside_svm::Config| config.keep_clean_copies = false;
    let mut sides = Vec::new();
    for place in [own, borrowed] {
        let space = Space::builder().cards_at(vec![place]).tune(tune).build()?;
        let buffer = space.alloc::<u64>(BYTES / 8)?;
        sides.push((buffer, space, Vec::new()));
    }
    for round in 0..=2 * effort.samples as u64 {
        for (buffer, space, samples) in &mut sides {
            buffer.fill(round);
            let seconds = there_and_back(space, buffer)?;
            if buffer.iter().any(|&word| word != round) {
                return Err(failed("what came back from the card is not what went there"));
            }
            // The first makes everything warm.
            if round > 0 {
                samples.push(seconds);
            }
        }
    }
    let [own, borrowed] = [0, 1].map(|at| median(std::mem::take(&mut sides[at].2)));
    let rate = |seconds: f64| 2.0 * BYTES as f64 / seconds / 1e6;
    let detail = format!("{:.0} MB/s; not borrowed {:.0} MB/s", rate(borrowed), rate(own));
    let name = "DMA, mapped BARs, same machine";
    Ok(Row::new(name, own / borrowed, Target::AtLeast(0.97), "x not borrowed", detail))
}

fn registers(effort: Effort, hosts: &Hosts, direct: f64) -> Result<Row, BenchError> {
    let (_borrowing, socket) = hosts.borrow_device("a", NAME)?;
    let trapped = reads(&socket, effort)?;
    let detail = format!("{trapped:.1} µs; direct {direct:.1} µs");
    let name = "trapped registers, foreign device";
    Ok(Row::new(name, trapped / direct, Target::AtMost(2.2), "x direct", detail))
}

fn interrupts(effort: Effort, hosts: &Hosts, device: &Foreign) -> Result<Row, BenchError> {
    let rounds = effort.samples * RAISES;
    let wake = event()?;
    let bare = latency(hosts, rounds, &wake, &wake)?;
    let half = tcp_ping_pong(hosts.server_cpu())?.micros(rounds)? / 2.0;
    let (_borrowing, socket) = hosts.borrow_device("b", NAME)?;
    let mut client = connect(&socket)?;
    let heard = Arc::new(event()?);
    client
        .irqs_assign(irq::MSIX, 0, &[Arc::clone(&heard)], IrqAction::Trigger)
        .map_err(|error| failed(&error.to_string()))?;
    // A read comes behind what was set up.
    read(&mut client)?;
    let raised = lock(&device.raised).pop().ok_or_else(|| failed("no interrupt is set up"))?;
    let through = latency(hosts, rounds, &raised, &heard)?;
    let detail = format!(
        "{through:.1} µs from another host; half a TCP ping-pong {half:.1} µs, an eventfd wake {bare:.1} µs"
    );
    let name = "interrupt to the client's eventfd";
    let unit = "x half a trip and a wake";
    Ok(Row::new(name, through / (half + bare), Target::AtMost(1.2), unit, detail))
}

/// Microseconds from one eventfd's being raised, on the server's processor, to another's being heard.
fn latency(
    hosts: &Hosts,
    rounds: usize,
    raised: &OwnedFd,
    heard: &OwnedFd,
) -> Result<f64, BenchError> {
    let server = hosts.server_cpu();
    let (begun, raised) = (Mutex::new(Instant::now()), raised.as_fd());
    let mut samples = Vec::with_capacity(rounds);
    rustix::io::ioctl_fionbio(heard, false).map_err(std::io::Error::from)?;
    for _ in 0..rounds {
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                let _pinned = pin(server);
                std::thread::sleep(PAUSE);
                *lock(&begun) = Instant::now();
                rustix::io::write(raised, &1u64.to_ne_bytes())
            });
            rustix::io::read(heard, &mut [0; 8]).map(|_| Instant::now())
        });
        let ended = outcome.map_err(std::io::Error::from)?;
        samples.push(ended.duration_since(*lock(&begun)).as_secs_f64() * 1e6);
    }
    Ok(median(samples))
}

/// Its name for borrowers.
const NAME: &str = "nic0";

/// A device in a thread of this program, on the server's processor.
struct Foreign {
    socket: PathBuf,
    /// By what its first interrupt is raised, the newest last.
    raised: Arc<Mutex<Vec<OwnedFd>>>,
}

impl Foreign {
    fn serve(hosts: &Hosts) -> Result<Foreign, BenchError> {
        let socket = hosts.folder().join("nic0.sock");
        let listener = Listener::bind(&socket)?;
        let raised = Arc::new(Mutex::new(Vec::new()));
        let (known, server) = (Arc::clone(&raised), hosts.server_cpu());
        let serve = move || {
            let _pinned = pin(server);
            while let Ok(connection) = listener.accept() {
                let Ok(server) = Server::new(info(), Default::default()) else { return };
                let mut device = Words { words: HashMap::new(), raised: Arc::clone(&known) };
                // One that ends badly has told its client.
                let _ = Session::new(connection, server).run(&mut device);
            }
        };
        std::thread::Builder::new().name("bench-device".into()).spawn(serve)?;
        Ok(Foreign { socket, raised })
    }

    fn reads(&self, effort: Effort) -> Result<f64, BenchError> {
        reads(&self.socket, effort)
    }
}

fn info() -> DeviceInfo {
    DeviceInfo::pci()
        .region(region::BAR0, Region::read_write(4096))
        .irq(irq::MSIX, Irq::messages(1))
}

/// Registers that keep what is written to them.
struct Words {
    words: HashMap<u64, Vec<u8>>,
    raised: Arc<Mutex<Vec<OwnedFd>>>,
}

impl Device for Words {
    fn region_read(&mut self, _: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        let kept = self.words.get(&offset).into_iter().flatten();
        data.iter_mut().zip(kept).for_each(|(to, byte)| *to = *byte);
        Ok(())
    }

    fn region_write(
        &mut self,
        _: &mut Bus<'_>,
        _: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        self.words.insert(offset, data.to_vec());
        Ok(())
    }

    fn set_irqs(&mut self, set: SetIrqs<'_>) -> Result<(), Errno> {
        if let IrqData::EventFds(fds) = set.data {
            lock(&self.raised).extend(fds);
        }
        Ok(())
    }

    fn reset(&mut self, _: &mut Bus<'_>) -> Result<(), Errno> {
        self.words.clear();
        Ok(())
    }
}

fn connect(socket: &std::path::Path) -> Result<UnixClient, BenchError> {
    UnixClient::connect(socket, LIMIT).map_err(|error| failed(&error.to_string()))
}

/// Microseconds of a register read.
fn reads(socket: &std::path::Path, effort: Effort) -> Result<f64, BenchError> {
    let mut client = connect(socket)?;
    let mut samples = Vec::with_capacity(effort.samples * READS);
    for _ in 0..effort.samples * READS {
        let begun = Instant::now();
        read(&mut client)?;
        samples.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(samples))
}

fn read(client: &mut UnixClient) -> Result<(), BenchError> {
    let outcome = client.region_read(region::BAR0, 0, &mut [0; 4]);
    outcome.map_err(|error| failed(&error.to_string()))
}

fn event() -> Result<OwnedFd, BenchError> {
    let made = eventfd(0, EventfdFlags::CLOEXEC);
    Ok(made.map_err(std::io::Error::from)?)
}
