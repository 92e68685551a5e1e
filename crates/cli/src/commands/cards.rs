//! `farside cards`: which cards are served, and who uses them.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use farside::OwnMemory;
use farside_softcard::serve::{CardStatus, FunctionStatus, STATUS_SOCKET, read_status};
use serde::Serialize;

use super::Failure;
use super::output::{print, print_json, print_on};
use super::rates::{Rate, Rates};
use super::size::size;
use super::text::{self, paragraph, row};

/// List served cards, their functions, and who uses them
///
/// A card is a folder that `farside card serve` serves. Without a folder this looks at those in
/// /run/farside and, of this user, in $XDG_RUNTIME_DIR/farside.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Cards {
    /// Folders of cards, or folders that such folders lie in
    #[arg(value_name = "FOLDER")]
    folders: Vec<PathBuf>,

    /// Name the kernels of each card
    #[arg(long, short)]
    kernels: bool,

    /// Look again and again, every second or so many, and say what each function did in a second
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
          default_missing_value = "1", value_parser = interval)]
    watch: Option<Duration>,

    /// Print one JSON object, with every counter of every function in use, instead of a table; with
    /// --watch one in a line for each look
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  farside cards
  farside cards /tmp/card0 /tmp/card1
  farside cards --watch
  farside cards --watch=0.2 --json | jq -c '.cards[].status.functions[].user.counters'
  farside cards --json | jq '.cards[].status.functions[].user.counters'";

/// A card, or why it does not answer.
#[derive(Serialize)]
struct Seen {
    folder: PathBuf,
    status: Option<CardStatus>,
    error: Option<String>,
}

#[derive(Serialize)]
struct Json<'a> {
    cards: &'a [Seen],
}

/// How long to wait between two looks.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is no number of seconds".to_owned())?;
    match (0.05..=86_400.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("between 0.05 and 86400 seconds are meant".to_owned()),
    }
}

impl Cards {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let given = !self.folders.is_empty();
        let places = if given { self.folders.clone() } else { default_places() };
        if let Some(interval) = self.watch {
            return self.watch(&places, given, interval);
        }
        let cards = look_at(&places, given);
        match self.json {
            true => print_json(&Json { cards: &cards })?,
            false => print(&self.table(&cards, &places, None))?,
        }
        // Whoever names a card wants to know whether it is there.
        let silent = cards.iter().any(|seen| seen.status.is_none());
        if given && silent { Err(Failure::Told) } else { Ok(()) }
    }

    /// Looks until nobody reads what it says, or it is ended. A card that goes, or comes, is no reason to stop.
    fn watch(&self, places: &[PathBuf], given: bool, interval: Duration) -> Result<(), Failure> {
        let screen = std::io::stdout().is_terminal() && !self.json;
        let (mut rates, mut looked) = (Rates::default(), Instant::now());
        loop {
            let cards = look_at(places, given);
            rates.next(looked.elapsed());
            looked = Instant::now();
            for (seen, status) in
                cards.iter().filter_map(|seen| Some((seen, seen.status.as_ref()?)))
            {
                status.functions.iter().for_each(|it| rates.see(&seen.folder, status.pid, it));
            }
            let text = match (self.json, screen) {
                (true, _) => json_line(&Json { cards: &cards })?,
                (false, true) => CLEAR.to_owned() + &self.table(&cards, places, Some(&rates)),
                (false, false) => self.table(&cards, places, Some(&rates)) + "\n",
            };
            if !print_on(&text)? {
                return Ok(());
            }
            std::thread::sleep(interval.saturating_sub(looked.elapsed()));
        }
    }

    fn table(&self, cards: &[Seen], places: &[PathBuf], rates: Option<&Rates>) -> String {
        if cards.is_empty() {
            return nobody(places);
        }
        cards.iter().map(|seen| card(seen, self.kernels, rates)).collect()
    }
}

/// Home, and nothing on the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

fn json_line(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(value);
    Ok(text.map_err(|error| Failure::Output(error.into()))? + "\n")
}

/// Asks the cards in these places.
fn look_at(places: &[PathBuf], given: bool) -> Vec<Seen> {
    places.iter().flat_map(|place| cards_in(place, given)).map(look).collect()
}

/// The folders of the cards that are served in the usual places.
pub(super) fn served() -> Vec<PathBuf> {
    default_places().iter().flat_map(|place| cards_in(place, false)).collect()
}

/// Where cards are served unless somebody says otherwise.
fn default_places() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let folders = [Some(PathBuf::from("/run")), own.map(PathBuf::from)];
    folders.into_iter().flatten().map(|folder| folder.join("farside")).collect()
}

