//! BT043: many more links, monitors and timers than processes have a use for: most likely monitors that nobody takes away.
//!
//! The VM allocates each of them as a block of `fix_alloc`, in which hardly anything else is but one block for each process, and one
//! for each message that lies in a heap. So the blocks tell how many there are. Whose they are is told by what processes have beside their
//! heaps, of those that were looked at: both sides of a link or monitor are charged with half of it.

use beamtune_model::units::{Nanos, SECOND_NS};
use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessUse, Scale, SeriesStat, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::signals::known_processes;
use crate::signals::process_memory::{self, Blocks};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT043"),
    name: "links-and-monitors",
    question: "Are there more links, monitors and timers than processes have a use for?",
    confirm: "process_info(Pid, monitors) and links of the servers that watch others: one has tens of thousands (it is a long list: ask once)",
    needs: &[&metrics::MBCS_BLOCKS, &metrics::PROCESS_COUNT],
    since: 23,
    account: Account::CpuUsed,
    judge,
    thresholds: &[COUNT],
    ..Rule::COMMON
};

/// Links, monitors and timers of the whole node.
const COUNT: Threshold = Threshold::new(
    "links-and-monitors.count",
    "links, monitors and timers of the whole node",
    Scale {
        notice: 50_000.0,
        warning: 200_000.0,
        critical: 20_000_000.0,
        source: "measured on OTP 23, 25 and 27: a monitor takes 120 to 140 bytes, so 200,000 take some 25 MB; the numbers are judgement",
    },
);

/// So many of them for each process have a use: links to its supervisor and workers, timers, monitors of calls under way (judgement).
const USUAL: f64 = 20.0;

/// Growth in the time seen that is more than what comes and goes, as a share of all (judgement).
const GROWN: f64 = 0.01;

/// A tenth more of them in ten seconds, while there are no more processes (judgement): what comes and goes with requests does not
/// do that, and as long as it goes on they double every two minutes.
const LEAK_SHARE_PER_S: f64 = 0.01;

/// Fewer new ones than this are what a few requests set up (judgement).
const LEAKED: f64 = 200.0;

/// So many more processes are no more (judgement).
const MORE_PROCESSES: f64 = 0.02;

/// With more links and monitors than this the agent asks no process for its memory, as agent/README.md says.
const ASKED: f64 = 300_000.0;

/// What a monitor takes at least, in bytes, and either side of a link: with these the agent counts.
const EACH_BYTES: f64 = 120.0;
const SIDE_OF_LINK_BYTES: f64 = 40.0;

/// What a link and a timer take, in bytes (measured: 88 on OTP 23, 96 on 25, 96 to 112 on 27 and 29; a timer of erlang:send_after 152 on all).
const LINK_BYTES: f64 = 96.0;
const TIMER_BYTES: f64 = 152.0;

/// What takes this share of the bytes is what they are (judgement).
const MOSTLY: f64 = 0.8;

/// Readings of queues that are so near to a count of blocks are of the same time.
const ABOUT_NS: u64 = 2 * SECOND_NS as u64;

/// So many of those who have the most are told.
const MOST_NAMED: usize = 3;

/// Who has less than this share of them is not named (judgement): each client of a server that monitors it has a few.
const WORTH_SHARE: f64 = 0.2;

