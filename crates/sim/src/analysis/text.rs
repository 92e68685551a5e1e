//! Sharing as a table for people.

use std::fmt;

use super::{Kind, Share, Sharing};

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {} GPUs", self.workload, self.gpus)?;
        writeln!(f, "{:<24} {:>12} {:>7} {:>14} {:>7}", "", "pages", "%", "accesses", "%")?;
        self.line(f, "all", self.all())?;
        self.line(f, "private", self.share(Kind::Private))?;
        self.line(f, "shared", self.share(Kind::Shared))?;
        for (index, share) in self.by_sharers.iter().enumerate().skip(1) {
            self.line(f, &format!("  by {} GPUs", index + 1), *share)?;
        }
        self.line(f, "read", self.share(Kind::Read))?;
        self.line(f, "read and written", self.share(Kind::ReadWrite))?;
        let percent = percent(self.writes, self.accesses);
        writeln!(f, "{:<24} {:>12} {:>7} {:>14} {percent:>7.2}", "writes", "", "", self.writes)
    }
}

impl Sharing {
    fn line(&self, f: &mut fmt::Formatter<'_>, name: &str, share: Share) -> fmt::Result {
        let all = self.all();
        writeln!(
            f,
            "{name:<24} {:>12} {:>7.2} {:>14} {:>7.2}",
            share.pages,
            percent(share.pages, all.pages),
            share.accesses,
            percent(share.accesses, all.accesses)
        )
    }
}

fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::{Extent, Sharing, SharingOptions, Touch};

    #[test]
    fn the_table_has_pages_and_accesses_with_their_shares() {
        let touches = [(0, 0, false), (0, 0, true), (0, 1, false), (1, 1, false)];
        let touches = touches.map(|(gpu, page, write)| Touch { gpu, page, write });
        let buffers = vec![Extent { name: "a".to_owned(), first: 0, pages: 4 }];
        let options = SharingOptions::default();
        let all = || touches.iter().copied();
        let text = Sharing::from_touches("test", 2, buffers, all, &options).to_string();
        let expected = "\
test on 2 GPUs
                                pages       %       accesses       %
all                                 2  100.00              4  100.00
private                             1   50.00              2   50.00
shared                              1   50.00              2   50.00
  by 2 GPUs                         1   50.00              2   50.00
read                                1   50.00              2   50.00
read and written                    1   50.00              2   50.00
writes                                                     1   25.00
";
        assert_eq!(text, expected);
    }
}
