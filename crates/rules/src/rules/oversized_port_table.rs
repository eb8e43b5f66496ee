//! BT014: the port table has many millions of entries, and wastes memory, because the number of open files is unlimited.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::memory::format_bytes;
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT014"),
    name: "oversized-port-table",
    question: "Does the port table waste memory?",
    confirm: "start with +Q 65536: resident memory falls; compare erlang:system_info(port_limit) with ulimit -n of the service",
    needs: &[&metrics::PORT_COUNT],
    account: Account::Memory,
    topics: &[Topic::Memory],
    judges_dumps: true,
    judge,
    thresholds: &[SIZE],
    ..Rule::COMMON
};

/// Returns the bytes per entry of the table, measured by RSS at +Q 134217727. It is 12.0 on OTP 23 and 25, and 16.0 on 27 and 29, where the
/// counters in erl_ptab.c are wider. OTP 26 was not measured.
fn bytes_per_entry(period: &Period) -> f64 {
    if period.facts.otp_release().is_some_and(|release| release >= 26) { 16.0 } else { 12.0 }
}

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
    let entry = bytes_per_entry(period);
    let bytes = limit * entry;
    // A table of which a tenth or more is in use is not oversized.
    let severity = SIZE.of(period).severity(bytes).filter(|_| count < limit / 10.0);
    let Some(severity) = severity else {
        return Ok(Judgement::Healthy(format!(
            "port table: {} entries, {}",
            text::number(limit),
            format_bytes(bytes)
        )));
    };
    let by_flag = view::emulator_flag(&period.facts, "+Q").value().map(str::to_owned);
    let by_environment =
        period.facts.object(facts::ENVIRONMENT).and_then(|env| env.get("ERL_MAX_PORTS").cloned());
    let cause = match (&by_flag, &by_environment) {
        (Some(value), _) => format!("+Q {value}"),
        (None, Some(value)) => format!("ERL_MAX_PORTS={value} in the environment"),
        (None, None) => "the open file limit at start (ulimit -n)".to_owned(),
    };
    let fit = |count: f64| (count * 4.0).max(65_536.0);
    let entries = fit(count);
    // Files, and sockets of the module `socket`, are not ports.
    let open = period.stat(&metrics::OPEN_FDS, "").ok().map(|stat| stat.max as f64);
    let files = fit(open.map_or(count, |open| open.max(count)));
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!(
                "Port table has {} entries for {}: {}",
                text::number(limit),
                text::counted(count, "port", "ports"),
                format_bytes(bytes)
            ),
        )
        .detail(format!("size set by {cause}"))
        .costs(Cost::MemoryBytes(bytes))
        .evidence(Evidence::number("entries of the port table", limit, Unit::Count))
        .evidence(Evidence::number("maximum ports", count, Unit::Count))
        .evidence(
            Evidence::number("memory of the port table", bytes, Unit::Bytes)
                .against_scale(SIZE.of(period))
                .with_text(format!("computed, {entry:.0} bytes per entry")),
        )
        .because_some(open.map(|open| Evidence::number("maximum open files", open, Unit::Count)))
        .because_some(
            period
                .facts
                .number(facts::NOFILE_SOFT)
                .map(|limit| Evidence::number("open file limit", limit as f64, Unit::Count)),
        )
        .because_some(
            period
                .stat(&metrics::RSS, "")
                .ok()
                .map(|stat| Evidence::number("resident memory", stat.last.value as f64, Unit::Bytes)),
        )
        .remedy(
            remedy::of(
                period,
                "+Q",
                &format!("+Q {entries:.0}"),
                "the flag overrides the open file limit",
                "RSS and system_info(port_limit) after a restart",
            )
            .map(|remedy| remedy.saving(bytes - entries * entry)),
        )
        .fix_if(by_flag.is_none() && by_environment.is_none() && files < limit, || {
            remedy::of(
                period,
                "host.nofile",
                &format!(
                    "set the open file limit to {files:.0} for this service \
                     (systemd: LimitNOFILE=; Docker: --ulimit nofile=)"
                ),
                "the VM sizes its port table by this limit",
                "/proc/PID/limits and system_info(port_limit) after a restart",
            )
            .map(|remedy| remedy.saving(bytes - files * entry))
        }),
    ))
}
