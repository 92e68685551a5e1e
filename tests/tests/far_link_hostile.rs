//! Ends of links that lie, and programs that lie to them: an error in time, and nothing that lands.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{CardId, CardPlace, Dialled, Write};
use farside_link::control::{CLOSE, CREDIT, HELLO};
use farside_link::wire::{HEADER_BYTES, Header};
use farside_link::{Class, Kind};
use farside_types::Span;
use farside_vfio_user::unix::Plain;
use harness::Prng;
use harness::live::served::{Exercise, FarPair, LinkLie, LyingLink, builder_at, place};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;
const FAR: CardId = CardId(0);
const NEAR: CardId = CardId(1);

#[test]
fn invariant_44_an_end_beside_a_card_that_lies_gets_an_error_in_time() {
    const AT_A_TIME: usize = 13;
    const TRIES: u32 = 6;
    within(2 * LIMIT, "lies", || {
        let lies = [
            LinkLie::End,
            LinkLie::Silence,
            LinkLie::Half,
            LinkLie::Long(3),
            LinkLie::Long(u32::MAX),
            LinkLie::Twice,
            LinkLie::Garbled(0),
            LinkLie::Garbled(1),
            LinkLie::Garbled(6),
            LinkLie::Garbled(40),
            LinkLie::Flood,
            LinkLie::Unasked,
            LinkLie::Entries,
        ];
        let cases = [5, 41].map(|after| lies.map(|lie| (lie, after))).concat();
        // Most of the time is the patience of a program whose card is not there: it is spent together.
        let (next, told) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let tell = || {
            let pair = FarPair::new();
            while let Some(&(lie, after)) = cases.get(next.fetch_add(1, SeqCst)) {
                // On a busy machine the limits of a program may end its connection before the lie.
                let is_told = (0..TRIES).any(|attempt| is_told(&pair, lie, after, attempt));
                told.fetch_add(usize::from(is_told), SeqCst);
            }
        };
        std::thread::scope(|scope| (0..AT_A_TIME).for_each(|_| drop(scope.spawn(tell))));
        assert_eq!(told.into_inner(), cases.len(), "not all lies were told");
    });
}

/// Runs a program on a card whose link lies once, after so many frames, and one that does not lie. Says whether
/// the lie was told.
fn is_told(pair: &FarPair, lie: LinkLie, after: u32, attempt: u32) -> bool {
    const TIME: Duration = Duration::from_secs(15);
    let socket = pair.folder.join(&format!("{lie:?}-{after}-{attempt}.sock"));
    let liar = LyingLink::start(socket, pair.host.folder(), lie, after);
    let begun = Instant::now();
    let opened = builder_at([liar.place(), place(&pair.near)])
        .tune(|config| {
            config.limits.drain = Span::from_millis(200);
            config.limits.copy = Span::from_millis(300);
        })
        .build();
    assert!(begun.elapsed() < TIME, "{lie:?}: {:?}", begun.elapsed());
    let Ok(space) = opened else { return true };
    let end = begun + TIME / 2;
    while Instant::now() < end {
        let has_lied = liar.lies() > 0;
        let mut data = space.alloc::<u64>(100 * PAGE).unwrap();
        data.fill(1);
        let begun = Instant::now();
        let kernel = space.kernel("farside.increment").on(FAR);
        let _ = kernel.time_limit(Duration::from_millis(500)).call(Write(&mut data));
        assert!(begun.elapsed() < TIME, "{lie:?}, {after}: {:?}", begun.elapsed());
        let mut data = space.alloc::<u64>(4 * PAGE).unwrap();
        data.fill(1);
        space.kernel("farside.increment").on(NEAR).call(Write(&mut data)).unwrap();
        assert!(data.iter().all(|&word| word == 2), "{lie:?} after {after}");
        if has_lied {
            return true;
        }
    }
    false
}

