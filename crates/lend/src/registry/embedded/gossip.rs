//! What a host knows of the others, and what two hosts tell each other when they meet: pure.
//!
//! Each host counts the versions of what it says of itself, and beats while it is there. Two that meet
//! compare the versions they know of all hosts and exchange what differs, so that news spread as rumours do,
//! and what was lost on the way is made up for by the next meeting. Peers may lie: every length is bounded,
//! and a host that hears of a later version of itself than it has said speaks anew, above that.

use std::collections::BTreeMap;
use std::time::Duration;

use farside_lease::{BootTime, HostName};
use prost::Message;

use super::super::record::is_sound;
use super::super::{HOSTS_MAX, HostView, PRESENCE, Published, unknown};
use crate::proto::{ExchangeReply, ExchangeRequest, HostRecord, HostVersion};

/// How often a host beats.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// As long as something was new so recently, hosts meet often.
const NEWS: Duration = Duration::from_secs(1);
/// How often a host meets others while there is something new, and otherwise.
const OFTEN: Duration = Duration::from_millis(200);
const SELDOM: Duration = Duration::from_millis(500);
/// How many others it meets each time, while there is something new.
const MEETINGS: usize = 2;
/// Once in so many times it tries one that is not there.
const ABSENT_EACH: u64 = 4;
/// How far versions may run ahead of this host's clock: they count milliseconds since 1970 at the start.
const AHEAD: Duration = Duration::from_secs(86_400);
/// Versions of one millisecond.
const VERSIONS_PER_MS: u64 = 1 << 20;
/// Beats of one version, at most.
const BEAT_MAX: u64 = 1 << 40;
/// Bytes of the records that are brought or answered at a time, at most: the rest follows the next time.
/// A peer takes 256 KiB, and answers of more.
const BROUGHT_MAX: usize = 200 << 10;
const ANSWERED_MAX: usize = 2 << 20;

/// When a host said what it said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct At {
    version: u64,
    beat: u64,
}

#[derive(Clone, Debug)]
struct Known {
    at: At,
    heard: BootTime,
    said: Published,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Gossip {
    own: String,
    hosts: BTreeMap<String, Known>,
    /// When something was new last.
    news: BootTime,
    beaten: BootTime,
    random: u64,
    changes: u64,
    refused: u64,
}

/// The first version of a host that starts at that time.
pub(in super::super) fn first_version(since_1970: Duration) -> u64 {
    (since_1970.as_millis() as u64).saturating_mul(VERSIONS_PER_MS)
}

impl Gossip {
    /// A host that knows itself alone.
    pub(crate) fn new(own: &str, since_1970: Duration, now: BootTime) -> Gossip {
        let at = At { version: first_version(since_1970), beat: 0 };
        let known = Known { at, heard: now, said: Published::default() };
        let seed = own.bytes().fold(at.version | 1, |seed, byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Gossip {
            own: own.to_owned(),
            hosts: BTreeMap::from([(own.to_owned(), known)]),
            news: now,
            beaten: now,
            random: seed | 1,
            changes: 0,
            refused: 0,
        }
    }

    /// This host has another name from now on.
    pub(crate) fn rename(&mut self, own: &str, now: BootTime) {
        if self.own == own {
            return;
        }
        if let Some(known) = self.hosts.remove(&self.own) {
            own.clone_into(&mut self.own);
            self.hosts.insert(self.own.clone(), known);
            self.note_news(now);
        }
    }

    /// Says this of the own host.
    pub(crate) fn publish(&mut self, now: BootTime, said: Published) {
        let Some(own) = self.hosts.get_mut(&self.own) else { return };
        if own.said != said {
            own.said = said;
            own.at = At { version: own.at.version + 1, beat: 0 };
            own.heard = now;
            self.note_news(now);
        }
    }

    /// A host of which nothing but its address is known yet.
    pub(crate) fn introduce(&mut self, host: &str, address: &str) {
        if host == self.own || self.hosts.len() >= HOSTS_MAX {
            return;
        }
        let nothing = Known {
            at: At { version: 0, beat: 0 },
            heard: BootTime(0),
            said: Published::default(),
        };
        let known = self.hosts.entry(host.to_owned()).or_insert(nothing);
        if known.at.version == 0 {
            address.clone_into(&mut known.said.address);
        }
    }

    /// Counts what has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Entries that were refused, because they make no sense.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    fn note_news(&mut self, now: BootTime) {
        self.news = now;
        self.changes += 1;
    }

