//! BF031: a range of ports for other nodes that is empty, or not used.

use crate::lint::case::{Case, Says};
use crate::lint::node::{Setting, Via};
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF031"),
    name: "distribution-ports",
    finds: "A range of ports for other nodes that is empty, or of which only the upper end is given.",
    level: Level::Warning,
};

const MIN: &str = "kernel.inet_dist_listen_min";
const MAX: &str = "kernel.inet_dist_listen_max";

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in
        case.known().filter(|judged| judged.setting.via == Via::Kernel && judged.setting.id() == MAX)
    {
        let max = judged.setting;
        let part = case.node.part_of(max);
        let number =
            |setting: &Setting<'_>| setting.known_value().and_then(|value| value.parse::<u16>().ok());
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
