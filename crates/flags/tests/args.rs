//! Tests the effective flags of all files in the corpus, and changes of flags in these files.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

use std::fs;
use std::path::Path;

use beamtune_flags::OtpVersion;
use beamtune_flags::args::{FlagChange, Input, ValueSource, change, effective_flags};
use beamtune_flags::source::{Format, detect};

/// Returns all readable files of the corpus, with their paths.
fn corpus() -> Vec<(String, Input)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/args")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.display().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_none_or(|ending| ending != "expect")
                && let Ok(text) = fs::read_to_string(&path)
                && let Some(format) = detect(&name, &text)
                && let Ok(input) = Input::read(format, text)
            {
                found.push((name, input));
            }
        }
    }
    found
}

#[test]
fn changed_file_has_the_new_value_and_keeps_its_lines() {
    let (mut changed, mut refused) = (0, Vec::new());
    let request = FlagChange::set("+sbwt none").expect("a change");
    for (name, input) in corpus() {
        let result = match change(&input, &request, &["trial 7".to_owned()]) {
            Ok(result) => result,
            Err(error) => {
                refused.push(format!("{name}: {error}"));
                continue;
            }
        };
        changed += 1;
        let overview =
            effective_flags(std::slice::from_ref(&result), &OtpVersion::from(27)).expect("one node");
        let known = overview.emulator.iter().find(|known| known.flag == "+sbwt").expect("+sbwt");
        assert_eq!(known.value.as_deref(), Some("none"), "{name}");
        assert!(matches!(known.source, ValueSource::File(_)), "{name}");
        if matches!(input.format, Format::VmArgs | Format::VmArgsTemplate(_)) {
            let mut new = result.text.lines();
            for line in input.text.lines().filter(|line| !line.contains("sbwt")) {
                assert!(new.any(|other| other == line), "{name}: {line:?} is lost in\n{}", result.text);
            }
        }
    }
    assert!(changed > 80 && refused.len() < changed / 10, "{changed} {refused:#?}");
}

#[test]
fn effective_flags_of_every_file_are_found() {
    for (name, input) in corpus() {
        for release in [23, 29] {
            let result = effective_flags(std::slice::from_ref(&input), &OtpVersion::from(release));
            match result {
                Ok(overview) => assert!(overview.emulator.len() > 60, "{name}"),
                Err(error) => assert!(error.to_string().contains("several nodes"), "{name}: {error}"),
            }
        }
    }
}
