//! BT054: connections wait in the accept queue until the VM accepts them.
//!
//! The wait follows from Little's law: mean queue length divided by the arrival rate. If the acceptors of a listener keep up, its queue is
//! empty in every sample.

use std::cmp::Ordering;

use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Period, Scale, Signal, Subject, Threshold, Unit, metrics,
};

use crate::rule::{Draft, Judgement, Role, Rule};
use crate::signals::acceptors::{self, Sight};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT054"),
    name: "accept-queue",
    question: "Do connections wait to be accepted?",
    confirm: "run ss -ltn: Recv-Q of the listening socket stays above 0; run nstat -az TcpExtListenOverflows: it grows while clients wait",
    needs: &[&metrics::LISTENING_SOCKETS],
    account: Account::Delay,
    role: Role::Symptom,
    judge,
    thresholds: &[WAIT, FILL, DROPPED],
    ..Rule::COMMON
};

const WAIT: Threshold = Threshold::new(
    "accept-queue.wait_seconds",
    "seconds until a connection is accepted",
    Scale {
        notice: 0.02,
        warning: 0.1,
        critical: 1.0,
        source: "judgement: accepting a connection takes tens of microseconds",
    },
);

const FILL: Threshold = Threshold::new(
    "accept-queue.used_share",
    "mean share of the queue limit in use",
    Scale {
        notice: 0.25,
        warning: 0.5,
        critical: 0.9,
        source: "judgement: the kernel drops connections when the queue is full",
    },
);

const DROPPED: Threshold = Threshold::new(
    "accept-queue.refused_per_s",
    "connections dropped per second because the accept queue is full",
    Scale {
        notice: 0.02,
        warning: 0.2,
        critical: 5.0,
        source: "judgement: a dropped client waits at least one second before it tries again",
    },
);

/// Minimum number of samples of a queue.
const MIN_SAMPLES: u32 = 5;
/// Minimum number of samples in which connections wait.
const MIN_NONEMPTY_SAMPLES: usize = 3;

/// A queue overflows before those of all other programs in the network namespace if its limit is this many times lower (judgement).
const SHORTER_FACTOR: i64 = 4;

/// Fewer open connections may be those that the acceptors serve themselves (judgement: acceptor pools have about ten processes).
const MIN_OPEN_AT_LIMIT: i64 = 16;
/// A number of open connections that changes by no more than this share is constant: whenever one ends, the next is accepted.
const STEADY_SHARE: f64 = 0.02;

/// Schedulers above this utilization have no time left to accept connections (judgement).
const BUSY_UTILIZATION: f64 = 0.85;

/// The accept queue of one listening address.
struct Queue<'p> {
    address: &'p str,
    mean: f64,
    max: i64,
    limit: Option<i64>,
    samples: usize,
    nonempty_samples: usize,
    wait_seconds: f64,
    /// Length at the end minus length at the start.
    growth: i64,
    /// Minimum and maximum number of open connections of this address; `None` if not recorded.
    open: Option<(i64, i64)>,
}

impl<'p> Queue<'p> {
    fn of(period: &'p Period, address: &'p str, accepted_per_s: f64) -> Option<Self> {
        let stat = period.stat(&metrics::ACCEPT_QUEUE, address).ok()?;
        let limit = period.stat(&metrics::ACCEPT_QUEUE_LIMIT, address).ok().map(|limit| limit.last.value);
        let points = stat.trace.points();
        let mean = stat.mean();
        // If fewer connections arrived than wait, the waiting ones have waited for the whole period.
        let wait_seconds = if mean > 0.0 { (mean / accepted_per_s).min(period.seconds()) } else { 0.0 };
        Some(Queue {
            address,
            mean,
            max: stat.max,
            limit,
            samples: points.len(),
            nonempty_samples: points.iter().filter(|point| point.1 > 0).count(),
            wait_seconds,
            growth: stat.last.value.saturating_sub(stat.first.value),
            open: open(period, address),
        })
    }

    /// The number of open connections, if it is constant while others wait: the acceptors seem to accept only when a connection ends.
    fn open_at_limit(&self, arrived: Option<i64>) -> Option<i64> {
        let (min, max) = self.open?;
        let tolerance = ((STEADY_SHARE * max as f64) as i64).max(1);
        let is_steady = min >= 1 && max.saturating_sub(min) <= tolerance;
        let none_was_accepted = arrived.is_some_and(|arrived| arrived <= self.growth);
        let always_waits = self.samples >= MIN_SAMPLES as usize && self.nonempty_samples == self.samples;
        (is_steady && always_waits && (min >= MIN_OPEN_AT_LIMIT || none_was_accepted)).then_some(max)
    }

    /// Whether the queue was empty in most samples: the acceptors keep up except in bursts.
    fn has_bursts(&self) -> bool {
        2 * self.nonempty_samples < self.samples
    }

    /// Mean share of the limit in use.
    fn fill(&self) -> Option<f64> {
        self.limit.map(|limit| self.mean / limit.max(1) as f64)
    }

