//! BT014: memory for a port table of many millions of places, because the limit of open files is unlimited.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT014"),
    name: "oversized-port-table",
    question: "Does the port table waste memory?",
    confirm: "erlang:system_info(port_limit) and ulimit -n of the service; with +Q 65536 resident memory must fall at the start",
    needs: &[&metrics::PORT_COUNT],
    account: Account::Memory,
    topics: &[Topic::Memory],
    judges_dumps: true,
    judge,
    thresholds: &[SIZE],
    ..Rule::COMMON
};

/// Bytes for each place of the table: measured by RSS at +Q 134217727 as 12.0 on OTP 23 and 25, 16.0 on 27 and 29, where
/// erl_ptab.c has wider counters. 26 was not measured.
fn bytes_per_place(period: &Period) -> f64 {
    if period.facts.otp_release().is_some_and(|release| release >= 26) { 16.0 } else { 12.0 }
}

/// Size of the table.
const SIZE: Threshold = Threshold::new(
    "oversized-port-table.table_bytes",
    "size of the port table in bytes",
    Scale {
        notice: 30e6,
        warning: 100e6,
        critical: 1_000e6,
        source: "judgement; the default table takes 1 MB",
    },
);

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let limit = period.fact_number(facts::PORT_LIMIT)? as f64;
    let count = period.stat(&metrics::PORT_COUNT, "")?.max as f64;
    let place = bytes_per_place(period);
    let bytes = limit * place;
    // A table that is used is not oversized.
    let severity = SIZE.of(period).severity(bytes).filter(|_| count < limit / 10.0);
    let Some(severity) = severity else {
        return Ok(Judgement::Healthy(format!(
            "the port table has {limit:.0} places ({:.1} MB)",
            bytes / 1e6
        )));
    };
    let by_flag = view::emulator_flag(&period.facts, "+Q").value().map(str::to_owned);
    let by_environment =
        period.facts.object(facts::ENVIRONMENT).and_then(|env| env.get("ERL_MAX_PORTS").cloned());
    let cause = match (&by_flag, &by_environment) {
        (Some(value), _) => format!("the flag +Q {value}"),
        (None, Some(value)) => format!("the environment variable ERL_MAX_PORTS={value}"),
        (None, None) => "the limit of open files at start (ulimit -n)".to_owned(),
    };
    let fit = |most: f64| (most * 4.0).max(65_536.0);
    let places = fit(count);
    // Files, and sockets of the module socket, are no ports.
    let open = period.stat(&metrics::OPEN_FDS, "").ok().map(|stat| stat.max as f64);
    let files = fit(open.map_or(count, |open| open.max(count)));
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!(
                "the port table has {limit:.0} places and takes about {:.0} MB, for {count:.0} ports; its size comes from {cause}",
                bytes / 1e6
            ),
        )
        .costs(Cost::MemoryBytes(bytes))
        .because(Evidence::number("places", limit, Unit::Count))
        .because(Evidence::number("ports, most", count, Unit::Count))
        .because(
            Evidence::number("memory of the table", bytes, Unit::Bytes)
                .against_scale(SIZE.of(period))
                .with_text(format!("reckoned, {place:.0} bytes a place")),
        )
        .because_some(open.map(|open| Evidence::number("open files, most", open, Unit::Count)))
        .because_some(
            period.facts.number(facts::NOFILE_SOFT).map(|n| Evidence::number("limit of open files", n as f64, Unit::Count)),
        )
        .because_some(
            period.stat(&metrics::RSS, "").ok().map(|stat| Evidence::number("RSS of the VM", stat.last.value as f64, Unit::Bytes)),
        )
        .fix(remedy::of(
            period,
            "+Q",
            &format!("+Q {places:.0}"),
            "the flag overrides what the limit of open files suggests",
            "restart with the flag: RSS and system_info(port_limit)",
        ).map(|remedy| remedy.saving(bytes - places * place)))
        .fix_if(by_flag.is_none() && by_environment.is_none() && files < limit, || {
            remedy::of(
                period,
                "host.nofile",
                &format!("set the limit of open files to {files:.0} for this service (systemd: LimitNOFILE=; Docker: --ulimit nofile=)"),
                "the VM sizes its port table by it",
                "restart; /proc/PID/limits and system_info(port_limit)",
            ).map(|remedy| remedy.saving(bytes - files * place))
        }),
    ))
}
