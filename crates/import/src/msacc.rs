//! Interprets microstate accounting that `msacc:print` or `rabbitmq-diagnostics runtime_thread_stats` printed.
//!
//! The format is the same from OTP 19 to 29 (lib/runtime_tools/src/msacc.erl). A heading contains the states in the order of the map's keys
//! (arbitrary since OTP 26). A line per thread and a line per type follow. Names are truncated to the width of their column, and touch the
//! next name if they fill it. Percentages have two decimals; with the option `system`, another percentage in brackets follows each. The
//! table contains no times: they are computed from the percentages and the real-time, which is printed above the table if threads are
//! listed.

use beamtune_model::{facts, metrics};

use crate::part::{PartData, TRUNCATED, Value};
use crate::term::Term;
use crate::text::{find_within, match_words, skip_spaces, word};

pub const TOOL: &str = "msacc";

/// Thread types, with their truncated forms in lines of threads (10 characters) and in lines of types (14 characters).
const TYPES: [(&str, &str, &str); 6] = [
    ("async", "async", "async"),
    ("aux", "aux", "aux"),
    ("dirty_cpu_scheduler", "dirty_cpu_", "dirty_cpu_sche"),
    ("dirty_io_scheduler", "dirty_io_s", "dirty_io_sched"),
    ("poll", "poll", "poll"),
    ("scheduler", "scheduler", "scheduler"),
];

/// States that are recognized even if they touch each other in the heading. Other states are read if they are separate words.
const STATES: [&str; 15] = [
    "alloc",
    "aux",
    "bif",
    "busy_wait",
    "check_io",
    "emulator",
    "ets",
    "gc",
    "gc_full",
    "nif",
    "other",
    "port",
    "send",
    "sleep",
    "timers",
];
/// A state of all threads in every build. Only `msacc:stats(runtime, …)` omits it, so that its percentages refer to run-time.
const SLEEP: &str = "sleep";

/// The line above a table that contains the duration of the measurement.
const REAL_TIME: [&str; 4] = ["Average", "thread", "real-time", ":"];

/// The first word of the lines above both halves of a table.
const SECTION: &str = "Stats";

/// Maximum number of states: more than in any build.
const MAX_STATES: usize = 40;
/// Maximum number of threads: 1,024 schedulers of each kind, and poll threads.
const MAX_THREADS: usize = 4_096;

/// The largest thread number that has two digits; larger ones are printed as stars.
const MAX_PRINTED_NUMBER: i64 = 99;
const STARS: &str = "**";
/// Stands for a number printed as stars.
const NO_NUMBER: i64 = -1;

/// The whole time of a thread, in hundredths of a percent.
const FULL_TIME: i64 = 10_000;

/// Maximum difference between the mean of the threads and the line of their type, in hundredths of a percent. They differ because the VM
/// weights threads by their time, which is nearly equal.
const MAX_MEAN_DIFFERENCE: i64 = 100;

const TRUNCATED_HEADING: &str = "this msacc table is truncated after its heading";
const BROKEN_HEADING: &str = "the heading of this msacc table is broken: copy it completely";
const NO_TYPES: &str = "this msacc table is truncated: the lines below \"Stats per type\" are missing";
const BROKEN_ROW: &str =
    "a line of this msacc table does not fit its heading, or its percentages do not add up to 100";
const MISSING_THREADS: &str = "threads are missing in this msacc table";
const WRONG_MEAN: &str =
    "the threads of this msacc table contradict its lines per type: some are missing or changed";
const NUMBERED: &str = "msacc prints thread numbers only up to 99; later threads are numbered by their order";
const RUN_TIME: &str = "these are percentages of run-time, without sleep, so the utilization of the threads is unknown: use msacc:print() instead";
const NO_TIME: &str = "these msacc threads have counted no time: start msacc first (msacc:start(1000))";

/// Whether a table, or the lines above a table, begin at this position.
pub fn begins(text: &str, at: usize) -> bool {
    line_above(text, at, &REAL_TIME).is_some() || heading_begins(text, at).is_some()
}

fn heading_begins(text: &str, at: usize) -> Option<usize> {
    let after = match_words(text, at, &["Thread"])?;
    let next = skip_spaces(text, after);
    if next == after {
        return None;
    }
    // The word also occurs in prose.
    split_states(word(text, next).0)
        .filter(|states| states.iter().any(|state| STATES.contains(&state.as_str())))
        .map(|_| after)
}

