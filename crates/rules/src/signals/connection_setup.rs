//! How much of what processes do is setting up connections, by samples of running processes.

use beamtune_model::{Period, WorkSample};

use crate::signals::counts::largest_first;
use crate::signals::hot_code::MIN_SAMPLES;
use crate::view;

/// Processes per accepted connection: if more start, something else starts them too; if fewer, their start is not part of a connection.
const PROCESSES: std::ops::RangeInclusive<f64> = 0.5..=4.0;

/// Modules that work in handshakes only: of `ssl`, `public_key` and `ssh`.
const HANDSHAKES: [&str; 7] = [
    "ssl_handshake:",
    "tls_handshake",
    "dtls_handshake:",
    "ssl_certificate:",
    "public_key:",
    "pubkey_cert",
    "ssh_auth:",
];

/// Setting up connections.
pub(crate) struct Setup<'a> {
    /// Share of the samples.
    pub share: f64,
    /// What these processes are, most samples first.
    pub kinds: Vec<&'a str>,
    /// Where most of them are.
    pub place: &'static str,
}

/// `None` if hardly any sample is within it. A process that is within `init_it` of a behaviour starts: that is part of a connection if
/// about as many processes start as connections.
pub(crate) fn of(period: &Period, accepted_per_s: f64) -> Option<Setup<'_>> {
    let starts = view::spawn_rate(period).is_ok_and(|rate| PROCESSES.contains(&(rate / accepted_per_s)));
    let shakes =
        |one: &WorkSample| one.stack.iter().any(|at| HANDSHAKES.iter().any(|module| at.starts_with(module)));
    let begins = |one: &WorkSample| starts && one.stack.iter().any(|at| at.contains(":init_it/"));
    let count = |of: &dyn Fn(&WorkSample) -> bool| -> i64 {
        period.work_samples.iter().filter(|one| of(one)).fold(0, |sum, one| sum.saturating_add(one.looks))
    };
    let is_setup = |one: &WorkSample| shakes(one) || begins(one);
    let (own, all) = (count(&is_setup), count(&|_| true));
    if own < MIN_SAMPLES {
        return None;
    }
    let own_samples = period.work_samples.iter().filter(|one| is_setup(one));
    let kinds = largest_first(own_samples.filter_map(|one| Some((one.kind.as_deref()?, one.looks))));
    let place = if 2 * count(&shakes) >= own { "handshakes" } else { "init of their processes" };
    Some(Setup {
        share: own as f64 / all as f64,
        kinds: kinds.into_iter().map(|(kind, _)| kind).collect(),
        place,
    })
}
