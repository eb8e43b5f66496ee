//! BT055: large messages are copied.
//!
//! The VM counts neither bytes sent nor senders. Only a server that mostly sends replies shows in stack samples. So the size of messages is
//! measured at the receiver: whatever the heap of an idle process gains between two samples was sent to it. This finds all messages except
//! those received immediately. Queued messages are measured, too. Off-heap ones show in the memory of the process outside its heap, on-heap
//! ones in heap fragments that exceed the free heap. The garbage of the node is an upper bound for the cost of all messages together.

use std::collections::BTreeMap;

use beamtune_model::rows::CHILD_OF;
use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, MessageSum, Missing, Period, ProcessActivity, Scale,
    Signal, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::signals::blocking::{self, BlockingProcess};
use crate::signals::kinds::Kind;
use crate::signals::known_processes;
use crate::signals::memory::{self, WORD_BYTES};
use crate::signals::process_memory::{self, Blocks};
use crate::signals::stack;
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT055"),
    name: "large-messages",
    question: "Are large messages copied?",
    confirm: "compute erts_debug:flat_size(Message) * 8 in the sender, less literals and persistent terms in it, which are not copied: the \
              result should be about this size",
    needs: &[&metrics::SCAN_LONGEST_QUEUE, &metrics::GC_WORDS_RECLAIMED],
    since: 23,
    account: Account::CpuUsed,
    judge,
    thresholds: &[COST, HELD],
    ..Rule::COMMON
};

/// A large message has at least this size.
const LARGE_BYTES: f64 = 32_768.0;
const LARGE_SOURCE: &str = "measured: 10 to 30 µs to copy and collect it, most messages take 1 µs";

const COST: Threshold = Threshold::new(
    "large-messages.cpu_share",
    "copying and collecting large messages, share of the VM's CPU",
    Scale {
        notice: 0.02,
        warning: 0.05,
        critical: 0.50,
        source: "judgement: the cost of copies that could be avoided",
    },
);

/// Copying that takes fewer cores is not worth a change (judgement).
const MIN_CORES: f64 = 0.02;

const HELD: Threshold = Threshold::new(
    "large-messages.queued_bytes",
    "bytes of large messages in queues",
    Scale { notice: 20e6, warning: 100e6, critical: 4e9, source: "judgement: memory used twice" },
);

/// Time to copy a byte of a message and to collect it as garbage. Measured: 0.3 to 1.2 ns on OTP 23, 25 and 29, with terms of 2 to 250 kB.
const SECONDS_PER_BYTE: f64 = 0.5e-9;

/// Minimum number of large messages sampled on arrival: a few may be a state that is handed over once (judgement).
const MIN_MESSAGES: i64 = 3;

/// If sampled messages explain less than this share of the estimated cost, most of the garbage is something else (judgement). The share is
/// small, because most messages are not sampled: a waiting receiver takes them immediately.
const MIN_EXPLAINED: f64 = 0.02;

/// A server with this share of its running samples in sends mostly sends (judgement).
const MIN_SENDING: f64 = 0.4;

const SMALLER_ANSWERS: &str = "reply only with what the caller needs: search and filter in the server, or let callers read an ETS table by key";

