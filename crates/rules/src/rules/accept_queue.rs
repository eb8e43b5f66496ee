//! BT054: connections that the kernel has taken wait to be accepted by the VM.
//!
//! By Little's law as many wait on average as come in a second, times how long each waits. A listener whose acceptors keep up has an
//! empty queue whenever one looks.

use std::cmp::Ordering;

use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Period, Scale, Signal, Subject, Threshold, Unit, metrics,
};

use crate::rule::{Draft, Judgement, Role, Rule};
use crate::signals::acceptors::{self, Sight};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT054"),
    name: "accept-queue",
    question: "Do clients wait to be taken?",
    confirm: "ss -ltn: Recv-Q of the listening socket stays above 0 (Send-Q is its limit); nstat -az TcpExtListenOverflows grows while \
              clients wait",
    needs: &[&metrics::LISTENING_SOCKETS],
    account: Account::Delay,
    role: Role::Symptom,
    judge,
    thresholds: &[WAIT, FILL, TURNED_AWAY],
    ..Rule::COMMON
};

/// How long a connection waits, in seconds.
const WAIT: Threshold = Threshold::new(
    "accept-queue.wait_seconds",
    "seconds until a connection is accepted",
    Scale {
        notice: 0.02,
        warning: 0.1,
        critical: 1.0,
        source: "judgement: taking a connection is some ten microseconds of work",
    },
);

/// Share of the queue's limit that is taken.
const FILL: Threshold = Threshold::new(
    "accept-queue.used_share",
    "mean used share of the queue's limit",
    Scale {
        notice: 0.25,
        warning: 0.5,
        critical: 0.9,
        source: "judgement: when it is full the kernel turns connections away",
    },
);

/// Connections that were turned away, a second.
const TURNED_AWAY: Threshold = Threshold::new(
    "accept-queue.refused_per_s",
    "connections refused a second",
    Scale {
        notice: 0.02,
        warning: 0.2,
        critical: 5.0,
        source: "judgement: each is a client that waits for a second at least, until it tries again",
    },
);

/// Looks at a queue that say something, and those of them in which somebody waited.
const MIN_LOOKS: u32 = 5;
const MIN_ABOVE: usize = 3;

/// A queue that is so many times shorter than all others of the network namespace is the one that turns connections away (judgement).
const MUCH_SHORTER: i64 = 4;

/// From so many connections on they are not just those that the acceptors have at hand (judgement: acceptor pools have some ten).
const MANY_OPEN: i64 = 16;
/// By so much of itself the number of open connections may change and still be the same: one ends, and the next is accepted.
const STEADY: f64 = 0.02;

/// From this share of time in which they work, schedulers have no time left to accept (judgement).
const BUSY: f64 = 0.85;

/// One listening address.
struct Queue<'p> {
    address: &'p str,
    mean: f64,
    most: i64,
    limit: Option<i64>,
    /// Looks, and those of them in which somebody waited.
    looks: usize,
    above: usize,
    wait_seconds: f64,
    /// By how many it has grown.
    growth: i64,
    /// The fewest and the most connections of this address that were open, where that was recorded.
    open: Option<(i64, i64)>,
}

impl<'p> Queue<'p> {
    fn of(period: &'p Period, address: &'p str, accepted_per_s: f64) -> Option<Self> {
        let stat = period.stat(&metrics::ACCEPT_QUEUE, address).ok()?;
        let limit = period.stat(&metrics::ACCEPT_QUEUE_LIMIT, address).ok().map(|limit| limit.last.value);
        let points = stat.trace.points();
        let mean = stat.mean();
        // Where fewer came than wait, all that is known is that they have waited all the time.
        let wait_seconds = if mean > 0.0 { (mean / accepted_per_s).min(period.seconds()) } else { 0.0 };
        Some(Queue {
            address,
            mean,
            most: stat.max,
            limit,
            looks: points.len(),
            above: points.iter().filter(|point| point.1 > 0).count(),
            wait_seconds,
            growth: stat.last.value.saturating_sub(stat.first.value),
            open: open(period, address),
        })
    }

    /// So many connections are open all the time while others wait: whoever accepts does not, until one of these ends.
    fn held(&self, came: Option<i64>) -> Option<i64> {
        let (fewest, most) = self.open?;
        let may_change = ((STEADY * most as f64) as i64).max(1);
        let is_steady = fewest >= 1 && most.saturating_sub(fewest) <= may_change;
        let none_was_accepted = came.is_some_and(|came| came <= self.growth);
        let waits = self.looks >= MIN_LOOKS as usize && self.above == self.looks;
        (is_steady && waits && (fewest >= MANY_OPEN || none_was_accepted)).then_some(most)
    }

    /// It was empty in most looks, so that those who accept keep up, and full in between.
    fn has_bursts(&self) -> bool {
        2 * self.above < self.looks
    }

    /// Share of the limit that is taken on average.
    fn fill(&self) -> Option<f64> {
        self.limit.map(|limit| self.mean / limit.max(1) as f64)
    }

