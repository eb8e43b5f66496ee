//! Merging of gaps: a lasting failure is one gap, not one per tick.

use beamtune_model::{Gap, Nanos, TroubleKind};

/// The sample that a gap belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SampleNumber {
    /// Number of the sample.
    pub sample: u64,
    /// Number among the samples with expensive items, if it is one.
    pub detail: Option<u64>,
}

#[derive(Debug)]
struct OpenGap {
    source: String,
    kind: TroubleKind,
    begin: Nanos,
    /// The last sample with this gap.
    last_seen: SampleNumber,
}

/// Gaps that may continue.
#[derive(Debug, Default)]
pub(super) struct OpenGaps(Vec<OpenGap>);

impl OpenGaps {
    /// Returns the begin of the gap that this one continues, `None` if it is new.
    ///
    /// It continues one of the same source and kind in the last sample or, for expensive items, in the last sample with these. The
    /// reason may differ; the first one is kept.
    pub(super) fn continued(&mut self, gap: &Gap, at: SampleNumber) -> Option<Nanos> {
        let goes_on = |last_seen: SampleNumber| {
            last_seen.sample + 1 >= at.sample
                || matches!((last_seen.detail, at.detail), (Some(before), Some(now)) if before + 1 >= now)
        };
        let same = |open: &&mut OpenGap| open.source == gap.source && open.kind == gap.kind;
        if let Some(open) = self.0.iter_mut().find(same)
            && goes_on(open.last_seen)
        {
            open.last_seen = at;
            return Some(open.begin);
        }
        // Only the last one of each source and kind can be continued.
        self.0.retain(|open| open.source != gap.source || open.kind != gap.kind);
        self.0.push(OpenGap { source: gap.source.clone(), kind: gap.kind, begin: gap.begin, last_seen: at });
        None
    }

    /// Whether a source as a whole has failed.
    pub(super) fn is_open(&self, source: &str) -> bool {
        self.0.iter().any(|open| open.source == source)
    }

    /// Closes the gaps of a source as a whole; returns the begin of the last one.
    pub(super) fn close(&mut self, source: &str) -> Option<Nanos> {
        let begin = self.0.iter().filter(|open| open.source == source).map(|open| open.begin).max();
        self.0.retain(|open| open.source != source);
        begin
    }
}
