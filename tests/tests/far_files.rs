//! Files as shared memory and cards in other processes: their pages go there and are written back, also when a card goes away.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use farside::foreign::ForeignSpace;
use farside::{Error, FileError, LiveError, NotClosed, Space, Write};
use harness::live::served::{
    CardProcess, TempDir, config, place, place_by_messages, serve, serve_if_asked, test_kernels,
};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;
/// Least memory of a file.
const LEAST: u64 = 4 << 20;

/// A file of words that are their own number.
fn numbered(folder: &TempDir, words: usize) -> PathBuf {
    let path = folder.join("numbers");
    let mut file = std::io::BufWriter::new(File::create(&path).unwrap());
    (0..words as u64).for_each(|word| file.write_all(&word.to_ne_bytes()).unwrap());
    file.flush().unwrap();
    path
}

fn words(path: &PathBuf) -> Vec<u64> {
    let bytes = std::fs::read(path).unwrap();
    bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn a_file_larger_than_all_memory_is_changed_by_cards_elsewhere() {
    within(LIMIT, "larger", || {
        let folder = TempDir::new();
        let servers: Vec<_> = (0..2).map(|card| serve(config(&folder, card))).collect();
        // Its last page is not whole.
        let count = (12 << 20) / 8 + 100;
        let path = numbered(&folder, count);
        let space = Space::builder()
            .cards_at(servers.iter().map(place))
            .address_space(32 << 20)
            .kernels(test_kernels())
            .build()
            .unwrap();
        let mut data = space.map_file_in::<u64>(&path, LEAST).unwrap();
        for round in 1..=2 {
            for (card, half) in space.cards().zip([0, count / 2]) {
                for first in (half..half + count / 2).step_by(64 * PAGE) {
                    let piece = &mut data[first..(first + 64 * PAGE).min(half + count / 2)];
                    let call = space.kernel("farside.increment").on(card);
                    call.call(Write(piece)).unwrap();
                }
            }
            data.iter_mut().step_by(PAGE).for_each(|word| *word += 10);
            data.sync().unwrap();
            for (at, word) in words(&path).into_iter().enumerate() {
                let more = if at % PAGE == 0 { 11 } else { 1 };
                assert_eq!(word, at as u64 + round * more, "word {at}, round {round}");
            }
        }
        space.check().unwrap();
        data.close().unwrap();
    });
}

/// Two cards in processes of their own, a space on them and a file of four pages.
struct Lab {
    victim: CardProcess,
    _other: CardProcess,
    path: PathBuf,
    space: Space,
    _folder: TempDir,
}

impl Lab {
    fn new(test: &str) -> Lab {
        let folder = TempDir::new();
        let start = |card| CardProcess::start(test, &config(&folder, card));
        let (victim, other) = (start(0), start(1));
        let path = numbered(&folder, 4 * PAGE);
        let space = Space::builder()
            .cards_at([victim.place(), other.place()])
            .address_space(16 << 20)
            .grace(Duration::from_millis(50))
            .kernels(test_kernels())
            .build()
            .unwrap();
        Lab { victim, _other: other, path, space, _folder: folder }
    }

    /// Bytes of the first two pages are changed by the card that is killed then, those of the third by the other one, and those of
    /// the last by the program.
    fn lose_two_pages(&mut self, data: &mut [u64]) {
        let (lost, kept) = data.split_at_mut(2 * PAGE);
        let (third, last) = kept.split_at_mut(PAGE);
        for (card, part) in self.space.cards().zip([lost, third]) {
            self.space.kernel("farside.increment").on(card).call(Write(part)).unwrap();
        }
        last.iter_mut().for_each(|word| *word += 1);
        self.victim.crash();
        let dead = self.space.card(0).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while self.space.kernel("farside.nop").on(dead).call(()).is_ok() {
            assert!(Instant::now() < end, "the card is not missed");
        }
    }

    /// The file has what was not lost, and before that what it had.
    fn has_the_rest(&self) {
        for (at, word) in words(&self.path).into_iter().enumerate() {
            assert_eq!(word, at as u64 + u64::from(at >= 2 * PAGE), "word {at}");
        }
    }
}

#[test]
fn what_is_lost_with_a_card_elsewhere_is_told_and_the_rest_is_in_the_file() {
    const NAME: &str = "what_is_lost_with_a_card_elsewhere_is_told_and_the_rest_is_in_the_file";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let mut lab = Lab::new(NAME);
        let mut data = lab.space.map_file::<u64>(&lab.path).unwrap();
        lab.lose_two_pages(&mut data);
        for _ in 0..2 {
            let told = data.sync().unwrap_err().to_string();
            assert!(told.contains("older bytes in 2 of its pages"), "{told}");
            lab.has_the_rest();
        }
        let (error, guard) = NotClosed::into_parts(data.close().unwrap_err());
        let Error::Live(LiveError::File(FileError::Lost { path, pages: 2, .. })) = &error else {
            panic!("{error}");
        };
        assert!(*path == lab.path && guard.is_none(), "{error}");
        lab.has_the_rest();
        // Mapped again it is what is in the file.
        let data = lab.space.map_file::<u64>(&lab.path).unwrap();
        assert!(data.iter().take(2 * PAGE).zip(0..).all(|(&word, at)| word == at));
        data.close().unwrap();
    });
}

#[test]
fn programs_in_other_languages_are_told_what_of_a_file_was_lost() {
    const NAME: &str = "programs_in_other_languages_are_told_what_of_a_file_was_lost";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let mut lab = Lab::new(NAME);
        let foreign = ForeignSpace::new(lab.space.clone());
        let held = foreign.map_file(&lab.path, LEAST).unwrap();
        // SAFETY: the memory is mapped as long as `held` is, and nobody else uses it.
        let data = unsafe {
            std::slice::from_raw_parts_mut(held.start() as *mut u64, held.bytes() as usize / 8)
        };
        lab.lose_two_pages(data);
        let file = held.file().unwrap();
        let told = file.sync().unwrap_err().to_string();
        assert!(told.contains("older bytes in 2 of its pages"), "{told}");
        lab.has_the_rest();
        assert!(!file.is_closed());
        let told = held.give_back().unwrap_err().to_string();
        assert!(told.contains("older bytes in 2 of its pages"), "{told}");
        assert!(file.is_closed() && held.give_back().is_ok(), "there is nothing left to lose");
        lab.has_the_rest();
    });
}

#[test]
fn a_card_that_shares_no_memory_gets_no_file_and_is_named() {
    within(LIMIT, "by messages", || {
        let folder = TempDir::new();
        let server = serve(config(&folder, 0));
        let path = numbered(&folder, PAGE);
        let space = Space::builder().cards_at([place_by_messages(&server)]).build().unwrap();
        let refused = space.map_file::<u64>(&path).unwrap_err().to_string();
        assert!(refused.contains("card 0, which shares no memory"), "{refused}");
    });
}
