//! BT010: ETS tables become more and more.
//!
//! There is no limit to be met: since OTP 21 the number of tables is bounded by memory alone, and
//! `system_info(ets_limit)` is a hint for the size of a hash. A count that only grows is a leak all the same.

use beamtune_model::{
    Account, Code, Evidence, Limit, Missing, Period, Scale, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule, Topic};
use crate::signals::limits::{growth, maker};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT010"),
    name: "ets-tables-growing",
    question: "Do ETS tables become more and more?",
    confirm: "ets:info(Table, owner) of some new tables: one owner, or one place in the code, makes them",
    needs: &[&metrics::ETS_COUNT],
    account: Account::HeadRoom,
    role: Role::Symptom,
    topics: &[Topic::Memory],
    needs_minutes: true,
    judge,
    thresholds: &[RATE],
    ..Rule::COMMON
};

/// New tables a second, on balance.
const RATE: Threshold = Threshold::new(
    "ets-tables-growing.new_tables_per_s",
    "new tables a second, less those that were deleted",
    Scale {
        notice: 0.2,
        warning: 1.0,
        critical: 500.0,
        source: "judgement: an empty table takes 2 kB or more",
    },
);

/// Tables that a quiet node has anyway; below it a growth is not looked at.
const FEW: i64 = 200;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let stat = period.stat(&metrics::ETS_COUNT, "")?;
    let now = stat.last.value;
    let healthy = || Ok(Judgement::Healthy(format!("{now} ETS tables, not growing")));
    let Some(trend) = growth(&view::trend_points(&stat.trace), f64::INFINITY) else { return healthy() };
    if now < FEW {
        return healthy();
    }
    let Some(severity) = RATE.of(period).severity(trend.slope) else { return healthy() };
    let maker = maker(period, "ets");
    let ets = period.find(beamtune_model::Group::Memory, "", "ets");
    Ok(Judgement::found(
        Draft::new(severity, format!("{now} ETS tables, {:.1} more each second", trend.slope))
            .about(maker.as_ref().map_or(Subject::limit(Limit::EtsTables), |maker| Subject::Table {
                name: maker.kind.clone(),
                owner: maker.by.clone(),
            }))
            .because(Evidence::number("ETS tables now", now as f64, Unit::Count))
            .because(
                Evidence::number("growth", trend.slope, Unit::PerSecond)
                    .against_scale(RATE.of(period))
                    .with_text(format!("95 % interval {:.1} to {:.1}", trend.low, trend.high)),
            )
            .because_some(
                ets.map(|stat| Evidence::number("memory of all tables", stat.last.value as f64, Unit::Bytes)),
            )
            .because_some(maker.map(|maker| maker.evidence))
            .but("there is no limit of tables since OTP 21: what ends is memory")
            .fix(remedy::of(
                period,
                "code.delete_tables",
                "delete tables when their work is done, or keep one table with a key for each user of it",
                "a table lives until its owner ends or deletes it",
                "the table count must stop growing under the same load",
            )),
    ))
}
