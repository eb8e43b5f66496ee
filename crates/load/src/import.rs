//! Reads what other generators wrote, and what ours did, as a [`LoadResult`].
//!
//! No tool measures all that ours does, so each reader puts a tool's times where they belong (see [`beamtune_model::load`]) and
//! says in the remarks what the tool cannot know. None of them tells its own lag from the target's slowness. Percentiles are
//! taken over as they were printed, or made from values; they are never averaged.
//!
//! Files can be as large as a disk: those with a line for each request are read line by line, and what is kept of them is
//! histograms. All else is bounded in size. Names and words stay as they are in the file; whoever prints them cleans them.

mod document;
mod emqtt_bench;
mod gatling;
mod h2load;
mod k6;
mod lines;
mod locust;
mod merge;
mod oha;
mod ours;
mod perftest;
mod points;
mod told;
mod tsung;
mod wrk;

use std::fmt;
use std::io::{self, Read};

use beamtune_model::load::LoadResult;
use thiserror::Error;

use document::Json;
use lines::Lines;
pub use merge::merge;

/// Bytes at the beginning of a file by which its tool is recognised.
const HEAD_BYTES: usize = 64 * 1024;
/// The largest document that has to be read whole. A summary of a thousand steps is below one.
const LARGEST_DOCUMENT_BYTES: u64 = 64 * 1024 * 1024;

/// A generator whose results are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// This one: a result that was kept.
    Beamtune,
    /// Grafana k6.
    K6,
    /// Locust.
    Locust,
    /// Tsung.
    Tsung,
    /// Gatling.
    Gatling,
    /// wrk.
    Wrk,
    /// wrk2, whose times begin when a request was due.
    Wrk2,
    /// nghttp2's h2load.
    H2load,
    /// EMQ's emqtt-bench.
    EmqttBench,
    /// oha.
    Oha,
    /// RabbitMQ's PerfTest.
    PerfTest,
}

