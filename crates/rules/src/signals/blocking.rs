//! Processes that others wait for. Samples of all processes show the function in which each waits, and a call monitors the process that it
//! calls.

use std::collections::HashMap;

use beamtune_model::{
    Group as MetricGroup, Missing, Period, ProcessActivity, Scale, Subject, Threshold, WaitSample,
    WaitSamples, metrics,
};

use crate::signals::chains;
use crate::signals::counts::largest_first;
use crate::signals::limits;
use crate::signals::names::NAMES;
use crate::signals::stack;
use crate::text;
use crate::view;

/// With fewer sampled processes, nothing is estimated for all processes.
pub(crate) const MIN_SAMPLES: i64 = 3;

/// Mean number of processes that wait for the same process, pool or lock.
pub(crate) const WAITING: Threshold = Threshold::new(
    "waiting-callers.waiting",
    "processes that wait for the same process, pool or lock",
    Scale {
        notice: 5.0,
        warning: 10.0,
        critical: 500.0,
        source: "judgement: in a pool of sufficient size hardly any process waits",
    },
);

/// A process that ran or was runnable in this share of its samples is busy (judgement).
pub(crate) const BUSY: f64 = 0.7;

/// Fewer waiters of one process do not explain an idle node (judgement).
const MANY: f64 = 5.0;

/// A process in its main loop counts as working if it ran or was runnable in this share of its samples (judgement). A process that only
/// waits for others is almost never sampled running.
const OFTEN: f64 = 0.2;

/// Target of `erpc` calls whose node is unknown.
const SOME_NODE: &str = "an erpc reply";

/// State of a process that others wait for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// It runs, is runnable, or has queued messages: it is behind.
    Works,
    /// It waits inside a call, for `on` if known.
    Waits {
        /// `module:function/arity`, with the program's own function that called it.
        at: String,
        /// Title of a process, or name of another node.
        on: Option<String>,
    },
    /// It waits for its next message with an empty queue: it has received the requests, and has not replied yet.
    LetsWait,
    /// It was not sampled.
    #[default]
    Unknown,
}

/// A process, several similar processes, or another node, with processes that wait for it.
#[derive(Debug, Clone)]
pub(crate) struct BlockingProcess<'a> {
    /// Its title, or the name of the other node.
    pub title: String,
    /// Its recorded activity; `None` for another node.
    pub process: Option<&'a ProcessActivity>,
    /// Recorded activity of all similar processes, this one included.
    pub members: Vec<&'a ProcessActivity>,
    /// Whether it is another node.
    pub is_node: bool,
    /// Number of similar processes; 1 for a single one.
    pub count: usize,
    /// Number of sampled processes that wait for it, and of all sampled processes.
    pub sampled: (i64, i64),
    /// Estimated mean number of all processes that wait for it.
    pub waiting: f64,
    /// State of this process.
    pub state: State,
    /// The program's own function in which most waiters are.
    pub wait_function: Option<String>,
    /// Modules of the waiters' outermost functions, if their stacks show them, most frequent first. They show the kinds of the waiters.
    pub callers: Vec<&'a str>,
    /// Function in which the waiters acquire a pool member or another scarce resource.
    pub pool_function: Option<String>,
    /// Most frequent current function of processes that already hold what the others wait for, and the number of these samples.
    pub holders: Option<(String, i64)>,
    /// A deadlock at the end of the waits: processes that wait for each other in a cycle. It includes this process, or one that this
    /// process waits for.
    pub deadlock: Vec<Subject>,
    /// Share of the waiters that have queued messages themselves.
    pub share_with_messages: f64,
    /// Share of the waiters that log the report of an exit.
    pub ending: f64,
    /// Mean length of its message queue; for similar processes, of all their queues together.
    pub queued: f64,
    /// Addresses of its TCP peers, or of those of the similar processes, most frequent first.
    pub peers: Vec<&'a str>,
}

