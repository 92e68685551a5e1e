//! Rows as CSV (RFC 4180).

/// The text of these rows, the first being the header.
pub(crate) fn csv_text(rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        // Rows are of one length, and memory takes what it is given.
        writer.write_record(row).unwrap_or_else(|error| unreachable!("{error}"));
    }
    let bytes = writer.into_inner().unwrap_or_else(|error| unreachable!("{error}"));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_quotes_has_them() {
        let rows = [["a", "b"], ["x,y", "say \"so\""]].map(|row| row.map(String::from).to_vec());
        assert_eq!(csv_text(rows), "a,b\n\"x,y\",\"say \"\"so\"\"\"\n");
    }
}
