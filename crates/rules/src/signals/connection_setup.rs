//! The share of work that sets up connections, by samples of running processes.

use beamtune_model::{Period, WorkSample};

use crate::signals::counts::largest_first;
use crate::signals::hot_code::MIN_SAMPLES;
use crate::view;

/// Expected number of processes per accepted connection. If more start, something else starts processes too; if fewer, a connection starts
/// none.
const PROCESSES: std::ops::RangeInclusive<f64> = 0.5..=4.0;

/// Modules of `ssl`, `public_key` and `ssh` that are used only in handshakes.
const HANDSHAKES: [&str; 7] = [
    "ssl_handshake:",
    "tls_handshake",
    "dtls_handshake:",
    "ssl_certificate:",
    "public_key:",
    "pubkey_cert",
    "ssh_auth:",
];

/// Work that sets up connections.
pub(crate) struct Setup<'a> {
    /// Share of the samples of running processes.
    pub share: f64,
    /// Kinds of these processes, most samples first.
    pub kinds: Vec<&'a str>,
    /// What most of them do.
    pub place: &'static str,
}

/// Returns `None` if almost no sample is in connection setup. A process within `init_it` of a behaviour is starting. That belongs to a
/// connection if about as many processes start as connections are accepted.
pub(crate) fn of(period: &Period, accepted_per_s: f64) -> Option<Setup<'_>> {
    let starts = view::spawn_rate(period).is_ok_and(|rate| PROCESSES.contains(&(rate / accepted_per_s)));
    let shakes =
        |one: &WorkSample| one.stack.iter().any(|at| HANDSHAKES.iter().any(|module| at.starts_with(module)));
    let begins = |one: &WorkSample| starts && one.stack.iter().any(|at| at.contains(":init_it/"));
    let count = |of: &dyn Fn(&WorkSample) -> bool| -> i64 {
        period.work_samples.iter().filter(|one| of(one)).fold(0, |sum, one| sum.saturating_add(one.samples))
    };
    let is_setup = |one: &WorkSample| shakes(one) || begins(one);
    let (own, all) = (count(&is_setup), count(&|_| true));
    if own < MIN_SAMPLES {
        return None;
    }
    let own_samples = period.work_samples.iter().filter(|one| is_setup(one));
    let kinds = largest_first(own_samples.filter_map(|one| Some((one.kind.as_deref()?, one.samples))));
    let place = if 2 * count(&shakes) >= own { "handshakes" } else { "init of their processes" };
    Some(Setup {
        share: own as f64 / all as f64,
        kinds: kinds.into_iter().map(|(kind, _)| kind).collect(),
        place,
    })
}
