//! What cannot be is an error that says what it is, to what, and what to do.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use farside::{CardPlace, Space};
use harness::live::served::{TempDir, config, serve};
use harness::live::{Child, role, within};

const LIMIT: Duration = Duration::from_secs(60);

/// The error of a space that cannot be opened.
#[track_caller]
fn refused(builder: farside::SpaceBuilder) -> String {
    builder.build().expect_err("a space that cannot be").to_string()
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn an_address_space_is_told_from_its_real_limits() {
    within(LIMIT, "address space", || {
        let of = |bytes| refused(Space::builder().address_space(bytes));
        says(&of(1 << 44), &["17592186044416 bytes", "17592183947264", "ask for less"]);
        says(&of(u64::MAX), &["16 TiB less 2 MiB"]);
        says(&of(3 << 20), &["positive multiple of 2097152"]);
        says(&of(0), &["positive multiple of 2097152"]);
    });
}

/// Values that no page boundary is aligned enough for.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8192))]
struct Huge([u8; 8192]);

// SAFETY: bytes, any of them, without padding.
unsafe impl bytemuck::Zeroable for Huge {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Huge {}

#[test]
fn an_alignment_above_a_page_is_refused() {
    within(LIMIT, "alignment", || {
        let space = Space::builder().cards(1).address_space(16 << 20).build().unwrap();
        // Takes a page, so that the next allocation would not be aligned by chance.
        let _page = space.alloc::<u8>(1).unwrap();
        let error = space.alloc::<Huge>(1).expect_err("no memory is aligned to that").to_string();
        says(&error, &["alignment", "8192 bytes", "4096"]);
    });
}

fn at(path: PathBuf) -> farside::SpaceBuilder {
    Space::builder().cards_at([CardPlace::Socket(path)]).address_space(16 << 20)
}

#[test]
fn a_card_that_cannot_be_reached_says_why() {
    const TEST: &str = "a_card_that_cannot_be_reached_says_why";
    if let Some(folder) = role() {
        // Somebody who has no rights.
        // SAFETY: it changes who this process is, and nothing else.
        assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
        for path in [PathBuf::from(&folder), PathBuf::from(&folder).join("fn0.sock")] {
            says(&refused(at(path)), &["card 0", "os error 13", "may not use", "fn0.sock"]);
        }
        return;
    }
    within(LIMIT, TEST, || {
        let folder = TempDir::new();
        let long = folder.join(&"x".repeat(120));
        says(&refused(at(long)), &["os error 36", "107 bytes", "shorter"]);
        says(&refused(at(folder.join("nobody"))), &["nobody serves", "farside card serve"]);
        let file = folder.join("file");
        std::fs::write(&file, "").unwrap();
        says(&refused(at(file)), &["nobody serves", "os error 111"]);
        // A process that accepts nobody: whoever connects when its queue is full is told so in time.
        let deaf = folder.join("deaf");
        let listener = UnixListener::bind(&deaf).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _first = std::os::unix::net::UnixStream::connect(&deaf).unwrap();
        let began = Instant::now();
        says(&refused(at(deaf)), &["os error 11", "accepts nobody"]);
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        // One that hangs up at once.
        let closing = folder.join("closing");
        let listener = UnixListener::bind(&closing).unwrap();
        std::thread::spawn(move || listener.incoming().for_each(drop));
        says(&refused(at(closing)), &["closed the connection", "farside cards"]);
        // One of which all functions are in use.
        let server = serve(config(&folder, 0));
        let card = &server.config().folder;
        let _users: Vec<_> = (0..2).map(|_| at(card.clone()).build().unwrap()).collect();
        says(&refused(at(card.clone())), &["in use", "2 functions"]);
        says(&refused(at(card.join("fn1.sock"))), &["in use"]);
        // One that this user may not use.
        std::fs::set_permissions(card, std::fs::Permissions::from_mode(0o700)).unwrap();
        Child::new(TEST, card.to_str().unwrap()).run().expect_success();
    });
}
