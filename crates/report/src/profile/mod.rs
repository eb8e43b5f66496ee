//! A CPU profile: on a terminal, and in the formats of other tools.

mod diff;
mod firefox;
mod formats;
mod html;
mod pprof;
mod read;
mod tree;

use std::collections::{HashMap, HashSet};

use beamtune_model::{CpuState, Frame, FrameKind, Nanos, Profile, ProfileKind, StackSample};

use crate::text::{self, Style};

pub use diff::{Comparison, collapsed_diff, json_diff, render_diff};
pub use firefox::{Origin, firefox};
pub use formats::{collapsed, json, speedscope};
pub use html::{html, html_diff};
pub use pprof::pprof;
pub use read::{MAX_BYTES, ReadError, SavedProfile, read};

/// Rows of the table of functions.
const MAX_FUNCTIONS: usize = 12;
/// States that are named; smaller ones are summed up.
const MIN_STATE_SHARE: f64 = 0.01;

/// CPU time of an Erlang function.
#[derive(Debug, Default)]
struct FunctionTime<'a> {
    /// While it was the innermost Erlang function, in nanoseconds.
    own: Nanos,
    /// While it was anywhere on the stack, in nanoseconds. Recursion counts once.
    total: Nanos,
    /// The part of `own` in the C code that it calls, by the outermost C function, in nanoseconds.
    in_c: HashMap<&'a str, Nanos>,
}

/// What the page is about.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// The node's name.
    pub node: &'a str,
    /// The profile.
    pub profile: &'a Profile,
}

/// The page: where the CPU time went by state, the functions that took most of it, and the call tree.
pub fn render(page: &Page<'_>, style: Style) -> String {
    let profile = page.profile;
    let mut out = format!("{} · {}\n\n", style.bold(&text::clean(page.node)), subtitle(page));
    if profile.total() == 0 {
        out.push_str(match profile.kind {
            ProfileKind::Cpu => "No thread used the CPU.\n",
            ProfileKind::SafePoints => "No process was sampled at work.\n",
            ProfileKind::Waits => "No process was sampled waiting.\n",
        });
        return out + &remarks(profile, style);
    }
    if profile.kind != ProfileKind::Waits {
        out.push_str(&states(profile, style));
    }
    out.push_str(&functions(profile, style));
    out.push_str(&tree::render(profile, style));
    out + &remarks(profile, style)
}

/// Length and number of samples.
fn subtitle(page: &Page<'_>) -> String {
    let length = page.profile.length as f64 / 1e9;
    let samples = text::decimal(f64::from(page.profile.sample_count()));
    let how = match page.profile.kind {
        ProfileKind::Cpu => format!("samples at {} Hz of CPU time", page.profile.rate_hz),
        ProfileKind::SafePoints => "samples of processes at work".to_owned(),
        ProfileKind::Waits => "samples of waiting processes".to_owned(),
    };
    format!("{} · {samples} {how}", text::seconds(length))
}

/// The CPU time by state, in cores.
fn states(profile: &Profile, style: Style) -> String {
    let total = profile.total() as f64;
    let cores = |time: i64| time as f64 / profile.length.max(1) as f64;
    let mut by_state = profile.by_state();
    by_state.sort_by_key(|(_, time)| -time);
    let (large, small): (Vec<_>, Vec<_>) =
        by_state.into_iter().partition(|(_, time)| *time as f64 / total >= MIN_STATE_SHARE);
    let mut parts: Vec<String> = large
        .iter()
        .map(|(state, time)| format!("{:.0} % {}", 100.0 * *time as f64 / total, state_name(*state)))
        .collect();
    if !small.is_empty() {
        parts.push(format!(
            "{:.1} % other states",
            small.iter().map(|(_, time)| 100.0 * *time as f64 / total).sum::<f64>()
        ));
    }
    let line = format!("{:.2} cores: {}", cores(profile.total()), parts.join(", "));
    let lines = text::lines(&line, style.width.saturating_sub(5).max(40), usize::MAX);
    let line =
        |(index, line): (usize, &String)| format!("{:<5}{line}\n", if index == 0 { "CPU" } else { "" });
    lines.iter().enumerate().map(line).collect::<String>() + "\n"
}