/// Reads a table with the lines above it, and returns its end and data.
pub fn read(text: &str, begin: usize) -> (usize, Result<PartData, &'static str>) {
    let mut at = begin;
    let mut length_us = None;
    if let Some((end, us)) = line_above(text, at, &REAL_TIME) {
        (at, length_us) = (end, Some(us));
        for words in [["Accumulated", "system", "run-time", ":"], ["Average", "scheduler", "run-time", ":"]] {
            let next = skip_spaces(text, at);
            if let Some((end, _)) = line_above(text, next, &words) {
                at = end;
            }
        }
    }
    let next = skip_spaces(text, at);
    let Some(after) = heading_begins(text, next) else { return (at, Err(TRUNCATED_HEADING)) };
    table(text, after, length_us)
}

/// Reads a line such as `Average thread real-time    : 302256 us`. Returns its end and its number.
fn line_above(text: &str, at: usize, words: &[&str]) -> Option<(usize, i64)> {
    let number = skip_spaces(text, match_words(text, at, words)?);
    let digits = text[number..].find(|c: char| !c.is_ascii_digit())?;
    let us = text[number..number + digits].parse().ok()?;
    let end = match_words(text, skip_spaces(text, number + digits), &["us"])?;
    Some((end, us))
}

/// A line of the table.
struct Row {
    kind: &'static str,
    id: Option<i64>,
    /// Percentages in hundredths of a percent, in the order of the heading.
    shares: Vec<i64>,
}

fn table(text: &str, heading: usize, length_us: Option<i64>) -> (usize, Result<PartData, &'static str>) {
    let mut at = heading;
    let mut states: Vec<String> = Vec::new();
    let begin_of_rows = loop {
        let begin = skip_spaces(text, at);
        if let Some(end) = section(text, begin) {
            break end;
        }
        let (name, end) = word(text, begin);
        // If a line break was lost, the next line touches.
        let (name, end) = match name.find(SECTION) {
            Some(length) if length > 0 => (&name[..length], begin + length),
            _ => (name, end),
        };
        let Some(more) = split_states(name).filter(|_| states.len() < MAX_STATES) else {
            return (at, Err(BROKEN_HEADING));
        };
        states.extend(more);
        at = end;
    };
    at = begin_of_rows.1;
    let mut is_types = begin_of_rows.0;
    let (mut threads, mut types): (Vec<Row>, Vec<Row>) = (Vec::new(), Vec::new());
    loop {
        let begin = skip_spaces(text, at);
        if let Some((types_follow, end)) = section(text, begin).filter(|_| !is_types) {
            (is_types, at) = (types_follow, end);
            continue;
        }
        let Some((kind, end)) = label(text, begin, is_types) else { break };
        let Some((mut row, end)) = row(text, kind, end, is_types, states.len()) else {
            return (end, Err(BROKEN_ROW));
        };
        // Each type has one line.
        if threads.len() == MAX_THREADS || types.len() == TYPES.len() {
            return (end, Err(BROKEN_ROW));
        }
        if row.id == Some(NO_NUMBER) {
            let before = threads.last().filter(|last| last.kind == kind).and_then(|last| last.id);
            row.id = before.filter(|last| *last >= MAX_PRINTED_NUMBER).and_then(|last| last.checked_add(1));
            if row.id.is_none() {
                return (end, Err(MISSING_THREADS));
            }
        }
        if is_types { &mut types } else { &mut threads }.push(row);
        at = end;
    }
    (at, to_data(&states, &threads, &types, length_us))
}

