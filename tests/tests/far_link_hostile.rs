//! Ends of links that lie, and programs that lie to them: an error in time, and nothing that lands.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{CardId, CardPlace, Dialled, Write};
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
    const TIME: Duration = Duration::from_secs(15);
    within(2 * LIMIT, "lies", || {
        let pair = FarPair::new();
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
        let cases = lies.into_iter().flat_map(|lie| [(lie, 5), (lie, 41)]);
        let mut told = 0;
        for (number, (lie, after)) in cases.enumerate() {
            let socket = pair.folder.join(&format!("liar{number}.sock"));
            let liar = LyingLink::start(socket, pair.host.folder(), lie, after);
            let begun = Instant::now();
            let opened = builder_at([liar.place(), place(&pair.near)])
                .tune(|config| {
                    config.limits.drain = Span::from_millis(200);
                    config.limits.copy = Span::from_millis(300);
                })
                .build();
            assert!(begun.elapsed() < TIME, "{lie:?}: {:?}", begun.elapsed());
            let Ok(space) = opened else {
                told += 1;
                continue;
            };
            for _ in 0..30 {
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
                    told += 1;
                    break;
                }
            }
        }
        assert_eq!(told, 13 * 2, "not all lies were told");
    });
}

/// A message to the end beside a card: its kind, and what follows.
fn message(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&(1 + body.len() as u32).to_le_bytes()[..], &[kind], &body].concat()
}