impl BlockingProcess<'_> {
    /// Whether it is a single process or node, and not several similar processes.
    pub(crate) fn is_one(&self) -> bool {
        self.count == 1
    }

    /// Whether it certainly delays the waiters: they need a reply or a resource, and do not just wait for work.
    pub(crate) fn is_certain(&self) -> bool {
        self.pool_function.is_some()
            || self.holders.is_some()
            || !self.deadlock.is_empty()
            || matches!(self.state, State::Waits { .. })
            || self.share_with_messages >= 0.5
    }

    /// Returns the subject for a finding.
    pub(crate) fn subject(&self) -> Subject {
        match (self.is_node, self.process) {
            (true, _) => Subject::Node { name: self.title.clone() },
            (_, Some(process)) if self.is_one() => process.subject(),
            (_, Some(process)) => {
                let started = process.row.as_ref().and_then(|row| row.initial_call.clone());
                Subject::ProcessKind { name: started.unwrap_or_else(|| process.title()), starter: None }
            }
            (_, None) => Subject::process(&self.title),
        }
    }

    /// Whether it certainly delays so many processes that this explains idle schedulers.
    pub(crate) fn leaves_idle(&self) -> bool {
        self.is_certain() && self.state != State::Works && self.waiting >= MANY
    }

    /// Returns the number of queued requests whose callers have given up: `gen_server:call/2` leaves its request in the queue after a
    /// timeout. `None` if there are few.
    pub(crate) fn abandoned_requests(&self) -> Option<f64> {
        let more = self.queued - self.waiting;
        (self.queued >= 2.0 * self.waiting && more >= MANY).then_some(more)
    }

    /// Formats the number of waiters.
    pub(crate) fn waiting_text(&self) -> String {
        format!("about {:.0} processes wait for {}", self.waiting, self.title)
    }

    /// Whether it may let the waiters proceed one at a time: it does no work itself, and waits for no other process.
    pub(crate) fn gives_turns(&self) -> bool {
        self.is_one() && !self.is_node && self.state == State::LetsWait && self.waiting >= MANY
    }

    /// Returns what this process waits for, if known: a process, a node, or the peer of its connection.
    pub(crate) fn waits_for(&self) -> Option<String> {
        match &self.state {
            State::Waits { on: Some(on), .. } => Some(on.clone()),
            State::Waits { at, on: None } if stack::is_for_peer(at) => self.peer(),
            _ => None,
        }
    }

    /// Returns the process or node that this process waits for, as a subject.
    pub(crate) fn waits_for_subject(&self) -> Option<Subject> {
        match &self.state {
            State::Waits { on: Some(on), .. } if on.contains('@') && !on.contains('<') => {
                Some(Subject::Node { name: on.clone() })
            }
            State::Waits { on: Some(on), .. } => Some(Subject::process(on)),
            _ => None,
        }
    }

    /// Formats its peers: one address, or the first one and the number of others.
    pub(crate) fn peer(&self) -> Option<String> {
        match &self.peers[..] {
            [] => None,
            [one] => Some((*one).to_owned()),
            [first, others @ ..] => Some(format!("{first} and {} more", others.len())),
        }
    }

    /// Whether it is busy and cannot keep up. So many processes wait for one server only if it has almost no time to spare: in an M/M/1
    /// queue, L = ρ / (1 - ρ) = 5 at ρ = 0.83. Work that it does not do itself, it hands to another process, one job at a time, as `global`
    /// does.
    pub(crate) fn is_behind(&self) -> bool {
        self.state == State::Works && self.is_one() && !self.is_node && self.waiting >= MANY
    }
}

/// Returns the server that processes of this kind wait for. Some of the present waiters of that server have the same kind.
pub(crate) fn answers_to<'h, 'a>(
    holds: &'h [BlockingProcess<'a>],
    process: &ProcessActivity,
) -> Option<&'h BlockingProcess<'a>> {
    let row = process.row.as_ref();
    let started = row.and_then(|row| row.initial_call.as_deref()).and_then(stack::module);
    let stacks = process.wait_stacks.iter().chain(&process.run_stacks).map(|(stack, _)| &stack[..]);
    let stacks = stacks.chain(row.map(|row| &row.stack[..]));
    let modules: Vec<&str> = stacks.filter_map(stack::kind_module).chain(started).collect();
    holds.iter().find(|hold| {
        hold.process.is_some_and(|server| hold.is_one() && hold.waiting >= MANY && server.pid != process.pid)
            && hold.callers.iter().any(|caller| modules.contains(caller))
    })
}

