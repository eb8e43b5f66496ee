//! Sources of samples, and the clock of a recorder.

use serde::{Deserialize, Serialize};

use crate::sample::{Incarnation, SampleBuilder, Span};
use crate::units::{Nanos, text_names};

/// A monotonic clock; its zero is the start of the recording. Tests use their own.
pub trait Clock {
    /// The current time.
    fn now(&self) -> Nanos;
    /// Wall-clock time, nanoseconds since 1970.
    fn wall(&self) -> i64;
    /// CPU time of the calling thread, from an arbitrary zero. Defaults to the monotonic time.
    fn cpu(&self) -> Nanos {
        self.now()
    }
    /// Returns at `until`, at once if that has passed, or earlier if the recorder was asked to stop.
    fn sleep_until(&self, until: Nanos);
}

/// A request for one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Sequence number, increasing by one.
    pub seq: u64,
    /// The scheduled instant.
    pub t: Nanos,
    /// Also read the expensive items, which is done every ten seconds and in the first and last sample.
    pub detail: bool,
}

/// The VM or the host.
///
/// Request and answer are separate, so that the host is read while the VM answers, and both refer to nearly the same instant.
pub trait Source {
    /// Name in gaps: `vm` or `host`.
    fn name(&self) -> &'static str;

    /// Starts a read; does not wait for the answer.
    fn request(&mut self, ask: Ask, clock: &dyn Clock) -> Result<(), Trouble>;

    /// Waits until `deadline` at most for the answer to the last request, and adds it to the sample. The returned span
    /// is on the recorder's clock. If a read fails in part, the rest is added and each failure becomes a gap. A restart of
    /// the node is announced by setting the sample's incarnation.
    fn collect(
        &mut self,
        deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, Trouble>;

    /// True for a host whose files arrive with the VM's answer: it must be collected after the VM.
    fn comes_with_vm(&self) -> bool {
        false
    }

    /// Called when another source has announced a new incarnation; state of the old one is obsolete.
    fn on_new_life(&mut self, _life: &Incarnation) {}
}

/// Why something could not be measured; reasons that lead to the same reaction are one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TroubleKind {
    /// No answer in time; the next request may succeed.
    TimedOut,
    /// The connection or the process is gone; the source tries to find it again at the next request.
    Gone,
    /// The operating system or the node refused.
    Denied,
    /// Not available in this release, build or kernel.
    Unsupported,
    /// The answer could not be parsed.
    Garbled,
    /// The recorder was late or could not store the sample.
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

/// Expected failure of a source; it becomes a gap in the recording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Trouble {
    /// Kind of the failure.
    pub kind: TroubleKind,
    /// Description for a person, with the next step if there is one.
    pub reason: String,
}

impl Trouble {
    /// A failure of this kind, with its reason.
    pub fn new(kind: TroubleKind, reason: impl Into<String>) -> Self {
        Trouble { kind, reason: reason.into() }
    }
}
