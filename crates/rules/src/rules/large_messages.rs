//! BT055: large messages are copied.
//!
//! Nothing counts the bytes that are sent, nor tells who sends them, but for a server that is seen sending its answers most of the time. But messages are weighed where they come: what the heap of a process
//! has more than before, when that has done nothing in between, was sent to it. That is a sample of all messages, but for those that are
//! taken at once. And those that wait are weighed where they lie: off the heap by what their receiver has beside its heap, else by the
//! fragments of a heap that has no room for them. The garbage of the node says what all that can cost.

use std::collections::BTreeMap;

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, Missing, Period, ProcessUse, Scale, Signal, Subject,
    Threshold, Unit, Weighed, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::signals::blocking::{self, Hold};
use crate::signals::memory::WORD_BYTES;
use crate::signals::process_memory::{self, Blocks};
use crate::signals::stack;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT055"),
    name: "large-messages",
    question: "Are large messages copied?",
    confirm: "erts_debug:flat_size(Message) * 8 where it is sent, without literals and persistent terms in it, which it counts and which are not \
              copied: as many bytes as told here; and what the receiver reads of it",
    needs: &[&metrics::SCAN_LONGEST_QUEUE, &metrics::GC_WORDS_RECLAIMED],
    since: 23,
    account: Account::CpuUsed,
    judge,
    thresholds: &[COST, HELD],
    ..Rule::COMMON
};

/// A message of at least so many bytes is a large one.
const LARGE_BYTES: f64 = 32_768.0;
const LARGE_SOURCE: &str = "measured: 10 to 30 µs to copy and collect it, most messages take 1 µs";

/// Copying and collecting it, as a share of the CPU that the VM uses.
const COST: Threshold = Threshold::new(
    "large-messages.cpu_share",
    "copying and collecting large messages, share of the CPU that the VM uses",
    Scale { notice: 0.02, warning: 0.05, critical: 0.50, source: "judgement: what is not copied is saved" },
);

/// Below this nobody would win anything by a change (judgement).
const WORTH_CORES: f64 = 0.02;

/// Such messages in queues, in bytes.
const HELD: Threshold = Threshold::new(
    "large-messages.queued_bytes",
    "bytes of large messages in queues",
    Scale { notice: 20e6, warning: 100e6, critical: 4e9, source: "judgement: memory that is there twice" },
);

/// What it takes to copy a byte of a message and to collect it, in seconds (measured: 0.3 to 1.2 on OTP 23, 25 and 29, terms of 2 to 250 kB).
const SECONDS_PER_BYTE: f64 = 0.5e-9;

/// So many large ones must have been seen to come: a few may be a state that is handed over once (judgement).
const MIN_MESSAGES: i64 = 3;

/// Where less than this share of what they may cost was seen to come, other garbage is nearly all of it (judgement): most messages are not seen,
/// since who waits for one takes it at once.
const SURE: f64 = 0.02;

/// From this share of the looks at it running on, a server mostly sends (judgement).
const MOSTLY: f64 = 0.4;

const SMALLER_ANSWERS: &str = "answer with what the caller reads: search and filter in the server, or let callers read an ETS table by key";