    /// What is known, in the order of the names.
    pub(crate) fn view(&self, now: BootTime) -> Vec<HostView> {
        let view = |(host, known): (&String, &Known)| HostView {
            host: host.clone(),
            said: known.said.clone(),
            heard: if *host == self.own { Duration::ZERO } else { known.heard.until(now) },
        };
        self.hosts.iter().map(view).collect()
    }

    /// Where hosts listen that are not where they are `known` to be.
    pub(crate) fn addresses(&self, known: &BTreeMap<String, String>) -> Vec<(String, String)> {
        unknown(self.hosts.iter().map(|(host, known)| (host, &known.said.address)), known)
    }

    /// Beats if it is time, and says whom to meet now, with their addresses, and when to meet others.
    pub(crate) fn meet(&mut self, now: BootTime) -> (Vec<(String, String)>, Duration) {
        if self.beaten.until(now) >= BEAT {
            self.beaten = now;
            if let Some(own) = self.hosts.get_mut(&self.own) {
                own.at.beat += 1;
                own.heard = now;
            }
        }
        let often = self.news.until(now) <= NEWS;
        let others = self
            .hosts
            .iter()
            .filter(|(host, known)| **host != self.own && !known.said.address.is_empty());
        let (mut there, mut absent): (Vec<_>, Vec<_>) = others
            .map(|(host, known)| (host.clone(), known.said.address.clone(), known.heard))
            .partition(|(_, _, heard)| heard.until(now) <= PRESENCE && heard.0 != 0);
        let mut meetings = Vec::new();
        let wanted = if often { MEETINGS } else { 1 };
        while meetings.len() < wanted && !there.is_empty() {
            let (host, address, _) = there.swap_remove(self.below(there.len()));
            meetings.push((host, address));
        }
        let try_absent = meetings.is_empty() || self.next() % ABSENT_EACH == 0;
        if try_absent && !absent.is_empty() {
            let (host, address, _) = absent.swap_remove(self.below(absent.len()));
            meetings.push((host, address));
        }
        (meetings, if often { OFTEN } else { SELDOM })
    }

    /// What to say first to somebody.
    pub(crate) fn request(&self, now: BootTime) -> ExchangeRequest {
        let said = self.hosts.iter().filter(|(_, known)| known.at.version != 0);
        ExchangeRequest {
            known: said.map(|(host, known)| self.version(host, known, now)).collect(),
            news: Vec::new(),
        }
    }

    /// Brings what somebody wanted.
    pub(crate) fn bring(&self, now: BootTime, wanted: &[String]) -> ExchangeRequest {
        let wanted = wanted.iter().take(HOSTS_MAX).map(String::as_str);
        ExchangeRequest { known: Vec::new(), news: self.records(wanted, now, BROUGHT_MAX) }
    }

    /// Takes what a caller says, and answers.
    pub(crate) fn answer(
        &mut self,
        now: BootTime,
        since_1970: Duration,
        request: &ExchangeRequest,
    ) -> ExchangeReply {
        self.take(now, since_1970, &request.news);
        if request.known.is_empty() {
            return ExchangeReply::default();
        }
        let mut theirs = BTreeMap::new();
        let mut wanted = Vec::new();
        for version in request.known.iter().take(HOSTS_MAX) {
            let Some(at) = self.sensible(version, since_1970) else { continue };
            theirs.insert(version.host.as_str(), at);
            if self.hear(now, version, at) {
                wanted.push(version.host.clone());
            }
        }
        let later = |(host, known): &(&String, &Known)| {
            known.at.version != 0 && theirs.get(host.as_str()).is_none_or(|their| *their < known.at)
        };
        let later: Vec<&str> =
            self.hosts.iter().filter(later).map(|(host, _)| host.as_str()).collect();
        ExchangeReply { news: self.records(later, now, ANSWERED_MAX), wanted }
    }

