//! The command lines and expressions that check an entry of the flag data on a VM.

use std::collections::BTreeSet;

use beamtune_flags::{
    AcceptedValues, Argument, Entry, Form, HostCpus, Kind, NumberParsing, SilentChange, ValueQuery as Asked,
    Verdict, allocator, both_take_effect, entry,
};

use super::vm::Vm;

/// Words that no setting accepts.
const WRONG: [&str; 2] = ["zzz", "True"];

/// A number that does not fit into 64 bits.
const MORE_THAN_64_BITS: &str = "99999999999999999999";

/// Arguments and environment variables of a VM.
#[derive(Debug, Default, Clone)]
pub struct Given {
    /// Arguments, which precede those that every start has.
    pub args: Vec<String>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
}

/// A start, and what the data predicts.
#[derive(Debug, Clone)]
pub struct Case {
    /// The entry.
    pub entry: &'static Entry,
    /// Letter of the allocator that the flag is for.
    pub letter: Option<char>,
    /// Arguments and environment.
    pub given: Given,
    /// The prediction.
    pub expected: Verdict,
    /// Expression for the value in effect.
    pub effective: Option<String>,
    /// The flag and the value that `emu_args` should list.
    pub listed: Option<(String, Option<String>)>,
}

impl Case {
    /// Returns the environment and the arguments as they would be typed in a shell.
    pub fn name(&self) -> String {
        let variables = self.given.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let words = variables
            .chain(self.given.args.iter().cloned())
            .map(|word| if word.is_empty() || word.contains(' ') { format!("{word:?}") } else { word });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Returns the query about a value, for the flag data.
pub fn question<'q>(value: Option<&'q str>, vm: &'q Vm, allocator: Option<char>) -> Asked<'q> {
    Asked { value, otp: &vm.version, allocator, host_cpus: Some(vm.machine) }
}

/// Returns the expression for the value in effect. The letter `u` sets all allocators, so the value is read from one of them. The literal
/// allocator (`I`) has no instances per scheduler from which it could be read.
pub fn expression(entry: &Entry, letter: Option<char>) -> Option<String> {
    let letter = match letter {
        None | Some('u') => 'B',
        Some('I') => return None,
        Some(letter) => letter,
    };
    let name = &allocator(&letter.to_string())?.name;
    entry.effective.as_ref().map(|expression| expression.replace("<A>", name))
}

/// Returns all cases of an entry on a VM.
pub fn of(entry: &'static Entry, vm: &Vm) -> Vec<Case> {
    // This flag prints the version and exits.
    if entry.id == "+V" {
        return Vec::new();
    }
    if entry.spelling().contains("<P>") {
        return pattern(entry, vm);
    }
    match entry.kind {
        Kind::EmulatorFlag if !entry.exists_in(vm.version.clone()) => absent(entry, vm),
        Kind::EmulatorFlag => flag(entry, vm),
        Kind::Environment if entry.effective.is_some() => variable(entry, vm),
        _ => Vec::new(),
    }
}

/// Returns the values to try on a VM whose version accepts these values.
fn values(entry: &Entry, takes: &AcceptedValues, vm: &Vm) -> BTreeSet<String> {
    let mut values: BTreeSet<String> = WRONG.iter().map(|&word| word.to_owned()).collect();
    values.extend(takes.words.iter().chain(&takes.refuses).cloned());
    values.extend(entry.example.clone());
    values.extend(entry.default_value_in(vm.version.clone()).map(str::to_owned));
    for fatal in &entry.fatal {
        values.extend(fatal.words.iter().cloned());
        let bounds = fatal.integer.map(|range| [range.min, range.max, range.max.map(|max| max + 1)]);
        values.extend(bounds.into_iter().flatten().flatten().map(|number| number.to_string()));
    }
    if let Some(integer) = &takes.integer {
        for bound in [integer.min, integer.max].into_iter().flatten().map(i128::from) {
            values.extend([bound - 1, bound, bound + 1].map(|number| number.to_string()));
            if matches!(takes.reads, NumberParsing::Int | NumberParsing::SomeInt) {
                values.insert((bound + (1 << 32)).to_string());
            }
        }
        // A number with an unknown unit, and a number of more than 64 bits.
        let number = entry.example.as_deref().unwrap_or("7");
        values.extend([format!("{number}k"), MORE_THAN_64_BITS.to_owned(), "-1".to_owned()]);
    }
    let release = i64::from(vm.release);
    let processors = vm.machine.processors;
    match takes.form {
        Some(Form::Schedulers | Form::DirtySchedulers) => {
            let fixed = [
                "1", "2", "0", "-1", "1:1", "2:1", "2:2", "1:2", ":1", "1024:1", "1025:1", "3:2x", "2:", ":",
                "4",
            ];
            values.extend(fixed.map(str::to_owned));
            values.extend([format!(":{processors}"), format!(":{}", processors + 1)]);
        }
        Some(Form::SchedulerPercent | Form::DirtySchedulerPercent) => {
            let fixed = [
                "100", "50", "0", "200", "-1", "100:100", "50:50", "50:100", "200:100", ":50", "100:0",
                "100%",
            ];
            values.extend(fixed.map(str::to_owned));
        }
        Some(Form::CpuTopology) => {
            let fixed = [
                "L0c0",
                "L0-1c0-1",
                "L0-1c0",
                "L0-1",
                "L1-0t0-1c0p0n0",
                "L0c0:L1c1",
                "L0c0:L0c1",
                "c0L0",
                "L0-1c0-1p0n0:L2-3c0-1p1n1",
                "L0-1c0-1n0p0",
                "L0-65536c0-65536",
                "l0c0",
                "L0c0,",
                "L0-",
                "L0c0x",
            ];
            values.extend(fixed.map(str::to_owned));
        }
        Some(Form::Release) => {
            values.extend((release - 3..=release + 1).map(|release| release.to_string()));
        }
        Some(Form::FirstLetter) => {
            values.extend(["warning", "eeek", "info"].map(str::to_owned));
        }
        _ => {}
    }
    values
}

fn flag(entry: &'static Entry, vm: &Vm) -> Vec<Case> {
    let mut cases = Vec::new();
    for letter in letters(entry) {
        let flag = match letter {
            Some(letter) => entry.spelling().replace("<S>", &letter.to_string()),
            None => entry.spelling().to_owned(),
        };
        let Some(takes) = entry.accepted_for(letter, &vm.version) else { continue };
        for value in values_for(entry, takes, letter, vm) {
            cases.extend(one(entry, &flag, &value, letter, vm));
        }
        if letter.is_none() || letter == Some('B') {
            cases.extend(other_ways(entry, &flag, letter, vm));
        }
    }
    cases.extend(twice(&cases));
    cases
}

/// Returns cases in which a flag is given twice with different values. The last one takes effect, which is what the linter and `beamtune
/// args` assume.
fn twice(cases: &[Case]) -> Vec<Case> {
    /// Maximum number of values per flag; more would test nothing new.
    const MAX_VALUES: usize = 3;
    let mut shown: Vec<(&str, &Case)> = Vec::new();
    for case in cases.iter().filter(|case| matches!(case.letter, None | Some('B'))) {
        if let Verdict::Accepted { effective: Some(value), .. } = &case.expected
            && case.effective.is_some()
            && shown.len() < MAX_VALUES
            && shown.iter().all(|(known, _)| known != value)
        {
            shown.push((value, case));
        }
    }
    let pairs = shown.iter().flat_map(|first| shown.iter().map(move |second| (first, second)));
    let value = |case: &Case| case.listed.as_ref().and_then(|(_, value)| value.clone());
    let stays = |first: &Case, second: &Case| {
        let (first, flag) = (value(first), first.listed.as_ref().map_or("", |(flag, _)| flag));
        both_take_effect(flag, first.as_deref(), value(second).as_deref())
    };
    pairs
        .filter(|((one, _), (other, _))| one != other)
        .filter(|((_, first), (_, second))| !stays(first, second))
        .map(|((_, first), (_, second))| {
            let args = first.given.args.iter().chain(&second.given.args).cloned().collect();
            Case { given: Given { args, environment: Vec::new() }, ..(*second).clone() }
        })
        .collect()
}

/// Returns every value for one allocator and, for the other allocators, the values that may differ between allocators.
fn values_for(entry: &Entry, takes: &AcceptedValues, letter: Option<char>, vm: &Vm) -> BTreeSet<String> {
    match letter {
        None | Some('B') => values(entry, takes, vm),
        Some(_) => takes.words.iter().chain(&takes.refuses).chain(&entry.example).cloned().collect(),
    }
}

fn letters(entry: &Entry) -> Vec<Option<char>> {
    if entry.spelling().contains("<S>") {
        ['B', 'D', 'E', 'F', 'H', 'I', 'L', 'R', 'S', 'T', 'u'].map(Some).into()
    } else {
        vec![None]
    }
}

/// Returns the case of a flag with a value in its usual form.
fn one(entry: &'static Entry, flag: &str, value: &str, letter: Option<char>, vm: &Vm) -> Option<Case> {
    let given_value = (!value.is_empty()).then_some(value);
    let args = match (entry.argument?, given_value) {
        (Argument::None, Some(_)) => return None,
        (_, None) if entry.argument == Some(Argument::Required) => return None,
        (_, None) => vec![flag.to_owned()],
        (Argument::Glued | Argument::GluedOptional, Some(value)) => vec![format!("{flag}{value}")],
        (Argument::Required | Argument::Optional, Some(value)) => vec![flag.to_owned(), value.to_owned()],
    };
    // If a flag with an optional value does not accept a word, the word is a separate argument.
    if entry.argument == Some(Argument::Optional)
        && given_value.is_some()
        && matches!(entry.judge(&question(given_value, vm, letter)), Verdict::Refused { .. })
        && !entry.accepts.iter().any(|step| step.refuses.iter().any(|word| word == value))
    {
        return None;
    }
    case(entry, flag, args, given_value, letter, vm)
}

fn case(
    entry: &'static Entry,
    flag: &str,
    args: Vec<String>,
    value: Option<&str>,
    letter: Option<char>,
    vm: &Vm,
) -> Option<Case> {
    let expected = entry.judge(&question(value, vm, letter));
    let expected = match expected {
        // Neither the data nor this host can determine the result, but a recommended value must start.
        Verdict::Unknown { .. } if value.is_some() && value == entry.example.as_deref() => {
            Verdict::Accepted { effective: None, changes: Vec::new() }
        }
        Verdict::Unknown { .. } => return None,
        known => known,
    };
    let listed = flag.starts_with('+').then(|| (flag.to_owned(), value.map(str::to_owned)));
    let given = Given { args: [companions(entry, &vm.machine), args].concat(), environment: Vec::new() };
    Some(Case { entry, letter, given, expected, effective: expression(entry, letter), listed })
}

/// Returns the case of one flag from a family with a common prefix.
fn pattern(entry: &'static Entry, vm: &Vm) -> Vec<Case> {
    let args = vec![entry.spelling().replace("<P>", "e"), "true".to_owned()];
    let case = case(entry, entry.spelling(), args, Some("true"), None, vm);
    case.into_iter().map(|case| Case { listed: None, ..case }).collect()
}

/// Returns the arguments that must precede a flag: chroots do not show the CPU topology.
fn companions(entry: &Entry, machine: &HostCpus) -> Vec<String> {
    match entry.id.as_str() {
        "+sbt" | "+stbt" => {
            let last = machine.processors.saturating_sub(1);
            vec!["+sct".to_owned(), format!("L0-{last}c0-{last}")]
        }
        _ => Vec::new(),
    }
}

/// Returns other spellings of a flag with its example: as one word, or as two words where only one is correct.
fn other_ways(entry: &'static Entry, flag: &str, letter: Option<char>, vm: &Vm) -> Vec<Case> {
    let Some(example) = entry.example.as_deref() else { return Vec::new() };
    let glued = vec![format!("{flag}{example}")];
    let apart = vec![flag.to_owned(), example.to_owned()];
    let mut cases = Vec::new();
    match entry.argument {
        Some(Argument::Required | Argument::Optional) if !flag.starts_with('-') => {
            cases.extend(case(entry, flag, glued, Some(example), letter, vm));
            if !entry.glued {
                for case in &mut cases {
                    case.expected = refused("its value must be a separate argument");
                }
            }
        }
        Some(Argument::Glued) => {
            cases.extend(case(entry, flag, apart, Some(example), letter, vm));
            for case in &mut cases {
                case.expected = refused("its value must be attached to the flag");
            }
        }
        _ => {}
    }
    for alias in &entry.aliases {
        cases.extend(case(entry, flag, vec![alias.clone(), example.to_owned()], Some(example), letter, vm));
    }
    cases
}

fn refused(why: &str) -> Verdict {
    Verdict::Refused { why: why.to_owned() }
}

/// Returns the case of a flag on a release that does not have it.
fn absent(entry: &'static Entry, vm: &Vm) -> Vec<Case> {
    let letter = entry.spelling().contains("<S>").then_some('B');
    let flag = entry.spelling().replace("<S>", "B");
    let value = entry
        .example
        .clone()
        .or_else(|| entry.accepts.first().and_then(|takes| takes.words.first().cloned()))
        .unwrap_or_else(|| "1".to_owned());
    let Some(mut case) = one(entry, &flag, &value, letter, vm) else { return Vec::new() };
    // `emu_args` lists an unknown flag in a different form.
    case.listed = None;
    case.effective = None;
    // If it is parsed as another flag, the value of that flag shows this.
    if let Verdict::Accepted { effective, changes: altered } = &mut case.expected
        && let Some(SilentChange::ReadAs { flag, value }) = altered.first()
        && let Some(other) = entry_of(flag)
    {
        case.effective = other.effective.clone();
        if let Verdict::Accepted { effective: read, .. } = other.judge(&question(Some(value), vm, None)) {
            *effective = read;
        }
        // This sets a value that the flag changes back.
        let limit = ["+hmax".to_owned(), "1000000".to_owned()];
        case.given.args.splice(0..0, limit);
    }
    vec![case]
}

fn entry_of(flag: &str) -> Option<&'static Entry> {
    entry(flag)
}

fn variable(entry: &'static Entry, vm: &Vm) -> Vec<Case> {
    let Some(takes) = entry.accepted_for(None, &vm.version) else { return Vec::new() };
    if !entry.exists_in(vm.version.clone()) {
        return Vec::new();
    }
    values(entry, takes, vm)
        .into_iter()
        .filter(|value| !value.is_empty())
        .filter_map(|value| {
            let expected = entry.judge(&question(Some(&value), vm, None));
            if matches!(expected, Verdict::Unknown { .. }) {
                return None;
            }
            let given = Given { args: Vec::new(), environment: vec![(entry.id.clone(), value)] };
            let effective = entry.effective.clone();
            Some(Case { entry, letter: None, given, expected, effective, listed: None })
        })
        .collect()
}

/// A value that is set in a running VM.
#[derive(Debug, Clone)]
pub struct Question {
    /// The entry.
    pub entry: &'static Entry,
    /// The value.
    pub value: String,
    /// The prediction.
    pub expected: Verdict,
    /// Sets the value and returns the value in effect.
    pub expression: String,
}

/// Returns all questions about an entry for a VM.
pub fn questions(entry: &'static Entry, vm: &Vm) -> Vec<Question> {
    let (Some(probe), Some(takes)) = (&entry.probe, entry.accepted_for(None, &vm.version)) else {
        return Vec::new();
    };
    // A setting without a value has no wrong values either.
    let without_value = takes.words == [""] && takes.integer.is_none();
    let values = if without_value { BTreeSet::from([String::new()]) } else { values(entry, takes, vm) };
    // Erlang's integers are unbounded. Beyond 64 bits, the data only predicts settings that keep 32 bits.
    let endless = takes.reads == NumberParsing::Whole;
    values
        .into_iter()
        .filter(|value| !(endless && value == MORE_THAN_64_BITS))
        .filter_map(|value| {
            let given = (!value.is_empty()).then_some(value.as_str());
            let expected = entry.judge(&question(given, vm, None));
            let expression = probe.expression(Some(&value));
            let known = !matches!(expected, Verdict::Unknown { .. });
            known.then_some(Question { entry, value, expected, expression })
        })
        .collect()
}
