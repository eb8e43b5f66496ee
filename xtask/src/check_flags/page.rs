//! docs/vm-checks.md: what was started, and what was compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use beamtune_flags::{Entry, Kind, OtpVersion, entries};

/// What the starts of one release have shown.
#[derive(Debug, Clone)]
pub struct Tally {
    /// 25.
    release: u32,
    version: OtpVersion,
    /// VMs that were started.
    pub starts: usize,
    /// Starts that had to be taken apart, because not all in them agreed.
    pub split: usize,
    /// Values that were taken.
    pub accepted: usize,
    /// Values that were refused.
    pub refused: usize,
    /// Values in effect that were compared.
    pub values: usize,
    /// Flags that were looked for in `emu_args`.
    pub listings: usize,
    /// Defaults that were compared.
    pub defaults: usize,
    /// Values that a running VM was asked about.
    pub questions: usize,
    /// As typed, with what the data says of it.
    pub fatal: BTreeMap<String, String>,
    /// Entries that were started.
    pub entries: BTreeSet<&'static str>,
    /// Entries that a running VM was asked about.
    pub asked: BTreeSet<&'static str>,
    /// What is not as the data says.
    pub differences: Vec<String>,
}

impl Tally {
    pub fn new(release: u32, version: &OtpVersion) -> Tally {
        Tally {
            release,
            version: version.clone(),
            starts: 0,
            split: 0,
            accepted: 0,
            refused: 0,
            values: 0,
            listings: 0,
            defaults: 0,
            questions: 0,
            fatal: BTreeMap::new(),
            entries: BTreeSet::new(),
            asked: BTreeSet::new(),
            differences: Vec::new(),
        }
    }

    /// Of the same release, and nothing in it.
    pub fn empty(&self) -> Tally {
        Tally::new(self.release, &self.version)
    }

    /// Takes in what was found at the same time.
    pub fn add(&mut self, other: Tally) {
        self.starts += other.starts;
        self.split += other.split;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.values += other.values;
        self.listings += other.listings;
        self.defaults += other.defaults;
        self.questions += other.questions;
        self.fatal.extend(other.fatal);
        self.entries.extend(other.entries);
        self.asked.extend(other.asked);
        self.differences.extend(other.differences);
    }

    /// One line for the terminal.
    pub fn line(&self) -> String {
        format!(
            "OTP {}: {} values taken, {} refused, {} fatal, {} set in a running VM, {} defaults; {} starts, {} of them \
             taken apart",
            self.version,
            self.accepted,
            self.refused,
            self.fatal.len(),
            self.questions,
            self.defaults,
            self.starts,
            self.split
        )
    }
}

const HEAD: &str = "\
# What real VMs say of the data

`make check-flags` holds what beamtune knows of the VM's settings ([crates/flags/data](../crates/flags/data)) against real \
VMs and writes this page when all agree. Where they differ the VM is right, and the data is changed.

Every flag and variable is given at the bounds of what it takes and one beyond, with every word that it takes, with wrong \
words, with a number that has a unit, with numbers of more than 32 and 64 bits, glued to its flag, and where the release \
does not have it. Compared are whether the VM starts, the value that is then in effect, and how `emu_args` lists it. \
Values that are taken share VMs; where one of them does not agree, each is started alone. Options of tables, processes, \
sockets and the logger, and what can be set at run time, are set in a VM that runs, and read back.
";

/// The page.
pub fn write(tallies: &[Tally]) -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n## What was compared\n\n");
    let mut row = |name: &str, cell: &dyn Fn(&Tally) -> String| {
        let cells: Vec<_> = tallies.iter().map(cell).collect();
        let _ = writeln!(page, "| {name} | {} |", cells.join(" | "));
    };
    row("", &|tally| format!("OTP {}", tally.version));
    row("---", &|_| "---:".to_owned());
    row("flags and variables", &|tally| tally.entries.len().to_string());
    row("values of them that are taken", &|tally| tally.accepted.to_string());
    row("… of which the value in effect was read", &|tally| tally.values.to_string());
    row("… of which `emu_args` was read", &|tally| tally.listings.to_string());
    row("values that are refused", &|tally| tally.refused.to_string());
    row("values that kill the VM", &|tally| tally.fatal.len().to_string());
    row("settings of a running VM", &|tally| tally.asked.len().to_string());
    row("values of them", &|tally| tally.questions.to_string());
    row("defaults", &|tally| tally.defaults.to_string());
    row("VMs started", &|tally| tally.starts.to_string());

    page.push_str(
        "\n## Values that kill the VM\n\nThey look valid, and the VM crashes, hangs or ends while it starts. Each was \
         given to a VM that is bounded in time and memory.\n\n| given | OTP | what happens |\n|---|---|---|\n",
    );
    let mut fatal: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for tally in tallies {
        for (given, why) in &tally.fatal {
            fatal.entry((given, why)).or_default().push(tally.release.to_string());
        }
    }
    for ((given, why), releases) in fatal {
        let _ = writeln!(page, "| `{given}` | {} | {why} |", releases.join(", "));
    }

    page.push_str("\n## What was not compared\n\n");
    let tested = |entry: &&Entry| tallies.iter().any(|tally| tally.entries.contains(entry.id.as_str()));
    let asked = |entry: &&Entry| tallies.iter().any(|tally| tally.asked.contains(entry.id.as_str()));
    let list = |of: &mut dyn Iterator<Item = &'static Entry>| {
        let names: Vec<_> = of.map(|entry| format!("`{}`", entry.id)).collect();
        names.join(", ")
    };
    let unread = list(&mut entries().iter().filter(tested).filter(|entry| entry.effective.is_none()));
    let started = |entry: &&Entry| matches!(entry.kind, Kind::EmulatorFlag | Kind::Environment);
    let untested = list(&mut entries().iter().filter(started).filter(|entry| !tested(entry)));
    let others = |entry: &&Entry| {
        matches!(
            entry.kind,
            Kind::InitFlag
                | Kind::KernelParameter
                | Kind::RuntimeSetting
                | Kind::EtsOption
                | Kind::ProcessOption
                | Kind::SocketOption
        )
    };
    let unasked = list(&mut entries().iter().filter(others).filter(|entry| !asked(entry)));
    let _ = writeln!(
        page,
        "- The value in effect of {unread}: only `emu_args` shows it, or other settings have a part in it."
    );
    let _ = writeln!(
        page,
        "- {untested}: they end the VM, are for other builds, or show only when it dumps or is restarted."
    );
    let _ = writeln!(page, "- {unasked}: they rest on what their `evidence` names.");
    page.push_str(
        "- Values of which only the machine or other settings decide whether they are taken, such as sizes of memory.\n\
         - OTP 21, 22, 24, 26 and 28, for which the data says what release notes and source tell.\n",
    );
    page
}
