//! BT013: the VM waits for its sockets with poll or select, whose cost grows with every idle connection.

use beamtune_model::{Account, Code, Evidence, Missing, Period, Scale, Threshold, Unit, facts, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT013"),
    name: "no-kernel-poll",
    question: "Does the VM wait for sockets with epoll?",
    confirm: "erlang:system_info(check_io), and strace -c of the poll thread: poll calls with thousands of descriptors",
    needs: &[&metrics::POLLSET_KERNEL_POLL],
    account: Account::CpuUsed,
    judge,
    thresholds: &[DESCRIPTORS],
    ..Rule::COMMON
};

/// Descriptors that each call of poll has to look through.
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
    // One fallback set without kernel poll is normal, see ERTS's erl_check_io.c; none with it is not.
    let sets = view::poll_sets(period);
    let known = match (&sets, period.facts.flag(facts::KERNEL_POLL)) {
        (Some(sets), _) => sets.use_epoll,
        (None, Some(flag)) => flag,
        (None, None) => return period.stat(&metrics::POLLSET_KERNEL_POLL, "0").map(|_| healthy()),
    };
    if known {
        return Ok(healthy());
    }
    let counted = sets.and_then(|sets| Some((sets.count, sets.descriptors?)));
    let Some((sets, descriptors)) = counted else {
        return period.stat(&metrics::POLLSET_FDS, "0").map(|_| healthy());
    };
    let Some(severity) = DESCRIPTORS.of(period).severity(descriptors) else {
        return Ok(Judgement::Healthy("sockets are waited for with poll, and there are none".to_owned()));
    };
    let check_io = view::states(period, &["poll", "scheduler"]).map(|states| states.get("check_io")).ok();
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!("the VM waits for its {descriptors:.0} descriptors with poll: each wait looks through all of them"),
        )
        .because(Evidence::number("poll sets with epoll", 0.0, Unit::Count).with_text(format!("of {sets}")))
        .because(
            Evidence::number("descriptors in the sets", descriptors, Unit::Count)
                .against_scale(DESCRIPTORS.of(period)),
        )
        .because_some(check_io.map(|cores| Evidence::number("time in the msacc state `check_io`", cores, Unit::Cores)))
        .but_if(descriptors < DESCRIPTORS.of(period).warning, "with so few descriptors it costs little")
        .fix(remedy::of(
            period,
            "build.kernel_poll",
            "use a build configured with --enable-kernel-poll (the default on Linux; all Debian packages have it)",
            "epoll's cost does not depend on idle connections; +K has been ignored since OTP 21",
            "system_info(kernel_poll) must be true; CPU per request with the same idle connections",
        )),
    ))
}

fn healthy() -> Judgement {
    Judgement::Healthy("sockets are waited for with epoll".to_owned())
}
