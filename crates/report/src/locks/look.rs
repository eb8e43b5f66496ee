//! Whether threads of a VM wait for each other, as far as that is seen from outside.

use beamtune_model::Nanos;

use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Whether they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// They do.
    Yes,
    /// They do not.
    No,
    /// It cannot be told.
    NotSure,
}

impl Answer {
    /// As it stands in JSON.
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
    /// The kind: `scheduler`, `dirty_cpu_scheduler` …
    pub kind: String,
    /// How many threads.
    pub threads: usize,
    /// Which part of the time they were not asleep for lack of work; `None` where that is not known.
    pub awake_share: Option<f64>,
    /// Which part of that they were blocked: neither on a CPU nor waiting for one; `None` where that is not known.
    pub blocked_share: Option<f64>,
    /// How often one of them slept in a second of being awake; `None` where that is not known.
    pub sleeps_per_second: Option<f64>,
    /// Whether they wait.
    pub answer: Answer,
    /// What the answer is drawn from, as a sentence without a full stop.
    pub why: String,
}

/// A look at a running VM.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// Whether its threads wait for each other.
    pub answer: Answer,
    /// How long the look was.
    pub length: Nanos,
    /// By kinds of threads.
    pub kinds: Vec<Blocked>,
    /// What was done for it beyond reading what is counted anyway, and what was left out and why; a sentence each.
    pub means: Vec<String>,
}

pub(super) fn render(look: &Look, style: Style) -> String {
    let says = match look.answer {
        Answer::Yes => "Threads wait for each other: yes.",
        Answer::No => "Threads wait for each other: no.",
        Answer::NotSure => "Threads wait for each other: not sure.",
    };
    let mut out = format!(
        "{} {}\n",
        style.bold(says),
        style.dim(&format!("(looked for {})", text::seconds(look.length as f64 / 1e9)))
    );
    let mut table = Table::new(&[
        ("threads", Left),
        ("", Right),
        ("awake", Right),
        ("of that blocked", Right),
        ("sleeps/s", Right),
        ("wait, by time", Left),
        ("because", Left),
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
    out.push_str(&table.render(style));
    for said in &look.means {
        out.push_str(&text::wrap(&format!("{}\n", text::sentence(said)), style.width, ""));
    }
    out
}