    /// Maximum share of the limit in use; 0 without a known limit.
    fn max_fill(&self) -> f64 {
        self.limit.map_or(0.0, |limit| self.max as f64 / limit.max(1) as f64)
    }

    fn severity(&self, period: &Period) -> Option<f64> {
        if self.nonempty_samples < MIN_NONEMPTY_SAMPLES {
            return None;
        }
        // A queue that was never empty is worth a notice, even if the wait is short, or unknown because other programs accept more
        // connections.
        let lasting = (self.nonempty_samples == self.samples).then_some(5.0);
        let fill = self.fill().and_then(|fill| FILL.of(period).severity(fill));
        [WAIT.of(period).severity(self.wait_seconds), fill, lasting].into_iter().flatten().reduce(f64::max)
    }
}

/// Minimum and maximum number of connections that the VM has accepted at an address and not closed.
fn open(period: &Period, address: &str) -> Option<(i64, i64)> {
    let stat = period.stat(&metrics::TCP_CONNECTIONS, address).ok()?;
    (stat.samples >= MIN_SAMPLES).then_some((stat.min, stat.max))
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let sockets = period.stat(&metrics::LISTENING_SOCKETS, "")?;
    if sockets.samples < MIN_SAMPLES {
        return Ok(Judgement::NotJudged {
            reason: format!("only {} samples of the accept queues", sockets.samples),
            next: "record for longer: --for 10s".to_owned(),
        });
    }
    let accepted_per_s = period.rate(&metrics::PASSIVE_OPENS, "")?;
    let dropped_per_s = period.rate(&metrics::LISTEN_OVERFLOWS, "")?;
    let addresses = period.entities(Group::HostListen).into_iter();
    let queues: Vec<Queue<'_>> =
        addresses.filter_map(|address| Queue::of(period, address, accepted_per_s)).collect();
    let by_fill = |a: &&Queue<'_>, b: &&Queue<'_>| match a.max_fill().total_cmp(&b.max_fill()) {
        // Of equally full queues, the one with the lowest limit overflows first.
        Ordering::Equal => b.limit.cmp(&a.limit),
        unequal => unequal,
    };
    let Some(fullest) = queues.iter().max_by(by_fill) else {
        return Ok(Judgement::Healthy("no listening TCP socket".to_owned()));
    };
    let namespace = Namespace {
        dropped_per_s,
        // Several sockets of one address are counted as those of other programs, and the finding then claims less.
        is_own: usize::try_from(sockets.max).is_ok_and(|sockets| sockets <= queues.len()),
        others_limit: period.stat(&metrics::ACCEPT_QUEUE_OTHERS_LIMIT, "").ok().map(|stat| stat.min),
        fullest: fullest.address,
        addresses: queues.len(),
    };
    let drafts: Vec<Draft> = queues.iter().filter_map(|queue| describe(period, queue, &namespace)).collect();
    let max = queues.iter().map(|queue| queue.max).max().unwrap_or(0);
    let is_others = dropped_per_s > 0.0 && !namespace.is_own;
    let others = "; connections were dropped in its network namespace, probably those of another program";
    let sentence = format!(
        "longest accept queue: {max}, {} listening{}",
        text::counted(queues.len() as f64, "address", "addresses"),
        if is_others { others } else { "" }
    );
    Ok(Judgement::found_or_healthy(drafts, sentence))
}

/// The VM's network namespace. The kernel counts all of its sockets together.
struct Namespace<'p> {
    dropped_per_s: f64,
    /// Whether only the VM listens there.
    is_own: bool,
    /// The lowest queue limit of other programs, if known.
    others_limit: Option<i64>,
    /// The address of the VM's fullest queue.
    fullest: &'p str,
    /// Number of addresses at which the VM listens.
    addresses: usize,
}

impl Namespace<'_> {
    /// Whether all connections are accepted at one address. If not, the computed wait is a lower bound.
    fn has_one_address(&self) -> bool {
        self.is_own && self.addresses == 1
    }

    /// Whether this queue overflows long before that of any other program.
    fn is_much_shorter(&self, queue: &Queue<'_>) -> bool {
        let (own, others) = (queue.limit, self.others_limit);
        own.zip(others).is_some_and(|(own, others)| own.saturating_mul(SHORTER_FACTOR) <= others)
    }

    /// The severity of dropped connections, if it was this queue that overflowed.
    fn severity(&self, period: &Period, queue: &Queue<'_>) -> Option<f64> {
        let was_full = queue.address == self.fullest
            && (self.is_own || queue.max_fill() >= 1.0 || self.is_much_shorter(queue));
        DROPPED.of(period).severity(self.dropped_per_s).filter(|_| was_full)
    }
}