fn to_data(
    states: &[String],
    threads: &[Row],
    types: &[Row],
    length_us: Option<i64>,
) -> Result<PartData, &'static str> {
    let mut names: Vec<&String> = states.iter().collect();
    names.sort();
    names.dedup();
    if names.len() != states.len() {
        return Err(BROKEN_HEADING);
    }
    if !states.iter().any(|state| state == SLEEP) {
        return Err(RUN_TIME);
    }
    // The last line contains the schedulers, so it is missing in every truncated table.
    if !types.iter().any(|row| row.kind == "scheduler") {
        return Err(NO_TYPES);
    }
    if !threads.is_empty() {
        check_complete(threads, types)?;
    }
    let length_us = length_us.filter(|us| *us > 0);
    let of_length = |share: i64| match length_us {
        Some(us) => {
            i64::try_from(i128::from(share) * i128::from(us) / i128::from(FULL_TIME)).unwrap_or(i64::MAX)
        }
        None => share,
    };
    let rows = if threads.is_empty() { types } else { threads };
    let mut values = Vec::new();
    for row in rows {
        let entity = row.id.map_or(row.kind.to_owned(), |id| format!("{}/{id}", row.kind));
        for (state, share) in states.iter().zip(&row.shares) {
            values.push(Value::named(&metrics::MSACC, entity.as_str(), state, of_length(*share)));
        }
    }
    if values.iter().all(|value| value.value == 0) {
        return Err(NO_TIME);
    }
    let facts = scheduler_counts(threads.iter().map(|row| row.kind));
    let remark = threads.iter().any(|row| row.id > Some(MAX_PRINTED_NUMBER)).then_some(NUMBERED);
    Ok(PartData { facts, values, length_us, remark, ..PartData::default() })
}

/// Returns the number of schedulers of each kind, as facts. msacc lists all schedulers, online or not.
fn scheduler_counts<'a>(kinds: impl Iterator<Item = &'a str> + Clone) -> Vec<(&'static str, String)> {
    let facts = [
        ("scheduler", facts::SCHEDULERS),
        ("dirty_cpu_scheduler", facts::DIRTY_CPU_SCHEDULERS),
        ("dirty_io_scheduler", facts::DIRTY_IO_SCHEDULERS),
    ];
    let count = |kind: &str| kinds.clone().filter(|of| *of == kind).count();
    let counts = facts.into_iter().map(|(kind, fact)| (fact, count(kind)));
    counts.filter(|(_, count)| *count > 0).map(|(fact, count)| (fact, count.to_string())).collect()
}

/// Checks that no thread is missing: numbers are consecutive, and the mean of the threads agrees with the line of their type.
fn check_complete(threads: &[Row], types: &[Row]) -> Result<(), &'static str> {
    for of_type in types {
        let of: Vec<&Row> = threads.iter().filter(|row| row.kind == of_type.kind).collect();
        let mut ids: Vec<i64> = of.iter().filter_map(|row| row.id).collect();
        ids.sort_unstable();
        let has_hole = ids.windows(2).any(|pair| pair[0].checked_add(1) != Some(pair[1]));
        if of.is_empty() || has_hole || ids.first().is_some_and(|first| *first > 1) {
            return Err(MISSING_THREADS);
        }
        for (place, share) in of_type.shares.iter().enumerate() {
            let sum: i64 = of.iter().filter_map(|row| row.shares.get(place)).sum();
            if (sum / of.len() as i64 - share).abs() > MAX_MEAN_DIFFERENCE {
                return Err(WRONG_MEAN);
            }
        }
    }
    let is_listed = |row: &Row| types.iter().any(|of_type| of_type.kind == row.kind);
    if threads.iter().all(is_listed) { Ok(()) } else { Err(NO_TYPES) }
}

/// Reads `Stats per thread:` or `Stats per type:`. Returns whether it is the second one, and its end.
fn section(text: &str, at: usize) -> Option<(bool, usize)> {
    let after = match_words(text, at, &[SECTION, "per"])?;
    let next = skip_spaces(text, after);
    match_words(text, next, &["thread:"])
        .map(|end| (false, end))
        .or_else(|| match_words(text, next, &["type:"]).map(|end| (true, end)))
}

/// Returns the thread type at the beginning of a line, and its end.
fn label(text: &str, at: usize, is_types: bool) -> Option<(&'static str, usize)> {
    let rest = &text[at..];
    TYPES.iter().find_map(|(kind, of_thread, of_type)| {
        let short = if is_types { of_type } else { of_thread };
        let after = rest.strip_prefix(short)?;
        let is_whole = match is_types {
            true => after
                .starts_with(|c: char| c.is_ascii_digit() || !c.is_alphanumeric() && c != '_' && c != '('),
            false => after.starts_with('('),
        };
        is_whole.then_some((*kind, at + short.len()))
    })
}

