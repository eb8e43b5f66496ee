//! BT072: RabbitMQ blocks publishers because its disk is nearly full.

use beamtune_model::{Account, Code, Evidence, Missing, Period, Unit, metrics};

use crate::remedy;
use crate::rule::{BELOW_CRITICAL, Draft, Judgement, Rule};
use crate::signals::broker;
use crate::signals::memory::format_bytes;
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT072"),
    name: "publishers-blocked",
    question: "Does RabbitMQ block publishers because of its disk?",
    confirm: "run rabbitmq-diagnostics alarms, and rabbitmqctl list_connections name state: blocked or blocking",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::HeadRoom,
    judge,
    ..Rule::COMMON
};

/// Severity of a disk alarm: while it is set, no client can publish.
const BLOCKS: f64 = BELOW_CRITICAL + 5.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if !broker::recorded(period)? {
        return Ok(Judgement::Healthy(broker::NO_BROKER.to_owned()));
    }
    let last = |metric| period.stat(metric, "").ok().map(|stat| stat.last.value as f64);
    let Some(alarm) = last(&metrics::BROKER_DISK_ALARM) else {
        return Ok(Judgement::NotJudged {
            reason: "RabbitMQ records its alarms only with the plugin rabbitmq_management_agent".to_owned(),
            next: "run rabbitmq-diagnostics alarms".to_owned(),
        });
    };
    let (free, limit) = (last(&metrics::BROKER_DISK_FREE), last(&metrics::BROKER_DISK_LIMIT));
    if alarm <= 0.0 {
        return Ok(Judgement::Healthy("no disk alarm".to_owned()));
    }
    let blocked = last(&metrics::BROKER_BLOCKED).filter(|count| *count > 0.0);
    let space = free
        .zip(limit)
        .map(|(free, limit)| format!("{} free, disk_free_limit {}", format_bytes(free), format_bytes(limit)));
    let connections = blocked.map(|count| text::counted(count, "blocked connection", "blocked connections"));
    let draft = Draft::new(BLOCKS, "RabbitMQ blocks all publishers: disk alarm")
        .detail(space.unwrap_or_default())
        .detail(connections.unwrap_or_default())
        .share(1.0)
        .because_some(free.map(|bytes| Evidence::number("free disk space", bytes, Unit::Bytes)))
        .because_some(limit.map(|bytes| Evidence::number("disk_free_limit", bytes, Unit::Bytes)))
        .because_some(blocked.map(|count| Evidence::number("blocked connections", count, Unit::Count)));
    Ok(Judgement::found(draft.remedy(remedy::of(
        period,
        "rabbitmq.disk_free_limit",
        "free disk space where RabbitMQ keeps its data (rabbitmq-diagnostics status shows the folder): consume or purge long queues, \
         remove logs, enlarge the disk; lower disk_free_limit only if it was set too high",
        "below disk_free_limit publishers wait until space is free",
        "rabbitmq-diagnostics alarms reports no alarms",
    ))))
}
