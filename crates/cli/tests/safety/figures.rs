//! The repetition counts of the tests, and the figures that they measure.
//!
//! `make safety` sets `BEAMTUNE_SAFETY` to a file. Each test then runs with its full count, and appends its figures to the file as lines
//! with four fields: `case TAB what TAB release TAB value`. xtask converts them into the tables of docs/safety.md.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

fn file() -> Option<PathBuf> {
    std::env::var_os("BEAMTUNE_SAFETY").map(PathBuf::from)
}

/// Returns `full` in `make safety`, and `short` in other runs.
pub fn count<T>(full: T, short: T) -> T {
    if file().is_some() { full } else { short }
}

/// Prints a figure, and appends it to the file if there is one.
pub fn add_figure(case: &str, what: &str, release: u32, value: impl Display) {
    eprintln!("{case}, OTP {release}: {what}: {value}");
    if let Some(file) = file() {
        let mut file = OpenOptions::new().create(true).append(true).open(file).expect("BEAMTUNE_SAFETY");
        // A single write, since several tests append to the file.
        file.write_all(format!("{case}\t{what}\t{release}\t{value}\n").as_bytes()).expect("written");
    }
}

/// Formats the median and the maximum of these times.
pub fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    match times.as_slice() {
        [] => "none".to_owned(),
        [.., last] => format!("median {}, at most {}", short(times[times.len() / 2]), short(*last)),
    }
}

/// Formats a duration: `12 ms` or `3.4 s`.
pub fn short(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
