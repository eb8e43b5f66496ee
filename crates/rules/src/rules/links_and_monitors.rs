//! BT043: many more links, monitors and timers than processes need, most likely monitors that are never removed.
//!
//! The VM allocates each of them as a block of `fix_alloc`. Other blocks of that allocator are few: one for each process, and one for each
//! on-heap message. So the number of blocks shows the number of links, monitors and timers. The memory of a process outside its heap shows
//! who holds them, because each side of a link or monitor is charged with half of it.

use beamtune_model::units::{Nanos, SECOND_NS};
use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessActivity, Scale, SeriesStat, Threshold, Unit,
    metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::signals::known_processes;
use crate::signals::process_memory::{self, Blocks};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT043"),
    name: "links-and-monitors",
    question: "Are there more links, monitors and timers than processes need?",
    confirm: "call process_info(Pid, monitors) and links for servers that watch others: a server with tens of thousands is the holder (a long list: call it once)",
    needs: &[&metrics::MBCS_BLOCKS, &metrics::PROCESS_COUNT],
    since: 23,
    account: Account::CpuUsed,
    judge,
    thresholds: &[COUNT],
    ..Rule::COMMON
};

const COUNT: Threshold = Threshold::new(
    "links-and-monitors.count",
    "links, monitors and timers of the node",
    Scale {
        notice: 50_000.0,
        warning: 200_000.0,
        critical: 20_000_000.0,
        source: "measured on OTP 23, 25 and 27: a monitor takes 120 to 140 bytes, so 200,000 take some 25 MB; the numbers are judgement",
    },
);

/// Usual number per process: links to its supervisor and workers, timers, monitors of calls (judgement).
const USUAL_PER_PROCESS: f64 = 20.0;

/// Minimum growth within the period that exceeds normal fluctuation, as a share of all (judgement).
const MIN_GROWTH: f64 = 0.01;

/// Minimum growth per second of a leak, as a share of all, while the number of processes stays constant (judgement). Requests do not add a
/// tenth within ten seconds. At this pace, the number doubles every two minutes.
const MIN_LEAK_PER_S: f64 = 0.01;

/// A smaller growth may come from a few requests (judgement).
const MIN_LEAKED: f64 = 200.0;

/// Growth of the process count up to this share is ignored (judgement).
const MAX_PROCESS_GROWTH: f64 = 0.02;

/// With more links and monitors, the agent does not read the memory of single processes (see agent/README.md).
const MAX_ASKED: f64 = 300_000.0;

/// Minimum size of a monitor, and of either side of a link, in bytes, as the agent assumes.
const MONITOR_BYTES: f64 = 120.0;
const SIDE_OF_LINK_BYTES: f64 = 40.0;

/// Size of a link and of a timer, in bytes (measured). A link took 88 on OTP 23, 96 on 25, and 96 to 112 on 27 and 29. A timer of
/// erlang:send_after took 152 on all of them.
const LINK_BYTES: f64 = 96.0;
const TIMER_BYTES: f64 = 152.0;

/// A kind with this share of the bytes is named (judgement).
const MIN_KIND_SHARE: f64 = 0.8;

/// Queue lengths sampled within this time of a block count are compared with it.
const NEAR_NS: u64 = 2 * SECOND_NS as u64;

const MAX_HOLDERS: usize = 3;

/// A process with a smaller share is not named (judgement): each client of a server that monitors it has a few.
const MIN_HOLDER_SHARE: f64 = 0.2;

