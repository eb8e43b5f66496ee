//! BT021: the VM's clock does not go as the host's does.
//!
//! After a step of the host's time a VM that may not warp runs its clock, and with it every timer, up to 1 % fast or slow until
//! the two agree: 100 seconds for each second. Without time correction its clock jumps with the host's.

use beamtune_model::units::SECOND_NS;
use beamtune_model::{
    Account, Code, Evidence, HostPart, Missing, Nanos, Period, Scale, SeriesStat, Subject, Threshold, Unit,
    facts, metrics,
};
use beamtune_stats::trend;

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT021"),
    name: "clock-off",
    question: "Does the VM's clock go as the host's does?",
    confirm: "erlang:system_time() beside date on the host, twice within a minute: the difference must stay as it is",
    needs: &[&metrics::CLOCK_OFFSET],
    account: Account::Delay,
    judge,
    thresholds: &[RUNS_OFF, APART],
    ..Rule::COMMON
};

/// How much faster or slower the VM's monotonic clock runs than the recorder's: seconds per second.
const RUNS_OFF: Threshold = Threshold::new(
    "clock-off.drift_share",
    "how much faster or slower the VM's clock runs, in seconds per second",
    Scale {
        notice: 0.0003,
        warning: 0.005,
        critical: 0.02,
        source: "the VM corrects small errors by 0.05 % and larger ones by 1 % (OTP's erl_time_sup.c); NTP slews both clocks alike",
    },
);

/// Seconds between the system time of the VM and that of its host.
const APART: Threshold = Threshold::new(
    "clock-off.difference_seconds",
    "seconds between the VM's system time and the host's",
    Scale {
        notice: 0.1,
        warning: 1.0,
        critical: 300.0,
        source: "judgement: time stamps, tokens and expiry of other programs on the host disagree by as much",
    },
);

/// A smaller change of the host's time is no step: time services slew by less in a second, and readings are some
/// milliseconds apart.
const STEP_SECONDS: f64 = 0.1;

/// Clocks that were read further apart than this are not compared: one of them may have been set in between, and a VM that
/// corrects gains up to 1 %. The time offset is read every ten seconds.
const TOGETHER: Nanos = 15 * SECOND_NS;

const NS_PER_S: f64 = 1e9;

/// What is known of the clocks.
struct Clocks {
    /// Seconds that the VM's monotonic clock gains in each second of the recorder's; `None` with too few readings.
    gain: Option<f64>,
    /// Seconds that the VM's system time is ahead of the host's; `None` where the host was not read, or not at that time.
    ahead: Option<f64>,
    /// Seconds by which the host's time was set in the recording, all steps in one; 0 if it was not.
    step: f64,
}

impl Clocks {
    fn of(period: &Period) -> Result<Clocks, Missing> {
        let offset = period.stat(&metrics::CLOCK_OFFSET, "")?;
        let points: Vec<_> = view::trend_points(&offset.trace)
            .into_iter()
            .map(|(t, ns)| (t, (ns - offset.first.value as f64) / NS_PER_S))
            .collect();
        // The offset is what the recorder's clock is ahead by.
        let gain = trend(&points).map(|trend| if trend.p < 0.01 { -trend.slope } else { 0.0 });
        let wall = period.stat(&metrics::WALL_CLOCK, "").ok();
        let ahead = period.stat(&metrics::TIME_OFFSET, "").ok().zip(wall).and_then(|(system, wall)| {
            let t = system.last.t;
            let vm = i128::from(system.last.value) - i128::from(at(offset, t)?);
            Some((vm - i128::from(at(wall, t)?)) as f64 / NS_PER_S)
        });
        let step = wall.map_or(0.0, |wall| (i128::from(wall.max) - i128::from(wall.min)) as f64 / NS_PER_S);
        Ok(Clocks { gain, ahead, step: if step >= STEP_SECONDS { step } else { 0.0 } })
    }
}