/// Reads the rest of a line: the thread's number, and a percentage per state.
fn row(text: &str, kind: &'static str, begin: usize, is_types: bool, states: usize) -> Option<(Row, usize)> {
    let mut at = begin;
    let id = match is_types {
        true => None,
        false => {
            let number = skip_spaces(text, at + "(".len());
            let end = number + text[number..].find(|c: char| !(c.is_ascii_digit() || c == '*'))?;
            let id = match &text[number..end] {
                STARS => NO_NUMBER,
                digits => digits.parse().ok()?,
            };
            at = end;
            at += text[at..].starts_with(')').then_some(1)?;
            Some(id)
        }
    };
    let mut shares = Vec::new();
    let mut has_system = None;
    for _ in 0..states {
        let (share, with_system, end) = cell(text, skip_spaces(text, at))?;
        if has_system.is_some_and(|has| has != with_system) {
            return None;
        }
        has_system = Some(with_system);
        shares.push(share);
        at = end;
    }
    // If another cell follows, a state is missing in the heading.
    let next = skip_spaces(text, at);
    let has_more = text[next..].starts_with(|c: char| c.is_ascii_digit()) && cell(text, next).is_some();
    let sum: i64 = shares.iter().sum();
    let rounding = states as i64;
    let fits = !has_more && (sum == 0 || (sum - FULL_TIME).abs() <= rounding);
    fits.then_some((Row { kind, id, shares }, at))
}

/// Reads a cell: `12.34%`, or `12.34%( 1.2%)`. Returns the value in hundredths of a percent, whether there are brackets, and the end.
fn cell(text: &str, at: usize) -> Option<(i64, bool, usize)> {
    let rest = &text[at..];
    let end = find_within(rest, "%", 6).filter(|end| *end >= 4)?;
    let (integer, decimals) = rest[..end].split_once('.')?;
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(integer) || !is_number(decimals) || decimals.len() != 2 {
        return None;
    }
    let share = integer.parse::<i64>().ok()? * 100 + decimals.parse::<i64>().ok()?;
    let after = at + end + "%".len();
    let Some(inner) = text[after..].strip_prefix('(') else { return Some((share, false, after)) };
    // Values that are wider than their field are printed as stars.
    let close = find_within(inner, "%)", 8)?;
    let is_allowed = |c: char| c.is_ascii_digit() || matches!(c, '.' | '*') || crate::text::is_space(c);
    inner[..close].chars().all(is_allowed).then_some((share, true, after + 1 + close + 2))
}

/// Returns the states in a word of the heading. Touching states are separated if there is exactly one way to do so. `None` if the word is
/// not a name.
fn split_states(word: &str) -> Option<Vec<String>> {
    let is_name = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if !is_name || word.len() > 200 {
        return None;
    }
    // For each position: the end of the first state in each way to split the rest of the word; `None` if there is no way.
    let mut ways: Vec<Option<Vec<usize>>> = vec![None; word.len() + 1];
    ways[word.len()] = Some(Vec::new());
    for at in (0..word.len()).rev() {
        let next: Vec<usize> = STATES
            .iter()
            .filter(|state| word[at..].starts_with(**state))
            .map(|state| at + state.len())
            .filter(|end| ways[*end].is_some())
            .collect();
        ways[at] = match next.as_slice() {
            [] => None,
            all => Some(all.to_vec()),
        };
    }
    let mut at = 0;
    let mut states = Vec::new();
    while at < word.len() {
        match ways[at].as_deref() {
            // The word is an unknown state.
            None if at == 0 => return Some(vec![word.to_owned()]),
            Some([end]) => {
                states.push(word[at..*end].to_owned());
                at = *end;
            }
            _ => return None,
        }
    }
    Some(states)
}

const MALFORMED_MAP: &str = "a thread of this list lacks its type, number or counters";