impl Tool {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Beamtune,
        Self::K6,
        Self::Locust,
        Self::Tsung,
        Self::Gatling,
        Self::Wrk,
        Self::Wrk2,
        Self::H2load,
        Self::EmqttBench,
        Self::Oha,
        Self::PerfTest,
    ];

    /// Its name, as it is told and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Beamtune => "beamtune",
            Self::K6 => "k6",
            Self::Locust => "locust",
            Self::Tsung => "tsung",
            Self::Gatling => "gatling",
            Self::Wrk => "wrk",
            Self::Wrk2 => "wrk2",
            Self::H2load => "h2load",
            Self::EmqttBench => "emqtt-bench",
            Self::Oha => "oha",
            Self::PerfTest => "perf-test",
        }
    }

    /// The tool of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Which of its results are read.
    fn files(self) -> &'static str {
        match self {
            Self::Beamtune => "JSON of --json or --output",
            Self::K6 => "JSON of --summary-export or handleSummary, --out json, --out csv",
            Self::Locust => "NAME_stats.csv and NAME_stats_history.csv of --csv, JSON of --json",
            Self::Tsung => "tsung.log, tsung.dump of dumptraffic=\"protocol\"",
            Self::Gatling => {
                "js/stats.json, js/global_stats.json or js/stats.js of a report, a simulation.log in text"
            }
            Self::Wrk | Self::Wrk2 => "what it prints",
            Self::H2load => "what it prints, the file of --log-file",
            Self::EmqttBench | Self::PerfTest => "what it prints",
            Self::Oha => "JSON of --output-format json",
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a result cannot be read, or results cannot be merged.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("{name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// No tool is known that writes this.
    #[error("{name}: not recognised. Results are read of {}", known())]
    Unknown {
        /// The file.
        name: String,
    },
    /// It is not what it was said to be.
    #[error("{name}: not of {tool}, but of {found}; of {tool} are read: {}", tool.files())]
    OfAnother {
        /// The file.
        name: String,
        /// The tool that was named.
        tool: Tool,
        /// The tool that wrote it.
        found: Tool,
    },
    /// It is something that is not read, and something else says the same.
    #[error("{name}: {what} is not read: {instead}")]
    Unsupported {
        /// The file.
        name: String,
        /// What it is.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// It is not as that tool writes it.
    #[error("{name}, line {line}: {expected} expected ({tool}), and there is {found}")]
    Malformed {
        /// The file.
        name: String,
        /// Its tool.
        tool: Tool,
        /// The line, from 1.
        line: u64,
        /// What ought to stand there.
        expected: String,
        /// What does, at most [`FOUND_CHARS`] of it.
        found: String,
    },
    /// It is larger than any result of its kind.
    #[error("{name}: more than {limit}, which no result of {tool} needs")]
    TooLarge {
        /// The file.
        name: String,
        /// Its tool.
        tool: Tool,
        /// What was exceeded.
        limit: String,
    },
    /// Nothing was done in it.
    #[error("{name}: {tool} counted neither an answer nor an error in it")]
    Empty {
        /// The file.
        name: String,
        /// Its tool.
        tool: Tool,
    },
    /// Results that cannot be merged.
    #[error("cannot be merged: {reason}")]
    Merge {
        /// Why, and what can be.
        reason: String,
    },
}

/// Characters of a file that an error shows.
pub const FOUND_CHARS: usize = 80;

fn known() -> String {
    let tools = Tool::ALL.map(|tool| format!("{tool} ({})", tool.files()));
    tools.join("; ")
}

/// Reads a result whose tool is recognised by its content. The name stands in errors.
///
/// # Errors
/// All of [`ImportError`] but [`ImportError::Merge`].
pub fn read(name: &str, bytes: &[u8]) -> Result<LoadResult, ImportError> {
    read_from(name, bytes, None)
}

/// As [`read`], of a file of any size, and of a tool that is named if one is. wrk2 without --latency prints what wrk prints, so
/// only its name tells them apart.
///
/// # Errors
/// As [`read`].
pub fn read_from(name: &str, mut input: impl Read, tool: Option<Tool>) -> Result<LoadResult, ImportError> {
    let mut head = Vec::new();
    let trouble = |source| ImportError::Read { name: name.to_owned(), source };
    input.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(trouble)?;
    let begin = if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let format = Format::of(name, &head[begin..])?;
    let found = format.tool();
    if let Some(tool) = tool
        && tool != found
        && !(tool == Tool::Wrk2 && found == Tool::Wrk)
    {
        return Err(ImportError::OfAnother { name: name.to_owned(), tool, found });
    }
    let text = head[begin..].chain(input);
    let mut result = match format {
        Format::Document(shape) => {
            let mut bytes = Vec::new();
            text.take(LARGEST_DOCUMENT_BYTES + 1).read_to_end(&mut bytes).map_err(trouble)?;
            if bytes.len() as u64 > LARGEST_DOCUMENT_BYTES {
                let limit = format!("{} MiB", LARGEST_DOCUMENT_BYTES / (1024 * 1024));
                return Err(ImportError::TooLarge { name: name.to_owned(), tool: found, limit });
            }
            let json = Json::parse(name, found, &bytes, shape == Document::GatlingScript)?;
            match shape {
                Document::Ours => return ours::read(&json),
                Document::K6Summary => k6::summary(&json),
                Document::Locust => locust::json(&json),
                Document::GatlingStats | Document::GatlingScript => gatling::stats(&json),
                Document::Oha => oha::read(&json),
            }
        }
        Format::Lines(shape) => {
            let mut lines = Lines::new(name, found, Box::new(io::BufReader::new(text)));
            match shape {
                Text::K6Points => k6::points_json(&mut lines),
                Text::K6Table => k6::points_csv(&mut lines),
                Text::LocustStats => locust::stats(&mut lines),
                Text::LocustHistory => locust::history(&mut lines),
                Text::TsungLog => tsung::log(&mut lines),
                Text::TsungDump => tsung::dump(&mut lines),
                Text::GatlingLog => gatling::log(&mut lines),
                Text::Wrk => wrk::read(&mut lines, tool == Some(Tool::Wrk2)),
                Text::H2load => h2load::read(&mut lines),
                Text::H2loadLog => h2load::log(&mut lines),
                Text::EmqttBench => emqtt_bench::read(&mut lines),
                Text::PerfTest => perftest::read(&mut lines),
            }
        }
    }?;
    if result.done() == 0 && result.steps.iter().all(|step| step.done == 0 && step.errors.is_empty()) {
        return Err(ImportError::Empty { name: name.to_owned(), tool: found });
    }
    result.remarks.push(format!(
        "Read from a result of {}: when it sent what was due is not in it, so lag of the generator looks like the target's slowness, or is hidden.",
        result.tool
    ));
    Ok(result)
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// Read whole.
    Document(Document),
    /// Read line by line.
    Lines(Text),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Document {
    Ours,
    K6Summary,
    Locust,
    GatlingStats,
    /// The same as a script of the report.
    GatlingScript,
    Oha,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    K6Points,
    K6Table,
    LocustStats,
    LocustHistory,
    TsungLog,
    TsungDump,
    GatlingLog,
    Wrk,
    H2load,
    H2loadLog,
    EmqttBench,
    PerfTest,
}

impl Format {
    fn tool(self) -> Tool {
        match self {
            Self::Document(Document::Ours) => Tool::Beamtune,
            Self::Document(Document::K6Summary) | Self::Lines(Text::K6Points | Text::K6Table) => Tool::K6,
            Self::Document(Document::Locust) | Self::Lines(Text::LocustStats | Text::LocustHistory) => {
                Tool::Locust
            }
            Self::Document(Document::GatlingStats | Document::GatlingScript)
            | Self::Lines(Text::GatlingLog) => Tool::Gatling,
            Self::Document(Document::Oha) => Tool::Oha,
            Self::Lines(Text::TsungLog | Text::TsungDump) => Tool::Tsung,
            Self::Lines(Text::Wrk) => Tool::Wrk,
            Self::Lines(Text::H2load | Text::H2loadLog) => Tool::H2load,
            Self::Lines(Text::EmqttBench) => Tool::EmqttBench,
            Self::Lines(Text::PerfTest) => Tool::PerfTest,
        }
    }

    /// By the beginning of a file.
    fn of(name: &str, head: &[u8]) -> Result<Self, ImportError> {
        let unsupported =
            |what, instead| Err(ImportError::Unsupported { name: name.to_owned(), what, instead });
        if head.starts_with(b"\x1f\x8b") {
            return unsupported("a compressed file", "unpack it (gunzip)");
        }
        // Gatling 3.13's record of a run: kind 0, then the version's text with its length.
        if head.starts_with(b"\0\0\0\0") && head.get(5).is_some_and(u8::is_ascii_digit) {
            return unsupported("Gatling's binary simulation.log", "give js/stats.js of its report");
        }
        let text = String::from_utf8_lossy(head);
        let text = text.trim_start();
        let first = text.lines().next().unwrap_or_default();
        let format = match text.chars().next() {
            Some('{') if k6::is_point(first) => Some(Self::Lines(Text::K6Points)),
            Some('{') => Self::of_object(text),
            Some('[') => Some(Self::Document(Document::Locust)),
            _ => Self::of_text(text, first),
        };
        format.ok_or_else(|| ImportError::Unknown { name: name.to_owned() })
    }

    /// By keys that no other tool's document has: within the head, as the whole may be large.
    fn of_object(text: &str) -> Option<Self> {
        let has = |key: &str| text.contains(&format!("\"{key}\""));
        if has("began_monotonic_ns") {
            Some(Self::Document(Document::Ours))
        } else if has("latencyPercentiles") || (has("responseTimeHistogram") && has("summary")) {
            Some(Self::Document(Document::Oha))
        } else if has("numberOfRequests") || has("minResponseTime") {
            Some(Self::Document(Document::GatlingStats))
        } else if has("root_group") || has("metrics") {
            Some(Self::Document(Document::K6Summary))
        } else {
            None
        }
    }

    fn of_text(text: &str, first: &str) -> Option<Self> {
        let shape = if first.starts_with("metric_name,timestamp,metric_value") {
            Text::K6Table
        } else if first.starts_with("Type,Name,Request Count") {
            Text::LocustStats
        } else if first.starts_with("Timestamp,User Count,Type,Name") {
            Text::LocustHistory
        } else if first.starts_with("# stats: dump at") {
            Text::TsungLog
        } else if first.starts_with("#date;pid;id;") {
            Text::TsungDump
        } else if first.starts_with("var stats =") {
            return Some(Self::Document(Document::GatlingScript));
        } else if first.starts_with("RUN\t") || first.starts_with("ASSERTION\t") {
            Text::GatlingLog
        } else if h2load::is_log(first) {
            Text::H2loadLog
        } else if text.lines().any(|line| line.starts_with("Running ") && line.contains(" test @ ")) {
            Text::Wrk
        } else if text.lines().any(|line| line == "starting benchmark..." || line.starts_with("finished in "))
        {
            Text::H2load
        } else if text.lines().any(emqtt_bench::is_line) {
            Text::EmqttBench
        } else if text.lines().any(perftest::is_line) {
            Text::PerfTest
        } else {
            return None;
        };
        Some(Self::Lines(shape))
    }
}
