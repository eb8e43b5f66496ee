//! Sources of samples, and the clock of a recorder.

use serde::{Deserialize, Serialize};

use crate::sample::{Incarnation, SampleBuilder, Span};
use crate::units::{Nanos, text_names};

/// A monotonic clock; its zero is the start of the recording. Tests implement their own.
pub trait Clock {
    /// The current time.
    fn now(&self) -> Nanos;
    /// Wall-clock time, nanoseconds since 1970.
    fn wall(&self) -> i64;
    /// CPU time of the calling thread, from an arbitrary zero. Defaults to the monotonic time.
    fn cpu(&self) -> Nanos {
        self.now()
    }
    /// Sleeps until `until`. Returns at once if this instant has passed, and early if the recorder has been asked to stop.
    fn sleep_until(&self, until: Nanos);
}

/// A request for one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleRequest {
    /// Sequence number, increasing by one.
    pub seq: u64,
    /// The scheduled instant.
    pub t: Nanos,
    /// Whether to read the expensive items, too: every ten seconds, and in the first and last sample.
    pub detail: bool,
}

/// A source of samples: the VM or the host.
///
/// Request and reply are separate steps: the host is read while the VM prepares its reply. So both refer to nearly the
/// same instant.
pub trait Source {
    /// Name in gaps: `vm` or `host`.
    fn name(&self) -> &'static str;

    /// Starts a read; does not wait for the reply.
    fn request(&mut self, ask: SampleRequest, clock: &dyn Clock) -> Result<(), SourceTrouble>;

    /// Waits until `deadline` at most for the reply to the last request, and adds it to the sample. Returns the span of the read, on the
    /// recorder's clock. If some items fail, the others are added and each failure becomes a gap. If the node was restarted, the source
    /// sets the sample's incarnation.
    fn collect(
        &mut self,
        deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, SourceTrouble>;

    /// Whether the data of this source arrive with the VM's reply, as those of a remote host do. It must then be collected after the VM.
    fn comes_with_vm(&self) -> bool {
        false
    }

    /// Called when another source has reported a restart of the node, which makes the state of the old incarnation obsolete.
    fn on_restart(&mut self, _life: &Incarnation) {}
}

/// Kinds of reasons why something could not be measured. Reasons with the same consequence are one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TroubleKind {
    /// There was no reply in time; the next request may succeed.
    TimedOut,
    /// The connection or the process is gone; the source tries to find it again at the next request.
    Gone,
    /// The operating system or the node refused the request.
    Denied,
    /// Not available in this release, build or kernel.
    Unsupported,
    /// The reply could not be parsed.
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
pub struct SourceTrouble {
    /// Kind of the failure.
    pub kind: TroubleKind,
    /// Description for users, with the next step if there is one.
    pub reason: String,
}

impl SourceTrouble {
    /// Creates a failure of this kind.
    pub fn new(kind: TroubleKind, reason: impl Into<String>) -> Self {
        SourceTrouble { kind, reason: reason.into() }
    }
}