/// Who does this share of all reductions most likely starts what is started (judgement: most of the work).
const MAIN_WORKER: f64 = 0.5;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let blocks = Blocks::of(period)?;
    let process_count = period.stat(&metrics::PROCESS_COUNT, "")?;
    let processes = process_count.last.value as f64;
    let queued = Queued::of(period, &blocks);
    let side = process_memory::side_bytes(period);
    let kinds = Kinds::of(period);
    let by_blocks = (blocks.last - processes - queued.most).max(0.0);
    let count = kinds.as_ref().map_or(by_blocks, |kinds| kinds.count(side));
    let each = count / processes.max(1.0);
    let first = Kinds::first_of(period);
    let grown = match kinds.as_ref().zip(first.as_ref()) {
        Some((last, first)) => last.count(side) - first.count(side),
        None => blocks.last - blocks.first - queued.grown,
    };
    let growth = grown / blocks.seconds().max(1.0);
    let leaks = grown >= LEAKED
        && growth >= LEAK_SHARE_PER_S * (count - grown)
        && (process_count.last.value - process_count.first.value) as f64 <= MORE_PROCESSES * processes;
    let many = COUNT.of(period).severity(count).filter(|_| each > USUAL);
    let Some(severity) = many.or_else(|| leaks.then_some(MINOR)) else {
        return Ok(Judgement::Healthy(format!(
            "about {count:.0} links, monitors and timers for {processes:.0} processes: {each:.1} for each"
        )));
    };
    let grows = leaks || grown >= GROWN * count;
    // Of a leak, what has come is the matter, not what was there.
    let what = match kinds.as_ref().zip(first.as_ref()) {
        Some((last, first)) if leaks => last.since(first).most(),
        _ => kinds.as_ref().and_then(Kinds::most),
    };
    // Timers are charged to nobody.
    let holders = if what == Some(TIMERS) { Vec::new() } else { holders(period, count) };
    let holder = holders.first().copied();
    let starter = if what == Some(TIMERS) { main_worker(period) } else { None };
    // What OTP starts for what others ask of it nobody can take away from outside.
    let otps = holder.map(|(process, _)| process).or(starter.map(|(process, _)| process));
    let otps = otps.filter(|process| known_processes::is_of_otp(process));
    let is_asked = kinds.as_ref().map_or(blocks.last, Kinds::walked) <= ASKED;
    const ALL_KINDS: &str = "links, monitors and timers";
    let named = what.unwrap_or(ALL_KINDS);
    let (change, why) = advice(what);
    let draft = Draft::new(
        if grows && many.is_some() { severity.max(30.0) } else { severity },
        format!(
            "{}{}",
            match many {
                Some(_) => format!(
                    "{processes:.0} processes have about {count:.0} {named}, {each:.0} for each{}",
                    if grows { format!(", and {growth:.0} more in each second") } else { String::new() }
                ),
                None => format!(
                    "{growth:.0} more {named} in each second, but no more processes: about {count:.0} {ALL_KINDS} now, {each:.0} for each \
                     process"
                ),
            },
            holder.map_or(String::new(), |(process, own)| {
                format!("; {} has about {own:.0} of them", process.title())
            }) + &starter.map_or(String::new(), |(process, _)| format!(", most likely started by {}", process.title()))
        ),
    )
    .costs(Cost::MemoryBytes(kinds.as_ref().map_or(count * side, Kinds::bytes)))
    .because(
        Evidence::number("links, monitors and timers", count, Unit::Count)
            .against_scale(COUNT.of(period))
            .with_text(match kinds {
                Some(_) => "by what they take",
                None => "blocks of fix_alloc, but for those of processes and messages; a link has two of them from 25 on",
            }),
    )
    .because(Evidence::number("for each process", each, Unit::Count).against(USUAL, "judgement"));
    let draft = holders.iter().fold(draft, |draft, (process, own)| {
        let what = format!("links and monitors of {}", process.title());
        draft.because(
            Evidence::number(what, *own, Unit::Count)
                .with_text(format!("{:.1} MB beside its heap, {side:.0} bytes for each", own * side / 1e6)),
        )
    });
    let draft = kinds.iter().flat_map(Kinds::parts).fold(draft, |draft, (kind, bytes)| {
        draft.because(Evidence::number(format!("memory of {kind}"), bytes, Unit::Bytes))
    });
    let draft = draft
        .because_some(kinds.is_none().then(|| Evidence::number("what they take, at least", count * EACH_BYTES, Unit::Bytes)))
        .because(
            Evidence::number("growth", growth, Unit::PerSecond)
                .with_text(format!("seen for {:.0} s", blocks.seconds())),
        )
        .but_if(
            what == Some(TIMERS) && otps.is_none(),
            "timers are charged to nobody: whose they are tells the code that calls erlang:send_after and start_timer, and what comes of them",
        )
        .but_if(
            holder.is_none() && what != Some(TIMERS) && is_asked,
            format!(
                "none of the processes that were looked at is known to have many: it is {}a process that has and does little else; \
                 process_info(P, memory) far above its heap tells, see the page of this rule",
                if what.is_none() { "timers, or " } else { "" }
            ),
        )
        .but_if(
            holder.is_none() && what != Some(TIMERS) && !is_asked,
            format!(
                "whose they are is not asked where there are so many, since who has them does nothing else meanwhile{}; see the page of this rule",
                if what.is_none() { ": it may be a process, or timers" } else { "" }
            ),
        )
        .but_if(!grows, "they hardly grow: a node of one process for many may have a use for them")
        .but_if(
            otps.is_some(),
            "it is OTP's own code that starts them, for what others ask of that process: to cancel them is not the program's",
        )
        .fix_if(otps.is_none(), || {
            remedy::of(period, "code.demonitor", change, why, "memory of that process, and blocks of fix_alloc")
        });
    let draft = match otps {
        Some(process) if known_processes::knows(process) => known_processes::explain(draft, period, process),
        Some(process) => draft.fix(remedy::of(
            period,
            "code.around_the_server",
            &format!("ask {} less often: one request for many", process.title()),
            "for each of these requests it starts one",
            "memory of that process, and blocks of fix_alloc",
        )),
        None => draft,
    };
    let draft = draft.because_some(starter.map(|(process, share)| {
        Evidence::number("share of all reductions", share, Unit::Ratio).with_text(process.title())
    }));
    let draft = match what == Some(TIMERS) && otps.is_none() {
        true => draft.confirmed_by(
            "the code that calls erlang:send_after or start_timer: it starts a timer anew without cancelling the one before",
        ),
        false => draft,
    };
    Ok(Judgement::found(match (holder, starter) {
        (Some((process, _)), _) | (None, Some((process, _))) => draft.about(process.subject()),
        (None, None) => draft,
    }))
}

