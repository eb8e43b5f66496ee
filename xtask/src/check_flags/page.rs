//! Writes docs/vm-checks.md: which VMs were started, and what was compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use beamtune_flags::{Entry, Kind, OtpVersion, entries};

/// Results of one release.
#[derive(Debug, Clone)]
pub struct Tally {
    /// OTP release: 25.
    release: u32,
    version: OtpVersion,
    /// Number of VMs that were started.
    pub starts: usize,
    /// Number of starts that were repeated case by case, because one case differed.
    pub split: usize,
    /// Number of accepted values.
    pub accepted: usize,
    /// Number of rejected values.
    pub refused: usize,
    /// Number of values in effect that were compared.
    pub values: usize,
    /// Number of flags that were compared in `emu_args`.
    pub listings: usize,
    /// Number of default values that were compared.
    pub defaults: usize,
    /// Number of values that were set in a running VM.
    pub questions: usize,
    /// Command lines that kill the VM, with the description in the data.
    pub fatal: BTreeMap<String, String>,
    /// Entries with which VMs were started.
    pub entries: BTreeSet<&'static str>,
    /// Entries that were set in a running VM.
    pub asked: BTreeSet<&'static str>,
    /// Differences between data and VM.
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

    /// Returns an empty tally of the same release.
    pub fn empty(&self) -> Tally {
        Tally::new(self.release, &self.version)
    }

    /// Adds the results of another tally.
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

    /// Returns one line for the terminal.
    pub fn line(&self) -> String {
        format!(
            "OTP {}: {} values accepted, {} rejected, {} fatal, {} set in a running VM, {} defaults; {} starts, {} of them \
             split",
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
# Flag data checked on real VMs

`make check-flags` compares beamtune's data about VM settings ([crates/flags/data](../crates/flags/data)) with real VMs, and \
writes this page if nothing differs. Where they differ, the data is wrong and gets fixed.

VMs are started with every flag and variable: with values at its bounds and one beyond, with every accepted word, with wrong \
words, with a number that has a unit, with numbers above 32 and 64 bits, with the value attached to the flag, and on releases \
that do not have it. Three things are compared: whether the VM starts, the value in effect, and the listing in `emu_args`. \
Accepted values share VMs; if one differs, each is started alone. Options of tables, processes, sockets and the logger, and \
settings that can change at run time, are set in a running VM and read back.
";

/// Returns the page.
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
    row("accepted values", &|tally| tally.accepted.to_string());
    row("… compared by the value in effect", &|tally| tally.values.to_string());
    row("… compared by `emu_args`", &|tally| tally.listings.to_string());
    row("rejected values", &|tally| tally.refused.to_string());
    row("values that kill the VM", &|tally| tally.fatal.len().to_string());
    row("settings of a running VM", &|tally| tally.asked.len().to_string());
    row("their values", &|tally| tally.questions.to_string());
    row("defaults", &|tally| tally.defaults.to_string());
    row("VMs started", &|tally| tally.starts.to_string());

    page.push_str(
        "\n## Values that kill the VM\n\nThese look valid, but the VM crashes, hangs or exits while it starts. Each was \
         tried with limits on time and memory.\n\n| flags or variable | OTP | effect |\n|---|---|---|\n",
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
        "- The value in effect of {unread}: only `emu_args` shows it, or it depends on other settings."
    );
    let _ = writeln!(
        page,
        "- {untested}: they stop the VM, apply to other builds, or only take effect when the VM writes a crash dump or restarts."
    );
    let _ =
        writeln!(page, "- {unasked}: not tested; the data follows the sources that their `evidence` names.");
    page.push_str(
        "- Values that are accepted or rejected depending on the host or on other settings, such as memory sizes.\n\
         - OTP 21, 22, 24, 26 and 28, for which the data follows release notes and source.\n",
    );
    page
}
