//! BT021: the VM's clock and the host's disagree.
//!
//! The host's time may be stepped. A VM that may not warp then runs its clock, and all timers, up to 1 % fast or slow until the two agree.
//! Correcting one second takes 100 seconds. Without time correction, the VM's clock jumps with the host's.

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
    question: "Does the VM's clock agree with the host's?",
    confirm: "compare erlang:system_time() with date on the host twice within a minute: the difference is large, or changes",
    needs: &[&metrics::CLOCK_OFFSET],
    account: Account::Delay,
    judge,
    thresholds: &[DRIFT, DIFFERENCE],
    ..Rule::COMMON
};

/// Drift of the VM's monotonic clock relative to the recorder's.
const DRIFT: Threshold = Threshold::new(
    "clock-off.drift_share",
    "drift of the VM's clock, in seconds per second",
    Scale {
        notice: 0.0003,
        warning: 0.005,
        critical: 0.02,
        source: "the VM corrects small errors by 0.05 % and larger ones by 1 % (OTP's erl_time_sup.c); NTP slews both clocks alike",
    },
);

const DIFFERENCE: Threshold = Threshold::new(
    "clock-off.difference_seconds",
    "seconds between the VM's system time and the host's",
    Scale {
        notice: 0.1,
        warning: 1.0,
        critical: 300.0,
        source: "judgement: timestamps, tokens and expiry of other programs on the host disagree by as much",
    },
);

/// A smaller change of the host's time is not a step: time services slew by less in a second, and readings are a few milliseconds apart.
const MIN_STEP_SECONDS: f64 = 0.1;

/// Readings of two clocks that are further apart are not compared. One clock may have been set in between, and a VM that corrects its clock
/// gains up to 1 %. The time offset is read every ten seconds.
const MAX_READING_DISTANCE: Nanos = 15 * SECOND_NS;

const NS_PER_S: f64 = 1e9;

/// The VM's clock compared with those of the recorder and the host.
struct Clocks {
    /// Seconds per second that the VM's monotonic clock gains on the recorder's; `None` if there are too few readings.
    gain: Option<f64>,
    /// Seconds by which the VM's system time is ahead of the host's; `None` if the host was not read at about the same time.
    ahead: Option<f64>,
    /// Seconds by which the host's time was set during the recording, all steps together; 0 if it was not set.
    step: f64,
}

impl Clocks {
    fn of(period: &Period) -> Result<Clocks, Missing> {
        let offset = period.stat(&metrics::CLOCK_OFFSET, "")?;
        let points: Vec<_> = view::trend_points(&offset.trace)
            .into_iter()
            .map(|(t, ns)| (t, (ns - offset.first.value as f64) / NS_PER_S))
            .collect();
        // The offset says how far the recorder's clock is ahead of the VM's.
        let gain = trend(&points).map(|trend| if trend.p < 0.01 { -trend.slope } else { 0.0 });
        let wall = period.stat(&metrics::WALL_CLOCK, "").ok();
        let ahead = period.stat(&metrics::TIME_OFFSET, "").ok().zip(wall).and_then(|(system, wall)| {
            let t = system.last.t;
            let vm = i128::from(system.last.value) - i128::from(at(offset, t)?);
            Some((vm - i128::from(at(wall, t)?)) as f64 / NS_PER_S)
        });
        let step = wall.map_or(0.0, |wall| (i128::from(wall.max) - i128::from(wall.min)) as f64 / NS_PER_S);
        Ok(Clocks { gain, ahead, step: if step >= MIN_STEP_SECONDS { step } else { 0.0 } })
    }
}