/// The process that does most of the work, with its share of all reductions.
fn main_worker(period: &Period) -> Option<(&ProcessUse, f64)> {
    let busiest = period.processes.first()?;
    Some((busiest, view::reductions_share(period, &[busiest])?)).filter(|(_, share)| *share >= MAIN_WORKER)
}

/// What to do about what nearly all of them are, and why.
fn advice(what: Option<&str>) -> (&'static str, &'static str) {
    const UNTIL_ONE_ENDS: &str = "a monitor or link stays until one of both sides ends, and when that happens, a message comes for each";
    match what {
        Some(TIMERS) => (
            "erlang:cancel_timer(Ref, [{async, true}, {info, false}]) when what a timer was set for has come, and one timer in place of many that \
             end at about the same time",
            "a timer stays until its time has come, and its message comes whether anybody wants it or not",
        ),
        Some(LINKS) => (
            "unlink what is not to end together any more, and start what is under a supervisor in place of one process that links to all",
            UNTIL_ONE_ENDS,
        ),
        Some(_) => (
            "demonitor(Ref, [flush]) when what was watched for is over, and one monitor for each process that is watched in place of one for each \
             request",
            UNTIL_ONE_ENDS,
        ),
        None => (
            "demonitor(Ref, [flush]) when what was watched for is over, one monitor for each process that is watched in place of one for each \
             request, and cancel_timer for timers that are not wanted any more",
            UNTIL_ONE_ENDS,
        ),
    }
}

const MONITORS: &str = "monitors";
const LINKS: &str = "links";
const TIMERS: &str = "timers";

/// What the blocks are, in bytes.
struct Kinds {
    monitors: f64,
    links: f64,
    timers: f64,
}

