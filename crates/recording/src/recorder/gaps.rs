//! Merging of gaps: a failure that lasts is one gap, not one gap per tick.

use beamtune_model::{Gap, Nanos, TroubleKind};

/// Number of a sample that has a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SampleNumber {
    /// Number among all samples.
    pub sample: u64,
    /// Number among the samples with expensive items; `None` for other samples.
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

/// Gaps that the next sample may continue.
#[derive(Debug, Default)]
pub(super) struct OpenGaps(Vec<OpenGap>);

impl OpenGaps {
    /// Returns the start of the earlier gap that this gap continues; `None` if it is new.
    ///
    /// A gap continues an earlier one of the same source and kind in the previous sample. For expensive items, this is the previous sample
    /// that has them. The reason may differ; that of the first gap is kept.
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
        // Only the last gap of each source and kind can be continued.
        self.0.retain(|open| open.source != gap.source || open.kind != gap.kind);
        self.0.push(OpenGap { source: gap.source.clone(), kind: gap.kind, begin: gap.begin, last_seen: at });
        None
    }

    /// Whether a whole source currently fails.
    pub(super) fn is_open(&self, source: &str) -> bool {
        self.0.iter().any(|open| open.source == source)
    }

    /// Closes the gaps of a whole source; returns the start of the last one.
    pub(super) fn close(&mut self, source: &str) -> Option<Nanos> {
        let begin = self.0.iter().filter(|open| open.source == source).map(|open| open.begin).max();
        self.0.retain(|open| open.source != source);
        begin
    }
}
