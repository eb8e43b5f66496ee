//! A JSON document that is read as a whole.

use serde_json::Value;

use super::{FOUND_CHARS, ImportError, Tool};

/// A document with its file name and tool.
pub(super) struct Json {
    name: String,
    tool: Tool,
    pub value: Value,
}

impl Json {
    /// Parses a document, or the first object of a script.
    pub fn parse(name: &str, tool: Tool, bytes: &[u8], is_script: bool) -> Result<Self, ImportError> {
        let parsed = if is_script {
            let text = script_object(&String::from_utf8_lossy(bytes));
            serde_json::Deserializer::from_str(&text).into_iter::<Value>().next().unwrap_or(Ok(Value::Null))
        } else {
            serde_json::from_slice(bytes)
        };
        let value = parsed.map_err(|error| {
            let (line, found) = (error.line().max(1) as u64, error.to_string());
            let (name, expected) = (name.to_owned(), "a complete JSON document".to_owned());
            ImportError::Malformed { name, tool, line, expected, found }
        })?;
        Ok(Self { name: name.to_owned(), tool, value })
    }

    /// Creates an error that contains a path in the document instead of a line; lines of JSON have no meaning.
    pub fn malformed(&self, path: &str, expected: &str) -> ImportError {
        let found = self.value.pointer(path).map_or("nothing".to_owned(), Value::to_string);
        ImportError::Malformed {
            name: self.name.clone(),
            tool: self.tool,
            line: 1,
            expected: format!("{expected} at {}", if path.is_empty() { "the top" } else { path }),
            found: found.chars().take(FOUND_CHARS).collect(),
        }
    }

    /// Creates an error for content that is not supported.
    pub fn unsupported(&self, what: &'static str, instead: &'static str) -> ImportError {
        ImportError::Unsupported { name: self.name.clone(), what, instead }
    }

    /// Creates an error for an exceeded limit.
    pub fn too_large(&self, limit: &str) -> ImportError {
        ImportError::TooLarge { name: self.name.clone(), tool: self.tool, limit: limit.to_owned() }
    }
}

/// Returns the number at a path of keys; Gatling writes some numbers as strings.
pub(super) fn number(value: &Value, path: &[&str]) -> Option<f64> {
    let found = path.iter().try_fold(value, |value, key| value.get(key))?;
    let number = match found {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite())
}

/// Converts `var NAME = {key: "value"}` to JSON: drops the text before the object, and quotes bare keys.
fn script_object(script: &str) -> String {
    let object = script.find('{').map_or("", |at| &script[at..]);
    let mut out = String::with_capacity(object.len() + 1024);
    let mut word = String::new();
    let mut chars = object.chars();
    while let Some(char) = chars.next() {
        if char.is_ascii_alphanumeric() || matches!(char, '_' | '$' | '.' | '-' | '+') {
            word.push(char);
            continue;
        }
        let is_key = char == ':' && word.chars().next().is_some_and(|first| first.is_ascii_alphabetic());
        if is_key {
            out.extend(['"', '"']);
            out.insert_str(out.len() - 1, &word);
        } else {
            out.push_str(&word);
        }
        word.clear();
        out.push(char);
        if char == '"' {
            let mut is_escaped = false;
            for char in chars.by_ref() {
                out.push(char);
                if char == '"' && !is_escaped {
                    break;
                }
                is_escaped = char == '\\' && !is_escaped;
            }
        }
    }
    out.push_str(&word);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_object_of_a_script_is_parsed() {
        let script = "var stats = {\n type: \"GROUP\", a1: {\"b:c\": -1.5e3, d: [true, null]}, e: \"f{:\\\"g\"\n}\n\nfunction fill(stat){}";
        let json = Json::parse("x", Tool::Gatling, script.as_bytes(), true).unwrap();
        assert_eq!(json.value["type"], "GROUP");
        assert_eq!(number(&json.value, &["a1", "b:c"]), Some(-1500.0));
        assert_eq!(json.value["e"], "f{:\"g");
        assert!(Json::parse("x", Tool::Gatling, &script.as_bytes()[..60], true).is_err());
    }
}
