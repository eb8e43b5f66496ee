//! What beamtune itself causes on the node that it records, so that no rule blames the node for it.

/// Modules of beamtune that may be purged while a node is recorded: the agent of another user who leaves, and the rest of an earlier one
/// (judgement). At each purge all processes are asked for the module, and searched for its literals.
const PURGES: f64 = 2.0;

/// Reductions that purging beamtune's own modules may have taken on a node with this many processes: at most what was seen.
pub(crate) fn purge_reductions(processes: f64, per_process: f64) -> f64 {
    PURGES * processes * per_process
}