/// A program that speaks for itself: the bytes of its link.
struct Raw {
    stream: UnixStream,
    sequence: u64,
}

impl Raw {
    /// Comes to a host, is greeted, and may send as much as any program.
    fn new(pair: &FarPair) -> Raw {
        static SESSIONS: AtomicU64 = AtomicU64::new(1);
        let stream = UnixStream::connect(pair.host.folder().join("fn0.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut raw = Raw { stream, sequence: 0 };
        let session = SESSIONS.fetch_add(1, SeqCst);
        let words = [session, 0, 0, 1].map(u64::to_le_bytes).concat();
        raw.stream
            .write_all(&frame(HELLO, 0, 0, &[b"FSLK\x01\0\x01\0", &words[..]].concat()))
            .unwrap();
        raw.stream.read_exact(&mut [0; HEADER_BYTES + 18 + HEADER_BYTES + 48]).unwrap();
        let much = [1u64 << 40; 6].map(u64::to_le_bytes).concat();
        raw.stream.write_all(&frame(CREDIT, 0, 0, &much)).unwrap();
        raw
    }

    /// Sends frames; they may end it while they are written.
    fn say(&mut self, frames: &[(Kind, Vec<u8>)]) {
        for (kind, payload) in frames {
            let tag = if kind.class() == Class::Posted { 0 } else { self.sequence + 1 };
            let _ = self.stream.write_all(&frame(kind.number(), self.sequence, tag, payload));
            self.sequence += 1;
        }
    }

    /// Takes what comes until the other end closes the link, or hangs up; then hangs up as well, as programs do.
    fn leave_when_told(self) {
        let mut stream = &self.stream;
        let mut header = [0; HEADER_BYTES];
        while stream.read_exact(&mut header).is_ok() {
            let header = Header::decode(&header).expect("a header");
            let mut payload = vec![0; header.length as usize];
            if header.kind == CLOSE || stream.read_exact(&mut payload).is_err() {
                return;
            }
        }
    }
}

fn frame(kind: u16, sequence: u64, tag: u64, payload: &[u8]) -> Vec<u8> {
    let header = Header { kind, length: payload.len() as u32, sequence, acknowledged: 0, tag };
    [&header.encode()[..], payload].concat()
}

fn write(at: u64, bytes: usize) -> (Kind, Vec<u8>) {
    (Kind::MemoryWrite, [&at.to_le_bytes()[..], &vec![9; bytes]].concat())
}

fn read(at: u64, bytes: u32) -> (Kind, Vec<u8>) {
    (Kind::MemoryRead, [&at.to_le_bytes()[..], &bytes.to_le_bytes()].concat())
}

fn read_behind(at: u64, bytes: u32) -> (Kind, Vec<u8>) {
    let fields = [&1u64.to_le_bytes()[..], &at.to_le_bytes(), &bytes.to_le_bytes()].concat();
    (Kind::MemoryReadBehind, fields)
}

#[test]
fn invariant_55_a_program_reaches_the_memory_of_its_card_over_a_link_and_nothing_beside_it() {
    within(LIMIT, "a program that lies", || {
        let pair = FarPair::new();
        let frames = u64::from(pair.far.config().frames);
        let end = frames * 4096;
        let fill = |at: u64, bytes: u64| {
            (Kind::MemoryFill, [&at.to_le_bytes()[..], &bytes.to_le_bytes(), &[0]].concat())
        };
        let map = |bus: u64, bytes: u64| {
            (Kind::DmaMap, [&bus.to_le_bytes()[..], &bytes.to_le_bytes(), &[3, 0, 0, 0]].concat())
        };
        let register = |region: u32, bytes: usize| {
            (Kind::RegionWrite, [&region.to_le_bytes()[..], &[0; 8], &vec![0; bytes]].concat())
        };
        let get = |bytes: u32| (Kind::RegionRead, [&[0; 12][..], &bytes.to_le_bytes()].concat());
        let entries = (Kind::RingEntries, vec![0; 8 + 64]);
        let memory = "outside the card's memory";
        let order = "at the wrong time";
        let nonsense = "makes no sense";
        let link = "the other end";
        let cases = [
            (vec![write(end, 8)], memory),
            (vec![read_behind(end - 8, 16)], memory),
            (vec![read_behind(0, 0)], memory),
            (vec![write(end - 4, 8)], memory),
            (vec![write(u64::MAX, 1)], memory),
            (vec![fill(end - 8, 16)], memory),
            (vec![fill(8, u64::MAX)], memory),
            (vec![fill(0, 0)], memory),
            (vec![read(end, 4096)], memory),
            (vec![read(end - 1, 2)], memory),
            (vec![read(0, 0)], memory),
            (vec![entries], order),
            (vec![map(1 << 32, 1 << 40)], order),
            (vec![map(1 << 32, 0)], order),
            (vec![map(1, 4096)], order),
            (vec![map(u64::MAX - 4095, 4096)], order),
            (vec![map(1 << 32, 4096), map(1 << 33, 4096)], order),
            (vec![register(0, 3)], nonsense),
            (vec![register(2, 4)], order),
            (vec![get(16)], nonsense),
            (vec![(Kind::Reset, Vec::new())], nonsense),
            (vec![(Kind::Describe, Vec::new())], nonsense),
            (vec![(Kind::Interrupt, vec![0; 8])], order),
            (vec![(Kind::Done, Vec::new())], link),
            (vec![(Kind::Barrier, vec![0])], link),
            (vec![write(0, (64 << 10) + 8)], link),
            (vec![read(0, (1 << 20) + 1)], link),
            (vec![read(0, 1 << 20); 200], link),
        ];
        for (number, (frames, why)) in cases.into_iter().enumerate() {
            let ended = pair.host.ended().len();
            let mut program = Raw::new(&pair);
            program.say(&frames);
            if number == 0 {
                // One that stays is hung up on.
                let _ = program.stream.read_to_end(&mut Vec::new());
            } else {
                program.leave_when_told();
            }
            let until = Instant::now() + Duration::from_secs(20);
            while pair.host.ended().len() == ended {
                assert!(Instant::now() < until, "{why}: {frames:?} were not refused");
                std::thread::sleep(Duration::from_millis(1));
            }
            let (report, error) = pair.host.ended()[ended].clone();
            let error = error.unwrap_or_default();
            assert!(error.contains(why), "{error}, not {why}: {frames:?}");
            assert_eq!(report.refusals, 1, "it is counted");
            assert_eq!((report.bytes_in, report.bytes_filled), (0, 0), "something has landed");
        }
        // The next program has the card as if nothing had been.
        let space = pair.builder().build().unwrap();
        let mut exercise = Exercise::new(&space, 80);
        exercise.run(FAR, NEAR).unwrap();
        assert_eq!(exercise.check(), 0);
    });
}

/// Negative control: bytes within the card's memory do land, so the same way is open to what is refused.
#[test]
fn control_what_a_program_puts_within_its_cards_memory_lands() {
    within(LIMIT, "a write", || {
        let pair = FarPair::new();
        let mut program = Raw::new(&pair);
        program.say(&[write(4096, 4096), read(4096, 64)]);
        let mut answer = [0; HEADER_BYTES + 5 + 64];
        program.stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[HEADER_BYTES + 5..], [9; 64]);
    });
}

/// A program that is stopped says nothing either, by a debugger perhaps: its card is there when it goes on.
#[test]
fn a_program_that_says_nothing_for_long_keeps_its_card() {
    within(LIMIT, "silence", || {
        let pair = FarPair::new();
        let mut program = Raw::new(&pair);
        program.say(&[write(0, 64)]);
        // Longer than ends of other links do without a word.
        std::thread::sleep(Duration::from_secs(4));
        program.say(&[read(0, 64)]);
        // What the end says meanwhile comes in front of it.
        loop {
            let mut header = [0; HEADER_BYTES];
            program.stream.read_exact(&mut header).unwrap();
            let header = Header::decode(&header).unwrap();
            let mut payload = vec![0; header.length as usize];
            program.stream.read_exact(&mut payload).unwrap();
            if header.kind == Kind::Data.number() {
                assert_eq!(payload[5..], [9; 64]);
                break;
            }
        }
        assert!(pair.host.ended().is_empty());
    });
}

/// A way to a host on which nothing moves any more, once it is told so.
struct Stall {
    socket: std::path::PathBuf,
    stalls: Arc<AtomicBool>,
}

impl Stall {
    fn start(pair: &FarPair) -> Stall {
        let socket = pair.folder.join("stall.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let stalls = Arc::new(AtomicBool::new(false));
        let (host, is_stalled) = (pair.host.folder().join("fn0.sock"), Arc::clone(&stalls));
        std::thread::spawn(move || {
            for program in listener.incoming().flatten() {
                let Ok(card) = UnixStream::connect(&host) else { return };
                for (from, to) in [(&program, &card), (&card, &program)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let is_stalled = Arc::clone(&is_stalled);
                    std::thread::spawn(move || {
                        let mut bytes = vec![0; 1 << 14];
                        while let Ok(count @ 1..) = from.read(&mut bytes) {
                            while is_stalled.load(SeqCst) {
                                std::thread::sleep(Duration::from_millis(1));
                            }
                            if to.write_all(&bytes[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Stall { socket, stalls }
    }

    fn place(&self) -> CardPlace {
        let socket = self.socket.clone();
        CardPlace::Link(Dialled::new("a link that stalls", move || {
            Ok(Box::new(Plain::new(UnixStream::connect(&socket)?)) as _)
        }))
    }
}

#[test]
fn invariant_46_a_link_on_which_nothing_moves_makes_nobody_else_wait() {
    within(LIMIT, "a stall", || {
        let pair = FarPair::new();
        let stall = Stall::start(&pair);
        let space = builder_at([stall.place(), place(&pair.near)])
            .tune(|config| {
                config.limits.drain = Span::from_millis(2_000);
                config.limits.copy = Span::from_millis(3_000);
            })
            .build()
            .unwrap();
        // More than socket and connection take: the rest waits in the program's memory.
        let mut much = space.alloc::<u64>(3000 * PAGE).unwrap();
        much.fill(1);
        let mut other = space.alloc::<u64>(40 * PAGE).unwrap();
        other.fill(1);
        stall.stalls.store(true, SeqCst);
        std::thread::scope(|scope| {
            let moves = scope.spawn(|| space.migrate(&much, FAR));
            let end = Instant::now() + Duration::from_secs(2);
            let (mut longest, mut turns) = (Duration::ZERO, 1);
            while Instant::now() < end {
                let begun = Instant::now();
                space.kernel("farside.increment").on(NEAR).call(Write(&mut other)).unwrap();
                turns += 1;
                assert!(other.iter().all(|&word| word == turns));
                longest = longest.max(begun.elapsed());
            }
            assert!(longest < Duration::from_secs(1), "another card waited for {longest:?}");
            assert!(turns > 10, "only {turns} turns");
            assert!(!moves.is_finished(), "it did not stall");
            // Whatever has become of the move, it ends.
            let _ = moves.join().unwrap();
        });
        stall.stalls.store(false, SeqCst);
        let end = Instant::now() + Duration::from_secs(20);
        while space.kernel("farside.nop").on(FAR).call(()).is_err() {
            assert!(Instant::now() < end, "the card does not come back");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(much.iter().all(|&word| word == 1), "what had not left the host is gone");
        space.check().unwrap();
    });
}

/// A program that speaks for itself and has started its card, with rings of 8 entries.
struct RawProgram {
    raw: Raw,
    put: u32,
    /// Completions that it has taken.
    taken: u32,
}

fn register(offset: u64, value: &[u8]) -> (Kind, Vec<u8>) {
    (Kind::RegionWrite, [&[0; 4][..], &offset.to_le_bytes(), value].concat())
}

fn ring(kind: Kind, ring: u32, index: u32, entries: &[u8]) -> (Kind, Vec<u8>) {
    (kind, [&ring.to_le_bytes()[..], &index.to_le_bytes(), entries].concat())
}

impl RawProgram {
    /// Bus address of its rings; entries; bytes of a ring.
    const RINGS: (u64, u32, u64) = (1 << 32, 8, 4096);

    fn start(pair: &FarPair) -> RawProgram {
        let mut raw = Raw::new(pair);
        let (bus, entries, bytes) = RawProgram::RINGS;
        let all = [&bus.to_le_bytes()[..], &(8 * bytes).to_le_bytes(), &[3, 0, 0, 0]].concat();
        raw.say(&[(Kind::DmaMap, all)]);
        for ring in 0..4 {
            let first = 0x200 + 0x20 * ring;
            raw.say(&[
                register(first, &(bus + ring * bytes).to_le_bytes()),
                register(first + 8, &entries.to_le_bytes()),
                register(first + 12, &(ring as u32).to_le_bytes()),
            ]);
        }
        raw.say(&[register(0x100, &1u32.to_le_bytes())]);
        RawProgram { raw, put: 0, taken: 0 }
    }

    /// The next frame from the end beside the card.
    fn read(&mut self) -> (u16, Vec<u8>) {
        let mut header = [0; HEADER_BYTES];
        self.raw.stream.read_exact(&mut header).unwrap();
        let header = Header::decode(&header).unwrap();
        let mut payload = vec![0; header.length as usize];
        self.raw.stream.read_exact(&mut payload).unwrap();
        (header.kind, payload)
    }

    /// Sends a command of two words.
    fn send(&mut self, tag: u64, head: u64) {
        let mut entry = [0; 64];
        entry[..8].copy_from_slice(&tag.to_le_bytes());
        entry[8..16].copy_from_slice(&head.to_le_bytes());
        self.raw.say(&[
            ring(Kind::RingConsumed, 1, self.taken, &[]),
            ring(Kind::RingEntries, 0, self.put, &entry),
        ]);
        self.put += 1;
    }

    /// The tag of the next completion.
    fn completed(&mut self) -> u64 {
        loop {
            let (kind, payload) = self.read();
            if kind == Kind::RingEntries.number() {
                assert_eq!(payload[0], 1, "an entry of another ring");
                self.taken += 1;
                return u64::from_le_bytes(payload[8..16].try_into().unwrap());
            }
        }
    }
}

#[test]
fn a_completion_that_interrupts_nobody_comes_by_itself() {
    within(LIMIT, "a quiet completion", || {
        let pair = FarPair::new();
        let mut program = RawProgram::start(&pair);
        const NOP: u64 = 1;
        const QUIET: u64 = 1 << 18;
        program.send(7, NOP);
        assert_eq!(program.completed(), 7);
        // Most are found at once, because the end is still awake.
        for tag in 8..120 {
            let begun = Instant::now();
            program.send(tag, NOP | QUIET);
            assert_eq!(program.completed(), tag);
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        }
    });
}

/// What a hostile program could send next: sound frames with changed bytes, of every kind, and nonsense.
fn hostile(rng: &mut Prng, program: &mut RawProgram) -> Vec<u8> {
    let word = |rng: &mut Prng| match rng.below(5) {
        0 => rng.bits(),
        1 => u64::MAX - rng.below(9000),
        2 => (1 << 32) + rng.below(9 * 4096),
        3 => rng.below(64 << 20),
        _ => rng.below(0x1100),
    };
    let bytes = |rng: &mut Prng, most: u64| {
        (0..rng.below(most)).map(|_| rng.bits() as u8).collect::<Vec<u8>>()
    };
    let (kind, payload) = match rng.below(9) {
        0 => register(word(rng), &word(rng).to_le_bytes()[..[4, 8][rng.below(2) as usize]]),
        1 => {
            let (mut entries, count) = (Vec::new(), 1 + rng.below(3));
            for _ in 0..count {
                let opcodes = [0x01, 0x02, 0x10, 0x12, 0x20, 0x30, 0x31, 0x40, 0x41, 0x99];
                let opcode = opcodes[rng.below(10) as usize] | rng.below(8) << 16;
                for value in [rng.bits(), opcode] {
                    entries.extend(value.to_le_bytes());
                }
                (0..6).for_each(|_| entries.extend((word(rng) * rng.below(2)).to_le_bytes()));
            }
            let first = program.put;
            program.put += count as u32;
            ring(Kind::RingEntries, rng.below(4) as u32 & rng.below(4) as u32, first, &entries)
        }
        2 => (Kind::MemoryWrite, [&word(rng).to_le_bytes()[..], &bytes(rng, 5000)].concat()),
        3 => {
            let words = [word(rng), word(rng) & 0xf_ffff].map(u64::to_le_bytes).concat();
            (Kind::MemoryFill, [&words[..], &[0]].concat())
        }
        4 => read(word(rng), word(rng) as u32),
        5 => (Kind::DmaWrite, [&word(rng).to_le_bytes()[..], &bytes(rng, 200)].concat()),
        6 => ring(Kind::RingConsumed, rng.below(4) as u32, rng.below(3) as u32, &[]),
        7 => (Kind::RegionRead, [&[0; 4][..], &word(rng).to_le_bytes(), &[8, 0, 0, 0]].concat()),
        _ => {
            let kinds = Kind::ALL;
            (kinds[rng.below(kinds.len() as u64) as usize], bytes(rng, 300))
        }
    };
    let sequence = program.raw.sequence;
    program.raw.sequence += 1;
    let tag = if kind.class() == Class::Posted { 0 } else { sequence + 1 };
    let mut sent = frame(kind.number(), sequence, tag, &payload);
    if rng.chance(100) {
        let at = rng.below(sent.len() as u64) as usize;
        sent[at] ^= 1 << rng.below(8);
    }
    sent
}

#[test]
fn hostile_programs_at_random_end_their_own_links_and_nothing_else() {
    let seed = std::env::var("FARSIDE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    within(LIMIT, "hostile programs", || {
        let pair = FarPair::new();
        let (mut rng, mut refused) = (Prng::new(seed), 0);
        for round in 0..60 {
            let ended = pair.host.ended().len();
            let mut program = RawProgram::start(&pair);
            // Answers are not read: they are few.
            for _ in 0..rng.below(40) {
                let frame = hostile(&mut rng, &mut program);
                if program.raw.stream.write_all(&frame).is_err() {
                    break;
                }
            }
            let _ = program.raw.stream.shutdown(std::net::Shutdown::Write);
            let until = Instant::now() + Duration::from_secs(20);
            while pair.host.ended().len() == ended {
                assert!(Instant::now() < until, "round {round}, seed {seed}: it does not end");
                std::thread::sleep(Duration::from_millis(1));
            }
            refused += pair.host.ended()[ended].0.refusals;
            if round % 20 == 19 {
                let space = pair.builder().build().unwrap();
                let mut exercise = Exercise::new(&space, 80);
                exercise.run(FAR, NEAR).unwrap();
                assert_eq!(exercise.check(), 0, "round {round}, seed {seed}");
            }
        }
        assert!(refused > 30, "only {refused} of 60 were refused");
        assert_eq!(pair.host.connections(), pair.host.ended().len() as u64, "an end has vanished");
    });
}
