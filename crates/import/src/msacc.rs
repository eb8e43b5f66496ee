//! Microstate accounting, as `msacc:print` and `rabbitmq-diagnostics runtime_thread_stats` show it.
//!
//! lib/runtime_tools/src/msacc.erl prints the same from OTP 19 to 29: a heading with the states in the order of the map's keys (any order
//! from OTP 26 on), then a line for each thread and one for each type. Names are cut to their column, and touch where they fill it; shares
//! have two digits behind the point, and with the option `system` another share in brackets behind each. There are no times in it: they
//! follow from the shares and the real time, which stands above the table where the threads do.

use beamtune_model::{facts, metrics};

use crate::part::{CUT_OFF, Told, Value};
use crate::term::Term;
use crate::text::{find_within, follow, skip_spaces, word};

/// The tool's name.
pub const TOOL: &str = "msacc";

/// Types of threads, as they are cut in a line of a thread (10 characters) and in a line of a type (14).
const TYPES: [(&str, &str, &str); 6] = [
    ("async", "async", "async"),
    ("aux", "aux", "aux"),
    ("dirty_cpu_scheduler", "dirty_cpu_", "dirty_cpu_sche"),
    ("dirty_io_scheduler", "dirty_io_s", "dirty_io_sched"),
    ("poll", "poll", "poll"),
    ("scheduler", "scheduler", "scheduler"),
];

/// States that may touch each other in the heading. Others are read where they stand alone.
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
/// The state that all threads have, in every build, but in what `msacc:stats(runtime, …)` makes of them: that leaves it out, so its shares are
/// of the time at work.
const SLEEP: &str = "sleep";

/// The line above a table that tells how long was measured.
const REAL_TIME: [&str; 4] = ["Average", "thread", "real-time", ":"];

/// What the lines above the two halves of a table begin with.
const SECTION: &str = "Stats";

/// No build has as many.
const MOST_STATES: usize = 40;
/// Threads: 1,024 schedulers of each kind, and those for ports.
const MOST_THREADS: usize = 4_096;

/// The last number that fits into two digits: a larger one is printed as stars.
const LAST_NUMBER: i64 = 99;
const STARS: &str = "**";
/// In the place of a number that is not told.
const NO_NUMBER: i64 = -1;

/// Hundredths of a per cent in all of a thread's time.
const WHOLE: i64 = 10_000;

/// By how much the mean of the threads may differ from the line of their type, in hundredths of a per cent: the VM weighs
/// threads by their time, which is nearly the same of all.
const MEAN_DIFFERS: i64 = 100;

const CUT_HEADING: &str = "the table of msacc is cut off below its heading";
const BROKEN_HEADING: &str = "the heading of this table of msacc is broken: copy it whole";
const NO_TYPES: &str = "the table of msacc is cut off: the lines below \"Stats per type\" are missing";
const BROKEN_ROW: &str =
    "a line of this table of msacc does not fit its heading, or its shares are not 100 %";
const MISSING_THREADS: &str = "threads are missing in this table of msacc";
const ODD_MEAN: &str =
    "the threads of this table of msacc do not fit its lines per type: some are missing or changed";
const NUMBERED: &str =
    "msacc prints no number beyond 99, so threads from there on are numbered by their order";
const RUN_TIME: &str = "these are shares of run-time, without sleep, so how busy threads were is not told: print msacc:print() instead";
const NO_TIME: &str = "these threads of msacc have counted no time: start it first (msacc:start(1000))";

/// Whether a table, or the lines above it, begin here.
pub fn begins(text: &str, at: usize) -> bool {
    line_above(text, at, &REAL_TIME).is_some() || heading_begins(text, at).is_some()
}

fn heading_begins(text: &str, at: usize) -> Option<usize> {
    let behind = follow(text, at, &["Thread"])?;
    let next = skip_spaces(text, behind);
    if next == behind {
        return None;
    }
    // The word "thread" is one of prose, too.
    split_states(word(text, next).0)
        .filter(|states| states.iter().any(|state| STATES.contains(&state.as_str())))
        .map(|_| behind)
}

/// Reads a table with the lines above it: where it ends, and what it tells.
pub fn read(text: &str, begin: usize) -> (usize, Result<Told, &'static str>) {
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
    let Some(behind) = heading_begins(text, next) else { return (at, Err(CUT_HEADING)) };
    table(text, behind, length_us)
}

/// `Average thread real-time    : 302256 us`.
fn line_above(text: &str, at: usize, words: &[&str]) -> Option<(usize, i64)> {
    let number = skip_spaces(text, follow(text, at, words)?);
    let digits = text[number..].find(|c: char| !c.is_ascii_digit())?;
    let us = text[number..number + digits].parse().ok()?;
    let end = follow(text, skip_spaces(text, number + digits), &["us"])?;
    Some((end, us))
}

