//! What is given to a VM to hold an entry against it.

use std::collections::BTreeSet;

use beamtune_flags::{
    Altered, Argument, Entry, Form, Kind, Machine, Question as Asked, Reads, Takes, Verdict, allocator,
    entry, stays_beside,
};

use super::vm::Vm;

/// Words that no setting takes.
const WRONG: [&str; 2] = ["zzz", "True"];

/// A number.
const MORE_THAN_64_BITS: &str = "99999999999999999999";

/// What a VM is given at its start.
#[derive(Debug, Default, Clone)]
pub struct Given {
    /// Arguments, before those that every start has.
    pub args: Vec<String>,
    /// Variables.
    pub environment: Vec<(String, String)>,
}

/// One start, and what the data says of it.
#[derive(Debug, Clone)]
pub struct Case {
    /// The entry.
    pub entry: &'static Entry,
    /// The allocator that the flag is given for.
    pub letter: Option<char>,
    /// What is given.
    pub given: Given,
    /// What should come of it.
    pub expected: Verdict,
    /// The expression for the value in effect.
    pub effective: Option<String>,
    /// The flag and value that `emu_args` should list.
    pub listed: Option<(String, Option<String>)>,
}

impl Case {
    /// As it is typed.
    pub fn name(&self) -> String {
        let variables = self.given.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let words = variables
            .chain(self.given.args.iter().cloned())
            .map(|word| if word.is_empty() || word.contains(' ') { format!("{word:?}") } else { word });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// The question that a case asks of the data.
pub fn question<'q>(value: Option<&'q str>, vm: &'q Vm, allocator: Option<char>) -> Asked<'q> {
    Asked { value, otp: &vm.version, allocator, machine: Some(vm.machine) }
}

/// The expression for the value in effect. Allocators without an instance for each scheduler show nothing of use; the
/// flag for all of them shows in each.
pub fn expression(entry: &Entry, letter: Option<char>) -> Option<String> {
    let letter = match letter {
        None | Some('u') => 'B',
        Some('I') => return None,
        Some(letter) => letter,
    };
    let name = &allocator(&letter.to_string())?.name;
    entry.effective.as_ref().map(|expression| expression.replace("<A>", name))
}

/// All cases of an entry on one VM.
pub fn of(entry: &'static Entry, vm: &Vm) -> Vec<Case> {
    // Started or not, it says what it is and ends.
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

/// The values to be tried of one step.
fn values(entry: &Entry, takes: &Takes, vm: &Vm) -> BTreeSet<String> {
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
            if matches!(takes.reads, Reads::Int | Reads::SomeInt) {
                values.insert((bound + (1 << 32)).to_string());
            }
        }
        // A unit that is not understood, and more than 64 bits.
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
        let Some(takes) = entry.takes_for(letter, &vm.version) else { continue };
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

/// A flag that is given twice with values that show: the last one counts, as the linter and `beamtune args` take it.
fn twice(cases: &[Case]) -> Vec<Case> {
    /// More values say nothing new.
    const MOST: usize = 3;
    let mut shown: Vec<(&str, &Case)> = Vec::new();
    for case in cases.iter().filter(|case| matches!(case.letter, None | Some('B'))) {
        if let Verdict::Accepted { effective: Some(value), .. } = &case.expected
            && case.effective.is_some()
            && shown.len() < MOST
            && shown.iter().all(|(known, _)| known != value)
        {
            shown.push((value, case));
        }
    }
    let pairs = shown.iter().flat_map(|first| shown.iter().map(move |second| (first, second)));
    let value = |case: &Case| case.listed.as_ref().and_then(|(_, value)| value.clone());
    let stays = |first: &Case, second: &Case| {
        let (first, flag) = (value(first), first.listed.as_ref().map_or("", |(flag, _)| flag));
        stays_beside(flag, first.as_deref(), value(second).as_deref())
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

/// Every value for one allocator, and for the others what tells them apart.
fn values_for(entry: &Entry, takes: &Takes, letter: Option<char>, vm: &Vm) -> BTreeSet<String> {
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

/// A flag with a value as it is usually written.
fn one(entry: &'static Entry, flag: &str, value: &str, letter: Option<char>, vm: &Vm) -> Option<Case> {
    let given_value = (!value.is_empty()).then_some(value);
    let args = match (entry.argument?, given_value) {
        (Argument::None, Some(_)) => return None,
        (_, None) if entry.argument == Some(Argument::Required) => return None,
        (_, None) => vec![flag.to_owned()],
        (Argument::Glued | Argument::GluedOptional, Some(value)) => vec![format!("{flag}{value}")],
        (Argument::Required | Argument::Optional, Some(value)) => vec![flag.to_owned(), value.to_owned()],
    };
    // A word that an optional flag does not take is not its value, but a word of its own.
    if entry.argument == Some(Argument::Optional)
        && given_value.is_some()
        && matches!(entry.judge(&question(given_value, vm, letter)), Verdict::Refused { .. })
        && !entry.takes.iter().any(|step| step.refuses.iter().any(|word| word == value))
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
        // Neither the data nor this machine can tell; but what is recommended starts.
        Verdict::Unknown { .. } if value.is_some() && value == entry.example.as_deref() => {
            Verdict::Accepted { effective: None, altered: Vec::new() }
        }
        Verdict::Unknown { .. } => return None,
        known => known,
    };
    let listed = flag.starts_with('+').then(|| (flag.to_owned(), value.map(str::to_owned)));
    let given = Given { args: [companions(entry, &vm.machine), args].concat(), environment: Vec::new() };
    Some(Case { entry, letter, given, expected, effective: expression(entry, letter), listed })
}

/// One flag of those whose names begin alike.
fn pattern(entry: &'static Entry, vm: &Vm) -> Vec<Case> {
    let args = vec![entry.spelling().replace("<P>", "e"), "true".to_owned()];
    let case = case(entry, entry.spelling(), args, Some("true"), None, vm);
    case.into_iter().map(|case| Case { listed: None, ..case }).collect()
}

/// What must stand before a flag so that it can be tried here: chroots do not show the CPU topology.
fn companions(entry: &Entry, machine: &Machine) -> Vec<String> {
    match entry.id.as_str() {
        "+sbt" | "+stbt" => {
            let last = machine.processors.saturating_sub(1);
            vec!["+sct".to_owned(), format!("L0-{last}c0-{last}")]
        }
        _ => Vec::new(),
    }
}

/// The other ways of writing a flag with its example: in one word, or in two where only one is right.
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
                    case.expected = refused("its value must stand in a word of its own");
                }
            }
        }
        Some(Argument::Glued) => {
            cases.extend(case(entry, flag, apart, Some(example), letter, vm));
            for case in &mut cases {
                case.expected = refused("its value must stand in its own word");
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

/// A flag where the release does not have it.
fn absent(entry: &'static Entry, vm: &Vm) -> Vec<Case> {
    let letter = entry.spelling().contains("<S>").then_some('B');
    let flag = entry.spelling().replace("<S>", "B");
    let value = entry
        .example
        .clone()
        .or_else(|| entry.takes.first().and_then(|takes| takes.words.first().cloned()))
        .unwrap_or_else(|| "1".to_owned());
    let Some(mut case) = one(entry, &flag, &value, letter, vm) else { return Vec::new() };
    // What is not known is not listed as it is written either.
    case.listed = None;
    case.effective = None;
    // Where it is taken for another flag, that one shows what it does.
    if let Verdict::Accepted { effective, altered } = &mut case.expected
        && let Some(Altered::ReadAs { flag, value }) = altered.first()
        && let Some(other) = entry_of(flag)
    {
        case.effective = other.effective.clone();
        if let Verdict::Accepted { effective: read, .. } = other.judge(&question(Some(value), vm, None)) {
            *effective = read;
        }
        // So that it is seen to be undone.
        let limit = ["+hmax".to_owned(), "1000000".to_owned()];
        case.given.args.splice(0..0, limit);
    }
    vec![case]
}

fn entry_of(flag: &str) -> Option<&'static Entry> {
    entry(flag)
}

fn variable(entry: &'static Entry, vm: &Vm) -> Vec<Case> {
    let Some(takes) = entry.takes_for(None, &vm.version) else { return Vec::new() };
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

/// A value that a running VM is asked about.
#[derive(Debug, Clone)]
pub struct Question {
    /// The entry.
    pub entry: &'static Entry,
    /// The value.
    pub value: String,
    /// What should come of it.
    pub expected: Verdict,
    /// Sets it and gives the value in effect.
    pub expression: String,
}

/// All questions of an entry to one VM.
pub fn questions(entry: &'static Entry, vm: &Vm) -> Vec<Question> {
    let (Some(probe), Some(takes)) = (&entry.probe, entry.takes_for(None, &vm.version)) else {
        return Vec::new();
    };
    // What has no value cannot have a wrong one.
    let without_value = takes.words == [""] && takes.integer.is_none();
    let values = if without_value { BTreeSet::from([String::new()]) } else { values(entry, takes, vm) };
    // Numbers of Erlang have no end, and of those beyond 64 bits nothing is said but where only 32 bits are kept.
    let endless = takes.reads == Reads::Whole;
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
