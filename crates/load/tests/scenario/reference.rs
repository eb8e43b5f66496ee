//! Compares the examples, the schema and the reference with the parser.

use std::collections::BTreeMap;

use beamtune_load::scenario::keys::{PLACES, Place};
use serde_json::Value;

use super::{examples, parse, read};

fn schema() -> Value {
    serde_json::from_str(&read("docs/load-scenario.schema.json")).expect("JSON")
}

/// Errors of a scenario according to the schema.
fn schema_errors(name: &str, text: &str) -> Vec<String> {
    let value: Value = toml::from_str(text).expect(name);
    let schema = jsonschema::validator_for(&schema()).expect("a schema");
    schema.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

pub fn assert_fits_the_schema(name: &str, text: &str) {
    let schema_errors = schema_errors(name, text);
    assert!(schema_errors.is_empty(), "{name}: {schema_errors:#?}");
}

#[test]
fn the_schema_refuses_what_the_parser_refuses() {
    let whole = "[load]\nfor = \"1s\"\nseed = 1\n[devices.d]\ntarget = \"http://h\"\ncount = 2\n\
                 steps = [{ request = \"/\", check = { status = 200 } }, { sleep = \"1s\", give_or_take = \"10%\" }]\n";
    assert_fits_the_schema("whole", whole);
    for (right, wrong) in [
        ("seed", "sede"),
        ("seed = 1", "seed = -1"),
        ("\"1s\"\nseed", "30\nseed"),
        ("\"1s\"\nseed", "\"5m\"\nseed"),
        ("count = 2", "count = 0"),
        ("count", "cuont"),
        ("http://", "htpp://"),
        ("devices.d", "devices.\"a b\""),
        ("\"/\"", "\"get /\""),
        ("request", "reqest"),
        ("{ request", "{ ping = true, request"),
        ("{ request", "\"conect\", { request"),
        ("status = 200", "status = 99"),
        ("status = 200", "code = 200"),
        ("10%", "0.1"),
        ("{ sleep", "{ repeat = 0, steps = [\"ping\"] }, { sleep"),
    ] {
        let text = whole.replace(right, wrong);
        assert_ne!(text, whole);
        assert!(!schema_errors(wrong, &text).is_empty(), "the schema accepts {text}");
        assert!(parse(&text).is_err(), "the parser accepts {text}");
    }
}

#[test]
fn every_example_is_parsed_and_matches_the_schema() {
    for (name, text) in examples() {
        parse(&text).unwrap_or_else(|faults| panic!("{name}: {faults}"));
        assert_fits_the_schema(&name, &text);
        assert!(text.starts_with("#:schema ../../docs/load-scenario.schema.json\n"), "{name}");
    }
}

#[test]
fn the_examples_together_use_every_key() {
    // Only the reference contains these keys: they contradict other keys, or name files that the examples do not have.
    let exceptions = ["verify", "ca", "certificate", "key", "prefix_bytes", "byte_order", "fixed_bytes"];
    let all: String = examples().into_iter().map(|(_, text)| text).collect();
    for key in PLACES.iter().flat_map(|place| place.keys).filter(|key| !exceptions.contains(key)) {
        let forms = [
            format!("\"{key}\""),
            format!("{key} = "),
            format!(".{key}]"),
            format!("[{key}]"),
            format!("[{key}."),
        ];
        assert!(forms.iter().any(|form| all.contains(form)), "no example uses `{key}`");
    }
}

#[test]
fn the_schema_has_the_keys_of_the_parser() {
    let schema = schema();
    for place in PLACES {
        let node = match place.title {
            "the file" => &schema,
            title => &schema["$defs"][title.trim_end_matches(".NAME").replace(' ', "-")],
        };
        let known: Vec<&String> = node["properties"].as_object().expect(place.title).keys().collect();
        let mut keys = place.keys.to_vec();
        keys.sort_unstable();
        assert_eq!(known, keys, "{}", place.title);
        assert_eq!(node["additionalProperties"], false, "{}", place.title);
    }
}

/// Returns the keys in the first column of each section's table.
fn keys_of_the_page() -> BTreeMap<String, Vec<String>> {
    let mut sections: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut title = String::new();
    for line in read("docs/load-scenarios.md").lines() {
        if let Some(heading) =
            line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))
        {
            title = heading.to_owned();
        } else if let Some(row) = line.strip_prefix("| `") {
            let cells = line.matches(" | ").count() + 1;
            // Tables of keys have three columns; the table of placeholders has two.
            if cells == 3 || line.ends_with("| |") {
                let key = row.split('`').next().unwrap_or_default();
                sections.entry(title.clone()).or_default().push(key.to_owned());
            }
        }
    }
    sections
}

#[test]
fn the_page_explains_exactly_the_keys_of_the_parser() {
    let mut sections = keys_of_the_page();
    for Place { title, keys } in PLACES {
        let explained = sections.remove(*title).unwrap_or_default();
        assert_eq!(explained, *keys, "section {title} of docs/load-scenarios.md");
    }
    assert!(sections.is_empty(), "{sections:?}");
}

#[test]
fn examples_on_the_page_are_parsed_and_match_the_schema() {
    let page = read("docs/load-scenarios.md");
    let shown: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(shown.len() >= 2, "{shown:?}");
    for text in shown {
        parse(text).unwrap_or_else(|faults| panic!("{faults}"));
        assert_fits_the_schema("docs/load-scenarios.md", text);
    }
}
