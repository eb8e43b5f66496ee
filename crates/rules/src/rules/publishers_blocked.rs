//! BT072: RabbitMQ blocks publishers because its disk is nearly full.

use beamtune_model::{Account, Code, Evidence, Missing, Period, Unit, metrics};

use crate::remedy;
use crate::rule::{BELOW_CRITICAL, Draft, Judgement, Rule};
use crate::signals::broker;

pub const RULE: Rule = Rule {
    code: Code("BT072"),
    name: "publishers-blocked",
    question: "Does RabbitMQ block publishers because of its disk?",
    confirm: "rabbitmq-diagnostics alarms; rabbitmqctl list_connections name state: blocked or blocking",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::HeadRoom,
    judge,
    ..Rule::COMMON
};

/// While the alarm is in effect nobody can publish.
const BLOCKS: f64 = BELOW_CRITICAL + 5.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if !broker::recorded(period)? {
        return Ok(Judgement::Healthy(broker::NO_BROKER.to_owned()));
    }
    let last = |metric| period.stat(metric, "").ok().map(|stat| stat.last.value as f64);
    let Some(alarm) = last(&metrics::BROKER_DISK_ALARM) else {
        return Ok(Judgement::NotJudged {
            reason: "RabbitMQ notes its alarms only with the plugin management_agent".to_owned(),
            next: "rabbitmq-diagnostics alarms".to_owned(),
        });
    };
    let (free, limit) = (last(&metrics::BROKER_DISK_FREE), last(&metrics::BROKER_DISK_LIMIT));
    if alarm <= 0.0 {
        return Ok(Judgement::Healthy("no disk alarm".to_owned()));
    }
    let blocked = last(&metrics::BROKER_BLOCKED).filter(|count| *count > 0.0);
    let many = blocked.map_or_else(String::new, |count| format!(" ({count:.0} connections)"));
    let draft =
        Draft::new(BLOCKS, format!("RabbitMQ blocks all publishers{many}: the disk alarm is in effect"))
            .share(1.0)
            .because_some(free.map(|bytes| Evidence::number("free disk space", bytes, Unit::Bytes)))
            .because_some(limit.map(|bytes| Evidence::number("disk_free_limit", bytes, Unit::Bytes)))
            .because_some(blocked.map(|count| Evidence::number("connections blocked", count, Unit::Count)));
    Ok(Judgement::found(draft.fix(remedy::of(
        period,
        "rabbitmq.disk_free_limit",
        "free space where RabbitMQ keeps its data (rabbitmq-diagnostics status names the folder): consume or purge long queues, remove logs, or \
         enlarge the disk; lower disk_free_limit only if it was set too high",
        "below disk_free_limit publishers wait until there is more space again",
        "rabbitmq-diagnostics alarms must be empty",
    ))))
}