/// So many receivers are told.
const MOST_NAMED: usize = 3;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let longest = period.stat(&metrics::SCAN_LONGEST_QUEUE, "")?;
    let reclaimed = period.rate(&metrics::GC_WORDS_RECLAIMED, "")? * WORD_BYTES;
    let seen = period.messages.of_at_least(0.0);
    let is_told = |process: &ProcessUse| process.row.as_ref().is_some_and(|row| row.fragment_bytes.is_some());
    if seen.messages == 0 && longest.max > 0 && !period.processes.iter().any(is_told) {
        return Err(period.missing_group(Group::Processes, "fragments of heaps"));
    }
    let came = period.messages.of_at_least(LARGE_BYTES);
    let waiting = waiting(period);
    let large = large(period, came, &waiting);
    let sender = Sender::of(period);
    let Some(first) = large.first() else {
        if let Some(draft) = sender.as_ref().and_then(|sender| sender.describe_alone(period)) {
            return Ok(Judgement::found(draft));
        }
        return Ok(Judgement::Healthy(format!(
            "of {} messages that were seen to come, {} had {:.0} kB and more; of {} processes for which some waited, none is known to get such",
            seen.messages,
            came.messages,
            LARGE_BYTES / 1e3,
            waiting.len()
        )));
    };
    let held: f64 = large.iter().map(|got| got.waiting).sum();
    // Other messages may be small, and other garbage no messages.
    let (share, of) = match seen.bytes {
        0 => {
            (large.len() as f64 / waiting.len().max(1) as f64, "as of the processes for which messages wait")
        }
        bytes => (came.bytes as f64 / bytes as f64, "as of the messages that were seen to come"),
    };
    let sending = sender.as_ref().map_or(0.0, |sender| sender.cores);
    let cores = (reclaimed * share * SECONDS_PER_BYTE).max(sending);
    let all = view::process_cores(period)?;
    let used = cores / all.max(cores);
    let who = match large.len() {
        1 => first.title.clone(),
        count => format!("{} and {} more", first.title, count - 1),
    };
    let each = first.each / 1e3;
    // What was seen to come is what they cost at least.
    let sure = period.messages.bytes_per_s as f64 * share * SECONDS_PER_BYTE;
    let is_sure = sender.is_some() || seen.bytes == 0 || sure >= SURE * cores;
    let by_cpu = COST.of(period).severity(used).filter(|_| cores >= WORTH_CORES);
    let by_cpu = by_cpu.map(|severity| if is_sure { severity } else { severity.min(MINOR) });
    let by_memory = HELD.of(period).severity(held);
    let Some(severity) = by_cpu.into_iter().chain(by_memory).reduce(f64::max) else {
        return Ok(Judgement::Healthy(format!(
            "messages to {who} have {each:.0} kB, but copying them takes {cores:.3} cores at most"
        )));
    };
    let summary = match &sender {
        Some(sender) => format!(
            "{} spends {:.0} % of its time on copying its answers: messages to {who} have {each:.0} kB",
            sender.process.title(),
            sender.share * 100.0
        ),
        None => format!(
            "messages to {who} have {each:.0} kB, which is copied for each: with the collections that throw it away, up to {cores:.2} cores"
        ),
    };
    // Who waits for a server gets its answers.
    let holds = blocking::holds(period).unwrap_or_default();
    let server = asked(&holds, &large).filter(|_| sender.is_none());
    let by = server.map_or(String::new(), |hold| format!("; they are most likely answers of {}", hold.title));
    let summary = format!("{summary}{by}");
    let subject =
        sender.as_ref().map_or_else(|| Subject::process(&first.title), |sender| sender.process.subject());
    let draft = Draft::new(severity, summary)
        .about(subject.clone())
        .signals(sender.as_ref().map(|_| Signal::Drives(subject)))
        .signals(server.map(|hold| Signal::WorkOf(hold.subject())))
        .because_some(sender.as_ref().map(Sender::evidence));
    let draft = large.iter().take(MOST_NAMED).fold(draft, |draft, got| draft.because(got.evidence()));
    let text = match &sender {
        Some(_) => format!("of {all:.2} cores, by the samples of the sender"),
        None => format!(
            "of {all:.2} cores: {:.0} % of the garbage, {of}, at {:.1} s for a GB",
            share * 100.0,
            SECONDS_PER_BYTE * 1e9
        ),
    };
    let draft = draft
        .costs(if by_memory > by_cpu { Cost::MemoryBytes(held) } else { Cost::CpuCores(cores) })
        .because(
            Evidence::number("copying and collecting, at most", used, Unit::Ratio)
                .against_scale(COST.of(period))
                .with_text(text),
        )
        .because_some((came.messages > 0).then(|| {
            let rate = period.messages.bytes_per_s as f64 * share;
            Evidence::number("large messages sent in a second, at least", rate, Unit::Bytes).with_text(format!(
                "{} of {} that were seen to come in {:.0} ms; those that are taken at once are not among them",
                came.messages,
                seen.messages,
                period.messages.us as f64 / 1e3
            ))
        }))
        .because(Evidence::number("garbage of the node in a second", reclaimed, Unit::Bytes))
        .because(Evidence::number("such messages in queues", held, Unit::Bytes).against_scale(HELD.of(period)))
        .because_some(
            first
                .process
                .and_then(|process| stack::told(process.row.as_ref()?))
                .map(|at| Evidence::text("where the first one was", at)),
        )
        .but_if(sender.is_none() && server.is_none(), "who sends them is not recorded")
        .but_if(server.is_some(), "that they are its answers is told by the receivers: processes of their kind wait for it")
        .but_if(
            sender.is_none(),
            "how much of the garbage is messages is not recorded: if most is something else, they cost less",
        )
        .fix(remedy::of(
            period,
            "code.smaller_messages",
            match (&sender, server) {
                (Some(_), _) | (_, Some(_)) => SMALLER_ANSWERS,
                (None, None) => "send what the receiver reads: the key, the part, or the change, not the whole state",
            },
            "a message is copied whole, for each receiver, however little of it is read",
            "words reclaimed in a second, and CPU per request, under the same load",
        ))
        .fix(remedy::of(
            period,
            "code.shared_terms",
            "put what many read into persistent_term (if it hardly changes) or an ETS table, and send the key; keep large texts as binaries",
            "persistent terms, literals of loaded modules and binaries above 64 bytes are not copied, and ETS copies only what is looked up",
            "words reclaimed in a second, and CPU per request, under the same load",
        ))
        .fix_if(held >= HELD.of(period).notice && first.is_on_heap, || {
            remedy::of(
                period,
                "process.message_queue_data",
                "process_flag(message_queue_data, off_heap) in the receiver",
                "its collections copy what waits on the heap once more; this makes no message smaller",
                "the receiver's memory under the same load",
            )
        });
    Ok(Judgement::found(draft))
}