/// Returns what processes wait for in most samples, most waiters first. Processes with the same initial call and the same state form one
/// entry.
pub(crate) fn blocking_processes(period: &Period) -> Result<Vec<BlockingProcess<'_>>, Missing> {
    let stands = &period.wait_samples;
    let total = period.stat(&metrics::PROCESS_COUNT, "")?.mean();
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut kinds: HashMap<&str, Kind<'_>> = HashMap::new();
    let for_processes =
        |place: &&WaitSample| !place.stack.first().is_some_and(|function| stack::is_for_no_process(function));
    for place in waiting(period).filter(for_processes) {
        // An `erpc` call monitors nothing until its process was started on the other node.
        if place.targets.is_empty()
            && place.stack.first().is_some_and(|function| stack::is_for_a_node(function))
        {
            let at = group_at(&mut groups, Kind::default(), |group| group.who == [SOME_NODE]);
            groups[at].add(SOME_NODE, place.samples, (place, place.count));
        }
        for wanted in &place.targets {
            let kind = kinds.entry(&wanted.name).or_insert_with(|| kind(period, &wanted.name)).clone();
            let is_one = |group: &Group<'_>| match kind.0 {
                Some(_) => group.kind == kind,
                None => group.who.contains(&&*wanted.name),
            };
            let at = group_at(&mut groups, kind.clone(), is_one);
            groups[at].add(&wanted.name, wanted.samples, (place, wanted.count));
        }
    }
    let mut holds: Vec<BlockingProcess<'_>> = groups
        .into_iter()
        .filter_map(|group| {
            let Group { kind: (_, does), who, looks, mut places } = group;
            let seen = places.iter().fold(0, |sum: i64, (_, count)| sum.saturating_add(*count));
            // Two cases are left out: short-lived waits, in fewer than two thirds of the samples, and pairs, in which each waiter waits for
            // its own process.
            if seen < MIN_SAMPLES
                || seen < 2 * who.len() as i64 * i64::from(looks)
                || 3 * looks < 2 * stands.samples
            {
                return None;
            }
            places.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let stacks = || places.iter().map(|(place, _)| &*place.stack);
            let most_wait_at = stacks().next().filter(|_| does == State::LetsWait);
            let queued: f64 = places
                .iter()
                .map(|(place, count)| *count as f64 * place.queued as f64 / place.count.max(1) as f64)
                .sum();
            let first = period.title_of(who[0]);
            let name = || text::name(&Subject::process(&first));
            let title = match who.len() {
                1 => first,
                2 => format!("2 processes ({} and another)", name()),
                count => format!("{count} processes ({} and others)", name()),
            };
            Some(BlockingProcess {
                title,
                members: who.iter().filter_map(|pid| period.process(pid)).collect(),
                is_node: who[0].contains('@') || who[0] == SOME_NODE,
                count: who.len(),
                process: period.process(who[0]),
                state: does,
                sampled: (seen, stands.sampled),
                waiting: of_all(period, total, seen),
                wait_function: stacks().find_map(stack::of_program).map(str::to_owned),
                callers: largest_first(
                    places
                        .iter()
                        .filter_map(|(place, count)| Some((stack::kind_module(&place.stack)?, *count))),
                )
                .into_iter()
                .map(|(module, _)| module)
                .collect(),
                pool_function: stacks().find_map(takes).map(str::to_owned),
                deadlock: circle(period, who[0]),
                holders: most_wait_at.and_then(|stack| given(period, &who, stack)),
                share_with_messages: queued / seen as f64,
                ending: places
                    .iter()
                    .filter(|(place, _)| stack::reports_an_end(&place.stack))
                    .map(|(_, count)| *count as f64)
                    .sum::<f64>()
                    / seen as f64,
                queued: queued_by(period, &who),
                peers: peers(period, &who),
            })
        })
        .collect();
    holds.sort_by(|a, b| b.waiting.total_cmp(&a.waiting).then_with(|| a.title.cmp(&b.title)));
    Ok(holds)
}