const MAX_RECEIVERS: usize = 3;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let longest = period.stat(&metrics::SCAN_LONGEST_QUEUE, "")?;
    let reclaimed = period.rate(&metrics::GC_WORDS_RECLAIMED, "")? * WORD_BYTES;
    let seen = period.messages.sum_from(0.0);
    let is_recorded =
        |process: &ProcessActivity| process.row.as_ref().is_some_and(|row| row.fragment_bytes.is_some());
    if seen.messages == 0 && longest.max > 0 && !period.processes.iter().any(is_recorded) {
        return Err(period.missing_group(Group::Processes, "heap fragments"));
    }
    let came = period.messages.sum_from(LARGE_BYTES);
    let waiting = waiting(period);
    let large = large(period, came, &waiting);
    let sender = Sender::of(period);
    let Some(first) = large.first() else {
        if let Some(draft) = sender.as_ref().and_then(|sender| sender.describe_alone(period)) {
            return Ok(Judgement::found(draft));
        }
        return Ok(Judgement::Healthy(format!(
            "{} of {} sampled messages have {} or more; none known in {} message queues",
            came.messages,
            seen.messages,
            text::bytes(LARGE_BYTES),
            waiting.len()
        )));
    };
    let held: f64 = large.iter().map(|got| got.waiting).sum();
    // An upper bound: other messages may be small, and garbage may have other sources than messages.
    let (share, of) = match seen.bytes {
        0 => (large.len() as f64 / waiting.len().max(1) as f64, "as of processes with a queue"),
        bytes => (came.bytes as f64 / bytes as f64, "as of sampled messages"),
    };
    let sending = sender.as_ref().map_or(0.0, |sender| sender.cores);
    let cores = (reclaimed * share * SECONDS_PER_BYTE).max(sending);
    let all = view::process_cores(period)?;
    let used = cores / all.max(cores);
    let who = match large.len() {
        1 => first.title.clone(),
        count => format!("{} and {} more", first.title, count - 1),
    };
    let each = text::bytes(first.each);
    // The sampled messages give a lower bound of the cost.
    let sure = period.messages.bytes_per_s as f64 * share * SECONDS_PER_BYTE;
    let is_sure = sender.is_some() || seen.bytes == 0 || sure >= MIN_EXPLAINED * cores;
    let by_cpu = COST.of(period).severity(used).filter(|_| cores >= MIN_CORES);
    let by_cpu = by_cpu.map(|severity| if is_sure { severity } else { severity.min(MINOR) });
    let by_memory = HELD.of(period).severity(held);
    let Some(severity) = by_cpu.into_iter().chain(by_memory).reduce(f64::max) else {
        return Ok(Judgement::Healthy(format!(
            "messages of {each} to {who}: copying takes {cores:.3} cores at most"
        )));
    };
    let holds = blocking::blocking_processes(period).unwrap_or_default();
    let server = asked(&holds, &large).filter(|_| sender.is_none());
    let holder = holder(period, &large).filter(|_| sender.is_none() && server.is_none());
    let is_unsent = sender.is_none() && server.is_none() && holder.is_none();
    let receiver = Subject::process(&first.title);
    let to = match large.len() {
        1 => text::name(&receiver),
        count => several(&large).unwrap_or_else(|| format!("{count} processes")),
    };
    let title = match &sender {
        Some(sender) => format!(
            "{} spends {:.0} % of its time copying its replies",
            text::name(&sender.process.subject()),
            sender.share * 100.0
        ),
        None if by_memory > by_cpu => {
            format!("Messages of {each} to {to}: {} queued", text::bytes(held))
        }
        None => format!("Messages of {each} to {to} cost up to {} cores", text::cores(cores)),
    };
    let subject = sender.as_ref().map_or_else(|| receiver.clone(), |sender| sender.process.subject());
    let is_one = large.len() == 1;
    let draft = Draft::new(severity, title)
        .detail(if sender.is_some() || is_one { text::pid(&subject) } else { "" })
        .detail(match &sender {
            Some(_) => format!("{each} each, to {who}"),
            None if is_one => String::new(),
            None => format!("received by {who}"),
        })
        .detail(holder.map_or(String::new(), |holder| format!("likely sent by {}", at_work(holder))))
        .detail(if is_unsent { "the sender is not recorded" } else { "" })
        .detail(server.map_or(String::new(), |hold| format!("likely replies of {}", hold.title)))
        .detail(format!("{}/s of garbage on the node", text::bytes(reclaimed)))
        .about(subject.clone())
        .signals(sender.as_ref().map(|_| Signal::Drives(subject)))
        .signals(server.map(|hold| Signal::WorkOf(hold.subject())))
        .signals(memory::is_segment_rate(period, reclaimed * share / first.each).then_some(Signal::Allocates))
        .because_some(sender.as_ref().map(Sender::evidence));
    let draft = large.iter().take(MAX_RECEIVERS).fold(draft, |draft, got| draft.evidence(got.evidence()));
    let text = match &sender {
        Some(_) => format!("of {all:.2} cores, by samples of the sender"),
        None => format!(
            "of {all:.2} cores: {:.0} % of the garbage, {of}, at {:.1} s per GB",
            share * 100.0,
            SECONDS_PER_BYTE * 1e9
        ),
    };
    let draft = draft
        .costs(if by_memory > by_cpu { Cost::MemoryBytes(held) } else { Cost::CpuCores(cores) })
        .evidence(
            Evidence::number("copying and GC, upper bound", used, Unit::Ratio)
                .against_scale(COST.of(period))
                .with_text(text),
        )
        .because_some((came.messages > 0).then(|| {
            let rate = period.messages.bytes_per_s as f64 * share;
            Evidence::number("bytes of large messages per second, at least", rate, Unit::Bytes).with_text(format!(
                "{} of {} sampled in {:.0} ms; messages received immediately are not seen",
                came.messages,
                seen.messages,
                period.messages.observed_us as f64 / 1e3
            ))
        }))
        .evidence(Evidence::number("garbage of the node per second", reclaimed, Unit::Bytes))
        .evidence(Evidence::number("large messages in queues", held, Unit::Bytes).against_scale(HELD.of(period)))
        .because_some(
            first
                .process
                .and_then(|process| stack::current_function(process.row.as_ref()?))
                .map(|at| Evidence::text("current function of the receiver", at)),
        )
        .because_some(holder.map(|holder| Evidence::text("likely sender", at_work(holder))))
        .but_if(is_unsent, "the sender is not recorded")
        .but_if(
            holder.is_some(),
            "inferred: no other busy process has room for such a message on its heap",
        )
        .but_if(server.is_some(), "inferred: processes of the receivers' kind wait for its replies")
        .but_if(
            sender.is_none(),
            "the share of messages in the garbage is not recorded: if most is something else, they cost less",
        )
        .remedy(remedy::of(
            period,
            "code.smaller_messages",
            match (&sender, server) {
                (Some(_), _) | (_, Some(_)) => SMALLER_ANSWERS,
                (None, None) => "send what the receiver reads: the key, the part or the change, not the whole state",
            },
            "a message is copied whole, for each receiver, even if the receiver reads only a part",
            "words reclaimed per second and CPU per request under the same load",
        ))
        .remedy(remedy::of(
            period,
            "code.shared_terms",
            "put shared data into persistent_term (if it hardly changes) or ETS and send the key; keep large texts as binaries",
            "persistent terms, literals of loaded modules and binaries above 64 bytes are not copied, and ETS copies only what is looked up",
            "words reclaimed per second and CPU per request under the same load",
        ))
        .fix_if(held >= HELD.of(period).notice && first.is_on_heap, || {
            remedy::of(
                period,
                "process.message_queue_data",
                "process_flag(message_queue_data, off_heap) in the receiver",
                "its GCs copy on-heap messages again; messages do not become smaller",
                "memory of the receiver under the same load",
            )
        });
    Ok(Judgement::found(draft))
}

