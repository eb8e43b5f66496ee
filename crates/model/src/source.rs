//! What a recorder records from: sources of samples, and a clock.

use serde::{Deserialize, Serialize};

use crate::sample::{Incarnation, SampleBuilder, Span};
use crate::units::{Nanos, text_names};

/// A monotonic clock; its zero is the start of the recording. Tests bring their own.
pub trait Clock {
    /// Now.
    fn now(&self) -> Nanos;
    /// Wall-clock time, nanoseconds since 1970.
    fn wall(&self) -> i64;
    /// CPU time of the thread that asks, since an instant of its own. A clock without a thread's lets it go with the time.
    fn cpu(&self) -> Nanos {
        self.now()
    }
    /// Returns at `until`, or at once if that has passed, or earlier if the recorder was asked to stop.
    fn sleep_until(&self, until: Nanos);
}

/// What a sample is asked to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Number of the request, growing by one.
    pub seq: u64,
    /// The instant that the schedule had set.
    pub t: Nanos,
    /// Also the dearer items, which are read every ten seconds and in the first and last sample.
    pub detail: bool,
}

/// The VM or the host: something that can be read again and again.
///
/// Asking and collecting are apart, so that the host is read while the VM answers and both stand for
/// nearly the same instant.
pub trait Source {
    /// `vm` or `host`: the name in gaps.
    fn name(&self) -> &'static str;

    /// Starts a read; returns without waiting for the answer.
    fn request(&mut self, ask: Ask, clock: &dyn Clock) -> Result<(), Trouble>;

    /// Waits for the answer to the last request, at most until `deadline`, and adds it to the sample.
    /// The span is on the recorder's clock. What could be read of a partly failed sample is added, the rest
    /// is pushed as gaps. A new life of the VM is announced by setting the sample's incarnation.
    fn collect(
        &mut self,
        deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, Trouble>;

    /// True of a host whose files come with the VM's answer: it is collected after that.
    fn comes_with_vm(&self) -> bool {
        false
    }

    /// Told when another source has announced a new life of the VM: what belonged to the old one is gone.
    fn on_new_life(&mut self, _life: &Incarnation) {}
}

/// Why something could not be measured, as far as it matters for what is done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TroubleKind {
    /// No answer in time; the next may come.
    TimedOut,
    /// The connection or the process is gone; the source tries to find it again at the next request.
    Gone,
    /// The operating system or the node refuses.
    Denied,
    /// This release, build or kernel does not have it.
    Unsupported,
    /// The answer made no sense.
    Garbled,
    /// The recorder itself was late or could not store.
    Recorder,
}

text_names!(TroubleKind {
    TimedOut => "timed_out",
    Gone => "gone",
    Denied => "denied",
    Unsupported => "unsupported",
    Garbled => "garbled",
    Recorder => "recorder",
});

/// Expected trouble of a source: it becomes a marked gap in the recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Trouble {
    /// What it means for what is done next.
    pub kind: TroubleKind,
    /// The same for a person, with the next step where there is one.
    pub reason: String,
}

impl Trouble {
    /// A trouble of a kind, with its reason.
    pub fn new(kind: TroubleKind, reason: impl Into<String>) -> Self {
        Trouble { kind, reason: reason.into() }
    }
}