fn describe(period: &Period, queue: &Queue<'_>, namespace: &Namespace<'_>) -> Option<Draft> {
    let dropped = namespace.severity(period, queue);
    let severity = [queue.severity(period), dropped].into_iter().flatten().reduce(f64::max)?;
    let utilization = view::activity(period, kind::SCHEDULER).ok().map(|activity| activity.mean());
    let acceptors = acceptors::seen(period);
    let is_start_behind = acceptors.behind.is_some();
    let is_busy = utilization.is_some_and(|utilization| utilization >= BUSY_UTILIZATION);
    // The kernel counts arrivals at all addresses together, so the number is that of this queue only if there is a single address.
    let arrived = period.stat(&metrics::PASSIVE_OPENS, "").ok().map(|stat| stat.delta);
    let open_at_limit = queue
        .open_at_limit(arrived.filter(|_| namespace.has_one_address()))
        .filter(|_| !is_busy && !is_start_behind);
    let ranch_is_at_limit = acceptors.are_at_limit();
    let is_at_limit = ranch_is_at_limit || open_at_limit.is_some();
    let has_bursts = dropped.is_some() && queue.has_bursts() && !is_busy && !is_at_limit;
    let slow = "too few acceptors, or they do other work before the next accept";
    let percent = 100.0 * utilization.unwrap_or_default();
    let why = match utilization {
        Some(_) if is_busy => format!("scheduler utilization {percent:.0} %: no time to accept"),
        _ if ranch_is_at_limit => "Ranch acceptors wait: max_connections is reached".to_owned(),
        Some(_) if let Some(open) = open_at_limit => format!(
            "{open} connections stay open, scheduler utilization {percent:.0} %: a connection limit, or acceptors \
             that serve each connection themselves"
        ),
        Some(_) if has_bursts => {
            format!("empty in most samples, scheduler utilization {percent:.0} %: bursts exceed the backlog")
        }
        Some(_) => format!("scheduler utilization {percent:.0} %: {slow}"),
        None => slow.to_owned(),
    };
    let limit = queue.limit.map_or(String::new(), |limit| format!(" of {limit}"));
    let title = if queue.nonempty_samples >= MIN_NONEMPTY_SAMPLES {
        let wait = time(queue.wait_seconds);
        let is_exact = namespace.has_one_address() && queue.wait_seconds < period.seconds();
        let wait = if is_exact { wait } else { format!("at least {wait}") };
        let waiting = text::counted(queue.mean, "connection waits", "connections wait");
        format!("{}: {waiting} {wait} to be accepted", queue.address)
    } else {
        let dropped = text::rate(namespace.dropped_per_s);
        format!("{}: accept queue overflows, {dropped} connections/s dropped", queue.address)
    };
    let draft = Draft::new(severity, title)
        .detail(format!("queue length at most {}{limit}", queue.max))
        .detail(why)
        .inferred_if(
            dropped.is_some()
                && queue.nonempty_samples < MIN_NONEMPTY_SAMPLES
                && !namespace.is_own
                && queue.max_fill() < 1.0,
        )
        .signals(is_busy.then_some(Signal::ShortOfCpu))
        .about(Subject::Socket { address: queue.address.to_owned() })
        .costs(Cost::DelaySeconds(queue.wait_seconds))
        .evidence(Evidence::number("mean queue length", queue.mean, Unit::Count).with_text(format!(
            "{} at most; above 0 in {} of {} samples",
            queue.max, queue.nonempty_samples, queue.samples
        )))
        .evidence(
            Evidence::number("time until accepted", queue.wait_seconds, Unit::Seconds)
                .against_scale(WAIT.of(period)),
        )
        .because_some(queue.fill().map(|fill| {
            Evidence::number("share of the queue limit", fill, Unit::Ratio).against_scale(FILL.of(period))
        }))
        .because_some((namespace.dropped_per_s > 0.0).then(|| {
            Evidence::number("dropped in the network namespace", namespace.dropped_per_s, Unit::PerSecond)
                .against_scale(DROPPED.of(period))
        }))
        .because_some(
            utilization
                .map(|utilization| Evidence::number("scheduler utilization", utilization, Unit::Ratio)),
        )
        .because_some(queue.open.map(|(min, max)| {
            Evidence::number("open connections of this address", max as f64, Unit::Count)
                .with_text(format!("maximum; minimum {min}; connections in the queue not included"))
        }))
        .because_some(acceptors.at_limit)
        .because_some(acceptors.behind)
        .because_some(acceptors.owners)
        .but_if(
            !namespace.is_own,
            "other programs in this network namespace also accept connections, and are included, so the wait may be longer",
        )
        .but_if(
            namespace.is_own && !namespace.has_one_address(),
            "the kernel counts all addresses of the VM together, so the wait may be longer",
        )
        .but_if(
            queue.limit.is_none(),
            "queue limit unknown: it comes from netlink, which needs root in a container",
        )
        .but_if(
            dropped.is_some() && queue.max_fill() < 1.0,
            "the queue was not full in any sample, but of the VM's queues it overflows first",
        );
    let is_full = dropped.is_some() || queue.fill().is_some_and(|fill| fill >= FILL.of(period).warning);
    Some(acceptors::advise(
        draft,
        period,
        &Sight {
            is_busy,
            is_full: is_full && open_at_limit.is_none(),
            has_bursts,
            is_held: open_at_limit.is_some(),
            limit: queue.limit,
            is_at_limit,
            is_start_behind,
        },
    ))
}

fn time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", 1e3 * seconds) } else { format!("{seconds:.1} s") }
}
