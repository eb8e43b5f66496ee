//! Work that beamtune itself causes on the recorded node, so that no rule blames the node for it.

/// Number of beamtune's modules that may be purged while a node is recorded (judgement). They are the agent of another user who detaches,
/// and the remains of an earlier one. Each purge asks all processes whether they use the module, and scans them for its literals.
const PURGES: f64 = 2.0;

/// Returns the maximum number of reductions that purges of beamtune's own modules take on a node with this many processes.
pub(crate) fn purge_reductions(processes: f64, per_process: f64) -> f64 {
    PURGES * processes * per_process
}