/// The folder itself if it is that of a card, or else those in it that are. One that was named and
/// is neither counts as a card that nobody serves.
fn cards_in(place: &Path, given: bool) -> Vec<PathBuf> {
    if is_card(place) {
        return vec![place.to_owned()];
    }
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| is_card(path)).collect();
    found.sort();
    if found.is_empty() && given {
        found.push(place.to_owned());
    }
    found
}

fn is_card(folder: &Path) -> bool {
    folder.join(STATUS_SOCKET).exists()
}

fn look(folder: PathBuf) -> Seen {
    match read_status(&folder) {
        Ok(status) => Seen { folder, status: Some(status), error: None },
        Err(error) => Seen { folder, status: None, error: Some(why(&error)) },
    }
}

fn why(error: &std::io::Error) -> String {
    use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied, WouldBlock};
    match error.kind() {
        NotFound => "nobody serves a card here; `farside card serve` does".to_owned(),
        ConnectionRefused => {
            "its server has ended without a word; `farside card serve` serves it again".to_owned()
        }
        PermissionDenied => "this user may not ask it; its server's umask decides".to_owned(),
        WouldBlock => "its server does not answer".to_owned(),
        _ => format!("it cannot be asked: {error}"),
    }
}

fn nobody(places: &[PathBuf]) -> String {
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    let first = places.first().map_or("/run/farside", String::as_str);
    let told = format!(
        "No card is served in {}. Start one with `farside card serve {first}/card0`, or name its \
         folder.",
        places.join(" or ")
    );
    paragraph("", &told)
}

fn card(seen: &Seen, kernels: bool, rates: Option<&Rates>) -> String {
    let folder = format!("{}: ", seen.folder.display());
    let Some(status) = &seen.status else {
        return paragraph("", &(folder + seen.error.as_deref().unwrap_or_default()));
    };
    let used = status.functions.iter().filter(|function| function.user.is_some()).count();
    let sum = format!(
        "card {}, process {}, {used} of {} functions in use, {} and {} processing elements each, \
         {} kernels",
        status.card,
        status.pid,
        status.functions.len(),
        size(status.memory_bytes),
        status.processing_elements,
        status.kernels.len()
    );
    let mut text = paragraph("", &(folder + &sum));
    text += &memories("own memory of each: ", &status.own_memories, |memory| size(memory.bytes));
    for name in status.kernels.iter().filter(|_| kernels) {
        text += &paragraph("  kernel    ", name);
    }
    if used > 0 {
        let rate = |function| rates.map(|rates| rates.of(&seen.folder, status.pid, function));
        let users = status.functions.iter().filter_map(|function| user(function, rate(function)));
        let header = if rates.is_some() { row(RATES_HEADER) } else { row(HEADER) };
        text += &text::table("rlrrrrrr", std::iter::once(header).chain(users));
    }
    for function in &status.functions {
        let own = function.user.iter().flat_map(|user| &user.own_memories);
        let head = format!("function {}: own memory free: ", function.function);
        text += &memories(&head, own, |memory| {
            format!("{} of {}", size(memory.bytes_free), size(memory.bytes))
        });
    }
    for function in status.functions.iter().filter(|function| function.hung_threads > 0) {
        let (number, hung) = (function.function, function.hung_threads);
        let told = format!("function {number}: kernels that hang: {hung}");
        text += &paragraph("  ", &told);
    }
    text
}

/// What is said of each of some memories of a card's own; nothing if there are none.
fn memories<'a>(
    head: &str,
    memories: impl IntoIterator<Item = &'a OwnMemory>,
    what: impl Fn(&OwnMemory) -> String,
) -> String {
    let each = |memory: &OwnMemory| format!("{} {}", memory.name, what(memory));
    let all: Vec<_> = memories.into_iter().map(each).collect();
    if all.is_empty() {
        String::new()
    } else {
        paragraph("  ", &format!("{head}{}", all.join(", ")))
    }
}

const HEADER: [&str; 8] =
    ["function", "program", "process", "generation", "jobs", "all jobs", "faults", "copied"];

const RATES_HEADER: [&str; 8] =
    ["function", "program", "process", "generation", "jobs", "jobs/s", "faults/s", "copied/s"];

