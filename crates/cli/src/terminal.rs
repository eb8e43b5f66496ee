//! The terminal: what is printed, in which style, and how the program ends.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use beamtune_model::{Diagnosis, Level};
use beamtune_report::Style;
use beamtune_report::diagnosis::{Invocation, Verbosity, View};
use beamtune_report::text::{ascii, escape};
use indicatif::{ProgressBar, ProgressStyle};

/// Exit status: findings above "notice".
pub const FOUND: u8 = 1;
/// Exit status: the command failed.
pub const CANNOT: u8 = 2;

/// Maximum line width, for readability.
const MAX_WIDTH: usize = 120;
/// Line width if the terminal does not report its own.
const USUAL_WIDTH: usize = 100;

/// Returns the style of standard output: colours only on a terminal, and never with NO_COLOR (no-color.org) or TERM=dumb.
pub fn style() -> Style {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return Style::PLAIN;
    }
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    let columns =
        console::Term::stdout().size_checked().map_or(USUAL_WIDTH, |(_, columns)| usize::from(columns));
    Style { colour: !refused, width: columns.clamp(60, MAX_WIDTH) }
}

/// Level of detail of a diagnosis.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct VerbosityArgs {
    /// Show all evidence and remedies; -vv also shows each check
    #[arg(short, long = "verbose", action = clap::ArgAction::Count)]
    verbose: u8,
}

impl VerbosityArgs {
    /// Returns the view of a page. With an invocation, the page suggests the next command.
    pub fn view<'c>(&self, invocation: Option<Invocation<'c>>) -> View<'c> {
        View { style: style(), verbosity: Verbosity::of(self.verbose), invocation, recorded_at: None }
    }
}

/// True if the terminal can show more than ASCII: the first of LC_ALL, LC_CTYPE and LANG that is set does not select the C locale.
fn is_unicode() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    !locale.is_some_and(|locale| locale == "C" || locale == "POSIX")
}

/// Writes to standard output. If the reader has closed the pipe (`| head`), the program ends silently.
pub fn print(text: &str) {
    let text = if is_unicode() { Cow::Borrowed(text) } else { Cow::Owned(ascii(text)) };
    print_bytes(text.as_bytes());
}

/// Like [`print`], for a file format: in any locale, the bytes stay as they are.
pub fn print_bytes(bytes: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    if stdout.write_all(bytes).and_then(|()| stdout.flush()).is_err() {
        std::process::exit(i32::from(CANNOT));
    }
}

/// Writes to standard error. Escapes control characters, since the text may contain names from a node, a file or a process.
pub fn complain(text: &str) {
    complain_styled(&escape(text));
}

/// Writes text with our own terminal styles to standard error, without escaping.
pub fn complain_styled(text: &str) {
    // If standard error is closed, there is nowhere to report it.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Returns the exit status for a diagnosis.
pub fn status(diagnosis: &Diagnosis) -> ExitCode {
    match diagnosis.worst() {
        Some(level) if level > Level::Notice => ExitCode::from(FOUND),
        _ => ExitCode::SUCCESS,
    }
}

/// A progress bar on standard error, with the time left; hidden if standard error is not a terminal.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Creates a bar for a recording of this length; `None`: until Ctrl-C.
    pub fn new(what: &str, length: Option<Duration>) -> Self {
        let bar = match length {
            Some(length) => ProgressBar::new(length.as_millis() as u64),
            None => ProgressBar::no_length(),
        };
        let template = match length {
            Some(_) => "{prefix} [{bar:30}] {msg}",
            None => "{prefix} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(what.to_owned());
        Progress { bar }
    }

    /// Shows the progress of a recording.
    pub fn set(&self, elapsed: Duration, left: Option<Duration>, samples: u64, trouble: Option<&str>) {
        self.bar.set_position(elapsed.as_millis() as u64);
        let mut message = match left {
            Some(left) => format!("{} s left", left.as_secs_f64().ceil()),
            None => format!("{} s, {samples} samples, press Ctrl-C to stop", elapsed.as_secs()),
        };
        if let Some(trouble) = trouble {
            message.push_str(&format!(" · {}", escape(trouble)));
        }
        self.bar.set_message(message);
    }

    /// Prints a line above the bar.
    pub fn note(&self, text: &str) {
        self.bar.suspend(|| complain(text));
    }

    /// Shows the progress with a message.
    pub fn say(&self, elapsed: Duration, message: &str) {
        self.bar.set_position(elapsed.as_millis() as u64);
        self.bar.set_message(message.to_owned());
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Parses a duration on the command line: `10s`, `500ms`, `5m`, `6h`, `1d`; a number without a unit is in seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 =
        number.parse().map_err(|_| format!("{text:?} is not a duration; write 10s, 500ms, 5m or 6h"))?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3_600.0,
        "d" => number * 86_400.0,
        _ => return Err(format!("{unit:?} is not a unit of time; write ms, s, m, h or d")),
    };
    // A year is longer than any recording, and does not overflow.
    if seconds > 0.0 && seconds <= 31_536_000.0 {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("{text:?} is not between 1ms and 365d"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_with_their_units() {
        let check = |text: &str, millis: Option<u64>| {
            assert_eq!(parse_duration(text).ok(), millis.map(Duration::from_millis), "{text}");
        };
        check("10s", Some(10_000));
        check("10", Some(10_000));
        check("500ms", Some(500));
        check("1.5m", Some(90_000));
        check("6h", Some(21_600_000));
        check("0s", None);
        check("-1s", None);
        check("ten", None);
        check("10y", None);
        check("1e9d", None);
        check("", None);
    }
}
