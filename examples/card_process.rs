//! A card in a process of its own: served, used, killed, and used again.
//!
//! The process is this program once more, started with a folder. It serves a card with the built-in
//! kernels and one of this file. `farside card serve FOLDER` does the same for kernels that are
//! built in or in shared libraries.
//!
//! ```text
//! cargo run --release -p farside --example card_process
//! ```

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farside::serve::{CardConfig, CardServer, read_status};
use farside::{
    CardPlace, Error, KernelArgs, KernelContext, KernelError, Kernels, PageState, Read, Space,
    Value, Write, WriteView, pieces,
};

/// Turns each word into its square.
fn square(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    let mut words = args.write::<u64>(0)?;
    for piece in pieces(words.len(), size_of::<u64>()) {
        k.with(words.slice(piece), |mut words: WriteView<u64>| {
            words.iter_mut().for_each(|word| *word = word.wrapping_mul(*word));
        })?;
    }
    Ok(words.len() as u64)
}

/// What the card's process does: it serves until it is killed, or its standard input ends.
fn serve(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let kernels = Kernels::builtin().with("my.square", square)?.into();
    let _server = CardServer::start(CardConfig { kernels, ..CardConfig::new(folder) })?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// The card's process; it ends with this one, because its standard input does.
struct Card {
    process: Child,
    folder: PathBuf,
}

impl Card {
    fn start() -> std::io::Result<Card> {
        let folder = std::env::temp_dir().join(format!("card-{}", std::process::id()));
        Ok(Card { process: Card::spawn(&folder)?, folder })
    }

    fn spawn(folder: &Path) -> std::io::Result<Child> {
        let program = std::env::current_exe()?;
        Command::new(program).arg(folder).stdin(Stdio::piped()).spawn()
    }

    /// As if it had crashed.
    fn kill(&mut self) -> std::io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }

    fn restart(&mut self) -> std::io::Result<()> {
        self.process = Card::spawn(&self.folder)?;
        Ok(())
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        let _ = self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(folder) = std::env::args_os().nth(1) {
        return serve(Path::new(&folder));
    }
    let mut process = Card::start()?;
    // A space waits two seconds for a card that is being started. A busy machine may need longer.
    wait_until(|| Ok(read_status(&process.folder).is_ok()))?;
    let place = CardPlace::Socket(process.folder.clone());
    let space = Space::builder().cards_at([place]).build()?;
    let card = space.card(0)?;

    let mut words = space.alloc_named::<u64>(1 << 16, "words")?;
    words.fill(6);
    space.kernel("my.square").on(card).call(Write(&mut words))?;
    let status = read_status(&process.folder)?;
    let users = status.functions.iter().filter(|function| function.user.is_some()).count();
    println!("the card's process has squared: {} in every word, {users} user", words[4096]);

    // The host has written `words`. `made` is written by the card, and nowhere else.
    let mut made = space.alloc_named::<u64>(1 << 14, "made on the card")?;
    space.kernel("farside.fill").on(card).call((Write(&mut made), Value(7u64)))?;
    words.fill(5);
    process.kill()?;
    // The process that has the card for this program ends with its parent, a moment later.
    wait_until(|| match space.kernel("farside.sum").on(card).call(Read(&words)) {
        Ok(_) => Ok(false),
        Err(error) => {
            println!("killed: {error}");
            Ok(true)
        }
    })?;
    wait_until(|| Ok(space.locate(&made)?.iter().all(|part| part.state == PageState::Lost)))?;
    println!("what was only on the card is lost, and an access says so: SIGBUS, never zeros");
    assert!(words.iter().all(|&word| word == 5), "what the host had is there");

    // Served again, by whoever; the space finds it by itself.
    process.restart()?;
    wait_until(|| Ok(space.kernel("my.square").on(card).call(Write(&mut words)).is_ok()))?;
    println!("served again, and the same space goes on: {} in every word", words[4096]);
    drop(made); // a buffer that is lost is freed as any other
    let mut made = space.alloc_named::<u64>(1 << 14, "made again")?;
    space.kernel("farside.fill").on(card).call((Write(&mut made), Value(8u64)))?;
    println!("made again: {}", made[100]);
    Ok(())
}

/// Waits for a minute at most.
fn wait_until(
    mut holds: impl FnMut() -> Result<bool, Error>,
) -> Result<(), Box<dyn std::error::Error>> {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds()? {
        if Instant::now() > end {
            return Err("a minute has passed".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