impl Kinds {
    /// `None` of recordings that do not tell: older ones, and of a VM without `fix_alloc`.
    fn of(period: &Period) -> Option<Kinds> {
        Kinds::at(period, |stat| stat.last.value)
    }

    /// At the first reading.
    fn first_of(period: &Period) -> Option<Kinds> {
        Kinds::at(period, |stat| stat.first.value)
    }

    fn at(period: &Period, value: fn(&SeriesStat) -> i64) -> Option<Kinds> {
        let bytes = |kind| Some(value(period.stat(&metrics::FIXED_SIZE, kind).ok()?) as f64);
        // Timers of erlang:send_after and start_timer, and those of a receive of processes that have both.
        let timers = ["bif_timer", "ll_ptimer", "hl_ptimer"].map(|kind| bytes(kind).unwrap_or(0.0));
        Some(Kinds { monitors: bytes("monitor")?, links: bytes("link")?, timers: timers.iter().sum() })
    }

    /// How many there are.
    fn count(&self, side_bytes: f64) -> f64 {
        self.monitors / (2.0 * side_bytes) + self.links / LINK_BYTES + self.timers / TIMER_BYTES
    }

    /// What has come since.
    fn since(&self, first: &Kinds) -> Kinds {
        let more = |last: f64, first: f64| (last - first).max(0.0);
        Kinds {
            monitors: more(self.monitors, first.monitors),
            links: more(self.links, first.links),
            timers: more(self.timers, first.timers),
        }
    }

    /// What all of them take.
    fn bytes(&self) -> f64 {
        self.monitors + self.links + self.timers
    }

    fn parts(&self) -> [(&'static str, f64); 3] {
        [(MONITORS, self.monitors), (LINKS, self.links), (TIMERS, self.timers)]
    }

    /// What nearly all of them are.
    fn most(&self) -> Option<&'static str> {
        let all = self.bytes();
        self.parts().into_iter().find(|(_, bytes)| all > 0.0 && *bytes >= MOSTLY * all).map(|(kind, _)| kind)
    }

    /// How many would be walked to find out whose they are, as the agent counts.
    fn walked(&self) -> f64 {
        self.monitors / EACH_BYTES + self.links / SIDE_OF_LINK_BYTES
    }
}

/// Messages in queues, which have blocks of `fix_alloc` too. Blocks are read each ten seconds, queues each second: those that may have been
/// there when the blocks were counted.
struct Queued {
    /// The most in the seconds about the last count.
    most: f64,
    /// So many more than about the first one, at most.
    grown: f64,
}

impl Queued {
    fn of(period: &Period, blocks: &Blocks) -> Queued {
        let Ok(stat) = period.stat(&metrics::SCAN_QUEUED, "") else {
            return Queued { most: 0.0, grown: 0.0 };
        };
        let about = |at: Nanos| {
            let near = stat.trace.points().iter().filter(move |point| point.0.abs_diff(at) <= ABOUT_NS);
            near.map(|point| point.1 as f64)
        };
        let most = about(blocks.last_at).fold(stat.last.value as f64, f64::max);
        let least = about(blocks.first_at).reduce(f64::min).unwrap_or(stat.first.value as f64);
        Queued { most, grown: (most - least).max(0.0) }
    }
}

/// Processes that were looked at and have many of all these, with how many, most first.
fn holders(period: &Period, all: f64) -> Vec<(&ProcessUse, f64)> {
    let side = process_memory::side_bytes(period);
    let own = |process: &ProcessUse| Some(process_memory::links_bytes(process.row.as_ref()?)? / side);
    let each = period.processes.iter().filter_map(|process| Some((process, own(process)?)));
    let mut many: Vec<_> = each.filter(|(_, own)| *own >= WORTH_SHARE * all).collect();
    many.sort_by(|a, b| b.1.total_cmp(&a.1));
    many.truncate(MOST_NAMED);
    many
}
