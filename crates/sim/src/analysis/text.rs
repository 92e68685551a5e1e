//! Sharing as a table for people.

use std::fmt;

use super::{Kind, Share, Sharing};
use crate::screen::table;

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {} GPUs", self.workload, self.gpus)?;
        let mut rows = vec![["", "pages", "%", "accesses", "%"].map(String::from).to_vec()];
        rows.push(self.row("all", self.all()));
        rows.push(self.row("private", self.share(Kind::Private)));
        rows.push(self.row("shared", self.share(Kind::Shared)));
        for (index, share) in self.by_sharers.iter().enumerate().skip(1) {
            rows.push(self.row(&format!("  by {} GPUs", index + 1), *share));
        }
        rows.push(self.row("read", self.share(Kind::Read)));
        rows.push(self.row("read and written", self.share(Kind::ReadWrite)));
        let mut writes = self.row("writes", Share { pages: 0, accesses: self.writes });
        // Writes are accesses, no pages; their share is that of all there were.
        writes[1].clear();
        writes[2].clear();
        writes[4] = format!("{:.2}", percent(self.writes, self.accesses));
        rows.push(writes);
        f.write_str(&table("lrrrr", rows))
    }
}

impl Sharing {
    fn row(&self, name: &str, share: Share) -> Vec<String> {
        let all = self.all();
        let percent = |part, of| format!("{:.2}", percent(part, of));
        let pages = percent(share.pages, all.pages);
        let accesses = percent(share.accesses, all.accesses);
        vec![name.to_owned(), share.pages.to_string(), pages, share.accesses.to_string(), accesses]
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
                  pages       %  accesses       %
all                   2  100.00         4  100.00
private               1   50.00         2   50.00
shared                1   50.00         2   50.00
  by 2 GPUs           1   50.00         2   50.00
read                  1   50.00         2   50.00
read and written      1   50.00         2   50.00
writes                                  1   25.00
";
        assert_eq!(text, expected);
    }
}
