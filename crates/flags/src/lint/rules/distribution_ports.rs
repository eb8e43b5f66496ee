//! BF031: a range of distribution ports that is empty, unused or too small.

use crate::lint::case::{Case, FindingText, JudgedSetting};
use crate::lint::node::{Part, Setting, SettingKind};
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::{Format, Order, Place};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF031"),
    name: "distribution-ports",
    description: "A range of distribution ports that is empty, has only an upper end, or forces two nodes to share one port.",
    level: Level::Warning,
};

const MIN: &str = "kernel.inet_dist_listen_min";
const MAX: &str = "kernel.inet_dist_listen_max";

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    one_port(case, found);
    for judged in
        case.known().filter(|judged| judged.setting.kind == SettingKind::Kernel && judged.setting.id() == MAX)
    {
        let max = judged.setting;
        let part = case.node.part_of(max);
        let texts = match case.node.effective(max, MIN) {
            Some(min) => {
                let (Some(low), Some(high)) = (number(min), number(max)) else { continue };
                if low <= high {
                    continue;
                }
                FindingText {
                    message: format!("{} is below {}: no port to listen on", case.quoted(max), case.quoted(min)),
                    reason: "A named node tries the ports from the lower to the upper end, and does not start if none is free (inet_tcp_dist.erl)."
                        .to_owned(),
                    remedy: "Swap the two values.".to_owned(),
                }
            }
            None if case.node.is_given(part.scope, MIN) || case.node.is_opaque(part.scope) => continue,
            None => FindingText {
                message: format!("{} has no effect without inet_dist_listen_min", case.quoted(max)),
                reason: "The upper end is used only if the lower one is given; otherwise the system chooses a port (inet_tcp_dist.erl)."
                    .to_owned(),
                remedy: "Also set inet_dist_listen_min.".to_owned(),
            },
        };
        found.push(case.about(&RULE, Level::Warning, max, part.releases.clone(), texts));
    }
}

fn number(setting: &Setting<'_>) -> Option<u16> {
    setting.known_value().and_then(|value| value.parse().ok())
}

/// Reports a single port in a variable that other VMs of the release read, too.
fn one_port(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    let of_min = |judged: &&JudgedSetting<'_, '_>| {
        judged.setting.kind == SettingKind::Kernel && judged.setting.id() == MIN
    };
    for min in case.known().filter(of_min).map(|judged| judged.setting) {
        let part = case.node.part_of(min);
        // Only the last of several lower ends takes effect.
        let takes_effect = case
            .node
            .effective(min, MIN)
            .is_some_and(|last| last.part == min.part && last.words == min.words);
        if !takes_effect {
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
        let texts = FindingText {
            message: format!("{} is a single port for all nodes that read the variable", case.quoted(min)),
            reason: "bin/NAME rpc, remote, stop and pid start a second node, which fails with \"register/listen error: eaddrinuse\" (tested with releases of Elixir 1.10, 1.14, 1.18 and 1.20, on OTP 23, 25, 27 and 29)."
                .to_owned(),
            remedy: "Move the parameter to vm.args, which only the node reads, or give a range of ports; two suffice for one command at a time."
                .to_owned(),
        };
        let mut finding = case.about(&RULE, Level::Warning, min, part.releases.clone(), texts);
        if let Some(max) = max {
            finding.related.push(case.related(max, "is the upper end"));
        }
        found.push(finding);
    }
}

/// Whether every command of a release reads a variable. elixir and the launcher read variables in the environment of the release. A
/// variable of a systemd unit is only for the processes that the unit starts.
fn is_for_all(part: &Part<'_>) -> bool {
    let Place::Variable { name, effect } = &part.fragment.place else { return false };
    let text = part.fragment.file_text();
    let of_release = match effect.order {
        Order::CommandLine(_) => name == "ELIXIR_ERL_OPTIONS",
        _ => text.contains("RELEASE_"),
    };
    of_release && (part.fragment.format() != Format::SystemdUnit || text.contains("ExecStop="))
}

/// Whether the words are certainly for one node, because they also contain its name or prevent it from listening.
fn is_for_one(case: &Case<'_, '_>, min: &Setting<'_>) -> bool {
    let words = &case.node.part_of(min).fragment.words;
    words.iter().any(|word| matches!(word.text.as_str(), "-dist_listen" | "-name" | "-sname"))
}