/// What a gauge showed at about an instant. Of a long recording the trace holds a reading every some minutes only, and not the
/// last one.
fn at(gauge: &SeriesStat, t: Nanos) -> Option<i64> {
    let last = (gauge.last.t, gauge.last.value);
    let readings = gauge.trace.points().iter().chain([&last]);
    let (at, value) = readings.min_by_key(|reading| reading.0.abs_diff(t))?;
    (at.abs_diff(t) <= TOGETHER.unsigned_abs()).then_some(*value)
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let clocks = Clocks::of(period)?;
    let mode = period.fact(facts::TIME_WARP_MODE)?;
    let corrected = period.facts.flag(facts::TIME_CORRECTION) != Some(false);
    let Some(gain) = clocks.gain else {
        return Ok(Judgement::NotJudged {
            reason: "there are too few readings of the VM's clock for a trend".to_owned(),
            next: "record for longer: --for 10s".to_owned(),
        });
    };
    let apart = clocks.ahead.and_then(|ahead| APART.of(period).severity(ahead.abs()));
    let off = RUNS_OFF.of(period).severity(gain.abs());
    let worst = apart.into_iter().chain(off).reduce(f64::max);
    // Where it may warp, the VM takes over a step, within a minute, and no timer suffers.
    let warps = mode == "multi_time_warp" && corrected;
    // A small one is made good soon, by 1 %.
    let is_small = corrected && clocks.step < APART.of(period).warning;
    let stepped = (clocks.step > 0.0).then_some(match (warps, is_small) {
        (true, _) => 10.0,
        (false, true) => MINOR,
        (false, false) => 30.0,
    });
    let uncorrected = (!corrected).then_some(15.0);
    let Some(severity) = [worst, stepped, uncorrected].into_iter().flatten().reduce(f64::max) else {
        return Ok(Judgement::Healthy(healthy(&clocks, gain)));
    };
    // It looks at the host's time every 15 to 60 s (OTP's erl_time_sup.c), and takes over what it sees.
    let soon = warps && off.is_none();
    Ok(Judgement::found(
        Draft::new(severity, summary(period, &clocks, gain))
            .minor_if(soon)
            .about(Subject::host(HostPart::Clock))
            .because(
                Evidence::number("the VM's clock gains, seconds per second", gain, Unit::Ratio)
                    .against_scale(RUNS_OFF.of(period)),
            )
            .because_some(clocks.ahead.map(|ahead| {
                Evidence::number("system time of the VM is ahead of the host's by", ahead, Unit::Seconds)
                    .against_scale(APART.of(period))
            }))
            .because_some((clocks.step > 0.0).then(|| {
                Evidence::number("the host's time was set in the recording, by", clocks.step, Unit::Seconds)
            }))
            .because(Evidence::text("time warp mode (+C)", mode))
            .because(Evidence::text("time correction (+c)", if corrected { "on" } else { "off" }))
            .but_if(soon, "this mode takes the host's time over, the next time that it looks: within a minute")
            .but_if(
                clocks.ahead.is_none() && off.is_some(),
                "the host was not read together with the VM, so how far the two are apart is not known",
            )
            .fix_if(!corrected, || {
                remedy::of(
                    period,
                    "+c",
                    "remove +c false",
                    "timers then go on evenly when the host's time is set",
                    "erlang:system_info(time_correction) is true",
                )
            })
            .fix_if(mode != "multi_time_warp", || {
                remedy::of(
                    period,
                    "+C",
                    "+C multi_time_warp",
                    "system time then follows the host's at once, and timers keep their pace",
                    "this finding after the next step; first see that the program does not count on system time going forward only",
                )
            })
            .fix(remedy::of(
                period,
                "host.clock",
                "set the host's time before the VM starts, and slew it after that (chrony: makestep 1 3 only); restart a VM that is far off",
                "a VM that starts with the right time has nothing to correct",
                "chronyc tracking: the offset of the host stays at milliseconds",
            )),
    ))
}

fn summary(period: &Period, clocks: &Clocks, gain: f64) -> String {
    let side = |ahead: f64| if ahead > 0.0 { "ahead of" } else { "behind" };
    let apart = clocks.ahead.filter(|ahead| APART.of(period).severity(ahead.abs()).is_some());
    match (RUNS_OFF.of(period).severity(gain.abs()), apart) {
        (Some(_), Some(ahead)) => {
            // Away from each other, it never ends.
            let left = (ahead * gain < 0.0).then(|| view::duration_text((ahead / gain).abs()));
            format!(
                "the VM's clock runs {:.2} % {}, and all of its timers with it: it is {} {} the host's{}",
                gain.abs() * 100.0,
                pace(gain),
                apart_text(ahead),
                side(ahead),
                left.map_or(String::new(), |left| format!(", and needs {left} more to be right"))
            )
        }
        (Some(_), None) => {
            format!(
                "the VM's clock runs {:.2} % {}, and all of its timers with it",
                gain.abs() * 100.0,
                pace(gain)
            )
        }
        (None, Some(ahead)) => {
            format!("the VM's system time is {} {} the host's", apart_text(ahead), side(ahead))
        }
        (None, None) if clocks.step > 0.0 => {
            format!("the host's time was set by {:.1} s while it was recorded", clocks.step)
        }
        (None, None) => {
            "time correction is off: when the host's time is set, all timers of the VM jump or stand still"
                .to_owned()
        }
    }
}

fn apart_text(ahead: f64) -> String {
    let seconds = ahead.abs();
    if seconds < 10.0 { format!("{seconds:.1} s") } else { view::duration_text(seconds) }
}

fn pace(gain: f64) -> &'static str {
    if gain > 0.0 { "fast" } else { "slow" }
}

fn healthy(clocks: &Clocks, gain: f64) -> String {
    let ppm = gain.abs() * 1e6;
    match clocks.ahead {
        Some(ahead) => format!(
            "the VM's clock goes with the host's: {ppm:.0} parts in a million apart, and {:.1} ms in system time",
            ahead.abs() * 1e3
        ),
        None => format!("the VM's clock goes with ours: {ppm:.0} parts in a million apart"),
    }
}