    /// Takes records in. What makes no sense is counted, and changes nothing.
    pub(crate) fn take(&mut self, now: BootTime, since_1970: Duration, records: &[HostRecord]) {
        for record in records.iter().take(HOSTS_MAX) {
            let Some(version) = &record.at else { continue };
            let Some(at) = self.sensible(version, since_1970) else { continue };
            if !is_sound(record) {
                self.refused += 1;
                continue;
            }
            if !self.hear(now, version, at) {
                continue;
            }
            let full = self.hosts.len() >= HOSTS_MAX && !self.hosts.contains_key(&version.host);
            if full {
                self.refused += 1;
                continue;
            }
            let said =
                Published { address: record.address.clone(), devices: record.devices.clone() };
            let known = Known { at, heard: heard(now, version), said };
            self.hosts.insert(version.host.clone(), known);
            self.note_news(now);
        }
    }

    /// Notes that a host was heard. Says whether it has said something that is not known here.
    fn hear(&mut self, now: BootTime, version: &HostVersion, at: At) -> bool {
        if version.host == self.own {
            self.speak_above(now, at);
            return false;
        }
        let Some(known) = self.hosts.get_mut(&version.host) else { return true };
        if at.version == known.at.version && at.beat > known.at.beat {
            known.at = at;
            known.heard = known.heard.max(heard(now, version));
        }
        at.version > known.at.version
    }

    /// Somebody has it that this host said something later than it did: before it was started again, by a
    /// clock that was ahead; or it is a lie.
    fn speak_above(&mut self, now: BootTime, at: At) {
        let Some(own) = self.hosts.get_mut(&self.own) else { return };
        if at > own.at {
            own.at = At { version: at.version + 1, beat: 0 };
            own.heard = now;
            self.note_news(now);
        }
    }

    /// When a host is said to have said something, if that can be.
    fn sensible(&mut self, version: &HostVersion, since_1970: Duration) -> Option<At> {
        let at = At { version: version.version, beat: version.beat };
        let latest = first_version(since_1970.saturating_add(AHEAD));
        let sensible = HostName::new(&version.host).is_ok()
            && (1..latest).contains(&at.version)
            && at.beat < BEAT_MAX;
        self.refused += u64::from(!sensible);
        sensible.then_some(at)
    }

    fn version(&self, host: &str, known: &Known, now: BootTime) -> HostVersion {
        let heard = if host == self.own { Duration::ZERO } else { known.heard.until(now) };
        HostVersion {
            host: host.to_owned(),
            version: known.at.version,
            beat: known.at.beat,
            heard_ns: u64::try_from(heard.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    fn records<'a>(
        &self,
        hosts: impl IntoIterator<Item = &'a str>,
        now: BootTime,
        bytes_max: usize,
    ) -> Vec<HostRecord> {
        let mut bytes = 0;
        let mut records = Vec::new();
        for host in hosts {
            let Some(known) = self.hosts.get(host).filter(|known| known.at.version != 0) else {
                continue;
            };
            let record = HostRecord {
                at: Some(self.version(host, known, now)),
                address: known.said.address.clone(),
                devices: known.said.devices.clone(),
            };
            let length = record.encoded_len();
            if bytes + length <= bytes_max {
                bytes += length;
                records.push(record);
            }
        }
        records
    }

    /// Xorshift: meetings only have to be spread.
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % (count as u64)).unwrap_or(0)
    }
}

/// When a host was heard, by this host's clock.
fn heard(now: BootTime, version: &HostVersion) -> BootTime {
    BootTime(now.0.saturating_sub(version.heard_ns))
}