/// The value of a gauge near an instant. The trace of a long recording has a reading every few minutes, and lacks the last one.
fn at(gauge: &SeriesStat, t: Nanos) -> Option<i64> {
    let last = (gauge.last.t, gauge.last.value);
    let readings = gauge.trace.points().iter().chain([&last]);
    let (at, value) = readings.min_by_key(|reading| reading.0.abs_diff(t))?;
    (at.abs_diff(t) <= MAX_READING_DISTANCE.unsigned_abs()).then_some(*value)
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let clocks = Clocks::of(period)?;
    let mode = period.fact(facts::TIME_WARP_MODE)?;
    let corrected = period.facts.flag(facts::TIME_CORRECTION) != Some(false);
    let Some(gain) = clocks.gain else {
        return Ok(Judgement::NotJudged {
            reason: "too few readings of the VM's clock".to_owned(),
            next: "record for longer: --for 10s".to_owned(),
        });
    };
    let difference = clocks.ahead.and_then(|ahead| DIFFERENCE.of(period).severity(ahead.abs()));
    let drift = DRIFT.of(period).severity(gain.abs());
    let worst = difference.into_iter().chain(drift).reduce(f64::max);
    // A VM that may warp follows a step within a minute, and timers are not affected.
    let warps = mode == "multi_time_warp" && corrected;
    // A small step is corrected soon, at 1 %.
    let is_small = corrected && clocks.step < DIFFERENCE.of(period).warning;
    let stepped = (clocks.step > 0.0).then_some(match (warps, is_small) {
        (true, _) => 10.0,
        (false, true) => MINOR,
        (false, false) => 30.0,
    });
    let uncorrected = (!corrected).then_some(15.0);
    let Some(severity) = [worst, stepped, uncorrected].into_iter().flatten().reduce(f64::max) else {
        return Ok(Judgement::Healthy(healthy(&clocks, gain)));
    };
    // The VM reads the host's time every 15 to 60 s (OTP's erl_time_sup.c).
    let is_over_soon = warps && drift.is_none();
    let (title, detail) = title(period, &clocks, gain);
    Ok(Judgement::found(
        Draft::new(severity, title)
            .detail(detail)
            .detail(format!("time warp mode {mode}, time correction {}", if corrected { "on" } else { "off" }))
            .minor_if(is_over_soon)
            .about(Subject::host(HostPart::Clock))
            .evidence(
                Evidence::number("drift of the VM's clock", gain, Unit::Ratio)
                    .against_scale(DRIFT.of(period)),
            )
            .because_some(clocks.ahead.map(|ahead| {
                Evidence::number("VM system time ahead of the host's", ahead, Unit::Seconds)
                    .against_scale(DIFFERENCE.of(period))
            }))
            .because_some(
                (clocks.step > 0.0)
                    .then(|| Evidence::number("step of the host's time", clocks.step, Unit::Seconds)),
            )
            .evidence(Evidence::text("time warp mode (+C)", mode))
            .evidence(Evidence::text("time correction (+c)", if corrected { "on" } else { "off" }))
            .but_if(is_over_soon, "in this mode the VM follows the host's time within a minute")
            .but_if(
                clocks.ahead.is_none() && drift.is_some(),
                "host and VM were not read at the same time, so the difference is unknown",
            )
            .fix_if(!corrected, || {
                remedy::of(
                    period,
                    "+c",
                    "remove +c false",
                    "timers then run evenly when the host's time is set",
                    "erlang:system_info(time_correction) is true",
                )
            })
            .fix_if(mode != "multi_time_warp", || {
                remedy::of(
                    period,
                    "+C",
                    "+C multi_time_warp",
                    "system time follows the host's at once, and timers keep their pace",
                    "no such finding after the next step; check first that no code relies on system time going only forward",
                )
            })
            .remedy(remedy::of(
                period,
                "host.clock",
                "set the host's time before the VM starts, and only slew it afterwards (chrony: makestep 1 3); restart a VM that is far off",
                "a VM that starts with the right time has nothing to correct",
                "chronyc tracking: the host's offset stays within milliseconds",
            )),
    ))
}

fn title(period: &Period, clocks: &Clocks, gain: f64) -> (String, String) {
    let side = |ahead: f64| if ahead > 0.0 { "ahead of" } else { "behind" };
    let difference = clocks.ahead.filter(|ahead| DIFFERENCE.of(period).severity(ahead.abs()).is_some());
    match (DRIFT.of(period).severity(gain.abs()), difference) {
        (Some(_), Some(ahead)) => {
            // If they drift apart, they never agree.
            let left = (ahead * gain < 0.0).then(|| view::duration_text((ahead / gain).abs()));
            let title = format!(
                "VM clock runs {:.2} % {}, {} {} the host",
                gain.abs() * 100.0,
                pace(gain),
                difference_text(ahead),
                side(ahead)
            );
            let until = left.map_or(String::new(), |left| format!(", until they agree in {left}"));
            (title, format!("all timers run {} with it{until}", pace(gain)))
        }
        (Some(_), None) => {
            let title = format!("VM clock and timers run {:.2} % {}", gain.abs() * 100.0, pace(gain));
            (title, String::new())
        }
        (None, Some(ahead)) => {
            let title = format!("VM system time is {} {} the host's", difference_text(ahead), side(ahead));
            (title, String::new())
        }
        (None, None) if clocks.step > 0.0 => {
            (format!("Host time was stepped by {:.1} s during the recording", clocks.step), String::new())
        }
        (None, None) => (
            "Time correction is off: a step of host time disturbs all timers".to_owned(),
            "timers jump or stop when the host's time is set".to_owned(),
        ),
    }
}

fn difference_text(ahead: f64) -> String {
    let seconds = ahead.abs();
    if seconds < 10.0 { format!("{seconds:.1} s") } else { view::duration_text(seconds) }
}

fn pace(gain: f64) -> &'static str {
    if gain > 0.0 { "fast" } else { "slow" }
}

fn healthy(clocks: &Clocks, gain: f64) -> String {
    let ppm = gain.abs() * 1e6;
    match clocks.ahead {
        Some(ahead) => {
            format!("VM clock: drift {ppm:.0} ppm, {:.1} ms off the host's", ahead.abs() * 1e3)
        }
        None => format!("VM clock: drift {ppm:.0} ppm"),
    }
}
