//! Test that `docs/reference/flags.md` lists the same settings as `beamtune flags`.

use std::fs;
use std::path::Path;

use beamtune_flags::{Kind, allocators, entries, lock_classes, microstates, thread_types};
use beamtune_report::flags::first_sentence;

/// Environment variable; if set, the test writes the page before it compares it.
const REGENERATE: &str = "BEAMTUNE_REGENERATE_DOCS";

/// The kinds with their headings, in the order of `beamtune flags`.
const KINDS: [(Kind, &str); 11] = [
    (Kind::EmulatorFlag, "Emulator flags"),
    (Kind::InitFlag, "Init flags"),
    (Kind::Environment, "Environment variables of the VM"),
    (Kind::KernelParameter, "Kernel parameters"),
    (Kind::RuntimeSetting, "Run-time settings"),
    (Kind::ProcessOption, "Process options"),
    (Kind::EtsOption, "ETS table options"),
    (Kind::SocketOption, "Socket options"),
    (Kind::HostSetting, "Host settings"),
    (Kind::Build, "Build properties"),
    (Kind::CodeChange, "Code changes"),
];

fn page() -> String {
    let mut page = format!(
        "# Flags and settings\n\n\
         `beamtune flags NAME` prints values, risk, rules and history of each. `<S>` is the letter of an allocator. Generated from\n\
         crates/flags/data by `{REGENERATE}=1 cargo test -p beamtune-report --test reference`.\n"
    );
    let mut listed = 0;
    for (kind, heading) in KINDS {
        page.push_str(&format!(
            "\n## {heading}\n\n| name | default | OTP releases | effect |\n|---|---|---|---|\n"
        ));
        for entry in entries().iter().filter(|entry| entry.kind == kind) {
            let default = entry.default.last().map(|step| step.text()).unwrap_or_default();
            let cells = [
                format!("`{}`", entry.id),
                default.to_owned(),
                entry.releases(None),
                first_sentence(&entry.description).to_owned(),
            ];
            page.push_str(&format!("| {} |\n", cells.map(|cell| cell_text(&cell)).join(" | ")));
            listed += 1;
        }
    }
    assert_eq!(listed, entries().len(), "a kind without a heading");
    let names = [
        ("Microstates", microstates().iter().map(|state| state.name.as_str()).collect::<Vec<_>>()),
        ("Types of threads", thread_types().iter().map(|thread| thread.name.as_str()).collect()),
        ("Allocators", allocators().iter().map(|allocator| allocator.name.as_str()).collect()),
        ("Locks", lock_classes().iter().map(|class| class.name.as_str()).collect()),
    ];
    for (heading, names) in names {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        page.push_str(&format!("\n## {heading}\n\n{}\n", names.join(" ")));
    }
    page
}

/// Escapes a text for a cell of a table: outside code, `<S>` would be read as HTML.
fn cell_text(text: &str) -> String {
    let text = text.trim().replace('|', "\\|");
    if text.starts_with('`') { text } else { text.replace('<', "&lt;") }
}

#[test]
fn page_of_all_flags_matches_the_data() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/flags.md");
    let expected = page();
    if std::env::var_os(REGENERATE).is_some() {
        fs::write(&path, &expected).expect("written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/reference/flags.md differs from crates/flags/data; regenerate it with\n    \
         {REGENERATE}=1 cargo test -p beamtune-report --test reference"
    );
}
