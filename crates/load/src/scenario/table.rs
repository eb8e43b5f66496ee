//! Reads tables from CSV files (RFC 4180), whose first line contains the column names.

use crate::template::Table;

/// Parses a table. The error contains the line number.
pub fn read(bytes: &[u8]) -> Result<Table, String> {
    // Spreadsheets write a byte order mark.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::Headers).from_reader(bytes);
    let to_text = |error: csv::Error| error.to_string();
    let columns: Vec<String> = reader.headers().map_err(to_text)?.iter().map(str::to_owned).collect();
    if columns.iter().all(String::is_empty) {
        return Err("the first line must name the columns".to_owned());
    }
    if let Some(index) = (1..columns.len()).find(|index| columns[..*index].contains(&columns[*index])) {
        return Err(format!("two columns are named {:?}", columns[index]));
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(to_text)?;
        let line = record.position().map_or(0, csv::Position::line);
        // In an HTTP head, a line break in a cell would start another header field.
        if record.iter().any(|cell| cell.chars().any(char::is_control)) {
            return Err(format!("line {line}: a cell contains a line break or another control character"));
        }
        rows.push(record.iter().map(str::to_owned).collect());
    }
    if rows.is_empty() {
        return Err("it has no rows".to_owned());
    }
    Ok(Table { columns, rows })
}

/// Returns the table with its cells escaped for JSON strings.
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
    fn quotes_commas_and_byte_order_marks_are_parsed() {
        let table = read(b"\xef\xbb\xbfuser, key\r\nanna,\"a,1\"\r\n\"b\"\"b\",\r\n").unwrap();
        assert_eq!(table.columns, ["user", "key"]);
        assert_eq!(table.rows, [["anna", "a,1"], ["b\"b", ""]]);
        assert_eq!(escaped_for_json(&table).rows[1], ["b\\\"b", ""]);
    }

    #[test]
    fn invalid_tables_are_refused() {
        for (text, part) in [
            (&b""[..], "must name the columns"),
            (b"a,b\n", "no rows"),
            (b"a,a\n1,2\n", "two columns are named \"a\""),
            (b"a,b\n1,2\n3\n", "line: 3"),
            (b"a\n\"x\ny\"\n", "line 2: a cell contains"),
            (b"a\n\xff\n", "UTF-8"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
