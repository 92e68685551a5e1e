//! Text for people, on a screen of 80 columns.

pub(crate) use farside_sim::screen::{WIDTH, table};
use textwrap::{Options, WordSplitter};

/// Text in lines that are no longer than a screen is wide unless a single word is: a path is never
/// cut. `first` stands before it, and the other lines are indented by as much.
pub(crate) fn paragraph(first: &str, text: &str) -> String {
    let below = " ".repeat(first.chars().count());
    let lines = Options::new(WIDTH).initial_indent(first).subsequent_indent(&below);
    let lines = lines.break_words(false).word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(text, lines) + "\n"
}

/// The cells of a row.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(String::from).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_80_columns_and_words_stay_whole() {
        let path = "/a-path".repeat(20);
        let text = paragraph("- ", &format!("{}as-shipped {path}", "µs and words ".repeat(10)));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("- µs") && lines[1].starts_with("  "), "{text}");
        assert_eq!(lines.iter().filter(|line| line.chars().count() > WIDTH).count(), 1, "{text}");
        assert!(text.contains(&path), "{text}");
    }
}
