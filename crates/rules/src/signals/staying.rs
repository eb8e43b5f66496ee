//! Why the processes of a kind increase: whether new ones end, where the others are, and whether connections increase with them.

use beamtune_model::{Group, NewProcesses, Period, WaitSample, metrics};
use beamtune_stats::Trend;

use crate::signals::limits::{self, FrequentKind, MIN_SAMPLED_AGAIN};
use crate::signals::{new_processes, stack};
use crate::view;

/// Minimum share of the new processes that a kind must have for its spawn rate to be estimated (judgement).
const ONE_KIND: f64 = 0.8;

/// Minimum share of the processes sampled again that must be alive, or must wait at one place (judgement).
const NEARLY_ALL: f64 = 0.8;

/// If the spawn rate of a kind is this multiple of the growth, its processes usually end (judgement).
const MOST_END: f64 = 1.5;

/// Two rates with a ratio in this range are about the same (judgement).
const ABOUT_SAME: std::ops::RangeInclusive<f64> = 0.75..=1.33;

/// If ports or descriptors grow by this share of the growth of processes, they increase together (judgement). Each user has one connection,
/// and up to four processes.
const COMES_ALONG: f64 = 0.2;

/// A kind of processes that increases.
pub(crate) struct KindGrowth<'p> {
    /// Growth of all processes per second.
    pub growth: f64,
    /// Estimated starts of this kind per second; `None` if other kinds start as well, or too few were sampled.
    pub started: Option<f64>,
    /// New processes of this kind that were sampled again; `None` if too few were.
    pub newcomers: Option<&'p NewProcesses>,
    /// Whether ports or descriptors increase with them, as with arriving users.
    pub comes_with_ports: bool,
    /// Growth of the memory of all processes in the period, in bytes per second, if it is steady.
    pub memory_per_s: Option<f64>,
    /// If most of the processes that create them end within seconds: the number that ended, and of all that were sampled again.
    pub ended_starters: Option<(i64, i64)>,
    /// New processes of all kinds that scans find alive, per second.
    met: Option<f64>,
    goes_on: bool,
}

impl<'p> KindGrowth<'p> {
    pub(crate) fn of(period: &'p Period, maker: &FrequentKind, growth: &Trend) -> Self {
        let kind = &maker.kind;
        let sampled_again = |kind: &str| {
            let mut all = period.wait_samples.new_processes.iter();
            all.find(|new| new.kind == kind && new.sampled >= MIN_SAMPLED_AGAIN)
        };
        let share =
            new_processes::kinds(period).into_iter().find(|(other, _)| other == kind).map(|(_, share)| share);
        let rate = view::spawn_rate(period).ok().filter(|_| share.is_some_and(|share| share >= ONE_KIND));
        let grown = |metric| {
            let stat = period.stat(metric, "").ok()?;
            Some(
                limits::growth(&view::trend_points(&stat.trace), f64::INFINITY)
                    .map_or(0.0, |trend| trend.slope),
            )
        };
        let ports =
            [&metrics::PORT_COUNT, &metrics::OPEN_FDS].into_iter().filter_map(grown).fold(0.0, f64::max);
        let points = period
            .stat(&metrics::PROCESS_COUNT, "")
            .map(|stat| view::trend_points(&stat.trace))
            .unwrap_or_default();
        let middle = points.first().zip(points.last()).map_or(0.0, |(first, last)| (first.0 + last.0) / 2.0);
        KindGrowth {
            growth: growth.slope,
            started: rate.zip(share).map(|(rate, share)| rate * share),
            newcomers: sampled_again(kind),
            ended_starters: maker
                .by
                .as_deref()
                .and_then(sampled_again)
                .map(|starters| (starters.ended, starters.sampled))
                .filter(|(ended, all)| *ended as f64 >= NEARLY_ALL * *all as f64),
            memory_per_s: period
                .find(Group::Memory, "", "processes")
                .and_then(|stat| limits::growth(&view::trend_points(&stat.trace), f64::INFINITY))
                .map(|trend| trend.slope),
            comes_with_ports: ports >= COMES_ALONG * growth.slope,
            met: period.rate(&metrics::SCAN_SPAWNED, "").ok(),
            goes_on: limits::is_continuing(&points, middle),
        }
    }

    /// Estimates the exits of this kind per second, if its processes usually end.
    pub(crate) fn ends(&self) -> Option<f64> {
        self.started.filter(|started| *started >= MOST_END * self.growth).map(|started| started - self.growth)
    }

    /// Whether as many end as stay: then a supervisor restarts each one that ends.
    pub(crate) fn are_restarted(&self) -> bool {
        self.stay() && self.ends().is_some_and(|ends| ABOUT_SAME.contains(&(ends / self.growth)))
    }

    /// Returns the place where most of the living new processes are, if nearly all of them wait there, and the number of living ones.
    pub(crate) fn waits(&self) -> Option<(&'p WaitSample, i64)> {
        let new = self.newcomers?;
        let live = new.sampled - new.ended;
        let most = new.stacks.first().filter(|place| place.status == "waiting" && place.queued == 0)?;
        (most.count as f64 >= NEARLY_ALL * live as f64).then_some((most, live))
    }

    /// Whether nearly all of them are still alive some seconds later.
    pub(crate) fn stay(&self) -> bool {
        self.newcomers.is_some_and(|new| (new.sampled - new.ended) as f64 >= NEARLY_ALL * new.sampled as f64)
    }

    /// Whether this is a leak, and not a node that fills up. Leaked processes are left over, wait for any message, and no connections
    /// increase with them. Left over means that most of this kind end before a scan finds them, or that their creator has ended. A node
    /// that just got work starts processes that do not end, or that end later, as sessions do: scans find these.
    pub(crate) fn is_leak(&self) -> bool {
        let waits_for_all = |place: &WaitSample| {
            place.stack.first().is_some_and(|at| stack::is_loop(at) || !stack::is_call(at))
        };
        let others_end = self.ends().is_some() && self.met.is_some_and(|met| met <= MOST_END * self.growth);
        (others_end || self.ended_starters.is_some())
            && self.stay()
            && self.goes_on
            && !self.comes_with_ports
            && self.waits().is_some_and(|(place, _)| waits_for_all(place))
    }
}
