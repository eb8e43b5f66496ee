//! BT023: the VM is started again and again.
//!
//! A period is about one life of a VM; of the others it knows when they were. That is enough to see a loop, and each life
//! but the first and the last was seen from its start to its end.

use beamtune_model::{
    Account, Code, Evidence, Group, Missing, Period, Scale, Threshold, Unit, facts, units::SECOND_NS,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT023"),
    name: "restart-loop",
    question: "Is the VM started again and again?",
    confirm: "the log of the service manager, and erl_crash.dump: beamtune import erl_crash.dump",
    needs: &[],
    account: Account::Delay,
    judge,
    thresholds: &[LIFE],
    ..Rule::COMMON
};

/// Seconds from one start to the next, the median of the last lives that were seen whole.
const LIFE: Threshold = Threshold::new(
    "restart-loop.life_seconds",
    "seconds from one start to the next; a shorter life is worse",
    Scale {
        notice: 3_600.0,
        warning: 600.0,
        critical: 60.0,
        source: "judgement: nobody restarts a node twice in ten minutes on purpose; systemd gives up after 5 starts in 10 s",
    },
);

/// Fewer are no loop: an upgrade and its correction. So many of the last lives say how long they are: a start that failed once, weeks ago,
/// is none.
const LOOP: usize = 3;

/// A life that is so many times as long as the ones before says that it is over (judgement).
const OVER: f64 = 10.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if period.is_imported() {
        return Err(period.missing_group(Group::Vm, "earlier and later lives of the VM"));
    }
    let starts: Vec<f64> = period.seen.iter().map(|seen| seen.begin as f64 / SECOND_NS as f64).collect();
    let (Some(first), Some(last)) = (starts.first(), period.seen.last()) else {
        return Ok(Judgement::NotJudged {
            reason: "no sample was taken".to_owned(),
            next: "record while the node runs".to_owned(),
        });
    };
    let seconds = last.end as f64 / SECOND_NS as f64 - first;
    let restarts = starts.len() - 1;
    let whole: Vec<f64> = starts.windows(2).skip(1).map(|pair| pair[1] - pair[0]).collect();
    let recent = whole.get(whole.len().saturating_sub(LOOP)..).unwrap_or_default();
    let usual = beamtune_stats::median(recent).unwrap_or(f64::INFINITY);
    let present = last.end.saturating_sub(last.begin) as f64 / SECOND_NS as f64;
    let is_over = present >= OVER * usual;
    let severity = match LIFE.of(period).severity(usual) {
        Some(severity) => severity,
        // Of a single one it cannot be told how long lives are: more than what was seen.
        None if restarts == 1 => 0.0,
        None => {
            let observed = view::duration_text(seconds);
            return Ok(Judgement::Healthy(match restarts {
                0 => format!("the VM was not started again in {observed}"),
                _ => format!(
                    "{restarts} restarts in {observed}, the last ones {} apart",
                    view::duration_text(usual)
                ),
            }));
        }
    };
    let summary = match restarts {
        1 => format!("the VM was started again within {}", view::duration_text(seconds)),
        _ => format!(
            "the VM was started again {restarts} times within {}; a life takes about {}",
            view::duration_text(seconds),
            view::duration_text(usual)
        ),
    };
    let heart = [facts::INIT_ARGS, facts::COMMAND_LINE]
        .iter()
        .filter_map(|key| period.facts.list(key))
        .flatten()
        .any(|argument| argument.split(' ').next() == Some("-heart"));
    let memory = view::group_memory_used(period);
    let full = memory.is_some_and(|share| share >= view::NEARLY_FULL);
    let gone = period.events.iter().rev().find(|event| event.kind == "gone");
    Ok(Judgement::found(
        Draft::new(severity, summary)
            .minor_if(is_over)
            .inferred_if(restarts < LOOP)
            .because(Evidence::number("restarts", restarts as f64, Unit::Count))
            .because_some((!whole.is_empty()).then(|| {
                Evidence::number("a life, from start to start: median of the last ones", usual, Unit::Seconds)
                    .against_scale(LIFE.of(period))
            }))
            .because_some(lengths(&whole))
            .because_some(heart.then(|| Evidence::text("started again by", "heart, or whoever watches it")))
            .because_some(memory.map(|share| {
                Evidence::number("most of the control group's memory limit in use", share, Unit::Ratio)
                    .with_text("with what the kernel caches for it")
            }))
            .because_some(gone.map(|event| Evidence::text("how it was lost", event.detail.clone())))
            .but_if(
                is_over,
                format!("it seems to be over: the present life has lasted for {} so far", view::duration_text(present)),
            )
            .but_if(restarts < LOOP, "a deploy, or somebody who tries something, looks the same: see whether it goes on")
            .fix_if(full, || {
                remedy::of(
                    period,
                    "host.memory_limit",
                    "if oom_kill in memory.events of the control group has grown: raise its memory limit, or bound what grows",
                    "the kernel ends a VM that exceeds it at once, without a crash dump",
                    "oom_kill must not grow any more",
                )
            })
            .fix(remedy::of(
                period,
                "ERL_CRASH_DUMP",
                "read the head of erl_crash.dump (in the VM's working directory, or where ERL_CRASH_DUMP says): its Slogan is why the VM ended",
                "a loop hides its cause: each end writes over the dump of the one before",
                "keep the file of the next end; no file means a clean stop, or a kill from outside (exit status 137 is one by SIGKILL)",
            ))
            .fix(remedy::of(
                period,
                "host.restart",
                "wait longer between two starts, and give up after some (systemd: RestartSec=, StartLimitBurst=)",
                "caches, connections and other nodes pay for each start",
                "time between starts; the cause stays to be found",
            )),
    ))
}

/// The lives that were seen whole, for a person.
fn lengths(whole: &[f64]) -> Option<Evidence> {
    const SHOWN: usize = 8;
    let shown: Vec<_> = whole.iter().rev().take(SHOWN).rev().map(|life| view::duration_text(*life)).collect();
    let text = shown.join(", ");
    (whole.len() > 1).then(|| {
        Evidence::text("lives", if whole.len() > SHOWN { format!("the last of them: {text}") } else { text })
    })
}
