//! Imports results of other load generators, and stored results of beamtune, as a [`LoadResult`].
//!
//! No other tool measures everything that beamtune measures. Each reader assigns the tool's times to their kind (see
//! [`beamtune_model::load`]), and adds remarks about what the tool does not measure. None of the tools separates its own lag from the
//! target's slowness. Percentiles are imported as printed, or calculated from values; they are never averaged.
//!
//! Files with a line per request may have any size: they are read line by line into histograms. All other files are limited in size. Names
//! and texts are kept as in the file; the code that prints them must sanitize them.

mod convert;
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
mod tsung;
mod wrk;

use std::fmt;
use std::io::{self, Read};

use beamtune_model::load::LoadResult;
use thiserror::Error;

use document::Json;
use lines::Lines;
pub use merge::merge;

/// Number of bytes at the beginning of a file from which its format is detected.
const HEAD_BYTES: usize = 64 * 1024;
/// Maximum size of a document that is read as a whole. A summary of a thousand steps has less than 1 MiB.
const MAX_DOCUMENT_BYTES: u64 = 64 * 1024 * 1024;

/// A load generator whose results can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// beamtune: a stored result.
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
    /// wrk2, which measures times from the due time of each request.
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
    /// All tools.
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

    /// Returns the name of the tool, as in options and results.
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

    /// Returns the tool with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns which files of the tool are supported.
    fn files(self) -> &'static str {
        match self {
            Self::Beamtune => "JSON of --json or --output",
            Self::K6 => "JSON of --summary-export or handleSummary, --out json, --out csv",
            Self::Locust => "NAME_stats.csv and NAME_stats_history.csv of --csv, JSON of --json",
            Self::Tsung => "tsung.log, tsung.dump of dumptraffic=\"protocol\"",
            Self::Gatling => {
                "js/stats.json, js/global_stats.json or js/stats.js of a report, simulation.log as text"
            }
            Self::Wrk | Self::Wrk2 => "its output",
            Self::H2load => "its output, the file of --log-file",
            Self::EmqttBench | Self::PerfTest => "its output",
            Self::Oha => "JSON of --output-format json",
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a result cannot be imported, or results cannot be merged.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("{name}: {source}")]
    Read {
        /// File name.
        name: String,
        /// The reason.
        source: io::Error,
    },
    /// The format is unknown.
    #[error("{name}: not recognised as a load result; supported are {}", known())]
    Unknown {
        /// File name.
        name: String,
    },
    /// The file was written by a tool other than the one that the caller named.
    #[error("{name} was written by {found}, not by {tool}; supported files of {tool}: {}", tool.files())]
    OfAnother {
        /// File name.
        name: String,
        /// The tool that the caller named.
        tool: Tool,
        /// The tool that wrote the file.
        found: Tool,
    },
    /// A known but unsupported format for which there is an alternative.
    #[error("{name}: {what} is not supported: {instead}")]
    Unsupported {
        /// File name.
        name: String,
        /// The format.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// The content does not match the tool's format.
    #[error("{name}, line {line}: expected {expected} ({tool}), found {found}")]
    Malformed {
        /// File name.
        name: String,
        /// The tool.
        tool: Tool,
        /// Line, from 1.
        line: u64,
        /// What was expected.
        expected: String,
        /// What was found, at most [`FOUND_CHARS`] characters.
        found: String,
    },
    /// A limit of this module is exceeded.
    #[error("{name}: too large for a result of {tool}: more than {limit}")]
    TooLarge {
        /// File name.
        name: String,
        /// The tool.
        tool: Tool,
        /// The limit.
        limit: String,
    },
    /// The result is empty.
    #[error("{name}: the result of {tool} has neither answers nor errors")]
    Empty {
        /// File name.
        name: String,
        /// The tool.
        tool: Tool,
    },
    /// The results cannot be merged.
    #[error("cannot be merged: {reason}")]
    Merge {
        /// Why they cannot be merged, and what to do.
        reason: String,
    },
}

/// Maximum length of a quotation from a file in an error, in characters.
pub const FOUND_CHARS: usize = 80;

fn known() -> String {
    let tools = Tool::ALL.map(|tool| format!("{tool} ({})", tool.files()));
    tools.join("; ")
}

/// Imports a result; the tool is detected from the content. `name` is the file name in errors.
///
/// # Errors
/// All of [`ImportError`] except [`ImportError::Merge`].
pub fn read(name: &str, bytes: &[u8]) -> Result<LoadResult, ImportError> {
    read_from(name, bytes, None)
}

/// Like [`read`], for a file of any size, optionally with the name of the tool. wrk2 must be named, because without --latency its output is
/// the same as wrk's.
///
/// # Errors
/// As for [`read`].
pub fn read_from(name: &str, mut input: impl Read, tool: Option<Tool>) -> Result<LoadResult, ImportError> {
    let mut head = Vec::new();
    let read_error = |source| ImportError::Read { name: name.to_owned(), source };
    input.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(read_error)?;
    let begin = if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let format = Format::detect(name, &head[begin..])?;
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
            text.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut bytes).map_err(read_error)?;
            if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
                let limit = format!("{} MiB", MAX_DOCUMENT_BYTES / (1024 * 1024));
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
        "Imported from {}, which does not record the generator's own lag: a late generator looks like a slow target, or goes unnoticed.",
        result.tool
    ));
    Ok(result)
}

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// Read as a whole.
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
    /// The statistics in the form of a script, as in the report.
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

    /// Detects the format from the beginning of a file.
    fn detect(name: &str, head: &[u8]) -> Result<Self, ImportError> {
        let unsupported =
            |what, instead| Err(ImportError::Unsupported { name: name.to_owned(), what, instead });
        if head.starts_with(b"\x1f\x8b") {
            return unsupported("a compressed file", "unpack it (gunzip)");
        }
        // Gatling 3.13 writes a run record first: kind 0, then the length and text of the version.
        if head.starts_with(b"\0\0\0\0") && head.get(5).is_some_and(u8::is_ascii_digit) {
            return unsupported("Gatling's binary simulation.log", "import js/stats.js of its report");
        }
        let text = String::from_utf8_lossy(head);
        let text = text.trim_start();
        let first = text.lines().next().unwrap_or_default();
        let format = match text.chars().next() {
            Some('{') if k6::is_point(first) => Some(Self::Lines(Text::K6Points)),
            Some('{') => Self::detect_object(text),
            Some('[') => Some(Self::Document(Document::Locust)),
            _ => Self::detect_text(text, first),
        };
        format.ok_or_else(|| ImportError::Unknown { name: name.to_owned() })
    }

    /// Detects a JSON document by keys that no other tool uses. Only the head is searched, because the document may be large.
    fn detect_object(text: &str) -> Option<Self> {
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

    fn detect_text(text: &str, first: &str) -> Option<Self> {
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