/// Blocking processes with the same initial call and state.
#[derive(Default)]
struct Group<'a> {
    kind: Kind<'a>,
    who: Vec<&'a str>,
    /// Number of samples with waiters; of several processes, the maximum.
    looks: u32,
    /// Samples of the waiters, with the number of waiters in each.
    places: Vec<(&'a WaitSample, i64)>,
}

impl<'a> Group<'a> {
    /// Adds waiters of one process of the group.
    fn add(&mut self, who: &'a str, looks: u32, place: (&'a WaitSample, i64)) {
        if !self.who.contains(&who) {
            self.who.push(who);
        }
        self.looks = self.looks.max(looks);
        self.places.push(place);
    }
}

/// Returns the index of the first group that matches, or of a new group of that kind.
fn group_at<'a>(groups: &mut Vec<Group<'a>>, kind: Kind<'a>, is_meant: impl Fn(&Group<'a>) -> bool) -> usize {
    groups.iter().position(is_meant).unwrap_or_else(|| {
        groups.push(Group { kind, ..Group::default() });
        groups.len() - 1
    })
}

/// Initial call and state of a process.
type Kind<'a> = (Option<&'a str>, State);

fn kind<'a>(period: &'a Period, who: &str) -> Kind<'a> {
    let row = period.process(who).and_then(|process| process.row.as_ref());
    (row.and_then(|row| row.initial_call.as_deref()), state(period, who))
}

/// Returns the samples of waiting processes; an error if none were recorded.
pub(crate) fn wait_samples(period: &Period) -> Result<&WaitSamples, Missing> {
    if period.wait_samples.samples > 0 {
        return Ok(&period.wait_samples);
    }
    let missing = period.missing_group(MetricGroup::Processes, "current functions of waiting processes");
    Err(match period.is_imported() {
        true => missing,
        false => Missing {
            why: "it was not recorded".to_owned(),
            next_step: "record the node with this version of beamtune: beamtune record TARGET".to_owned(),
            ..missing
        },
    })
}

/// Returns the samples, by stack, of processes that wait inside a call.
pub(crate) fn waiting(period: &Period) -> impl Iterator<Item = &WaitSample> {
    period.wait_samples.stacks.iter().filter(|place| place.pid.is_none() && stack::is_in_midst(&place.stack))
}

/// Estimates the mean number of processes that wait inside a call; `None` without samples.
pub(crate) fn waiting_processes(period: &Period) -> Option<f64> {
    let seen = waiting(period).fold(0, |sum: i64, place| sum.saturating_add(place.count));
    let total = period.stat(&metrics::PROCESS_COUNT, "").ok()?.mean();
    (period.wait_samples.sampled > 0).then(|| of_all(period, total, seen))
}

/// Minimum share of all processes, or of all ports, from which on the waiters are what grows (judgement). A connection has up to four
/// processes.
const PILE_OF_PROCESSES: f64 = 0.25;
const PILE_OF_PORTS: f64 = 0.5;

/// Returns the growth of the process count per second, if these waiters must be most of it.
pub(crate) fn growth_of_waiters(period: &Period, waiting: f64) -> Option<f64> {
    let count = period.stat(&metrics::PROCESS_COUNT, "").ok()?;
    let growth = limits::growth(&view::trend_points(&count.trace), f64::INFINITY)?;
    let ports = period.stat(&metrics::PORT_COUNT, "").map_or(f64::INFINITY, |stat| stat.mean());
    (waiting >= PILE_OF_PROCESSES * count.mean() || waiting >= PILE_OF_PORTS * ports).then_some(growth.slope)
}

/// Processes that wait in `process_info/2` for information that the other process must supply itself.
pub(crate) struct InfoCallers {
    /// Estimated mean number of such processes.
    pub count: f64,
    /// The program's own function that calls `process_info/2` most often.
    pub from: Option<String>,
}

