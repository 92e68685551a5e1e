//! Tokens: what a person carries from one host to another, so that the other may join.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::{digest, random};

/// How long a token is good.
const GOOD_FOR: Duration = Duration::from_secs(3600);
/// Tokens that are good at a time, at most: the oldest goes.
const INVITATIONS_MAX: usize = 64;

/// The inviting host's name, its authority's digest, by which the joining host knows that it speaks to
/// the right one, and a secret, by which that knows that it was invited.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The inviting host.
    pub host: String,
    /// SHA-256 of the authority's certificate, its first half.
    pub authority: [u8; 16],
    secret: [u8; 16],
}

/// What is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this is no token; `farside lend invite`, on the host to join, prints one")]
pub struct TokenError;

impl fmt::Debug for Token {
    /// The secret is nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(of {})", self.host)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}{}", self.host, hex(&self.authority), hex(&self.secret))
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Token, TokenError> {
        let (host, rest) = text.trim().rsplit_once('.').ok_or(TokenError)?;
        let bytes = unhex(rest).ok_or(TokenError)?;
        let (authority, secret) = bytes.split_at_checked(16).ok_or(TokenError)?;
        let array = |half: &[u8]| half.try_into().map_err(|_| TokenError);
        let token =
            Token { host: host.to_owned(), authority: array(authority)?, secret: array(secret)? };
        (!token.host.is_empty()).then_some(token).ok_or(TokenError)
    }
}

impl Token {
    /// What is sent to prove that there is a token.
    #[must_use]
    pub fn secret(&self) -> String {
        hex(&self.secret)
    }

    /// Whether a certificate is that of the inviting host's authority.
    #[must_use]
    pub fn is_authority(&self, certificate: &[u8]) -> bool {
        digest(certificate)[..16] == self.authority
    }
}

/// The tokens that are good: each for one host, for an hour.
#[derive(Debug, Default)]
pub struct Invitations {
    /// When each ends, by the digest of its secret.
    open: HashMap<[u8; 32], Instant>,
}

impl Invitations {
    /// A new token of a host, whose authority has this certificate.
    pub fn invite(&mut self, host: &str, authority: &[u8], now: Instant) -> Token {
        self.forget_old(now);
        if self.open.len() >= INVITATIONS_MAX {
            let oldest = self.open.iter().min_by_key(|(_, end)| **end).map(|(key, _)| *key);
            oldest.map(|key| self.open.remove(&key));
        }
        let mut half = [0; 16];
        half.copy_from_slice(&digest(authority)[..16]);
        let token = Token { host: host.to_owned(), authority: half, secret: random() };
        self.open.insert(digest(token.secret().as_bytes()), now + GOOD_FOR);
        token
    }

    /// Whether a secret is that of a token that is good; then it is used up.
    pub fn accept(&mut self, secret: &str, now: Instant) -> bool {
        self.forget_old(now);
        self.open.remove(&digest(secret.as_bytes())).is_some()
    }

    fn forget_old(&mut self, now: Instant) {
        self.open.retain(|_, end| *end > now);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    // `from_str_radix` would take a sign.
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) || text.len() % 2 != 0 {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_once_and_for_an_hour() {
        let mut invitations = Invitations::default();
        let now = Instant::now();
        let token = invitations.invite("a.lab", b"authority", now);
        let read: Token = token.to_string().parse().unwrap();
        assert_eq!(read, token);
        assert!(read.is_authority(b"authority") && !read.is_authority(b"another"));
        assert!(!invitations.accept("00", now));
        assert!(invitations.accept(&read.secret(), now));
        assert!(!invitations.accept(&read.secret(), now), "it was good twice");
        let late = invitations.invite("a.lab", b"authority", now);
        assert!(!invitations.accept(&late.secret(), now + GOOD_FOR));
    }

    #[test]
    fn what_is_no_token_is_refused_and_there_are_not_too_many() {
        let signed = format!("a.{}", "+f".repeat(32));
        let long = "a.".repeat(9999);
        for wrong in ["", ".", "a", "a.", "a.00", "a.zz", ".00", "a.é", &signed, &long] {
            assert_eq!(wrong.parse::<Token>(), Err(TokenError), "{wrong}");
        }
        let mut invitations = Invitations::default();
        let now = Instant::now();
        for second in 0..200 {
            invitations.invite("a", b"x", now + Duration::from_secs(second));
        }
        assert_eq!(invitations.open.len(), INVITATIONS_MAX);
    }
}
