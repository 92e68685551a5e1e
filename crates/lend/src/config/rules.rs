//! Rules: who may borrow what, for how long, and how much of it at a time.
//!
//! The first rule that is about a host, its user and a device decides. Where there are rules and none is
//! about them, the answer is no; where there are none at all, every member of the group may have
//! everything. The host is proved by its certificate, the user is that host's word.

use std::collections::HashSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::pattern::Patterns;
use super::{Word, Wrong};

/// Rules, at most.
const RULES_MAX: usize = 256;
/// Bytes of a rule's name, at most.
const NAME_BYTES_MAX: usize = 64;
/// The time before its end at which a lease of limited length is recalled, at most; and as a part of it.
const NOTICE_MAX: Duration = Duration::from_secs(30);
const NOTICE_PART: u32 = 4;

/// A rule as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Written {
    name: Word,
    #[serde(default)]
    hosts: Vec<Word>,
    #[serde(default)]
    users: Vec<Word>,
    #[serde(default)]
    devices: Vec<Word>,
    allow: Option<bool>,
    longest_s: Option<toml::Spanned<u64>>,
    at_most: Option<usize>,
    #[serde(default)]
    at_most_per: Per,
}

/// Who is counted together by `at-most`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// All users of a host.
    #[default]
    Host,
    /// Each user of each host.
    User,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    name: String,
    hosts: Patterns,
    users: Patterns,
    devices: Patterns,
    allow: bool,
    longest: Option<Duration>,
    at_most: Option<usize>,
    per: Per,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// Somebody and a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    /// As its certificate says.
    pub host: &'a str,
    /// As that host says; empty if it does not.
    pub user: &'a str,
    /// Which device.
    pub device: &'a str,
}

/// A rule's yes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Which rule; none where there are none.
    pub rule: Option<String>,
    /// How long a lease may be held.
    pub longest: Option<Duration>,
}

impl Allowed {
    /// When a lease is recalled so that it is back in time: how long after it was granted, and how long
    /// its borrower has then.
    #[must_use]
    pub fn recall(&self) -> Option<(Duration, Duration)> {
        let longest = self.longest?;
        let notice = NOTICE_MAX.min(longest / NOTICE_PART);
        Some((longest - notice, notice))
    }
}

/// A rule's no.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotAllowed {
    /// It says so.
    #[error("rule `{rule}` does not let {who} borrow {device}; ask the administrators of its host")]
    Forbidden {
        /// Which rule.
        rule: String,
        /// User and host.
        who: String,
        /// Which device.
        device: String,
    },
    /// No rule is about it.
    #[error("no rule lets {who} borrow {device}; ask the administrators of its host for one")]
    NoRule {
        /// User and host.
        who: String,
        /// Which device.
        device: String,
    },
    /// It is one too many.
    #[error(
        "rule `{rule}` lets {whom} have {at_most} devices at a time, and {who} asks for {device} \
         beside them; give one back"
    )]
    TooMany {
        /// Which rule.
        rule: String,
        /// Who is counted.
        whom: &'static str,
        /// How many.
        at_most: usize,
        /// User and host.
        who: String,
        /// Which device.
        device: String,
    },
}

impl NotAllowed {
    /// The rule, if one says no.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        match self {
            NotAllowed::Forbidden { rule, .. } | NotAllowed::TooMany { rule, .. } => Some(rule),
            NotAllowed::NoRule { .. } => None,
        }
    }
}

impl Asked<'_> {
    /// For people.
    fn who(&self) -> String {
        match self.user {
            "" => format!("host {}", self.host),
            user => format!("user {user} on host {}", self.host),
        }
    }
}

impl Rule {
    fn is_about(&self, asked: &Asked<'_>) -> bool {
        self.hosts.match_name(asked.host)
            && self.users.match_name(asked.user)
            && self.devices.match_name(asked.device)
    }

    fn counts_together(&self, one: &Asked<'_>, other: &Asked<'_>) -> bool {
        one.host == other.host && (self.per == Per::Host || one.user == other.user)
    }
}

