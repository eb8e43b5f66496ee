//! Records a node for a command: with a progress bar, until its length is reached or until Ctrl-C.

use std::time::Instant;

use anyhow::Result;
use beamtune_model::units::duration;
use beamtune_node::record::{Attached, RecordError, RecordOptions, SLOW, attach_within, record_attached};
use beamtune_node::target::LiveTarget;
use beamtune_recording::{Outcome, Progress, Reader, Stop};

use crate::signals::stop_on_signals;
use crate::terminal;

/// Records a node, and opens the recording for reading.
pub fn record_node(live: &LiveTarget, options: &RecordOptions<'_>) -> Result<(Reader, Outcome)> {
    let Attached { vm, options, plan } = attach_within(live, options).map_err(RecordError::into_error)?;
    let stop = Stop::default();
    let bar = terminal::Progress::new(&format!("recording {}", live.label), options.length);
    let first_sample = Instant::now();
    let open = |_: &str| {
        // Not earlier, so that Ctrl-C during attaching ends the program at once.
        stop_on_signals(&stop)?;
        options.writer()
    };
    let mut progress = |progress: &Progress<'_>| {
        let took = first_sample.elapsed();
        if options.within.is_some() && progress.samples == 1 && took >= SLOW {
            bar.note(&format!("{} is slow: the first sample took {:.0} s\n", live.label, took.as_secs_f64()));
        }
        bar.set(duration(progress.elapsed), progress.left.map(duration), progress.samples, progress.trouble);
    };
    let recorded = record_attached(live, vm, &options, plan, &stop, open, &mut progress);
    bar.clear();
    recorded.map_err(RecordError::into_error)
}