    /// Share that was taken at most.
    fn fullest(&self) -> f64 {
        self.limit.map_or(0.0, |limit| self.most as f64 / limit.max(1) as f64)
    }

    fn severity(&self, period: &Period) -> Option<f64> {
        if self.above < MIN_ABOVE {
            return None;
        }
        // Never seen empty, but for a time that is too short to matter, or that is not known since others accept more.
        let lasting = (self.above == self.looks).then_some(5.0);
        let fill = self.fill().and_then(|fill| FILL.of(period).severity(fill));
        [WAIT.of(period).severity(self.wait_seconds), fill, lasting].into_iter().flatten().reduce(f64::max)
    }
}

/// The fewest and the most connections that the VM had accepted at an address and not closed.
fn open(period: &Period, address: &str) -> Option<(i64, i64)> {
    let stat = period.stat(&metrics::TCP_CONNECTIONS, address).ok()?;
    (stat.samples >= MIN_LOOKS).then_some((stat.min, stat.max))
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let sockets = period.stat(&metrics::LISTENING_SOCKETS, "")?;
    if sockets.samples < MIN_LOOKS {
        return Ok(Judgement::NotJudged {
            reason: format!("the accept queues were looked at {} times only", sockets.samples),
            next: "record for longer: --for 10s".to_owned(),
        });
    }
    let accepted_per_s = period.rate(&metrics::PASSIVE_OPENS, "")?;
    let turned_away_per_s = period.rate(&metrics::LISTEN_OVERFLOWS, "")?;
    let addresses = period.entities(Group::HostListen).into_iter();
    let queues: Vec<Queue<'_>> =
        addresses.filter_map(|address| Queue::of(period, address, accepted_per_s)).collect();
    let by_fill = |a: &&Queue<'_>, b: &&Queue<'_>| match a.fullest().total_cmp(&b.fullest()) {
        // Of those that were empty in each look the shortest is full first.
        Ordering::Equal => b.limit.cmp(&a.limit),
        unequal => unequal,
    };
    let Some(fullest) = queues.iter().max_by(by_fill) else {
        return Ok(Judgement::Healthy("the VM listens on no TCP port".to_owned()));
    };
    let namespace = Namespace {
        turned_away_per_s,
        // Several sockets of one address count as others': then less is said.
        is_own: usize::try_from(sockets.max).is_ok_and(|sockets| sockets <= queues.len()),
        others_limit: period.stat(&metrics::ACCEPT_QUEUE_OTHERS_LIMIT, "").ok().map(|stat| stat.min),
        fullest: fullest.address,
        addresses: queues.len(),
    };
    let drafts: Vec<Draft> = queues.iter().filter_map(|queue| describe(period, queue, &namespace)).collect();
    let most = queues.iter().map(|queue| queue.most).max().unwrap_or(0);
    let is_others = turned_away_per_s > 0.0 && !namespace.is_own;
    let others = "; some were turned away in its network namespace, most likely by another program";
    let sentence = format!(
        "at most {most} connections were seen waiting at one of the {} addresses that the VM listens on{}",
        queues.len(),
        if is_others { others } else { "" }
    );
    Ok(Judgement::found_or_healthy(drafts, sentence))
}

/// What the kernel counts for all sockets of the VM's network namespace together.
struct Namespace<'p> {
    turned_away_per_s: f64,
    /// Nobody but the VM listens there.
    is_own: bool,
    /// The shortest limit of others' queues, where it is known.
    others_limit: Option<i64>,
    /// The address of the VM's queue that was the fullest.
    fullest: &'p str,
    /// Addresses at which the VM listens.
    addresses: usize,
}

impl Namespace<'_> {
    /// Whether all that is accepted is accepted at one address: else those who wait there may wait for longer than it seems.
    fn is_alone(&self) -> bool {
        self.is_own && self.addresses == 1
    }

    /// Whether it is full long before any other one is.
    fn is_much_shorter(&self, queue: &Queue<'_>) -> bool {
        let (own, others) = (queue.limit, self.others_limit);
        own.zip(others).is_some_and(|(own, others)| own.saturating_mul(MUCH_SHORTER) <= others)
    }

    /// The severity of connections that were turned away, where it was this queue that was full.
    fn severity(&self, period: &Period, queue: &Queue<'_>) -> Option<f64> {
        let was_full = queue.address == self.fullest
            && (self.is_own || queue.fullest() >= 1.0 || self.is_much_shorter(queue));
        TURNED_AWAY.of(period).severity(self.turned_away_per_s).filter(|_| was_full)
    }
}