/// The row of a function that somebody uses: what it did in all, or, watched, in a second. At its first look nobody knows
/// that.
fn user(function: &FunctionStatus, rate: Option<Option<Rate>>) -> Option<Vec<String>> {
    let user = function.user.as_ref()?;
    let counter = |name: &str| user.counters.get(name).copied().unwrap_or(0);
    let pages = |pages: u64| size(pages * farside::PAGE_SIZE as u64);
    let did = match rate {
        None => [
            counter("jobs_started").to_string(),
            counter("faults_raised").to_string(),
            pages(counter("dma_pages")),
        ],
        Some(None) => ["–"; 3].map(str::to_owned),
        Some(Some(rate)) => [
            format!("{:.0}", rate.jobs),
            format!("{:.0}", rate.faults),
            pages(rate.pages.round() as u64),
        ],
    };
    let who = [
        function.function.to_string(),
        user.program.clone().unwrap_or_else(|| "?".to_owned()),
        user.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string()),
        user.generation.to_string(),
        user.jobs.to_string(),
    ];
    Some(who.into_iter().chain(did).collect())
}

#[cfg(test)]
mod tests {
    use farside::MemoryKind;
    use farside_card::MemorySizes;
    use farside_softcard::serve::UserStatus;

    use super::*;

    /// A memory of four frames, of which so many are free, and one of one.
    fn own(frames_free: u32) -> Vec<OwnMemory> {
        let of = |kind, frames, frames_free| MemorySizes { kind, frames, frames_free };
        OwnMemory::all([of(MemoryKind::Ddr, 4, frames_free), of(MemoryKind::Hbm, 1, 1)])
    }

    fn status() -> CardStatus {
        let function = |function, user| FunctionStatus {
            function,
            socket: format!("/c/fn{function}.sock"),
            user,
            hung_threads: function as usize / 2,
        };
        let counters = [("jobs_started", 7), ("faults_raised", 9), ("dma_pages", 256)];
        let user = UserStatus {
            pid: Some(42),
            program: Some("search".to_owned()),
            generation: 1,
            holder: None,
            worker: 18,
            answers: true,
            jobs: 3,
            own_memories: own(1),
            counters: counters.into_iter().map(|(name, n)| (name.to_owned(), n)).collect(),
        };
        CardStatus {
            card: 5,
            pid: 17,
            memory_bytes: 64 << 20,
            table_bytes: 0,
            own_memories: own(4),
            processing_elements: 2,
            kernels: vec!["k".to_owned()],
            functions: vec![function(0, Some(user)), function(1, None), function(2, None)],
        }
    }

    #[test]
    fn the_table_names_users_and_what_hangs_and_leaves_out_what_is_free() {
        let seen = Seen { folder: "/c".into(), status: Some(status()), error: None };
        let text = card(&seen, true, None);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("card 5, process 17, 1 of 3 functions in use, 64 MiB"), "{text}");
        assert_eq!(lines[2], "  own memory of each: ddr0 16 KiB, hbm0 4 KiB");
        assert_eq!(lines[3], "  kernel    k");
        let words: Vec<&str> = lines[5].split_whitespace().collect();
        assert_eq!(words, ["0", "search", "42", "1", "3", "7", "9", "1", "MiB"]);
        let free = "  function 0: own memory free: ddr0 4 KiB of 16 KiB, hbm0 4 KiB of 4 KiB";
        assert_eq!(lines[6], free);
        assert!(lines[7].contains("function 2: kernels that hang: 1"), "{text}");
        assert_eq!(lines.len(), 8);
    }

    #[test]
    fn watched_functions_say_what_they_did_in_a_second() {
        let mut seen = Seen { folder: "/c".into(), status: Some(status()), error: None };
        let mut rates = Rates::default();
        let mut watch = |seen: &Seen, seconds| {
            rates.next(Duration::from_secs(seconds));
            let status = seen.status.as_ref().unwrap();
            status.functions.iter().for_each(|it| rates.see(&seen.folder, status.pid, it));
            let text = card(seen, false, Some(&rates));
            let row = text.lines().nth(4).expect("a row below the header");
            row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(watch(&seen, 0)[4..], ["3", "–", "–", "–"], "nobody knows yet");
        let user = |seen: &mut Seen, change: &dyn Fn(&mut UserStatus)| {
            change(seen.status.as_mut().unwrap().functions[0].user.as_mut().unwrap());
        };
        user(&mut seen, &|user| {
            user.counters.insert("jobs_started".to_owned(), 27);
            user.counters.insert("dma_pages".to_owned(), 256 + 512);
        });
        assert_eq!(watch(&seen, 2)[4..], ["3", "10", "0", "1", "MiB"]);
        // Another program has the function now: its counters are not those of before.
        user(&mut seen, &|user| user.generation = 2);
        assert_eq!(watch(&seen, 2)[4..], ["3", "–", "–", "–"]);
    }

    #[test]
    fn an_interval_that_is_none_is_refused() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for none in ["", "x", "0", "-1", "nan", "inf", "1e9"] {
            assert!(interval(none).is_err(), "{none}");
        }
    }
}
