//! BT043: many more links, monitors and timers than processes have a use for: most likely monitors that nobody takes away.
//!
//! The VM allocates each of them as a block of `fix_alloc`, in which hardly anything else is but one block for each process, and one
//! for each message that lies in a heap. So the blocks tell how many there are, but not whose: a process's heap does not hold them.

use beamtune_model::{Code, Evidence, Group, Missing, Period, Scale, Unit, metrics, units::SECOND_NS};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};

pub const RULE: Rule = Rule {
    code: Code("BT043"),
    name: "links-and-monitors",
    question: "Are there more links, monitors and timers than processes have a use for?",
    confirm: "process_info(Pid, monitors) and links of the servers that watch others: one has tens of thousands (it is a long list: ask once)",
    needs: &[&metrics::MBCS_BLOCKS, &metrics::PROCESS_COUNT],
    since: 23,
    judge,
};

/// Links, monitors and timers of the whole node.
const COUNT: Scale = Scale {
    notice: 50_000.0,
    warning: 200_000.0,
    critical: 20_000_000.0,
    source: "measured on OTP 23, 25 and 27: a monitor takes 120 to 140 bytes, so 200,000 take some 25 MB; the numbers are judgement",
};

/// So many of them for each process have a use: links to its supervisor and workers, timers, monitors of calls under way (judgement).
const USUAL: f64 = 20.0;

/// Growth in the time seen that is more than what comes and goes, as a share of all (judgement).
const GROWN: f64 = 0.01;

/// What one takes at least, in bytes.
const EACH_BYTES: f64 = 120.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let blocks = Blocks::of(period)?;
    let processes = period.stat(&metrics::PROCESS_COUNT, "")?.last.value as f64;
    let queued = period.stat(&metrics::SCAN_QUEUED, "").map_or(0.0, |stat| stat.last.value as f64);
    let count = (blocks.last - processes - queued).max(0.0);
    let each = count / processes.max(1.0);
    let Some(score) = COUNT.score(count).filter(|_| each > USUAL) else {
        return Ok(Judgement::Healthy(format!(
            "about {count:.0} links, monitors and timers for {processes:.0} processes: {each:.1} for each"
        )));
    };
    let grown = blocks.last - blocks.first;
    let growth = grown / blocks.seconds.max(1.0);
    let grows = grown >= GROWN * count;
    let draft = Draft::new(
        if grows { score.max(30.0) } else { score },
        format!(
            "{processes:.0} processes have about {count:.0} links, monitors and timers, {each:.0} for each{}",
            if grows { format!(", and {growth:.0} more in each second") } else { String::new() }
        ),
    )
    .because(
        Evidence::number("links, monitors and timers", count, Unit::Count)
            .against(COUNT.warning, COUNT.source)
            .with_text("blocks of fix_alloc, but for those of processes and messages; a link has two of them from 25 on"),
    )
    .because(Evidence::number("for each process", each, Unit::Count).against(USUAL, "judgement"))
    .because(Evidence::number("what they take, at least", count * EACH_BYTES, Unit::Bytes))
    .because(
        Evidence::number("growth", growth, Unit::PerSecond).with_text(format!("seen for {:.0} s", blocks.seconds)),
    )
    .but("whose they are is not recorded: process_info(P, memory) far above its heap tells, see the page of this rule")
    .but_if(!grows, "they do not grow: a node of one process for many may have a use for them")
    .fix(remedy::of(
        period,
        "code.demonitor",
        "demonitor(Ref, [flush]) when what was watched for is over, one monitor for each process that is watched in place of one for \
         each request, and cancel_timer for timers that are not wanted any more",
        "a monitor stays until one of both sides ends, and when that happens, a message comes for each",
        "memory of that process, and blocks of fix_alloc",
    ));
    Ok(Judgement::found(draft))
}

/// Blocks of `fix_alloc`, of all its instances.
struct Blocks {
    first: f64,
    last: f64,
    /// Between the two.
    seconds: f64,
}

impl Blocks {
    fn of(period: &Period) -> Result<Blocks, Missing> {
        let mut blocks = Blocks { first: 0.0, last: 0.0, seconds: 0.0 };
        let mut instances = 0;
        for entity in period.entities(Group::Allocator) {
            if entity.split_once('/').is_none_or(|(allocator, _)| allocator != "fix_alloc") {
                continue;
            }
            let Ok(own) = period.stat(&metrics::MBCS_BLOCKS, entity) else { continue };
            instances += 1;
            blocks.seconds = (own.last.t.saturating_sub(own.first.t)) as f64 / SECOND_NS as f64;
            let others = [&metrics::POOL_BLOCKS, &metrics::SBCS_BLOCKS];
            let others = others.into_iter().filter_map(|metric| period.stat(metric, entity).ok());
            for stat in others.chain([own]) {
                blocks.first += stat.first.value as f64;
                blocks.last += stat.last.value as f64;
            }
        }
        if instances > 0 {
            Ok(blocks)
        } else {
            Err(period.missing_group(Group::Allocator, "blocks of fix_alloc"))
        }
    }
}