fn describe(period: &Period, queue: &Queue<'_>, namespace: &Namespace<'_>) -> Option<Draft> {
    let away = namespace.severity(period, queue);
    let severity = [queue.severity(period), away].into_iter().flatten().reduce(f64::max)?;
    let active = view::activity(period, kind::SCHEDULER).ok().map(|activity| activity.mean());
    let acceptors = acceptors::seen(period);
    let is_start_behind = acceptors.behind.is_some();
    let is_busy = active.is_some_and(|active| active >= BUSY);
    // What came to all addresses says of this one only where it is the only one.
    let came = period.stat(&metrics::PASSIVE_OPENS, "").ok().map(|stat| stat.delta);
    let held = queue.held(came.filter(|_| namespace.is_alone())).filter(|_| !is_busy && !is_start_behind);
    let ranch_is_at_limit = acceptors.are_at_limit();
    let is_at_limit = ranch_is_at_limit || held.is_some();
    let has_bursts = away.is_some() && queue.has_bursts() && !is_busy && !is_at_limit;
    let slow = "too few processes accept, or these do something else before they accept the next one";
    let percent = 100.0 * active.unwrap_or_default();
    let why = match active {
        Some(_) if is_busy => format!("the schedulers, {percent:.0} % active, have no time to accept them"),
        _ if ranch_is_at_limit => {
            "acceptors of Ranch wait until there are fewer connections (max_connections)".to_owned()
        }
        Some(_) if let Some(held) = held => format!(
            "{held} connections are open all the time, and the schedulers are {percent:.0} % active: a limit of \
             connections, or acceptors that serve each one themselves"
        ),
        Some(_) if has_bursts => {
            format!(
                "it is empty in most looks, and the schedulers are {percent:.0} % active: bursts are longer than the backlog"
            )
        }
        Some(_) => format!("the schedulers are {percent:.0} % active: {slow}"),
        None => slow.to_owned(),
    };
    let summary = if queue.above >= MIN_ABOVE {
        let limit = queue.limit.map_or(String::new(), |limit| format!(" of {limit}"));
        let wait = time(queue.wait_seconds);
        let wait = match namespace.is_alone() {
            _ if queue.wait_seconds >= period.seconds() => format!("{wait} and more"),
            true => format!("about {wait}"),
            false => format!("at least {wait}"),
        };
        format!(
            "{}: {} connections wait to be accepted ({}{limit} at most), each for {wait}; {why}",
            queue.address,
            few(queue.mean),
            queue.most
        )
    } else {
        format!(
            "{}: its queue{} is full from time to time: {:.1} times a second a connection is turned away; {why}",
            queue.address,
            queue.limit.map_or(String::new(), |limit| format!(" of {limit} connections")),
            namespace.turned_away_per_s
        )
    };
    let draft = Draft::new(severity, summary)
        .inferred_if(away.is_some() && queue.above < MIN_ABOVE && !namespace.is_own && queue.fullest() < 1.0)
        .signals(is_busy.then_some(Signal::ShortOfCpu))
        .about(Subject::Socket { address: queue.address.to_owned() })
        .costs(Cost::DelaySeconds(queue.wait_seconds))
        .because(
            Evidence::number("connections that wait, on average", queue.mean, Unit::Count).with_text(format!(
                "{} at most; {} of {} looks found some",
                queue.most, queue.above, queue.looks
            )),
        )
        .because(
            Evidence::number("time until one is accepted", queue.wait_seconds, Unit::Seconds)
                .against_scale(WAIT.of(period)),
        )
        .because_some(queue.fill().map(|fill| {
            Evidence::number("of the queue's limit", fill, Unit::Ratio).against_scale(FILL.of(period))
        }))
        .because_some((namespace.turned_away_per_s > 0.0).then(|| {
            Evidence::number("turned away in this network namespace", namespace.turned_away_per_s, Unit::PerSecond)
                .against_scale(TURNED_AWAY.of(period))
        }))
        .because_some(active.map(|active| Evidence::number("schedulers active", active, Unit::Ratio)))
        .because_some(queue.open.map(|(fewest, most)| {
            Evidence::number("connections open at this address", most as f64, Unit::Count)
                .with_text(format!("at most, and never fewer than {fewest}; those that wait are not counted"))
        }))
        .because_some(acceptors.at_limit)
        .because_some(acceptors.behind)
        .because_some(acceptors.owners)
        .but_if(
            !namespace.is_own,
            "others listen in this network namespace too, and the kernel counts what is accepted for all of them: those that wait here may \
             wait for longer",
        )
        .but_if(
            namespace.is_own && !namespace.is_alone(),
            "the kernel counts what is accepted at all addresses together: those that wait here may wait for longer",
        )
        .but_if(queue.limit.is_none(), "the queue's limit is not known: only netlink tells it, in a container to root")
        .but_if(
            away.is_some() && queue.fullest() < 1.0,
            "no look has found this queue full: it is the one that is full first of those that the VM has",
        );
    let is_full = away.is_some() || queue.fill().is_some_and(|fill| fill >= FILL.of(period).warning);
    Some(acceptors::advise(
        draft,
        period,
        &Sight {
            is_busy,
            is_full: is_full && held.is_none(),
            has_bursts,
            is_held: held.is_some(),
            limit: queue.limit,
            is_at_limit,
            is_start_behind,
        },
    ))
}

fn few(count: f64) -> String {
    if count < 10.0 { format!("{count:.1}") } else { format!("{count:.0}") }
}

fn time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", 1e3 * seconds) } else { format!("{seconds:.1} s") }
}