impl InfoCallers {
    /// Estimates their number; `None` if there are fewer than five. Which process they ask is unknown.
    pub(crate) fn of(period: &Period) -> Option<InfoCallers> {
        let asks =
            |place: &&WaitSample| place.stack.first().is_some_and(|function| stack::asks_a_process(function));
        let places: Vec<&WaitSample> = waiting(period).filter(asks).collect();
        let seen = places.iter().fold(0, |sum: i64, place| sum.saturating_add(place.count));
        let total = period.stat(&metrics::PROCESS_COUNT, "").ok()?.mean();
        let count = of_all(period, total, seen);
        let most = places.iter().max_by_key(|place| place.count)?;
        let from = stack::of_program(&most.stack).map(str::to_owned);
        (seen >= MIN_SAMPLES && count >= MANY).then_some(InfoCallers { count, from })
    }
}

/// Estimates how many of all `total` processes do what `seen` sampled ones did.
pub(crate) fn of_all(period: &Period, total: f64, seen: i64) -> f64 {
    total * seen as f64 / period.wait_samples.sampled.max(1) as f64
}

/// Follows the waits of a process and returns the cycle that they end in; empty if they end in none.
fn circle(period: &Period, from: &str) -> Vec<Subject> {
    let waits_for = |pid: &str| {
        let own = period.wait_samples.stacks.iter().filter(|place| place.pid.as_deref() == Some(pid));
        let most = own.max_by_key(|place| place.count)?;
        let calls = most.stack.first().is_some_and(|function| stack::is_call(function));
        // It must wait for the same single process in each of its samples: a process that monitors several may wait for any of them.
        match &most.targets[..] {
            [only] if calls && only.samples == most.samples && most.samples > 1 => Some(only.name.clone()),
            _ => None,
        }
    };
    let mut path = vec![from.to_owned()];
    while let Some(next) = path.last().and_then(|last| waits_for(last)) {
        if let Some(begin) = path.iter().position(|seen| *seen == next) {
            let subject = |pid: &String| {
                period.process(pid).map_or_else(|| Subject::process(pid), ProcessActivity::subject)
            };
            return path.iter().skip(begin).map(subject).collect();
        }
        path.push(next);
    }
    Vec::new()
}

/// Returns the most frequent current function of processes that are past the function in which others wait, and their number. They run code
/// called by that function, so they already hold what it gives. A worker that asks for work in its outermost function is always within that
/// function, so it does not count.
fn given(period: &Period, who: &[&str], waits: &[String]) -> Option<(String, i64)> {
    let way = stack::of_program(waits)?;
    let below = waits.iter().skip_while(|function| *function != way).skip(1);
    let is_within_another = stack::of_program(below.cloned().collect::<Vec<_>>().as_slice()).is_some();
    let is_past = |place: &&WaitSample| {
        place.pid.is_none()
            && place.stack.iter().skip(1).any(|function| function == way)
            && stack::of_program(&place.stack) != Some(way)
            && !place.targets.iter().any(|wanted| who.contains(&&*wanted.name))
    };
    let past = period.wait_samples.stacks.iter().filter(is_past);
    let past =
        past.filter_map(|place| Some((stack::with_caller(place.stack.first()?, &place.stack), place.count)));
    let most = largest_first(past).into_iter().next();
    most.filter(|(_, count)| is_within_another && *count >= MIN_SAMPLES)
}

/// Returns the state of a process in most of its samples.
pub(crate) fn state(period: &Period, who: &str) -> State {
    let own: Vec<&WaitSample> =
        period.wait_samples.stacks.iter().filter(|place| place.pid.as_deref() == Some(who)).collect();
    let Some(most) = own.iter().max_by_key(|place| place.count) else { return State::Unknown };
    let ran = period.process(who).and_then(stack::runnable_share).unwrap_or(0.0);
    match most.stack.first() {
        _ if ran >= BUSY || most.status != "waiting" => State::Works,
        Some(function) if stack::is_call(function) => State::Waits {
            at: stack::with_caller(function, &most.stack),
            on: most
                .targets
                .iter()
                .find(|wanted| !wanted.is_address())
                .map(|wanted| period.title_of(&wanted.name)),
        },
        // A receive of the program inside a callback waits for one specific message.
        Some(function) if !stack::is_loop(function) && stack::is_in_callback(&most.stack) => State::Waits {
            at: stack::with_caller(function, &most.stack),
            on: chains::waits_for(period, who).map(|on| period.title_of(on)),
        },
        Some(function) if !stack::is_loop(function) => State::LetsWait,
        _ if most.queued > 0 || ran >= OFTEN => State::Works,
        _ => State::LetsWait,
    }
}

