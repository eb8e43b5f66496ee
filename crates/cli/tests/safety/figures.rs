//! How much is done, and where the figures go.
//!
//! `make safety` names a file in `BEAMTUNE_SAFETY`. Then each case runs at its full count, and adds its figures to that
//! file: a line of `case TAB what TAB release TAB value` each, from which xtask makes the tables of docs/safety.md.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

fn file() -> Option<PathBuf> {
    std::env::var_os("BEAMTUNE_SAFETY").map(PathBuf::from)
}

/// How often something is done: in `make safety`, else.
pub fn count<T>(full: T, short: T) -> T {
    if file().is_some() { full } else { short }
}

/// Notes a figure.
pub fn tell(case: &str, what: &str, release: u32, value: impl Display) {
    eprintln!("{case}, OTP {release}: {what}: {value}");
    if let Some(file) = file() {
        let mut file = OpenOptions::new().create(true).append(true).open(file).expect("BEAMTUNE_SAFETY");
        // One write: several tests add to it.
        file.write_all(format!("{case}\t{what}\t{release}\t{value}\n").as_bytes()).expect("written");
    }
}

/// The shortest, the middle and the longest of some times.
pub fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    match times.as_slice() {
        [] => "none".to_owned(),
        [.., last] => format!("median {}, at most {}", short(times[times.len() / 2]), short(*last)),
    }
}

/// `12 ms` or `3.4 s`.
pub fn short(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