impl Rules {
    pub(super) fn parse(written: Vec<Written>) -> Result<Rules, Wrong> {
        let mut names = HashSet::new();
        let mut rules = Vec::new();
        for rule in written {
            let name = rule.name.get_ref().clone();
            let wrong = |why: String| Err(Wrong::at(&rule.name, why));
            if rules.len() == RULES_MAX {
                return wrong(format!("there are more than {RULES_MAX} rules"));
            }
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control)
            {
                return wrong(format!("the name of a rule has 1 to {NAME_BYTES_MAX} bytes"));
            }
            if !names.insert(name.clone()) {
                return wrong(format!("two rules are named `{name}`; rename one"));
            }
            let allow = rule.allow.unwrap_or(true);
            if !allow && (rule.longest_s.is_some() || rule.at_most.is_some()) {
                return wrong(format!("rule `{name}` forbids, and has limits; take them away"));
            }
            let longest = match rule.longest_s {
                Some(seconds) if !(1..=u64::from(u32::MAX)).contains(seconds.get_ref()) => {
                    return Err(Wrong::at(&seconds, "a lease is held for 1 to 4294967295 seconds"));
                }
                longest => longest.map(|seconds| Duration::from_secs(*seconds.get_ref())),
            };
            rules.push(Rule {
                name,
                hosts: Patterns::parse(&rule.hosts)?,
                users: Patterns::parse(&rule.users)?,
                devices: Patterns::parse(&rule.devices)?,
                allow,
                longest,
                at_most: rule.at_most,
                per: rule.at_most_per,
            });
        }
        Ok(Rules(rules))
    }

    fn about(&self, asked: &Asked<'_>) -> Option<&Rule> {
        self.0.iter().find(|rule| rule.is_about(asked))
    }

    /// Whether somebody may borrow all of `wanted`, beside what is had or waited for already, by
    /// whomever. Gives an answer for each of `wanted`.
    ///
    /// # Errors
    /// The first that it may not, and by which rule.
    pub fn judge(
        &self,
        wanted: &[Asked<'_>],
        had: &[Asked<'_>],
    ) -> Result<Vec<Allowed>, NotAllowed> {
        if self.0.is_empty() {
            return Ok(vec![Allowed::default(); wanted.len()]);
        }
        let one = |(at, asked): (usize, &Asked<'_>)| {
            self.judge_one(asked, had.iter().chain(&wanted[..at]))
        };
        wanted.iter().enumerate().map(one).collect()
    }

    fn judge_one<'a>(
        &self,
        asked: &Asked<'_>,
        had: impl Iterator<Item = &'a Asked<'a>>,
    ) -> Result<Allowed, NotAllowed> {
        let (who, device) = (asked.who(), asked.device.to_owned());
        let Some(rule) = self.about(asked) else {
            return Err(NotAllowed::NoRule { who, device });
        };
        let name = rule.name.clone();
        if !rule.allow {
            return Err(NotAllowed::Forbidden { rule: name, who, device });
        }
        if let Some(at_most) = rule.at_most {
            let of_it = |other: &&Asked<'_>| {
                rule.counts_together(asked, other)
                    && self.about(other).is_some_and(|other| other.name == rule.name)
            };
            if had.filter(of_it).count() >= at_most {
                let whom = match rule.per {
                    Per::Host => "each host",
                    Per::User => "each user",
                };
                return Err(NotAllowed::TooMany { rule: name, whom, at_most, who, device });
            }
        }
        Ok(Allowed { rule: Some(name), longest: rule.longest })
    }

    /// As they are in force, for people and programs.
    #[must_use]
    pub fn described(&self) -> Vec<crate::proto::Rule> {
        let described = |rule: &Rule| crate::proto::Rule {
            name: rule.name.clone(),
            hosts: rule.hosts.text(),
            users: rule.users.text(),
            devices: rule.devices.text(),
            allow: rule.allow,
            longest_s: rule.longest.map_or(0, |longest| longest.as_secs()),
            at_most: rule.at_most.map(|at_most| u32::try_from(at_most).unwrap_or(u32::MAX)),
            per_user: rule.per == Per::User,
        };
        self.0.iter().map(described).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Config, tests::wrong};
    use super::*;

    fn rules(text: &str) -> Rules {
        Config::parse(&format!("version = 1\n{text}")).unwrap().rules
    }

    fn asked<'a>(host: &'a str, user: &'a str, device: &'a str) -> Asked<'a> {
        Asked { host, user, device }
    }

    const LAB: &str = r#"
[[rule]]
name = "no night jobs"
users = ["night-*"]
allow = false

[[rule]]
name = "lab"
hosts = ["lab-?"]
devices = ["card*", "fpga"]
longest-s = 3600
at-most = 2

