//! Tables for people, on a screen of 80 columns.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};

/// Columns of a screen: no line of a table is longer unless a single word is.
pub const WIDTH: usize = 80;

/// Blanks between two columns of a table.
const GAP: u16 = 2;

/// A table. `kinds` has a letter per column: `l` for words, which are wrapped where the line would
/// be too long, `r` for numbers, which never are. Every row has as many cells; the first is the header.
///
/// ```
/// let rows = [["page", "moves"], ["7", "12"]].map(|row| row.map(String::from).to_vec());
/// assert_eq!(farside_sim::screen::table("lr", rows), "page  moves\n7        12\n");
/// ```
pub fn table(kinds: &str, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(WIDTH as u16).add_rows(rows);
    let last = kinds.len().saturating_sub(1);
    for ((index, kind), column) in kinds.chars().enumerate().zip(table.column_iter_mut()) {
        column.set_padding((0, if index == last { 0 } else { GAP }));
        if kind == 'r' {
            column.set_cell_alignment(CellAlignment::Right);
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

/// Columns of numbers behind a column of their names, as many beside each other as fit, the others
/// below. The first cell of each column is its header.
#[must_use]
pub fn side_by_side(names: &[String], columns: &[Vec<String>]) -> String {
    let width = |cells: &[String]| {
        cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0) + usize::from(GAP)
    };
    let mut blocks = Vec::new();
    let mut rest = columns;
    while !rest.is_empty() {
        let mut used = width(names);
        let fits = |column: &&Vec<String>| {
            used += width(column);
            used <= WIDTH
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (block, others) = rest.split_at(count);
        rest = others;
        let row = |(index, name): (usize, &String)| {
            let cell = |column: &Vec<String>| column.get(index).cloned().unwrap_or_default();
            std::iter::once(name.clone()).chain(block.iter().map(cell)).collect()
        };
        let kinds = "l".to_owned() + &"r".repeat(count);
        blocks.push(table(&kinds, names.iter().enumerate().map(row)));
    }
    blocks.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned<const N: usize>(cells: [&str; N]) -> Vec<String> {
        cells.map(String::from).to_vec()
    }

    #[test]
    fn words_are_wrapped_and_numbers_are_not() {
        let long = "what takes more room than a line has ".repeat(4);
        let number = "1234567890";
        let text = table("lrl", [owned(["a", number, long.trim()])]);
        assert!(text.lines().count() > 1, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains(number), "{text}");
    }

    #[test]
    fn columns_that_do_not_fit_come_below() {
        let names = owned(["", "faults"]);
        let column = |name: &str| owned([name, "7"]);
        let columns: Vec<_> = ["a", "b", "c", "d", "e"].map(|n| column(&n.repeat(20))).to_vec();
        let text = side_by_side(&names, &columns);
        assert_eq!(text.matches("faults").count(), 2, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(side_by_side(&names, &columns[..1]).lines().count(), 2);
    }
}
