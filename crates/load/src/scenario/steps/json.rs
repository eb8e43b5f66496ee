//! Converts TOML values to JSON text, in which `${…}` remains a placeholder.

use toml::Spanned;
use toml::de::DeValue;

use crate::scenario::reader::Value;

/// Returns the JSON text. Adds a fault for a value that JSON does not support.
pub fn text(value: &Value<'_>) -> Option<String> {
    let mut out = String::new();
    write(value.raw(), &mut out).map_err(|what| value.fault(format!("JSON has no {what}"))).ok()?;
    Some(out)
}

fn write(value: &DeValue<'_>, out: &mut String) -> Result<(), String> {
    match value {
        DeValue::String(text) => out.push_str(&quoted(text)),
        DeValue::Integer(integer) => {
            let number = i128::from_str_radix(integer.as_str(), integer.radix());
            out.push_str(&number.map_err(|_| integer.to_string())?.to_string());
        }
        DeValue::Float(float) => {
            let number = float.as_str().parse().ok().and_then(serde_json::Number::from_f64);
            out.push_str(&number.ok_or_else(|| float.to_string())?.to_string());
        }
        DeValue::Boolean(boolean) => out.push_str(if *boolean { "true" } else { "false" }),
        DeValue::Datetime(time) => out.push_str(&quoted(&time.to_string())),
        DeValue::Array(values) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                separate(index, out);
                write(value.get_ref(), out)?;
            }
            out.push(']');
        }
        DeValue::Table(table) => {
            // Keys are written in the order of the file.
            let mut entries: Vec<_> = table.iter().collect();
            entries.sort_by_key(|(key, _): &(&Spanned<_>, _)| key.span().start);
            out.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                separate(index, out);
                out.push_str(&quoted(key.get_ref()));
                out.push(':');
                write(value.get_ref(), out)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

fn separate(index: usize, out: &mut String) {
    if index > 0 {
        out.push(',');
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