/// Formats the receivers by their kind, if all are of one kind: `17 board_session_* processes`.
fn several(large: &[Received<'_>]) -> Option<String> {
    let kinds: Option<Vec<String>> = large.iter().map(|got| Some(Kind::of(got.process?)?.name)).collect();
    let kinds = kinds?;
    let first = kinds.first()?;
    kinds.iter().all(|kind| kind == first).then(|| text::several(large.len(), first))
}

/// A process with this share of the work does nearly all of it (judgement).
const MOST_WORK: f64 = 0.8;

/// Returns the likely sender. A message is copied from the sender's heap, so that heap has room for it. Of all such processes, receivers
/// excepted, the sender does nearly all the work.
fn holder<'p>(period: &'p Period, large: &[Received<'_>]) -> Option<&'p ProcessActivity> {
    let each = large.first()?.each;
    let receivers: Vec<&ProcessActivity> = large.iter().filter_map(|got| got.process).collect();
    let kinds: Vec<String> = receivers.iter().filter_map(|process| Some(Kind::of(process)?.name)).collect();
    let may_send = |process: &&ProcessActivity| {
        let has_room = process.row.as_ref().and_then(|row| row.total_heap_words);
        has_room.is_some_and(|words| words as f64 * WORD_BYTES >= each)
            && !receivers.iter().any(|other| other.pid == process.pid)
            && Kind::of(process).is_none_or(|kind| !kinds.contains(&kind.name))
            && !known_processes::knows(process)
    };
    let all: Vec<&ProcessActivity> = period.processes.iter().filter(may_send).collect();
    // Reductions since they started: on a busy node, most of them are not among the busiest in every second.
    let work = |process: &ProcessActivity| process.row.as_ref().map_or(0.0, |row| row.reductions as f64);
    let sum: f64 = all.iter().map(|process| work(process)).sum();
    all.iter().copied().find(|process| sum > 0.0 && work(process) >= MOST_WORK * sum)
}

/// Formats a process with its function: `board (<0.9.0>), in shop_board:publish/2`.
fn at_work(process: &ProcessActivity) -> String {
    let title = process.title();
    let article = if title.starts_with(CHILD_OF) { "a " } else { "" };
    let at = stack::most_of_program(process).map_or(String::new(), |at| format!(", in {at}"));
    format!("{article}{title}{at}")
}

/// Returns the server whose replies most of the receivers (of known kinds) wait for.
fn asked<'h, 'a>(
    holds: &'h [BlockingProcess<'a>],
    large: &[Received<'_>],
) -> Option<&'h BlockingProcess<'a>> {
    let known: Vec<_> = large.iter().filter_map(|got| got.process).collect();
    let servers = known.iter().filter_map(|process| blocking::answers_to(holds, process));
    let servers: Vec<&BlockingProcess<'_>> = servers.collect();
    let first = *servers.first()?;
    let same = servers.iter().filter(|hold| hold.title == first.title).count();
    (2 * same > known.len()).then_some(first)
}

/// A server that is mostly sending replies in its running samples. Sending a small reply takes only a microsecond.
struct Sender<'p> {
    process: &'p ProcessActivity,
    /// Number of `running` samples that are in a send.
    sends: i64,
    running: i64,
    share: f64,
    /// CPU use of the sends, in cores.
    cores: f64,
}

impl<'p> Sender<'p> {
    /// Returns the server whose sends take the most CPU.
    fn of(period: &'p Period) -> Option<Self> {
        let sends = |process: &'p ProcessActivity| {
            let (sends, running) = stack::sends_answers(process)?;
            let share = sends as f64 / running as f64;
            let cores = share * stack::runnable_share(process)?;
            Some(Sender { process, sends, running, share, cores })
                .filter(|sender| sender.share >= MIN_SENDING)
        };
        period.processes.iter().filter_map(sends).max_by(|a, b| a.cores.total_cmp(&b.cores))
    }

    /// Drafts the finding for a server whose reply sizes were not measured.
    fn describe_alone(&self, period: &Period) -> Option<Draft> {
        let used = self.cores / view::process_cores(period).ok()?.max(self.cores);
        let severity = COST.of(period).severity(used).filter(|_| self.cores >= MIN_CORES)?;
        let subject = self.process.subject();
        let (name, percent) = (text::name(&subject), self.share * 100.0);
        let draft =
            Draft::new(severity, format!("{name} spends {percent:.0} % of its time copying its replies"))
                .detail(text::pid(&subject))
                .detail(format!("{} cores", text::cores(self.cores)))
                .about(subject.clone())
                .signals([Signal::Drives(subject)])
                .confidence(Confidence::Inferred)
                .costs(Cost::CpuCores(self.cores))
                .evidence(self.evidence())
                .evidence(Evidence::number("copying", used, Unit::Ratio).against_scale(COST.of(period)))
                .counter_evidence("the size of its replies was not measured")
                .remedy(remedy::of(
                    period,
                    "code.smaller_messages",
                    SMALLER_ANSWERS,
                    "a message is copied whole, even if the receiver reads only a part",
                    "CPU per request and call latency under the same load",
                ));
        Some(draft)
    }

    fn evidence(&self) -> Evidence {
        Evidence::number("running samples that are inside a send", self.share, Unit::Ratio)
            .with_text(format!("{} of {}", self.sends, self.running))
    }
}

