//! Shows the progress of a load in one line on the terminal.

use std::time::Duration;

use beamtune_load::program::Plan;
use beamtune_model::load::LoadSecond;

use crate::terminal::Progress;

/// The progress line.
pub struct ProgressLine {
    progress: Progress,
    length: Duration,
    connect: Duration,
    errors: u64,
}

impl ProgressLine {
    /// Creates the line for a plan.
    pub fn new(plan: &Plan) -> Self {
        let length = Duration::from_nanos(super::length_ns(plan));
        let connect = Duration::from_nanos(plan.connect_ns);
        Self { progress: Progress::new("load", Some(length)), length, connect, errors: 0 }
    }

    /// Updates the line, once a second.
    pub fn show(&mut self, second: &LoadSecond) {
        self.errors += second.errors;
        let since = Duration::from_secs((second.second + 1).max(0).unsigned_abs());
        let elapsed = (self.connect + since).min(self.length);
        let milliseconds = |nanoseconds: Option<u64>| match nanoseconds {
            Some(nanoseconds) => format!("{:.1}", nanoseconds as f64 / 1e6),
            None => "-".to_owned(),
        };
        let mut line = format!(
            "{}/s · p50 {} p99 {} ms · {} errors",
            second.done,
            milliseconds(second.p50_ns),
            milliseconds(second.p99_ns),
            self.errors
        );
        if let Some(connected) = second.connected {
            line.push_str(&format!(" · {connected} connections"));
        }
        if let Some(cores) = second.cores {
            line.push_str(&format!(" · {cores:.2} cores"));
        }
        if let Some(waiting) = second.waiting.filter(|waiting| *waiting > 0) {
            line.push_str(&format!(" · {waiting} waiting"));
        }
        if second.bound.is_some() {
            line.push_str(" · GENERATOR-BOUND");
        }
        self.progress.say(elapsed, &line);
    }

    /// Removes the line.
    pub fn clear(&self) {
        self.progress.clear();
    }
}
