//! Merging: trouble that goes on is one gap, not one per tick.

use beamtune_model::{Gap, Nanos, TroubleKind};

/// Which sample a gap came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    /// The how-manieth sample it is.
    pub sample: u64,
    /// The how-manieth with detail, if it is one.
    pub detail: Option<u64>,
}

#[derive(Debug)]
struct Open {
    source: String,
    kind: TroubleKind,
    begin: Nanos,
    /// The last sample in which it was seen.
    seen: At,
}

/// The gaps that may still be going on.
#[derive(Debug, Default)]
pub(super) struct Gaps(Vec<Open>);

impl Gaps {
    /// The begin of the gap that this one continues, `None` if it is a new one.
    ///
    /// It continues one of the same source and kind that came with the sample before, or, for what is only read in
    /// detail, with the sample with detail before. The reason may differ; that of the beginning is kept.
    pub(super) fn continued(&mut self, gap: &Gap, at: At) -> Option<Nanos> {
        let goes_on = |seen: At| {
            seen.sample + 1 >= at.sample
                || matches!((seen.detail, at.detail), (Some(before), Some(now)) if before + 1 >= now)
        };
        let same = |open: &&mut Open| open.source == gap.source && open.kind == gap.kind;
        if let Some(open) = self.0.iter_mut().find(same)
            && goes_on(open.seen)
        {
            open.seen = at;
            return Some(open.begin);
        }
        // Of each source and kind only the last is of interest.
        self.0.retain(|open| open.source != gap.source || open.kind != gap.kind);
        self.0.push(Open { source: gap.source.clone(), kind: gap.kind, begin: gap.begin, seen: at });
        None
    }

    /// True if a source as a whole is in trouble.
    pub(super) fn is_open(&self, source: &str) -> bool {
        self.0.iter().any(|open| open.source == source)
    }

    /// Ends the gaps of a source as a whole; returns the begin of the last one.
    pub(super) fn close(&mut self, source: &str) -> Option<Nanos> {
        let begin = self.0.iter().filter(|open| open.source == source).map(|open| open.begin).max();
        self.0.retain(|open| open.source != source);
        begin
    }
}
