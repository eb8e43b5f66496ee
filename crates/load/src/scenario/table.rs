//! Tables of values from CSV files (RFC 4180), whose first line names the columns.

use crate::template::Table;

/// Reads a table. The error says where it is wrong.
pub fn read(bytes: &[u8]) -> Result<Table, String> {
    // Spreadsheets put a byte order mark in front.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::Headers).from_reader(bytes);
    let words = |error: csv::Error| error.to_string();
    let columns: Vec<String> = reader.headers().map_err(words)?.iter().map(str::to_owned).collect();
    if columns.iter().all(String::is_empty) {
        return Err("its first line has to name the columns".to_owned());
    }
    if let Some(index) = (1..columns.len()).find(|index| columns[..*index].contains(&columns[*index])) {
        return Err(format!("two columns are named {:?}", columns[index]));
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(words)?;
        let line = record.position().map_or(0, csv::Position::line);
        // In a head of HTTP a line's end in a cell would begin another field.
        if record.iter().any(|cell| cell.chars().any(char::is_control)) {
            return Err(format!("line {line}: a cell holds a line's end or another control character"));
        }
        rows.push(record.iter().map(str::to_owned).collect());
    }
    if rows.is_empty() {
        return Err("it has no rows".to_owned());
    }
    Ok(Table { columns, rows })
}

/// The same table, its cells as they stand within a string of JSON.
pub fn escaped_for_json(table: &Table) -> Table {
    let rows = table.rows.iter().map(|row| row.iter().map(|cell| escaped(cell)).collect());
    Table { columns: table.columns.clone(), rows: rows.collect() }
}

fn escaped(cell: &str) -> String {
    let quoted = serde_json::Value::from(cell).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_commas_and_marks_of_spreadsheets_are_read() {
        let table = read(b"\xef\xbb\xbfuser, key\r\nanna,\"a,1\"\r\n\"b\"\"b\",\r\n").unwrap();
        assert_eq!(table.columns, ["user", "key"]);
        assert_eq!(table.rows, [["anna", "a,1"], ["b\"b", ""]]);
        assert_eq!(escaped_for_json(&table).rows[1], ["b\\\"b", ""]);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for (text, part) in [
            (&b""[..], "has to name the columns"),
            (b"a,b\n", "no rows"),
            (b"a,a\n1,2\n", "two columns are named \"a\""),
            (b"a,b\n1,2\n3\n", "line: 3"),
            (b"a\n\"x\ny\"\n", "line 2: a cell holds"),
            (b"a\n\xff\n", "UTF-8"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