fn state_name(state: CpuState) -> &'static str {
    match state {
        CpuState::Process => "processes",
        CpuState::GarbageCollection => "garbage collection",
        CpuState::Scheduling => "scheduling",
        CpuState::BusyWait => "busy wait",
        CpuState::Polling => "polling for I/O",
        CpuState::Port => "ports",
        CpuState::SleepAndWake => "sleep and wake-up",
        CpuState::Waiting => "waiting",
        CpuState::Other => "other",
    }
}

/// The innermost Erlang function of a sample.
fn innermost_function<'p>(profile: &'p Profile, sample: &StackSample) -> Option<&'p str> {
    let functions = profile.frames_of(sample.stack).filter(|frame| frame.kind == FrameKind::Erlang);
    functions.last().map(|frame| frame.name.as_str())
}

/// CPU time of each Erlang function. C code and GC count for the function that called them; lines of one function are one entry.
fn function_times(profile: &Profile) -> HashMap<&str, FunctionTime<'_>> {
    let mut times = HashMap::<&str, FunctionTime<'_>>::new();
    for sample in &profile.samples {
        let frames: Vec<&Frame> = profile.frames_of(sample.stack).collect();
        let Some(last) = frames.iter().rposition(|frame| frame.kind == FrameKind::Erlang) else { continue };
        let time = times.entry(&frames[last].name).or_default();
        time.own += sample.weight;
        if let Some(called) = frames[last + 1..].iter().find(|frame| frame.kind != FrameKind::Fragment) {
            *time.in_c.entry(&called.name).or_default() += sample.weight;
        }
        let names: HashSet<&str> = frames[..=last]
            .iter()
            .filter(|frame| frame.kind == FrameKind::Erlang)
            .map(|frame| &*frame.name)
            .collect();
        for name in names {
            times.entry(name).or_default().total += sample.weight;
        }
    }
    times
}

/// Renders the Erlang functions with most CPU time of their own.
fn functions(profile: &Profile, style: Style) -> String {
    let total = profile.total() as f64;
    let times = function_times(profile);
    let mut rows: Vec<_> = times.into_iter().filter(|(_, time)| time.own > 0).collect();
    if rows.is_empty() {
        return String::new();
    }
    rows.sort_by(|(a, x), (b, y)| y.own.cmp(&x.own).then_with(|| a.cmp(b)));
    let mut out =
        format!("{}\n", style.dim("   own   total  Erlang function, with the C code that it calls"));
    for (name, time) in rows.iter().take(MAX_FUNCTIONS) {
        let share = |time: i64| format!("{:>4.1} %", 100.0 * time as f64 / total);
        let called = time.in_c.iter().max_by_key(|(name, time)| (**time, **name));
        let called = called.filter(|(_, called)| 2 * **called >= time.own);
        let called = called.map(|(called, _)| format!("  ({})", text::clean(called))).unwrap_or_default();
        out.push_str(&format!(
            "{}  {}  {}{called}\n",
            share(time.own),
            share(time.total),
            text::sentence(name)
        ));
    }
    out + "\n"
}

/// The name of a frame for people.
fn shown(kind: FrameKind, name: &str) -> String {
    match kind {
        FrameKind::Erlang | FrameKind::Bif => text::sentence(name),
        FrameKind::Fragment => format!("{} (JIT)", text::clean(name)),
        FrameKind::Emulator | FrameKind::Library => text::clean(name),
        FrameKind::Kernel => format!("{} (kernel)", text::clean(name)),
    }
}

fn shown_frame(frame: &Frame) -> String {
    shown(frame.kind, &frame.name)
}

/// What stands for the source file of a frame: the module of an Erlang function, or the kind of other code.
fn source_name(frame: &Frame) -> String {
    match frame.kind {
        FrameKind::Erlang | FrameKind::Bif => {
            let name = text::clean(&frame.name);
            name.split(':').next().unwrap_or_default().to_owned()
        }
        kind => format!("[{}]", kind.text()),
    }
}