/// For whose answers most of the receivers wait now and then, of those whose kind is known.
fn asked<'h, 'a>(holds: &'h [Hold<'a>], large: &[Received<'_>]) -> Option<&'h Hold<'a>> {
    let known: Vec<_> = large.iter().filter_map(|got| got.process).collect();
    let servers = known.iter().filter_map(|process| blocking::answers_to(holds, process));
    let servers: Vec<&Hold<'_>> = servers.collect();
    let first = *servers.first()?;
    let same = servers.iter().filter(|hold| hold.title == first.title).count();
    (2 * same > known.len()).then_some(first)
}

/// A server that is seen sending its answers in most looks at it running. A small answer takes a microsecond.
struct Sender<'p> {
    process: &'p ProcessUse,
    /// Of the looks at it running, how many.
    sends: i64,
    looks: i64,
    share: f64,
    /// What that takes.
    cores: f64,
}

impl<'p> Sender<'p> {
    /// The one that takes most CPU for it.
    fn of(period: &'p Period) -> Option<Self> {
        let sends = |process: &'p ProcessUse| {
            let (sends, looks) = stack::sends_answers(process)?;
            let share = sends as f64 / looks as f64;
            let cores = share * stack::wanted_to_run(process)?;
            Some(Sender { process, sends, looks, share, cores }).filter(|sender| sender.share >= MOSTLY)
        };
        period.processes.iter().filter_map(sends).max_by(|a, b| a.cores.total_cmp(&b.cores))
    }

    /// Where none of what it sends was weighed.
    fn describe_alone(&self, period: &Period) -> Option<Draft> {
        let used = self.cores / view::process_cores(period).ok()?.max(self.cores);
        let severity = COST.of(period).severity(used).filter(|_| self.cores >= WORTH_CORES)?;
        let (title, percent) = (self.process.title(), self.share * 100.0);
        let draft =
            Draft::new(severity, format!("{title} spends {percent:.0} % of its time on copying its answers"))
                .about(self.process.subject())
                .signals([Signal::Drives(self.process.subject())])
                .confidence(Confidence::Inferred)
                .costs(Cost::CpuCores(self.cores))
                .because(self.evidence())
                .because(Evidence::number("copying", used, Unit::Ratio).against_scale(COST.of(period)))
                .but("how large they are was not seen")
                .fix(remedy::of(
                    period,
                    "code.smaller_messages",
                    SMALLER_ANSWERS,
                    "a message is copied whole, however little of it is read",
                    "CPU per request, and the time of a call, under the same load",
                ));
        Some(draft)
    }

    fn evidence(&self) -> Evidence {
        Evidence::number("of the looks at the sender running, in which it sent", self.share, Unit::Ratio)
            .with_text(format!("{} of {}", self.sends, self.looks))
    }
}