/// A process with this share of all reductions most likely starts the timers (judgement).
const MIN_STARTER_SHARE: f64 = 0.5;

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
    let leaks = grown >= MIN_LEAKED
        && growth >= MIN_LEAK_PER_S * (count - grown)
        && (process_count.last.value - process_count.first.value) as f64 <= MAX_PROCESS_GROWTH * processes;
    let many = COUNT.of(period).severity(count).filter(|_| each > USUAL_PER_PROCESS);
    let Some(severity) = many.or_else(|| leaks.then_some(MINOR)) else {
        return Ok(Judgement::Healthy(format!(
            "{} links, monitors and timers, {each:.1} per process",
            text::number(count.round())
        )));
    };
    let grows = leaks || grown >= MIN_GROWTH * count;
    // For a leak, only the growth matters.
    let what = match kinds.as_ref().zip(first.as_ref()) {
        Some((last, first)) if leaks => last.since(first).most(),
        _ => kinds.as_ref().and_then(Kinds::most),
    };
    // The memory of timers is not charged to a process.
    let holders = if what == Some(TIMERS) { Vec::new() } else { holders(period, count) };
    let holder = holders.first().copied();
    let starter = if what == Some(TIMERS) { main_worker(period) } else { None };
    // The program cannot remove what OTP's code starts.
    let otps = holder.map(|(process, _)| process).or(starter.map(|(process, _)| process));
    let otps = otps.filter(|process| known_processes::is_of_otp(process));
    let is_asked = kinds.as_ref().map_or(blocks.last, Kinds::walked) <= MAX_ASKED;
    let named = what.unwrap_or("links, monitors and timers");
    let (change, why) = advice(what);
    let (total, of_processes) = (text::number(count.round()), text::number(processes));
    let subject = holder.or(starter).map(|(process, _)| process.subject());
    let name = subject.as_ref().map(text::name).unwrap_or_default();
    let title = match (many, holder, starter) {
        (Some(_), Some((_, own)), _) => {
            let own = text::number(own.round());
            format!("{name} has {own} {}", what.unwrap_or("links and monitors"))
        }
        (Some(_), None, Some(_)) => format!("{total} {named}, likely started by {name}"),
        (Some(_), None, None) => format!("{total} {named} for {of_processes} processes"),
        (None, Some(_), _) => {
            format!("{} grow by {}/s, mostly of {name}", capitalized(named), text::number(growth))
        }
        (None, None, Some(_)) => {
            format!("{} grow by {}/s, likely started by {name}", capitalized(named), text::number(growth))
        }
        (None, None, None) => format!("{} grow by {}/s", capitalized(named), text::number(growth)),
    };
    let draft = Draft::new(if grows && many.is_some() { severity.max(30.0) } else { severity }, title)
        .detail(subject.as_ref().map_or("", text::pid))
        .detail(if many.is_some() && grows { format!("+{}/s", text::number(growth)) } else { String::new() })
        .detail(format!("{total} now for {of_processes} processes, {} each", text::number(each.round())))
        .detail(if many.is_some() { "" } else { "the number of processes does not grow" })
        .about(subject)
        .costs(Cost::MemoryBytes(kinds.as_ref().map_or(count * side, Kinds::bytes)))
        .evidence(
            Evidence::number("links, monitors and timers", count, Unit::Count)
                .against_scale(COUNT.of(period))
                .with_text(match kinds {
                    Some(_) => "by their memory",
                    None => {
                        "by blocks of fix_alloc less processes and messages; a link has two from OTP 25 on"
                    }
                }),
        )
        .evidence(Evidence::number("per process", each, Unit::Count).against(USUAL_PER_PROCESS, "judgement"));
    let draft = holders.iter().fold(draft, |draft, (process, own)| {
        let what = format!("links and monitors of {}", process.title());
        draft.evidence(
            Evidence::number(what, *own, Unit::Count)
                .with_text(format!("{} outside its heap, {side:.0} bytes each", text::bytes(own * side))),
        )
    });
    let draft = kinds.iter().flat_map(Kinds::parts).fold(draft, |draft, (kind, bytes)| {
        draft.evidence(Evidence::number(format!("memory of {kind}"), bytes, Unit::Bytes))
    });
    let draft = draft
        .because_some(
            kinds.is_none().then(|| Evidence::number("memory, at least", count * MONITOR_BYTES, Unit::Bytes)),
        )
        .evidence(
            Evidence::number("growth", growth, Unit::PerSecond)
                .with_text(format!("over {:.0} s", blocks.seconds())),
        )
        .but_if(
            what == Some(TIMERS) && otps.is_none(),
            "timers are not charged to a process: their owner shows only in the code that calls erlang:send_after or start_timer",
        )
        .but_if(
            holder.is_none() && what != Some(TIMERS) && is_asked,
            format!(
                "no sampled process is known to have many: {}a mostly idle process has them, with process_info(P, memory) far above its heap",
                if what.is_none() { "they are timers, or " } else { "" }
            ),
        )
        .but_if(
            holder.is_none() && what != Some(TIMERS) && !is_asked,
            format!(
                "above {} the agent does not look for the owner, because that would block the process{}; see the page of this rule",
                text::number(MAX_ASKED),
                if what.is_none() { ": they may be timers" } else { "" }
            ),
        )
        .but_if(!grows, "their number is nearly constant: a process that serves many may need them")
        .but_if(otps.is_some(), "OTP's own code starts them for requests to that process: the program cannot cancel them")
        .fix_if(otps.is_none(), || {
            remedy::of(period, "code.demonitor", change, why, "memory of that process and blocks of fix_alloc")
        });
    let draft = match otps {
        Some(process) if known_processes::knows(process) => known_processes::explain(draft, period, process),
        Some(process) => draft.remedy(remedy::of(
            period,
            "code.around_the_server",
            &format!("call {} less often: one request for many", process.title()),
            "it starts one per request",
            "memory of that process and blocks of fix_alloc",
        )),
        None => draft,
    };
    let draft = draft.because_some(starter.map(|(process, share)| {
        Evidence::number("share of all reductions", share, Unit::Ratio).with_text(process.title())
    }));
    let draft = match what == Some(TIMERS) && otps.is_none() {
        true => draft.confirmed_by(
            "find the code that calls erlang:send_after or start_timer: it starts a new timer without cancelling the old one",
        ),
        false => draft,
    };
    Ok(Judgement::found(draft))
}