/// What is missing from the profile, in sentences.
fn missing(profile: &Profile) -> Vec<String> {
    let mut remarks = profile.remarks.clone();
    if profile.without_frames > 0 {
        remarks.push(format!(
            "{:.1} % of samples have no Erlang functions: the process continued before they were read",
            100.0 * profile.without_frames as f64 / f64::from(profile.sample_count().max(1))
        ));
    }
    if profile.lost > 0 {
        remarks.push(format!("{} samples were lost: beamtune was too slow", profile.lost));
    }
    remarks
}

fn remarks(profile: &Profile, style: Style) -> String {
    let lines = |remark: &String| text::lines(&format!("note: {remark}"), style.width, usize::MAX);
    missing(profile).iter().flat_map(lines).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use beamtune_model::{CallStack, ProfileBuilder, ProfiledThread};

    use super::*;

    /// A profile of stacks, outermost first, with their sample counts; frames with `k:` are kernel functions.
    pub(crate) fn profile(stacks: &[(&str, u32, CpuState)]) -> Profile {
        let mut builder = ProfileBuilder::default();
        let thread = ProfiledThread { tid: 7, kind: "scheduler".to_owned(), name: "erts_sched_1".to_owned() };
        let thread = builder.thread(thread);
        for (names, count, state) in stacks {
            let frame = |name: &str| match name.strip_prefix("k:") {
                Some(name) => Frame { kind: FrameKind::Kernel, name: name.to_owned(), line: None },
                None => Frame { kind: FrameKind::Erlang, name: name.to_owned(), line: None },
            };
            let frames = names.split(';').map(|name| builder.frame(frame(name))).collect();
            let stack = builder.stack(CallStack { frames, is_complete: true });
            let weight = i64::from(*count) * 10_000_000;
            builder.add(StackSample {
                t: 0,
                thread,
                process: Some(80),
                state: *state,
                stack,
                count: *count,
                weight,
            });
        }
        (builder.profile().length, builder.profile().rate_hz) = (2_000_000_000, 99);
        builder.finish()
    }

    #[test]
    fn a_page_names_states_functions_and_the_call_tree() {
        let profile = profile(&[
            ("shop:loop/1;jsx:encode/2;jsx:encode/2", 20, CpuState::Process),
            ("shop:loop/1;jsx:encode/2;k:do_syscall", 40, CpuState::Process),
            ("shop:loop/1;lists:map/2", 30, CpuState::Process),
            ("k:futex_wait", 10, CpuState::SleepAndWake),
        ]);
        let page = render(&Page { node: "shop@web1", profile: &profile }, Style::PLAIN);
        let expect = "\
shop@web1 · 2.0 s · 100 samples at 99 Hz of CPU time

CPU  0.50 cores: 90 % processes, 10 % sleep and wake-up

   own   total  Erlang function, with the C code that it calls
60.0 %  60.0 %  jsx:encode/2  (do_syscall)
30.0 %  30.0 %  lists:map/2

  total  call tree, 2 % or more
 90.0 %  ██████████████████░░  shop:loop/1
 60.0 %  ████████████░░░░░░░░    jsx:encode/2
 40.0 %  ████████░░░░░░░░░░░░      do_syscall (kernel)
 30.0 %  ██████░░░░░░░░░░░░░░    lists:map/2
 10.0 %  ██░░░░░░░░░░░░░░░░░░  futex_wait (kernel)
";
        assert_eq!(page, expect);
    }

    #[test]
    fn nothing_sampled_is_said_and_what_is_missing_too() {
        let mut profile = Profile { length: 1_000_000_000, rate_hz: 99, lost: 3, ..Profile::default() };
        profile.remarks.push("no kernel".to_owned());
        let page = render(&Page { node: "a", profile: &profile }, Style::PLAIN);
        let expect = "a · 1.0 s · 0 samples at 99 Hz of CPU time\n\nNo thread used the CPU.\nnote: no kernel\n\
                      note: 3 samples were lost: beamtune was too slow\n";
        assert_eq!(page, expect);
    }
}
