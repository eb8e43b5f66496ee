//! BT013: the VM polls its sockets with poll or select, whose cost grows with every idle connection.

use beamtune_model::{Account, Code, Evidence, Missing, Period, Scale, Threshold, Unit, facts, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT013"),
    name: "no-kernel-poll",
    question: "Does the VM poll its sockets with epoll?",
    confirm: "run erlang:system_info(check_io), and strace -c on the poll thread: poll calls with thousands of descriptors",
    needs: &[&metrics::POLLSET_KERNEL_POLL],
    account: Account::CpuUsed,
    judge,
    thresholds: &[DESCRIPTORS],
    ..Rule::COMMON
};

/// Each call of poll scans all descriptors.
const DESCRIPTORS: Threshold = Threshold::new(
    "no-kernel-poll.descriptors",
    "file descriptors in the poll sets",
    Scale {
        notice: 1.0,
        warning: 200.0,
        critical: 2_000.0,
        source: "measured: 2,000 idle connections cost 201 µs a request with poll, 11 µs with epoll; 9,000 saturate a core",
    },
);

fn judge(period: &Period) -> Result<Judgement, Missing> {
    // One fallback set without kernel poll is normal (erl_check_io.c in ERTS). If no set has kernel poll, it is off.
    let sets = view::poll_sets(period);
    let uses_epoll = match (&sets, period.facts.flag(facts::KERNEL_POLL)) {
        (Some(sets), _) => sets.use_epoll,
        (None, Some(flag)) => flag,
        (None, None) => return period.stat(&metrics::POLLSET_KERNEL_POLL, "0").map(|_| healthy()),
    };
    if uses_epoll {
        return Ok(healthy());
    }
    let counted = sets.and_then(|sets| Some((sets.count, sets.descriptors?)));
    let Some((sets, descriptors)) = counted else {
        return period.stat(&metrics::POLLSET_FDS, "0").map(|_| healthy());
    };
    let Some(severity) = DESCRIPTORS.of(period).severity(descriptors) else {
        return Ok(Judgement::Healthy("poll instead of epoll, but no sockets".to_owned()));
    };
    let check_io = view::states(period, &["poll", "scheduler"]).map(|states| states.get("check_io")).ok();
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!(
                "{} polled without epoll",
                text::counted(descriptors, "file descriptor", "file descriptors")
            ),
        )
        .detail("each call of poll scans all of them")
        .evidence(Evidence::number("poll sets with epoll", 0.0, Unit::Count).with_text(format!("of {sets}")))
        .evidence(
            Evidence::number("file descriptors in poll sets", descriptors, Unit::Count)
                .against_scale(DESCRIPTORS.of(period)),
        )
        .because_some(check_io.map(|cores| Evidence::number("msacc state check_io", cores, Unit::Cores)))
        .but_if(descriptors < DESCRIPTORS.of(period).warning, "so few descriptors cost little")
        .remedy(remedy::of(
            period,
            "build.kernel_poll",
            "use an emulator built with --enable-kernel-poll (default on Linux, and in all Debian packages)",
            "epoll's cost does not depend on idle connections; +K is ignored since OTP 21",
            "system_info(kernel_poll) is true; CPU per request with the same idle connections",
        )),
    ))
}

fn healthy() -> Judgement {
    Judgement::Healthy("sockets are polled with epoll".to_owned())
}
