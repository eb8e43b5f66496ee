//! BT034: the VM runs on an emulator that is slower than it need be: one without the compiler to machine code, or one for finding bugs.

use beamtune_model::{
    Account, Code, Evidence, Missing, Period, Scale, Subject, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT034"),
    name: "slow-emulator",
    question: "Is it the fastest emulator of its release?",
    confirm: "the same load on an emulator with the JIT: CPU per request must fall (beamtune compare --a-env, --b-env)",
    needs: &[&metrics::PROCESS_USER],
    account: Account::CpuUsed,
    judge,
    thresholds: &[USED],
    ..Rule::COMMON
};

/// The CPU that the VM uses, as a share of what it may use: of that an interpreter takes a third more than it would have to (RabbitMQ).
const USED: Threshold = Threshold::new(
    "slow-emulator.cpu_share",
    "CPU that an interpreter uses, share of what it may use",
    Scale {
        notice: 0.0,
        warning: 0.2,
        critical: 0.8,
        source: "the authors of the compiler measured 30 to 50 % more messages of RabbitMQ with it, and none to 170 % more in benchmarks",
    },
);

/// A type of emulator that its Makefile can build, and that is not meant for production.
struct Instrumented {
    kind: &'static str,
    /// What it does.
    what: &'static str,
    severity: f64,
    /// Why it is to be left.
    why: &'static str,
}

impl Instrumented {
    /// One for finding bugs, which costs a multiple.
    const fn for_bugs(kind: &'static str, what: &'static str) -> Instrumented {
        Instrumented { kind, what, severity: 90.0, why: "production needs none of this" }
    }
}

const INSTRUMENTED: [Instrumented; 8] = [
    Instrumented::for_bugs("debug", "checks itself all the time"),
    Instrumented::for_bugs("valgrind", "is made to be run by valgrind"),
    Instrumented::for_bugs("asan", "checks every access to memory"),
    Instrumented::for_bugs("gcov", "counts every line that is run"),
    Instrumented::for_bugs("gprof", "is profiled"),
    Instrumented::for_bugs("icount", "counts instructions"),
    Instrumented {
        kind: "frmptr",
        what: "keeps frame pointers",
        severity: 10.0,
        why: "frame pointers cost some percent, and nothing but perf needs them",
    },
    Instrumented {
        kind: "lcnt",
        what: "counts its locks: meant for measuring, not to be left in place",
        severity: 10.0,
        why: "counting takes 5 to 10 % more CPU, up to twice the time where messages are all there is",
    },
];

/// Processors that there is a compiler for, as the architecture begins, and the release that brought it.
const COMPILED: [(&str, u32); 4] = [("x86_64", 24), ("amd64", 24), ("aarch64", 25), ("arm64", 25)];

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let kind = period.fact(facts::EMU_TYPE)?;
    let share = view::process_cores(period)? / view::capacity(period)?.cores.max(0.01);
    let used = Evidence::number("CPU that it uses, of what it may", share, Unit::Ratio);
    if let Some(instrumented) = INSTRUMENTED.iter().find(|instrumented| instrumented.kind == kind) {
        let draft = Draft::new(
            instrumented.severity,
            format!(
                "the emulator is not one for production: it is of type {kind}, which {}",
                instrumented.what
            ),
        )
        .about(Subject::Emulator { name: kind.to_owned() })
        .because(Evidence::text("type", kind))
        .because(used);
        return Ok(Judgement::found(draft.fix(remedy::of(
            period,
            "-emu_type",
            "-emu_type opt, or leave it out; if the release brings the emulator, build it again without",
            instrumented.why,
            "system_info(build_type) must be opt; CPU per request under the same load",
        ))));
    }
    let release = period.facts.otp_release();
    let architecture = period.facts.get(facts::ARCHITECTURE).unwrap_or_default();
    let compiled = COMPILED.iter().find(|(name, since)| {
        architecture.starts_with(name) && release.is_some_and(|release| release >= *since)
    });
    match (period.facts.get(facts::EMU_FLAVOR), compiled) {
        (Some("emu"), Some((_, since))) => {
            Ok(Judgement::found(interpreter(period, share, used, architecture, *since)))
        }
        (Some(flavor), _) => {
            Ok(Judgement::Healthy(format!("the emulator is of type {kind} and flavor {flavor}")))
        }
        (None, _) => Ok(Judgement::Healthy(format!(
            "the emulator is of type {kind}; this release has no other flavor"
        ))),
    }
}

fn interpreter(period: &Period, share: f64, used: Evidence, architecture: &str, since: u32) -> Draft {
    let is_asked_for =
        period.facts.get(facts::INIT_ARGS).is_some_and(|arguments| arguments.contains("-emu_flavor emu"));
    let draft = Draft::new(
        USED.of(period).severity(share).unwrap_or(0.0),
        "the VM interprets its code, though its release can compile it to machine code".to_owned(),
    )
    .about(Subject::Emulator { name: "interpreter".to_owned() })
    .because(Evidence::text("flavor", "emu"))
    .because(
        Evidence::text("architecture", architecture)
            .with_text(format!("{architecture}, for which there is a compiler since OTP {since}")),
    )
    .because(used.against_scale(USED.of(period)))
    .but("what the VM does in its C code (messages, tables, sockets, large binaries) becomes no faster");
    match is_asked_for {
        true => draft.fix(remedy::of(
            period,
            "-emu_flavor",
            "leave out -emu_flavor emu",
            "the interpreter was asked for by -emu_flavor emu",
            "system_info(emu_flavor) must be jit; CPU per request under the same load",
        )),
        false => draft.fix(remedy::of(
            period,
            "build.jit",
            "a build with the compiler: configure --enable-jit, with a C++17 compiler (g++) at hand; Debian's and the official images have it",
            "where configure finds no such compiler it leaves the JIT out without a word",
            "system_info(emu_flavor) must be jit; CPU per request under the same load",
        )),
    }
}