/// A line of the table.
struct Row {
    kind: &'static str,
    id: Option<i64>,
    /// In hundredths of a per cent, as the heading has the states.
    shares: Vec<i64>,
}

fn table(text: &str, heading: usize, length_us: Option<i64>) -> (usize, Result<Told, &'static str>) {
    let mut at = heading;
    let mut states: Vec<String> = Vec::new();
    let begin_of_rows = loop {
        let begin = skip_spaces(text, at);
        if let Some(end) = section(text, begin) {
            break end;
        }
        let (name, end) = word(text, begin);
        // Where the line break is lost, the next line touches.
        let (name, end) = match name.find(SECTION) {
            Some(length) if length > 0 => (&name[..length], begin + length),
            _ => (name, end),
        };
        let Some(more) = split_states(name).filter(|_| states.len() < MOST_STATES) else {
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
        if threads.len() == MOST_THREADS || types.len() == TYPES.len() {
            return (end, Err(BROKEN_ROW));
        }
        if row.id == Some(NO_NUMBER) {
            let before = threads.last().filter(|last| last.kind == kind).and_then(|last| last.id);
            row.id = before.filter(|last| *last >= LAST_NUMBER).and_then(|last| last.checked_add(1));
            if row.id.is_none() {
                return (end, Err(MISSING_THREADS));
            }
        }
        if is_types { &mut types } else { &mut threads }.push(row);
        at = end;
    }
    (at, tell(&states, &threads, &types, length_us))
}

fn tell(
    states: &[String],
    threads: &[Row],
    types: &[Row],
    length_us: Option<i64>,
) -> Result<Told, &'static str> {
    let mut names: Vec<&String> = states.iter().collect();
    names.sort();
    names.dedup();
    if names.len() != states.len() {
        return Err(BROKEN_HEADING);
    }
    if !states.iter().any(|state| state == SLEEP) {
        return Err(RUN_TIME);
    }
    // The scheduler's is the last line: whatever was cut off, it is missing.
    if !types.iter().any(|row| row.kind == "scheduler") {
        return Err(NO_TYPES);
    }
    if !threads.is_empty() {
        whole(threads, types)?;
    }
    let length_us = length_us.filter(|us| *us > 0);
    let of_length = |share: i64| match length_us {
        Some(us) => i64::try_from(i128::from(share) * i128::from(us) / i128::from(WHOLE)).unwrap_or(i64::MAX),
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
    let facts = counts_of(threads.iter().map(|row| row.kind));
    let remark = threads.iter().any(|row| row.id > Some(LAST_NUMBER)).then_some(NUMBERED);
    Ok(Told { facts, values, length_us, remark, ..Told::default() })
}

/// How many schedulers of each kind there are: msacc tells of every one, online or not.
fn counts_of<'a>(kinds: impl Iterator<Item = &'a str> + Clone) -> Vec<(&'static str, String)> {
    let told = [
        ("scheduler", facts::SCHEDULERS),
        ("dirty_cpu_scheduler", facts::DIRTY_CPU_SCHEDULERS),
        ("dirty_io_scheduler", facts::DIRTY_IO_SCHEDULERS),
    ];
    let count = |kind: &str| kinds.clone().filter(|of| *of == kind).count();
    let counts = told.into_iter().map(|(kind, fact)| (fact, count(kind)));
    counts.filter(|(_, count)| *count > 0).map(|(fact, count)| (fact, count.to_string())).collect()
}

/// Whether all threads are there: their numbers have no holes, and on average they do what the line of their type says.
fn whole(threads: &[Row], types: &[Row]) -> Result<(), &'static str> {
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
            if (sum / of.len() as i64 - share).abs() > MEAN_DIFFERS {
                return Err(ODD_MEAN);
            }
        }
    }
    let is_listed = |row: &Row| types.iter().any(|of_type| of_type.kind == row.kind);
    if threads.iter().all(is_listed) { Ok(()) } else { Err(NO_TYPES) }
}

/// `Stats per thread:` or `Stats per type:`; whether it is the second one, and where it ends.
fn section(text: &str, at: usize) -> Option<(bool, usize)> {
    let behind = follow(text, at, &[SECTION, "per"])?;
    let next = skip_spaces(text, behind);
    follow(text, next, &["thread:"])
        .map(|end| (false, end))
        .or_else(|| follow(text, next, &["type:"]).map(|end| (true, end)))
}

