//! BT074: processes wait in short steps outside the node: name resolution, connecting, a handshake, a sync to disk.
//!
//! Each takes milliseconds at most when all is well, so hardly any process is ever seen there. Many at once are many that are held up, though
//! they wait for no process.

use beamtune_model::{Account, Code, Cost, Evidence, Missing, Period, Subject, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::blocking::{self, FEWEST, WAITING};
use crate::signals::counts::largest_first;
use crate::signals::stack;

pub const RULE: Rule = Rule {
    code: Code("BT074"),
    name: "external-waits",
    question: "Do processes wait for name resolution, connections or the disk?",
    confirm: "time the same step by hand on the host (getent hosts NAME, nc -vz HOST PORT): if it is slow there too, the fault is outside of the node",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::Delay,
    judge,
    ..Rule::COMMON
};

/// A step outside of the node.
struct Step {
    /// Beginnings of functions that stand in the stack of a process that waits in it.
    within: &'static [&'static str],
    /// What they wait for, in words.
    what: &'static str,
    /// Whether it is never meant to take long: clients may leave a handshake open, and far hosts take a while.
    is_short: bool,
    /// What to do.
    change: &'static str,
    /// Why that helps.
    why: &'static str,
}

/// The first one that fits is meant.
const STEPS: &[Step] = &[
    Step {
        within: &[
            "inet_res:",
            "inet_gethost_native:",
            "inet:gethostbyname_tm/",
            "inet:gethostbyname/",
            "inet:getaddr",
        ],
        what: "name resolution (DNS)",
        is_short: true,
        change: "repair the name server, or use another one (inet_db:res_option(nameservers), /etc/resolv.conf); keep connections open, or addresses in a cache",
        why: "each new connection resolves its name first, and waits as long as the name server lets it",
    },
    Step {
        within: &[
            "tls_gen_connection:",
            "ssl:handshake/",
            "ssl_gen_statem:handshake/",
            "ssl:connect/",
            "ssl_gen_statem:connect/",
            "tls_socket:connect/",
        ],
        what: "TLS connections to be set up",
        is_short: false,
        change: "keep connections open in place of one for each request; allow resumption (reuse_sessions, session_tickets)",
        why: "a handshake takes several round trips and most of the CPU that TLS costs",
    },
    Step {
        within: &[
            "prim_inet:connect",
            "gen_tcp_socket:connect",
            "socket:connect",
            "inet_tcp:connect",
            "gen_tcp:connect",
        ],
        what: "TCP connections to be accepted",
        is_short: false,
        change: "see whether the other end is up and whether a firewall drops packets; a shorter time-out for gen_tcp:connect/4, and a pool of open connections",
        why: "an attempt that nobody answers is repeated for two minutes where no time-out is given",
    },
    Step {
        within: &["prim_file:sync", "prim_file:datasync", "file:sync/", "file:datasync/", "disk_log:sync/"],
        what: "data to be synced to disk",
        is_short: true,
        change: "one sync for many writes (group commit), data in place of metadata too (file:datasync/1), or a faster disk",
        why: "each sync waits until the disk has written",
    },
];

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let stands = blocking::looked_at(period)?;
    let total = period.stat(&metrics::PROCESS_COUNT, "")?.mean();
    let found = STEPS.iter().enumerate().filter_map(|(index, step)| {
        let is_within = |stack: &[String]| STEPS.iter().position(|step| step.is_within(stack)) == Some(index);
        let places: Vec<_> = blocking::waiting(period).filter(|place| is_within(&place.stack)).collect();
        let seen = places.iter().fold(0, |sum: i64, place| sum.saturating_add(place.count));
        let waiting = blocking::of_all(period, total, seen);
        let severity = WAITING.of(period).severity(waiting).filter(|_| seen >= FEWEST)?;
        let callers = places.iter().filter_map(|place| {
            Some((stack::without_fun(stack::caller_of(&place.stack, step.within)?), place.count))
        });
        let caller = largest_first(callers).into_iter().next().map(|(caller, _)| caller);
        let by = caller.as_ref().map_or(String::new(), |caller| format!(", called by {caller}"));
        let draft = Draft::new(severity, format!("about {waiting:.0} processes wait for {}{by}", step.what))
            .minor_if(!step.is_short)
            .about(caller.map(|name| Subject::Function { name }))
            .costs(Cost::Waiting(waiting))
            .because(
                Evidence::number("waiting for it at a time", waiting, Unit::Count)
                    .against_scale(WAITING.of(period))
                    .with_text(format!("{seen} of {} looked at by chance", stands.sampled)),
            )
            .because_some(
                places
                    .iter()
                    .max_by_key(|place| place.count)
                    .and_then(|place| Some(Evidence::text("where they wait", place.stack.first()?.as_str()))),
            )
            .but_if(
                !step.is_short,
                "far or slow peers take a while, and none of that is lost where nobody waits for it",
            )
            .fix(remedy::of(
                period,
                "code.more_in_flight",
                step.change,
                step.why,
                "processes that wait, and the time of a request, under the same load",
            ));
        Some(draft)
    });
    Ok(Judgement::found_or_healthy(
        found.collect(),
        "hardly any process waits for name resolution, for a connection to be set up, or for a sync to disk",
    ))
}

impl Step {
    fn is_within(&self, stack: &[String]) -> bool {
        stack.iter().any(|function| self.within.iter().any(|begin| function.starts_with(begin)))
    }
}
