//! BT007: the process table is nearly full, or filling up.

use beamtune_model::{Account, Code, Limit, Missing, Period, Subject, facts, metrics};

use crate::remedy;
use crate::rule::{Judgement, Rule};
use crate::signals::limits::{FULL, Filling, maker};
use crate::signals::products;

pub const RULE: Rule = Rule {
    code: Code("BT007"),
    name: "processes-near-limit",
    question: "Is the process table full, or filling up?",
    confirm: "erlang:system_info(process_count) an hour apart: a leak grows without load",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::HeadRoom,
    text: Some("what rabbitmq-diagnostics status prints"),
    judges_dumps: true,
    needs_minutes: true,
    judge,
    thresholds: &[FULL],
    ..Rule::COMMON
};

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let limit = period.fact_number(facts::PROCESS_LIMIT)? as f64;
    let filling = Filling::of(period, &metrics::PROCESS_COUNT, limit)?;
    let Some(severity) = filling.severity() else {
        return Ok(Judgement::Healthy(filling.sentence("processes")));
    };
    let maker = maker(period, "process");
    let leak = filling.growth.is_some();
    let known = maker.as_ref().and_then(|maker| products::kind(&maker.kind));
    let next = (limit * 4.0).min(134_217_727.0);
    Ok(Judgement::found(
        filling
            .draft(severity, "processes")
            .because_some(maker.as_ref().map(|maker| maker.evidence.clone()))
            .about(maker.map_or(Subject::limit(Limit::Processes), |maker| Subject::ProcessKind {
                name: maker.kind,
                starter: maker.by,
            }))
            .but_if(leak, "a node that has just got more users grows too: look whether it goes on")
            .fix_if(leak, || {
                remedy::of(
                    period,
                    "code.bounded_processes",
                    known.map_or(
                        "end the processes when their work is done, and bound how many may run at a time",
                        |kind| &kind.instead,
                    ),
                    known
                        .map_or("a table that leaks is full one day, whatever its size", |kind| &kind.source),
                    "the process count must stop growing under the same load",
                )
            })
            .fix_if(filling.needs_room(), || {
                remedy::of(
                    period,
                    "+P",
                    &format!("+P {next:.0}"),
                    if leak {
                        "gives time, cures nothing"
                    } else {
                        "makes room for as many processes as the node really needs"
                    },
                    "restart with the flag: system_info(process_limit) shows the new size",
                )
            }),
    ))
}