/// Messages that a process receives.
#[derive(Clone)]
struct Received<'p> {
    title: String,
    /// `None` if the process has no row.
    process: Option<&'p ProcessActivity>,
    is_on_heap: bool,
    /// Size of a message in bytes, a lower bound.
    each: f64,
    /// Bytes in its queue, a lower bound; 0 if none are known.
    waiting: f64,
    /// How the size was measured.
    how: String,
}

impl Received<'_> {
    fn evidence(&self) -> Evidence {
        Evidence::number(format!("message to {}", self.title), self.each, Unit::Bytes)
            .against(LARGE_BYTES, LARGE_SOURCE)
            .with_text(self.how.clone())
    }
}

/// Returns the receivers of large messages, those with most bytes queued first.
fn large<'p>(
    period: &'p Period,
    came: MessageSum,
    waiting: &BTreeMap<&'p str, Received<'p>>,
) -> Vec<Received<'p>> {
    let mut large: BTreeMap<&str, Received<'p>> = waiting
        .iter()
        .filter(|(_, got)| got.each >= LARGE_BYTES)
        .map(|(&pid, got)| (pid, got.clone()))
        .collect();
    let to = period.messages.receivers.iter().filter(|(_, weighed)| weighed.mean_bytes() >= LARGE_BYTES);
    for (pid, weighed) in to.filter(|_| came.messages >= MIN_MESSAGES) {
        let how = format!("{} arrived while it was idle", weighed.messages);
        let got = large.entry(pid).or_insert_with(|| Received {
            title: period.title_of(pid),
            process: period.process(pid),
            is_on_heap: true,
            each: 0.0,
            waiting: 0.0,
            how: String::new(),
        });
        if got.each < weighed.mean_bytes() {
            (got.each, got.how) = (weighed.mean_bytes(), how);
        }
    }
    let mut large: Vec<Received<'p>> = large.into_values().collect();
    large.sort_by(|a, b| b.waiting.total_cmp(&a.waiting).then(b.each.total_cmp(&a.each)));
    large
}