fn capitalized(words: &str) -> String {
    let mut chars = words.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

/// Returns the process that does most of the work, with its share of all reductions.
fn main_worker(period: &Period) -> Option<(&ProcessActivity, f64)> {
    let busiest = period.processes.first()?;
    Some((busiest, view::reductions_share(period, &[busiest])?))
        .filter(|(_, share)| *share >= MIN_STARTER_SHARE)
}

/// Returns what to do about the predominant kind, and why.
fn advice(what: Option<&str>) -> (&'static str, &'static str) {
    const UNTIL_ONE_ENDS: &str =
        "a monitor or link stays until one side ends, which sends a message for each";
    match what {
        Some(TIMERS) => (
            "erlang:cancel_timer(Ref, [{async, true}, {info, false}]) when a timer is no longer needed, and one timer for many that expire at \
             about the same time",
            "a timer stays until it expires, and sends its message even if nobody needs it",
        ),
        Some(LINKS) => (
            "unlink processes that need not terminate together, or start them under a supervisor instead of linking all to one process",
            UNTIL_ONE_ENDS,
        ),
        Some(_) => (
            "demonitor(Ref, [flush]) when a watch is over, and keep one monitor per watched process instead of one per request",
            UNTIL_ONE_ENDS,
        ),
        None => (
            "demonitor(Ref, [flush]) when a watch is over, keep one monitor per watched process instead of one per request, and cancel timers \
             that are no longer needed",
            UNTIL_ONE_ENDS,
        ),
    }
}

const MONITORS: &str = "monitors";
const LINKS: &str = "links";
const TIMERS: &str = "timers";

/// Memory by kind, in bytes.
struct Kinds {
    monitors: f64,
    links: f64,
    timers: f64,
}

impl Kinds {
    /// Returns `None` for older recordings, and for a VM without `fix_alloc`.
    fn of(period: &Period) -> Option<Kinds> {
        Kinds::at(period, |stat| stat.last.value)
    }

    /// Returns the memory at the first sample.
    fn first_of(period: &Period) -> Option<Kinds> {
        Kinds::at(period, |stat| stat.first.value)
    }

    fn at(period: &Period, value: fn(&SeriesStat) -> i64) -> Option<Kinds> {
        let bytes = |kind| Some(value(period.stat(&metrics::FIXED_SIZE, kind).ok()?) as f64);
        // Timers of erlang:send_after and start_timer, and of receives in processes that have both.
        let timers = ["bif_timer", "ll_ptimer", "hl_ptimer"].map(|kind| bytes(kind).unwrap_or(0.0));
        Some(Kinds { monitors: bytes("monitor")?, links: bytes("link")?, timers: timers.iter().sum() })
    }

    /// Estimates the number of links, monitors and timers together.
    fn count(&self, side_bytes: f64) -> f64 {
        self.monitors / (2.0 * side_bytes) + self.links / LINK_BYTES + self.timers / TIMER_BYTES
    }

    /// Returns the growth since `first`.
    fn since(&self, first: &Kinds) -> Kinds {
        let more = |last: f64, first: f64| (last - first).max(0.0);
        Kinds {
            monitors: more(self.monitors, first.monitors),
            links: more(self.links, first.links),
            timers: more(self.timers, first.timers),
        }
    }

    /// Returns the memory of all kinds.
    fn bytes(&self) -> f64 {
        self.monitors + self.links + self.timers
    }

    fn parts(&self) -> [(&'static str, f64); 3] {
        [(MONITORS, self.monitors), (LINKS, self.links), (TIMERS, self.timers)]
    }

    /// Returns the kind that nearly all memory belongs to.
    fn most(&self) -> Option<&'static str> {
        let all = self.bytes();
        self.parts()
            .into_iter()
            .find(|(_, bytes)| all > 0.0 && *bytes >= MIN_KIND_SHARE * all)
            .map(|(kind, _)| kind)
    }

    /// Returns the number of links and monitors that the VM would walk to find their holders, as the agent estimates it.
    fn walked(&self) -> f64 {
        self.monitors / MONITOR_BYTES + self.links / SIDE_OF_LINK_BYTES
    }
}

/// Queued messages, which have blocks of `fix_alloc`, too. Blocks are read every ten seconds, queues every second.
struct Queued {
    /// Maximum number near the last count of blocks.
    most: f64,
    /// Growth since the first count, an upper bound.
    grown: f64,
}

impl Queued {
    fn of(period: &Period, blocks: &Blocks) -> Queued {
        let Ok(stat) = period.stat(&metrics::SCAN_QUEUED, "") else {
            return Queued { most: 0.0, grown: 0.0 };
        };
        let about = |at: Nanos| {
            let near = stat.trace.points().iter().filter(move |point| point.0.abs_diff(at) <= NEAR_NS);
            near.map(|point| point.1 as f64)
        };
        let most = about(blocks.last_at).fold(stat.last.value as f64, f64::max);
        let least = about(blocks.first_at).reduce(f64::min).unwrap_or(stat.first.value as f64);
        Queued { most, grown: (most - least).max(0.0) }
    }
}

/// Returns the sampled processes with a large share of `all`, with their numbers, largest first.
fn holders(period: &Period, all: f64) -> Vec<(&ProcessActivity, f64)> {
    let side = process_memory::side_bytes(period);
    let own = |process: &ProcessActivity| Some(process_memory::links_bytes(process.row.as_ref()?)? / side);
    let each = period.processes.iter().filter_map(|process| Some((process, own(process)?)));
    let mut many: Vec<_> = each.filter(|(_, own)| *own >= MIN_HOLDER_SHARE * all).collect();
    many.sort_by(|a, b| b.1.total_cmp(&a.1));
    many.truncate(MAX_HOLDERS);
    many
}
