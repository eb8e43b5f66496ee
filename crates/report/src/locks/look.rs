//! The answer to the question whether there is lock contention, and how threads spent their time.

use beamtune_model::Nanos;

use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Whether there is lock contention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// There is contention.
    Yes,
    /// No contention.
    No,
    /// Unknown.
    NotSure,
}

impl Answer {
    /// The text in output and JSON.
    pub fn text(self) -> &'static str {
        match self {
            Answer::Yes => "yes",
            Answer::No => "no",
            Answer::NotSure => "not sure",
        }
    }
}

/// How the threads of a kind spent their time.
#[derive(Debug, Clone, PartialEq)]
pub struct Blocked {
    /// Kind of thread: `scheduler`, `dirty_cpu_scheduler` …
    pub kind: String,
    /// Number of threads.
    pub threads: usize,
    /// Share of the time in which the threads were awake, i.e. not asleep for lack of work; `None` if unknown.
    pub awake_share: Option<f64>,
    /// Share of the awake time in which they were blocked, i.e. neither on a CPU nor runnable; `None` if unknown.
    pub blocked_share: Option<f64>,
    /// Number of sleeps of one thread per second of awake time; `None` if unknown.
    pub sleeps_per_second: Option<f64>,
    /// Whether the threads wait for locks.
    pub answer: Answer,
    /// The reason for the answer, a sentence without a full stop.
    pub why: String,
}

/// How long threads waited for locks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WaitShare {
    /// Share of the schedulers' time if counted, or of their busy time if sampled; 0 to 1.
    pub share: f64,
    /// The 95 % interval, from the number of samples; `None` if counted.
    pub interval: Option<(f64, f64)>,
    /// Whether some waits were missed.
    pub is_lower_bound: bool,
    /// Whether the VM counted the waits; otherwise they were sampled.
    pub is_counted: bool,
    /// How long waits were counted or sampled.
    pub length: Nanos,
}

/// All information about the lock waits of a VM.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// Whether there is lock contention.
    pub answer: Answer,
    /// How long the VM was sampled.
    pub length: Nanos,
    /// Lock waits; `None` if they were neither counted nor sampled.
    pub share: Option<WaitShare>,
    /// Times of threads, by kind of thread.
    pub kinds: Vec<Blocked>,
    /// Missing or inexact data, one sentence each.
    pub remarks: Vec<String>,
    /// How the answer was determined: shares, remarks and cost, one sentence each.
    pub means: Vec<String>,
}

/// Renders the times of threads, and how they were measured.
pub(super) fn render(look: &Look, style: Style) -> String {
    let mut table = Table::new(&[
        ("threads", Left),
        ("", Right),
        ("awake", Right),
        ("blocked", Right),
        ("sleeps/s", Right),
        ("wait", Left),
        ("reason", Left),
    ]);
    for kind in &look.kinds {
        table.row([
            text::clean(&kind.kind.replace('_', " ")),
            kind.threads.to_string(),
            text::share(kind.awake_share),
            text::share(kind.blocked_share),
            kind.sleeps_per_second.map_or_else(String::new, text::decimal),
            kind.answer.text().to_owned(),
            text::sentence(&kind.why),
        ]);
    }
    let mut out = table.render(style);
    for line in &look.means {
        out.push_str(&text::wrap(&format!("{}\n", text::sentence(line)), style.width, ""));
    }
    out
}
