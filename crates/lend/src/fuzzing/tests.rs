//! Inputs drawn at random, nearly right and wrong: `FUZZ_SECONDS=60 cargo test -p farside-lend fuzzing`
//! runs each function for a minute.

#[path = "../../../link/tests/common/rounds.rs"]
mod rounds;

use rounds::{Random, rounds};

fn any(random: &mut Random) -> Vec<u8> {
    random.bytes(400)
}

/// A text of which some bytes are others.
fn damaged(text: &str, random: &mut Random) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..random.next() % 3 {
        let at = (random.next() % bytes.len() as u64) as usize;
        bytes[at] = match random.next() % 4 {
            0 => random.next() as u8,
            1 => b"0123456789abcdefABCDEF+-. "[(random.next() % 26) as usize],
            2 => bytes[(random.next() % bytes.len() as u64) as usize],
            _ => bytes[at].to_ascii_uppercase(),
        };
    }
    if random.next() % 16 == 0 {
        bytes.truncate((random.next() % 80) as usize);
    }
    bytes
}

#[test]
fn a_text_is_a_token_or_none() {
    let text = "host-a.00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef";
    let twice = |input: &[u8]| 4 * super::token(input);
    rounds("token", 5000, |random| damaged(text, random), twice);
}

#[test]
fn a_file_is_a_ticket_or_none() {
    let text = r#"{"lender":"a","device":"card0","epoch":1234567890}"#;
    let twice = |input: &[u8]| 4 * super::ticket(input);
    rounds("ticket", 5000, |random| damaged(text, random), twice);
}

#[test]
fn a_packet_is_an_order_or_none() {
    let orders = [
        r#"{"Until":123456789012345678}"#,
        r#""Connection""#,
        r#"{"Begin":{"name":"x","path":"/run/x","certificate":[1,2],"key":[3],"peer":[4],"until":5}}"#,
    ];
    let one = |random: &mut Random| damaged(orders[(random.next() % 3) as usize], random);
    rounds("order", 5000, one, |input| 4 * super::order(input));
}

#[test]
fn a_lender_goes_on_with_a_ledger_or_refuses_it() {
    rounds("ledger", 5000, |random| random.bytes(40), |input| 20 * super::ledger(input));
}

#[test]
fn whatever_a_host_asks_is_answered() {
    rounds("peers", 500, any, super::peers);
}

#[test]
fn whatever_stands_in_etcd_nobody_is_believed_who_has_not_said_it() {
    rounds("etcd", 3000, |random| random.bytes(800), super::etcd);
}

#[test]
fn whatever_a_lender_says_its_borrower_goes_on() {
    rounds("lender", 5000, any, |input| 20 * super::lender(input));
}

#[test]
fn a_borrower_that_says_anything_gets_nowhere_with_the_lenders_end() {
    rounds("lender's end", 1000, any, super::lender_end);
}

#[test]
fn a_lender_that_says_anything_writes_only_what_it_may() {
    rounds("borrower's end", 1000, any, super::borrower_end);
}

#[test]
fn notices_that_a_borrower_does_not_take_are_counted_and_not_kept() {
    let (refused, waiting) = super::ends::refused_and_not_taken(20_000);
    assert_eq!(refused, 20_000);
    assert!(waiting <= 128, "{waiting} notices wait");
}