/// Returns the mean number of messages in the queues of these processes together.
fn queued_by(period: &Period, who: &[&str]) -> f64 {
    let of_one = |who: &&str| {
        let places = || period.wait_samples.stacks.iter().filter(|place| place.pid.as_deref() == Some(who));
        let queued: f64 = places().map(|place| place.queued as f64).sum();
        let looks: f64 = places().map(|place| f64::from(place.samples)).sum();
        queued / looks.max(1.0)
    };
    who.iter().map(of_one).sum()
}

/// Returns the TCP peers of these processes, most frequent first.
pub(crate) fn peers<'a>(period: &'a Period, who: &[&str]) -> Vec<&'a str> {
    let is_one = |place: &&WaitSample| place.pid.as_deref().is_some_and(|pid| who.contains(&pid));
    let addresses = period.wait_samples.stacks.iter().filter(is_one).flat_map(|place| &place.targets);
    let addresses =
        addresses.filter(|wanted| wanted.is_address()).map(|wanted| (&*wanted.name, wanted.count));
    largest_first(addresses).into_iter().map(|(address, _)| address).collect()
}

/// Returns the function in which a waiting process acquires a pool member or another scarce resource. Only the program's innermost function
/// and the functions that it called are searched. A pool further out has already supplied its member: a process that calls another server
/// within a transaction does not wait for a connection.
fn takes(stack: &[String]) -> Option<&str> {
    let is_pools = |function: &&str| NAMES.pools.iter().any(|pool| function.starts_with(pool));
    let is_taking_word = |function: &&str| {
        let (module, name) = function.split_once(':').unwrap_or(("", function));
        // "release" contains `lease`, but gives a resource back. And a shop's checkout is not the checkout of a pool.
        let is_page = ["Controller", "Live", "View", "_handler"].iter().any(|end| module.ends_with(end));
        NAMES.takes.iter().any(|word| name.contains(word)) && !name.contains("release") && !is_page
    };
    let own = stack::of_program(stack);
    let through = stack.iter().map(String::as_str).take_while(|function| Some(*function) != own);
    through.chain(own).find(|function| is_pools(function) || is_taking_word(function))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquiring_is_recognized_by_pool_modules_and_by_words() {
        let check = |stack: &[&str], expect: Option<&str>| {
            let stack: Vec<String> = stack.iter().map(|&function| function.to_owned()).collect();
            assert_eq!(takes(&stack), expect);
        };
        check(&["gen:do_call/4", "gen_server:call/3", "poolboy:checkout/3"], Some("poolboy:checkout/3"));
        check(&["gen:do_call/4", "shop_pool:acquire/1"], Some("shop_pool:acquire/1"));
        check(
            &["Elixir.DBConnection.Holder:checkout_call/5"],
            Some("Elixir.DBConnection.Holder:checkout_call/5"),
        );
        check(&["gen:do_call/4", "acquire:it/1"], None);
        check(&["gen:do_call/4", "shop_pool:release_connection/2"], None);
        check(&["gen:do_call/4", "shop_pool:lease/1"], Some("shop_pool:lease/1"));
        // Within a transaction, which already has its connection.
        let in_transaction = [
            "gen:do_call/4",
            "Elixir.GenServer:call/3",
            "Elixir.Shop.Limiter:wait/1",
            "Elixir.DBConnection:run_transaction/4",
            "Elixir.Ecto.Adapters.SQL:checkout_or_transaction/4",
        ];
        check(&in_transaction, None);
        check(&["gen:do_call/4", "gen_server:call/2", "poolboy:transaction/3", "shop:pay/1"], None);
        let sql = [
            "gen:do_call/4",
            "p1_fsm:sync_send_event/3",
            "ejabberd_sql:sync_send_event/3",
            "mod_roster:get/1",
        ];
        check(&sql, Some("ejabberd_sql:sync_send_event/3"));
        check(&["gen:do_call/4", "Elixir.ShopWeb.CartController:checkout/2"], None);
        check(&[], None);
    }
}