/// The type of thread that a line begins with.
fn label(text: &str, at: usize, is_types: bool) -> Option<(&'static str, usize)> {
    let rest = &text[at..];
    TYPES.iter().find_map(|(kind, of_thread, of_type)| {
        let short = if is_types { of_type } else { of_thread };
        let behind = rest.strip_prefix(short)?;
        let is_whole = match is_types {
            true => behind
                .starts_with(|c: char| c.is_ascii_digit() || !c.is_alphanumeric() && c != '_' && c != '('),
            false => behind.starts_with('('),
        };
        is_whole.then_some((*kind, at + short.len()))
    })
}

/// The rest of a line: the thread's number, and a share for each state.
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
    // Another cell would be of a state that the heading has lost.
    let next = skip_spaces(text, at);
    let has_more = text[next..].starts_with(|c: char| c.is_ascii_digit()) && cell(text, next).is_some();
    let sum: i64 = shares.iter().sum();
    let rounding = states as i64;
    let fits = !has_more && (sum == 0 || (sum - WHOLE).abs() <= rounding);
    fits.then_some((Row { kind, id, shares }, at))
}

/// `12.34%`, or `12.34%( 1.2%)`, in hundredths of a per cent; and whether there are brackets.
fn cell(text: &str, at: usize) -> Option<(i64, bool, usize)> {
    let rest = &text[at..];
    let end = find_within(rest, "%", 6).filter(|end| *end >= 4)?;
    let (whole, part) = rest[..end].split_once('.')?;
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() != 2 {
        return None;
    }
    let share = whole.parse::<i64>().ok()? * 100 + part.parse::<i64>().ok()?;
    let behind = at + end + "%".len();
    let Some(inner) = text[behind..].strip_prefix('(') else { return Some((share, false, behind)) };
    // What is wider than its place is printed as stars.
    let close = find_within(inner, "%)", 8)?;
    let may = |c: char| c.is_ascii_digit() || matches!(c, '.' | '*') || crate::text::is_space(c);
    inner[..close].chars().all(may).then_some((share, true, behind + 1 + close + 2))
}

/// The states in a word of the heading: those that touch are told apart where that is one way only. `None` if it is no name.
fn split_states(word: &str) -> Option<Vec<String>> {
    let is_name = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if !is_name || word.len() > 200 {
        return None;
    }
    // Ways to read the rest of the word, from its end: none, one (with its first state), or several.
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
            // A state that is not known yet.
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

const ODD_MAP: &str = "a thread of this list has no type, number and counters";

/// The list of maps that `erlang:statistics(microstate_accounting)` and `msacc:stats()` give; `None` if it is another one.
pub fn threads(term: &Term) -> Option<Result<Told, &'static str>> {
    let list = term.list()?;
    let first = list.first()?.map()?;
    get(first, "counters")?;
    if term.is_cut() {
        return Some(Err(CUT_OFF));
    }
    let counters = |thread: &Term| get(thread.map()?, "counters")?.map().map(|map| get(map, SLEEP).is_some());
    if list.iter().filter_map(counters).any(|has_sleep| !has_sleep) {
        return Some(Err(RUN_TIME));
    }
    Some(list.iter().map(thread).collect::<Option<Vec<_>>>().ok_or(ODD_MAP).and_then(of_threads))
}

/// Counters of a thread.
struct Thread {
    kind: String,
    id: i64,
    /// msacc has made microseconds of them.
    is_us: bool,
    counters: Vec<(String, i64)>,
}

fn of_threads(threads: Vec<Thread>) -> Result<Told, &'static str> {
    let mut seen: Vec<(&str, i64)> = threads.iter().map(|thread| (thread.kind.as_str(), thread.id)).collect();
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(ODD_MAP);
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
    let facts = counts_of(threads.iter().map(|thread| thread.kind.as_str()));
    let mut values = Vec::new();
    for thread in threads {
        let entity = format!("{}/{}", thread.kind, thread.id);
        for (state, value) in thread.counters {
            values.push(Value::named(&metrics::MSACC, entity.as_str(), &state, value));
        }
    }
    Ok(Told { facts, values, length_us, ..Told::default() })
}

fn thread(term: &Term) -> Option<Thread> {
    let map = term.map()?;
    let kind = get(map, "type")?.atom()?;
    if !TYPES.iter().any(|(known, ..)| *known == kind) {
        return None;
    }
    let counters = get(map, "counters")?.map()?;
    let counters = counters.iter().map(|(state, value)| {
        // Builds that count how often a state is entered tell both.
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
    fn states_that_touch_are_told_apart_where_that_is_one_way_only() {
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
    fn cells_that_touch_are_told_apart() {
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