[[rule]]
name = "guests"
devices = ["card0"]
at-most = 1
at-most-per = "user"
"#;

    #[test]
    fn the_first_rule_that_is_about_it_decides_and_no_rule_is_a_no() {
        let rules = rules(LAB);
        let judge = |one| rules.judge(&[one], &[]);
        let hour = Some(Duration::from_secs(3600));
        let lab = Allowed { rule: Some("lab".to_owned()), longest: hour };
        assert_eq!(judge(asked("lab-1", "alice", "card7")), Ok(vec![lab.clone()]));
        assert_eq!(judge(asked("lab-1", "", "fpga")), Ok(vec![lab]));
        let guests = Allowed { rule: Some("guests".to_owned()), longest: None };
        assert_eq!(judge(asked("lab-10", "alice", "card0")), Ok(vec![guests]));
        let why = judge(asked("lab-1", "night-1", "card0")).unwrap_err();
        assert_eq!(why.rule(), Some("no night jobs"));
        for word in ["no night jobs", "night-1", "lab-1", "card0"] {
            assert!(why.to_string().contains(word), "{why}");
        }
        let why = judge(asked("else", "alice", "card7")).unwrap_err();
        assert!(matches!(why, NotAllowed::NoRule { .. }), "{why}");
        for word in ["alice", "else", "card7"] {
            assert!(why.to_string().contains(word), "{why}");
        }
    }

    #[test]
    fn without_rules_everything_is_allowed() {
        let allowed = Rules::default().judge(&[asked("b", "", "x")], &[]).unwrap();
        assert_eq!(allowed, vec![Allowed::default()]);
    }

    #[test]
    fn what_is_had_by_a_rule_is_counted_by_host_or_by_user() {
        let rules = rules(LAB);
        let had = [asked("lab-1", "alice", "card1"), asked("lab-1", "bob", "fpga")];
        let more = [asked("lab-1", "carol", "card2")];
        assert!(rules.judge(&more, &had[..1]).is_ok());
        let why = rules.judge(&more, &had).unwrap_err();
        assert!(why.to_string().contains("`lab`") && why.to_string().contains('2'), "{why}");
        // Another host has its own two.
        assert!(rules.judge(&[asked("lab-2", "carol", "card2")], &had).is_ok());
        // Of several that are wanted together each counts.
        let three = ["card1", "card2", "card3"].map(|device| asked("lab-1", "x", device));
        assert!(rules.judge(&three[..2], &[]).is_ok() && rules.judge(&three, &[]).is_err());
        let had = [asked("z", "alice", "card0")];
        assert!(rules.judge(&had, &had).is_err());
        assert!(rules.judge(&[asked("z", "bob", "card0")], &had).is_ok());
    }

    #[test]
    fn a_lease_of_limited_length_is_recalled_before_its_end() {
        let of = |seconds| Allowed { rule: None, longest: Some(Duration::from_secs(seconds)) };
        let seconds = |allowed: Allowed| allowed.recall().map(|(a, b)| (a.as_secs(), b.as_secs()));
        assert_eq!(seconds(of(3600)), Some((3570, 30)));
        assert_eq!(seconds(of(40)), Some((30, 10)));
        assert_eq!(Allowed::default().recall(), None);
    }

    #[test]
    fn rules_that_make_no_sense_are_refused_with_their_line() {
        for (rule, line, word) in [
            ("hosts = []", 2, "name"),
            ("name = \"\"", 3, "1 to 64"),
            ("name = \"a\"\nhosts = [\"ok\",\n\"no spaces\"]", 5, "no spaces"),
            ("name = \"a\"\nhost = [\"a\"]", 4, "host"),
            ("name = \"a\"\nlongest-s = 0", 4, "1 to"),
            ("name = \"a\"\nallow = false\nat-most = 1", 3, "forbids"),
            ("name = \"a\"\nat-most = -1", 4, ""),
            ("name = \"a\"\nat-most-per = \"room\"", 4, "room"),
            ("name = \"a\"\n[[rule]]\nname = \"a\"", 5, "two rules"),
        ] {
            let (found, why) = wrong(&format!("version = 1\n[[rule]]\n{rule}\n"));
            assert!(found == line && why.contains(word), "{rule:?}: line {found}: {why}");
        }
    }

    proptest! {
        /// Whatever is had and wanted: nobody gets more than a rule says, and who is refused would have
        /// had more.
        #[test]
        fn nobody_has_more_than_its_rule_says(
            at_most in 0usize..4,
            per_user: bool,
            asks in proptest::collection::vec((0u8..2, 0u8..2, 0u8..4), 0..12),
        ) {
            let per = if per_user { "user" } else { "host" };
            let rules = rules(&format!(
                "[[rule]]\nname = \"r\"\nat-most = {at_most}\nat-most-per = \"{per}\"\n"
            ));
            let names: Vec<[String; 3]> =
                asks.iter().map(|(h, u, d)| [h, u, d].map(|n| n.to_string())).collect();
            let mut had: Vec<Asked<'_>> = Vec::new();
            for [host, user, device] in &names {
                let one = asked(host, user, device);
                let alike = |other: &&Asked<'_>| {
                    other.host == one.host && (!per_user || other.user == one.user)
                };
                let before = had.iter().filter(alike).count();
                let allowed = rules.judge(&[one], &had).is_ok();
                prop_assert_eq!(allowed, before < at_most);
                if allowed {
                    had.push(one);
                }
            }
        }
    }
}
