//! BF031: a range of ports for other nodes that is empty, not used, or too small.

use crate::lint::case::{Case, Judged, Says};
use crate::lint::node::{Part, Setting, Via};
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::{Format, Order, Place};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF031"),
    name: "distribution-ports",
    finds: "A range of ports for other nodes that is empty, of which only the upper end is given, or in which two nodes have to share one port.",
    level: Level::Warning,
};

const MIN: &str = "kernel.inet_dist_listen_min";
const MAX: &str = "kernel.inet_dist_listen_max";

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    one_port(case, found);
    for judged in
        case.known().filter(|judged| judged.setting.via == Via::Kernel && judged.setting.id() == MAX)
    {
        let max = judged.setting;
        let part = case.node.part_of(max);
        let says = match case.node.effective(max, MIN) {
            Some(min) => {
                let (Some(low), Some(high)) = (number(min), number(max)) else { continue };
                if low <= high {
                    continue;
                }
                Says {
                    message: format!("{} is below {}: there is no port to listen on", case.quoted(max), case.quoted(min)),
                    reason: "A node with a name tries the ports from the lower to the upper end, and does not start if there is none (inet_tcp_dist.erl)."
                        .to_owned(),
                    remedy: "Exchange the two.".to_owned(),
                }
            }
            None if case.node.is_given(part.scope, MIN) || case.node.is_opaque(part.scope) => continue,
            None => Says {
                message: format!("{} has no effect without inet_dist_listen_min", case.quoted(max)),
                reason: "Only where the lower end is given is the upper one looked at; otherwise the system chooses a port (inet_tcp_dist.erl)."
                    .to_owned(),
                remedy: "Give inet_dist_listen_min as well.".to_owned(),
            },
        };
        found.push(case.about(&RULE, Level::Warning, max, part.releases.clone(), says));
    }
}

fn number(setting: &Setting<'_>) -> Option<u16> {
    setting.known_value().and_then(|value| value.parse().ok())
}

/// A single port in a variable, which every VM takes that is started beside the node.
fn one_port(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    let of_min = |judged: &&Judged<'_, '_>| judged.setting.via == Via::Kernel && judged.setting.id() == MIN;
    for min in case.known().filter(of_min).map(|judged| judged.setting) {
        let part = case.node.part_of(min);
        // Of several only the last counts.
        let counts = case
            .node
            .effective(min, MIN)
            .is_some_and(|last| last.part == min.part && last.words == min.words);
        if !counts {
            continue;
        }
        let Some(port) = number(min).filter(|port| *port > 0) else { continue };
        let max = case.node.effective(min, MAX);
        let is_single = max.map_or(!case.node.is_given(part.scope, MAX), |max| number(max) == Some(port));
        if !is_single
            || min.conditional
            || case.node.is_opaque(part.scope)
            || !is_for_all(part)
            || is_for_one(case, min)
        {
            continue;
        }
        let says = Says {
            message: format!("{} leaves one port for all nodes that are started with the variable", case.quoted(min)),
            reason: "bin/NAME rpc, remote, stop and pid start a node of their own beside the first, and get \"register/listen error: eaddrinuse\" (seen with releases of Elixir 1.10, 1.14, 1.18 and 1.20, on OTP 23, 25, 27 and 29)."
                .to_owned(),
            remedy: "Put it into vm.args, which is for the node alone, or give a range of some ports; two are enough for one command at a time."
                .to_owned(),
        };
        let mut finding = case.about(&RULE, Level::Warning, min, part.releases.clone(), says);
        if let Some(max) = max {
            finding.related.push(case.related(max, "is the upper end"));
        }
        found.push(finding);
    }
}

/// Whether each command of a release reads a variable: elixir and the launcher do, in the environment of the release. What a unit sets is
/// for what the unit starts.
fn is_for_all(part: &Part<'_>) -> bool {
    let Place::Variable { name, effect } = &part.fragment.place else { return false };
    let text = part.fragment.file_text();
    let of_release = match effect.order {
        Order::CommandLine(_) => name == "ELIXIR_ERL_OPTIONS",
        _ => text.contains("RELEASE_"),
    };
    of_release && (part.fragment.format() != Format::SystemdUnit || text.contains("ExecStop="))
}

/// Whether the same words say that the node listens on no port, or give it a name, so that they are for one node in any case.
fn is_for_one(case: &Case<'_, '_>, min: &Setting<'_>) -> bool {
    let words = &case.node.part_of(min).fragment.words;
    words.iter().any(|word| matches!(word.text.as_str(), "-dist_listen" | "-name" | "-sname"))
}