/// Returns the processes with queued messages, large or not, by pid.
fn waiting(period: &Period) -> BTreeMap<&str, Received<'_>> {
    let links = links_bytes(period);
    period
        .processes
        .iter()
        .filter_map(|process| Some((&*process.pid, waiting_for(process, links)?)))
        .collect()
}

fn waiting_for(process: &ProcessActivity, links: Option<f64>) -> Option<Received<'_>> {
    let mail = process.queued_messages.as_ref()?;
    let bytes = mail.min_bytes() as f64;
    let (bytes, place) = if mail.is_on_heap {
        (bytes, "in heap fragments")
    } else {
        // The number of its links is unknown: all links of the node are subtracted.
        (bytes - links? - process_memory::HEAD_BYTES * mail.messages as f64, "off the heap")
    };
    let waiting = bytes.max(0.0);
    Some(Received {
        title: process.title(),
        process: Some(process),
        is_on_heap: mail.is_on_heap,
        each: waiting / mail.messages.max(1) as f64,
        waiting,
        how: format!("at least: {} {place}, {} queued", text::bytes(waiting), mail.messages),
    })
}

/// Returns an upper bound of the memory of all links and monitors of the node, in bytes.
fn links_bytes(period: &Period) -> Option<f64> {
    let processes = period.stat(&metrics::PROCESS_COUNT, "").ok()?.last.value as f64;
    Some((Blocks::of(period).ok()?.last - processes).max(0.0) * process_memory::side_bytes(period))
}
