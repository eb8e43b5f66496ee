//! BT034: the VM runs on an emulator that is slower than necessary: without JIT on a platform that has one, or a debug build.

use beamtune_model::{
    Account, Code, Evidence, Missing, Period, Scale, Subject, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT034"),
    name: "slow-emulator",
    question: "Is this the fastest emulator of its release?",
    confirm: "run the same load on an emulator with the JIT (beamtune compare --a-env, --b-env): CPU per request falls",
    needs: &[&metrics::PROCESS_USER],
    account: Account::CpuUsed,
    judge,
    thresholds: &[CPU_SHARE],
    ..Rule::COMMON
};

/// An interpreter uses about a third more CPU than the JIT (RabbitMQ).
const CPU_SHARE: Threshold = Threshold::new(
    "slow-emulator.cpu_share",
    "CPU that an interpreter uses, share of what it may use",
    Scale {
        notice: 0.0,
        warning: 0.2,
        critical: 0.8,
        source: "the authors of the JIT measured 30 to 50 % more messages of RabbitMQ with it, and none to 170 % more in benchmarks",
    },
);

/// A type of emulator that OTP's Makefile can build, and that is not meant for production.
struct Instrumented {
    kind: &'static str,
    /// What it does; printed in the detail.
    effect: &'static str,
    severity: f64,
    /// Why it should not run in production.
    why: &'static str,
}

impl Instrumented {
    /// Creates the entry of a debug build, which is several times slower.
    const fn debug(kind: &'static str, effect: &'static str) -> Instrumented {
        Instrumented { kind, effect, severity: 90.0, why: "production needs none of this" }
    }
}

const INSTRUMENTED: [Instrumented; 8] = [
    Instrumented::debug("debug", "it checks assertions all the time"),
    Instrumented::debug("valgrind", "it is built to run under Valgrind"),
    Instrumented::debug("asan", "it checks every memory access (AddressSanitizer)"),
    Instrumented::debug("gcov", "it counts every line executed"),
    Instrumented::debug("gprof", "it profiles itself"),
    Instrumented::debug("icount", "it counts instructions"),
    Instrumented {
        kind: "frmptr",
        effect: "it keeps frame pointers",
        severity: 10.0,
        why: "frame pointers cost some percent, and only perf needs them",
    },
    Instrumented {
        kind: "lcnt",
        effect: "it counts locks: meant for a measurement, not for every day",
        severity: 10.0,
        why: "lock counting takes 5 to 10 % more CPU, and up to twice the time for messages alone",
    },
];

/// Prefixes of the names of architectures with a JIT, with the first release that has it.
const JIT_SINCE: [(&str, u32); 4] = [("x86_64", 24), ("amd64", 24), ("aarch64", 25), ("arm64", 25)];

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let kind = period.fact(facts::EMU_TYPE)?;
    let share = view::process_cores(period)? / view::capacity(period)?.cores.max(0.01);
    let used = Evidence::number("CPU used, share of the capacity", share, Unit::Ratio);
    if let Some(instrumented) = INSTRUMENTED.iter().find(|instrumented| instrumented.kind == kind) {
        let draft =
            Draft::new(instrumented.severity, format!("Emulator of type {kind} is not for production"))
                .detail(instrumented.effect)
                .detail(format!("the VM uses {:.0} % of its CPU capacity", share * 100.0))
                .about(Subject::Emulator { name: kind.to_owned() })
                .evidence(Evidence::text("emulator type", kind))
                .evidence(used);
        return Ok(Judgement::found(draft.remedy(remedy::of(
            period,
            "-emu_type",
            "-emu_type opt, or leave it out; if the release contains the emulator, build the release again",
            instrumented.why,
            "erlang:system_info(build_type) is opt; CPU per request under the same load",
        ))));
    }
    let release = period.facts.otp_release();
    let architecture = period.facts.get(facts::ARCHITECTURE).unwrap_or_default();
    let jit = JIT_SINCE.iter().find(|(name, since)| {
        architecture.starts_with(name) && release.is_some_and(|release| release >= *since)
    });
    match (period.facts.get(facts::EMU_FLAVOR), jit) {
        (Some("emu"), Some((_, since))) => {
            Ok(Judgement::found(interpreter(period, share, used, architecture, *since)))
        }
        (Some(flavor), _) => Ok(Judgement::Healthy(format!("emulator: type {kind}, flavor {flavor}"))),
        (None, _) => {
            Ok(Judgement::Healthy(format!("emulator: type {kind}; this release has only one flavor")))
        }
    }
}

fn interpreter(period: &Period, share: f64, used: Evidence, architecture: &str, since: u32) -> Draft {
    let is_requested =
        period.facts.get(facts::INIT_ARGS).is_some_and(|arguments| arguments.contains("-emu_flavor emu"));
    let draft = Draft::new(
        CPU_SHARE.of(period).severity(share).unwrap_or(0.0),
        format!("VM runs without JIT and uses {:.0} % of its CPU capacity", share * 100.0),
    )
    .detail(format!("{architecture} has a JIT since OTP {since}"))
    .detail(if is_requested { "-emu_flavor emu is set" } else { "" })
    .about(Subject::Emulator { name: "interpreter".to_owned() })
    .evidence(Evidence::text("flavor", "emu"))
    .evidence(
        Evidence::text("architecture", architecture)
            .with_text(format!("{architecture}, with a JIT since OTP {since}")),
    )
    .evidence(used.against_scale(CPU_SHARE.of(period)))
    .counter_evidence(
        "C code of the VM (messages, tables, sockets, large binaries) gets no faster with the JIT",
    );
    match is_requested {
        true => draft.remedy(remedy::of(
            period,
            "-emu_flavor",
            "leave out -emu_flavor emu",
            "the interpreter was requested by -emu_flavor emu",
            "erlang:system_info(emu_flavor) is jit; CPU per request under the same load",
        )),
        false => draft.remedy(remedy::of(
            period,
            "build.jit",
            "build OTP with configure --enable-jit and a C++17 compiler (g++); Debian's packages and the official images have the JIT",
            "without such a compiler, configure leaves out the JIT silently",
            "erlang:system_info(emu_flavor) is jit; CPU per request under the same load",
        )),
    }
}