#[test]
fn invariant_55_a_program_reaches_the_memory_of_its_card_over_a_link_and_nothing_beside_it() {
    within(LIMIT, "a program that lies", || {
        let pair = FarPair::new();
        let frames = u64::from(pair.far.config().frames);
        let end = frames * 4096;
        let hello = message(1, &[&0u32.to_le_bytes(), &[0, 0], &1u64.to_le_bytes(), &[0; 8]]);
        let put = |at: u64, bytes: usize| message(4, &[&at.to_le_bytes(), &vec![9; bytes]]);
        let zero = |at: u64, n: u64| message(5, &[&at.to_le_bytes(), &n.to_le_bytes()]);
        let get = |at: u64, n: u32| {
            message(6, &[&7u32.to_le_bytes(), &at.to_le_bytes(), &n.to_le_bytes()])
        };
        let entries = message(3, &[&[0; 19]]);
        let rings = |bus: u64, bytes: u64| {
            message(1, &[&[0; 4], &[3, 0], &bus.to_le_bytes(), &bytes.to_le_bytes()])
        };
        let memory = "outside the card's memory";
        let order = "at the wrong time";
        let nonsense = "makes no sense";
        let cases = [
            (put(end, 8), memory),
            (put(end - 4, 8), memory),
            (put(u64::MAX, 1), memory),
            (put(0, 0), nonsense),
            (put(0, (256 << 10) + 8), nonsense),
            (zero(end - 8, 16), memory),
            (zero(8, u64::MAX), memory),
            (zero(0, 0), memory),
            (get(end, 4096), memory),
            (get(end - 1, 2), memory),
            (get(0, 0), memory),
            (get(0, 4096).repeat(200), order),
            (entries, order),
            (rings(1 << 32, 1 << 40), order),
            (rings(1 << 32, 0), order),
            (rings(1, 4096), order),
            (rings(u64::MAX - 4095, 4096), order),
            ([rings(1 << 32, 4096), rings(1 << 33, 4096)].concat(), order),
            (message(99, &[&[1; 20]]), nonsense),
            (message(2, &[&[0; 16]]), nonsense),
            (u32::MAX.to_le_bytes().to_vec(), nonsense),
            (vec![0; 64], nonsense),
        ];
        for (bytes, why) in cases {
            let ended = pair.host.ended().len();
            let mut program = UnixStream::connect(pair.host.folder().join("fn0.sock")).unwrap();
            program.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            program.write_all(&hello).unwrap();
            program.read_exact(&mut [0; 21]).unwrap();
            // It may end while this is written.
            let _ = program.write_all(&bytes);
            let mut rest = Vec::new();
            let _ = program.read_to_end(&mut rest);
            let until = Instant::now() + Duration::from_secs(20);
            while pair.host.ended().len() == ended {
                assert!(Instant::now() < until, "{why}: {} bytes were not refused", bytes.len());
                std::thread::sleep(Duration::from_millis(1));
            }
            let (report, error) = pair.host.ended()[ended].clone();
            let error = error.unwrap_or_default();
            assert!(error.contains(why), "{error}, not {why}");
            assert_eq!(report.refusals, 1, "it is counted");
            assert_eq!(report.bytes_in, 0, "something has landed");
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
    within(LIMIT, "a put", || {
        let pair = FarPair::new();
        let mut program = UnixStream::connect(pair.host.folder().join("fn0.sock")).unwrap();
        let put = message(4, &[&4096u64.to_le_bytes(), &[9; 4096]]);
        let get = message(6, &[&7u32.to_le_bytes(), &4096u64.to_le_bytes(), &64u32.to_le_bytes()]);
        program.write_all(&[put, get].concat()).unwrap();
        let mut answer = [0; 4 + 1 + 4 + 64];
        program.read_exact(&mut answer).unwrap();
        assert_eq!(answer[9..], [9; 64]);
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

/// A program that speaks the messages itself, with rings of 8 entries.
struct RawProgram {
    stream: UnixStream,
    /// Completions that it has taken.
    taken: u32,
}

impl RawProgram {
    /// Bus address of its rings; entries; bytes of a ring.
    const RINGS: (u64, u64, u64) = (1 << 32, 8, 4096);

    fn start(pair: &FarPair) -> RawProgram {
        let stream = UnixStream::connect(pair.host.folder().join("fn0.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut program = RawProgram { stream, taken: 0 };
        let (bus, entries, bytes) = RawProgram::RINGS;
        program.call(3, 0, bus, 8 * bytes);
        for ring in 0..4 {
            let first = 0x200 + 0x20 * ring;
            program.call(2, 8, first, bus + ring * bytes);
            program.call(2, 4, first + 8, entries);
            program.call(2, 4, first + 12, ring);
        }
        program.call(2, 4, 0x100, 1);
        program
    }

    fn call(&mut self, what: u8, wide: u8, a: u64, b: u64) {
        let call = [&[0; 4][..], &[what, wide], &a.to_le_bytes(), &b.to_le_bytes()].concat();
        self.stream.write_all(&message(1, &[&call])).unwrap();
        let answer = self.read();
        assert_eq!((answer[0], &answer[5..9]), (2, &[0; 4][..]), "{what} {a:#x}");
    }

    /// The next message from the end beside the card.
    fn read(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).unwrap();
        let mut body = vec![0; u32::from_le_bytes(length) as usize];
        self.stream.read_exact(&mut body).unwrap();
        body
    }

    /// Sends a command of two words.
    fn send(&mut self, tag: u64, head: u64) {
        let mut entry = [0; 64];
        entry[..8].copy_from_slice(&tag.to_le_bytes());
        entry[8..16].copy_from_slice(&head.to_le_bytes());
        let taken = [&[0; 4][..], &self.taken.to_le_bytes(), &[0; 8]].concat();
        let header = [&taken[..], &[0], &1u16.to_le_bytes(), &[0, 0, 0]].concat();
        self.stream.write_all(&message(3, &[&header, &entry])).unwrap();
    }

    /// The tag of the next completion.
    fn completed(&mut self) -> u64 {
        loop {
            let body = self.read();
            if body[0] == 3 && body[18..20] != [0, 0] {
                assert_eq!(body[20], 1, "an entry of another ring");
                self.taken += 1;
                return u64::from_le_bytes(body[23..31].try_into().unwrap());
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

/// What a hostile program could send: sound messages with changed bytes, of every kind, and nonsense.
fn hostile(rng: &mut Prng) -> Vec<u8> {
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
    let body = match rng.below(7) {
        0 => {
            let (a, b) = (word(rng), word(rng));
            // Not the reset, after which little is left to be tried.
            let what = [rng.below(4) as u8, [0, 4, 8, rng.bits() as u8][rng.below(4) as usize]];
            [&[0; 4][..], &what, &a.to_le_bytes(), &b.to_le_bytes()].concat()
        }
        1 => {
            let mut body = [&[0; 17][..], &(rng.below(4) as u16).to_le_bytes()].concat();
            for _ in 0..rng.below(4) {
                let list = bytes(rng, 100);
                body.extend([rng.below(4) as u8 & rng.below(4) as u8]);
                body.extend((list.len() as u16).to_le_bytes());
                let opcodes = [0x01, 0x02, 0x10, 0x12, 0x20, 0x30, 0x31, 0x40, 0x41, 0x99];
                let opcode = opcodes[rng.below(10) as usize] | rng.below(8) << 16;
                for value in [rng.bits(), opcode] {
                    body.extend(value.to_le_bytes());
                }
                (0..6).for_each(|_| body.extend((word(rng) * rng.below(2)).to_le_bytes()));
                body.extend(list);
            }
            body
        }
        2 => [&word(rng).to_le_bytes()[..], &bytes(rng, 5000)].concat(),
        3 => [word(rng).to_le_bytes(), (word(rng) & 0xf_ffff).to_le_bytes()].concat(),
        4 => [&[1; 4][..], &word(rng).to_le_bytes(), &(word(rng) as u32).to_le_bytes()].concat(),
        _ => bytes(rng, 300),
    };
    let kinds = [1, 3, 4, 5, 6, 7, rng.bits() as u8];
    let mut sent = message(kinds[rng.below(7) as usize], &[&body]);
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
                if program.stream.write_all(&hostile(&mut rng)).is_err() {
                    break;
                }
            }
            let _ = program.stream.shutdown(std::net::Shutdown::Write);
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