/// What a process gets in one message.
#[derive(Clone)]
struct Received<'p> {
    title: String,
    /// `None` where it was not looked at closely.
    process: Option<&'p ProcessUse>,
    is_on_heap: bool,
    /// Bytes of a message, at least.
    each: f64,
    /// Bytes of those that wait in its queue, at least; 0 where none is known to.
    waiting: f64,
    how: String,
}

impl Received<'_> {
    fn evidence(&self) -> Evidence {
        Evidence::number(format!("a message to {}", self.title), self.each, Unit::Bytes)
            .against(LARGE_BYTES, LARGE_SOURCE)
            .with_text(self.how.clone())
    }
}

/// Who gets large ones, those with the most waiting first.
fn large<'p>(
    period: &'p Period,
    came: Weighed,
    waiting: &BTreeMap<&'p str, Received<'p>>,
) -> Vec<Received<'p>> {
    let mut large: BTreeMap<&str, Received<'p>> = waiting
        .iter()
        .filter(|(_, got)| got.each >= LARGE_BYTES)
        .map(|(&pid, got)| (pid, got.clone()))
        .collect();
    let to = period.messages.to.iter().filter(|(_, weighed)| weighed.each() >= LARGE_BYTES);
    for (pid, weighed) in to.filter(|_| came.messages >= MIN_MESSAGES) {
        let how = format!("{} that came while it did nothing", weighed.messages);
        let got = large.entry(pid).or_insert_with(|| Received {
            title: period.title_of(pid),
            process: period.process(pid),
            is_on_heap: true,
            each: 0.0,
            waiting: 0.0,
            how: String::new(),
        });
        if got.each < weighed.each() {
            (got.each, got.how) = (weighed.each(), how);
        }
    }
    let mut large: Vec<Received<'p>> = large.into_values().collect();
    large.sort_by(|a, b| b.waiting.total_cmp(&a.waiting).then(b.each.total_cmp(&a.each)));
    large
}

/// What is known by the messages that waited when a process was looked at.
fn waiting(period: &Period) -> BTreeMap<&str, Received<'_>> {
    let links = links_bytes(period);
    period
        .processes
        .iter()
        .filter_map(|process| Some((&*process.pid, waiting_for(process, links)?)))
        .collect()
}

fn waiting_for(process: &ProcessUse, links: Option<f64>) -> Option<Received<'_>> {
    let mail = process.mail.as_ref()?;
    let bytes = mail.least_bytes() as f64;
    let (bytes, place) = if mail.is_on_heap {
        (bytes, "in fragments beyond the size of its heap")
    } else {
        // Whether its links are many is not known: as if all of the node's were its own.
        (bytes - links? - process_memory::HEAD_BYTES * mail.messages as f64, "off the heap")
    };
    let waiting = bytes.max(0.0);
    Some(Received {
        title: process.title(),
        process: Some(process),
        is_on_heap: mail.is_on_heap,
        each: waiting / mail.messages.max(1) as f64,
        waiting,
        how: format!("at least: {:.1} MB {place}, {} in the queue", waiting / 1e6, mail.messages),
    })
}

/// What all links and monitors of the node are charged with, in bytes, at most.
fn links_bytes(period: &Period) -> Option<f64> {
    let processes = period.stat(&metrics::PROCESS_COUNT, "").ok()?.last.value as f64;
    Some((Blocks::of(period).ok()?.last - processes).max(0.0) * process_memory::side_bytes(period))
}