/// Interprets the list of maps that `erlang:statistics(microstate_accounting)` and `msacc:stats()` return; `None` if the term is something
/// else.
pub fn threads(term: &Term) -> Option<Result<PartData, &'static str>> {
    let list = term.list()?;
    let first = list.first()?.map()?;
    get(first, "counters")?;
    if term.is_truncated() {
        return Some(Err(TRUNCATED));
    }
    let counters = |thread: &Term| get(thread.map()?, "counters")?.map().map(|map| get(map, SLEEP).is_some());
    if list.iter().filter_map(counters).any(|has_sleep| !has_sleep) {
        return Some(Err(RUN_TIME));
    }
    Some(list.iter().map(thread).collect::<Option<Vec<_>>>().ok_or(MALFORMED_MAP).and_then(of_threads))
}

/// The counters of a thread.
struct Thread {
    kind: String,
    id: i64,
    /// Whether msacc has converted the counters to microseconds.
    is_us: bool,
    counters: Vec<(String, i64)>,
}

fn of_threads(threads: Vec<Thread>) -> Result<PartData, &'static str> {
    let mut seen: Vec<(&str, i64)> = threads.iter().map(|thread| (thread.kind.as_str(), thread.id)).collect();
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(MALFORMED_MAP);
    }
    if seen.windows(2).any(|pair| pair[0].0 == pair[1].0 && pair[0].1.checked_add(1) != Some(pair[1].1)) {
        return Err(MISSING_THREADS);
    }
    let sum =
        |thread: &Thread| thread.counters.iter().fold(0_i64, |sum, (_, value)| sum.saturating_add(*value));
    let longest = threads.iter().map(sum).max().unwrap_or(0);
    if longest == 0 {
        return Err(NO_TIME);
    }
    let length_us = threads.iter().all(|thread| thread.is_us).then_some(longest);
    let facts = scheduler_counts(threads.iter().map(|thread| thread.kind.as_str()));
    let mut values = Vec::new();
    for thread in threads {
        let entity = format!("{}/{}", thread.kind, thread.id);
        for (state, value) in thread.counters {
            values.push(Value::named(&metrics::MSACC, entity.as_str(), &state, value));
        }
    }
    Ok(PartData { facts, values, length_us, ..PartData::default() })
}

fn thread(term: &Term) -> Option<Thread> {
    let map = term.map()?;
    let kind = get(map, "type")?.atom()?;
    if !TYPES.iter().any(|(known, ..)| *known == kind) {
        return None;
    }
    let counters = get(map, "counters")?.map()?;
    let counters = counters.iter().map(|(state, value)| {
        // A VM that is built to count entries into a state returns a pair.
        let value = value.integer().or_else(|| value.tuple()?.first()?.integer())?;
        (value >= 0).then_some((state.atom()?.to_owned(), value))
    });
    Some(Thread {
        kind: kind.to_owned(),
        id: get(map, "id")?.integer().filter(|id| *id >= 0)?,
        is_us: get(map, "$type").and_then(Term::atom) == Some("msacc_data"),
        counters: counters.collect::<Option<Vec<_>>>()?,
    })
}

fn get<'a>(map: &'a [(Term, Term)], key: &str) -> Option<&'a Term> {
    map.iter().find(|(name, _)| name.atom() == Some(key)).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_states_are_separated_if_there_is_exactly_one_way() {
        let check = |word: &str, expect: Option<&[&str]>| {
            let states = split_states(word);
            let states: Option<Vec<&str>> =
                states.as_ref().map(|all| all.iter().map(String::as_str).collect());
            assert_eq!(states.as_deref(), expect, "{word}");
        };
        check("sleep", Some(&["sleep"]));
        check("bifbusy_waitcheck_io", Some(&["bif", "busy_wait", "check_io"]));
        check("gcgc_full", Some(&["gc", "gc_full"]));
        check("waiting_for_nothing", Some(&["waiting_for_nothing"]));
        check("9", None);
        check("Emulator", None);
    }

    #[test]
    fn touching_cells_are_separated() {
        let check = |text: &str, expect| assert_eq!(cell(text, 0), expect, "{text}");
        check("0.00%  1.00%", Some((0, false, 5)));
        check("100.00%(16.7%)", Some((10_000, true, 14)));
        check("99.44%( 0.1%)100.00%", Some((9_944, true, 13)));
        check("99.44%(****%)", Some((9_944, true, 13)));
        for wrong in ["1.0%", "1.000%", "1,00%", "12", "%", "1.00%(x%)", "1 0.00%"] {
            check(wrong, None);
        }
    }
}
