//! BT055: large messages are copied.
//!
//! Nothing counts the bytes that are sent, nor tells who sends them. But a message can be weighed where it lies. Off the heap, by what its
//! receiver has beside its heap. Else it is a fragment of its receiver's heap until a collection moves it: one that the heap has no room for
//! must wait, and heaps that have the same in fragments again and again, to the word, have one message of that size. Where such receivers
//! are found, the garbage of the node says what all that can cost.

use std::collections::BTreeMap;

use beamtune_model::{Alike, Code, Evidence, Group, Missing, Period, ProcessUse, Scale, Unit, metrics};

use crate::beside::{self, Blocks};
use crate::place;
use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT055"),
    name: "large-messages",
    question: "Are large messages copied?",
    confirm: "erts_debug:flat_size(Message) * 8 where it is sent: as many bytes as told here; and what the receiver reads of it",
    needs: &[&metrics::SCAN_LONGEST_QUEUE, &metrics::GC_WORDS_RECLAIMED],
    since: 23,
    judge,
};

/// A message of at least so many bytes is a large one.
const LARGE_BYTES: f64 = 32_768.0;
const LARGE_SOURCE: &str = "measured: 10 to 30 µs to copy and collect it, most messages take 1 µs";

/// Copying and collecting it, as a share of the CPU that the VM uses.
const COST: Scale =
    Scale { notice: 0.02, warning: 0.05, critical: 0.50, source: "judgement: what is not copied is saved" };

/// Below this nobody would win anything by a change (judgement).
const WORTH_CORES: f64 = 0.02;

/// Such messages in queues, in bytes.
const HELD: Scale =
    Scale { notice: 20e6, warning: 100e6, critical: 4e9, source: "judgement: memory that is there twice" };

/// What it takes to copy a byte of a message and to collect it, in seconds (measured: 0.3 to 1.2 on OTP 23, 25 and 29, terms of 2 to 250 kB).
const SECONDS_PER_BYTE: f64 = 0.5e-9;

/// Bytes of a word: garbage is counted in words. 32-bit emulators are rare.
const WORD_BYTES: f64 = 8.0;

/// Fragments of one size are one message if they were seen so often, at so many moments, and are so large a part of all (judgement: many
/// small messages add up to something else each time).
const MIN_ROWS: u32 = 3;
const MIN_LOOKS: u32 = 2;
const MIN_SHARE: f64 = 0.5;

/// Who has done less in the time seen has taken hardly any message (judgement).
const MIN_REDUCTIONS: i64 = 10_000;

/// So many receivers are told.
const MOST_NAMED: usize = 3;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let longest = period.stat(&metrics::SCAN_LONGEST_QUEUE, "")?;
    let reclaimed = period.rate(&metrics::GC_WORDS_RECLAIMED, "")? * WORD_BYTES;
    let is_told = |process: &ProcessUse| process.row.as_ref().is_some_and(|row| row.fragment_bytes.is_some());
    if longest.max > 0 && !period.processes.iter().any(is_told) {
        return Err(period.missing_group(Group::Processes, "fragments of heaps"));
    }
    let received = received(period);
    let mut large: Vec<&Received<'_>> = received.iter().filter(|got| got.each >= LARGE_BYTES).collect();
    large.sort_by(|a, b| b.waiting.total_cmp(&a.waiting).then(b.each.total_cmp(&a.each)));
    let Some(first) = large.first() else {
        return Ok(Judgement::Healthy(format!(
            "of {} processes that messages waited for when they were looked at, none is known to get {:.0} kB and more in one",
            received.len(),
            LARGE_BYTES / 1e3
        )));
    };
    let held: f64 = large.iter().map(|got| got.waiting).sum();
    // Other messages may be small, and other garbage no messages: as many of all as of the processes that were weighed.
    let share = large.len() as f64 / received.len() as f64;
    let cores = reclaimed * share * SECONDS_PER_BYTE;
    let all = view::process_cores(period)?;
    let used = cores / all.max(cores);
    let who = match large.len() {
        1 => first.process.title(),
        count => format!("{} and {} more", first.process.title(), count - 1),
    };
    let each = first.each / 1e3;
    let Some(score) = COST
        .score(used)
        .filter(|_| cores >= WORTH_CORES)
        .into_iter()
        .chain(HELD.score(held))
        .reduce(f64::max)
    else {
        return Ok(Judgement::Healthy(format!(
            "messages to {who} have {each:.0} kB, but copying them takes {cores:.3} cores at most"
        )));
    };
    let summary = format!(
        "messages to {who} have {each:.0} kB, which is copied for each: with the collections that throw it away, up to {cores:.2} cores"
    );
    let draft = Draft::new(score, summary).about(first.process.title());
    let draft = large.iter().take(MOST_NAMED).fold(draft, |draft, got| draft.because(got.evidence()));
    let text = format!(
        "of {all:.2} cores: {:.0} % of the garbage, at {:.1} s for a GB",
        share * 100.0,
        SECONDS_PER_BYTE * 1e9
    );
    let draft = draft
        .because(
            Evidence::number("copying and collecting, at most", used, Unit::Ratio)
                .against(COST.warning, COST.source)
                .with_text(text),
        )
        .because(Evidence::number("garbage of the node in a second", reclaimed, Unit::Bytes))
        .because(Evidence::number("such messages in queues", held, Unit::Bytes).against(HELD.warning, HELD.source))
        .because_some(place::of(first.process).map(|place| Evidence::text("where the first one was", place)))
        .but("who sends them is not recorded")
        .but("how much of the garbage is messages is not recorded: if most is something else, they cost less")
        .fix(remedy::of(
            period,
            "code.smaller_messages",
            "send what the receiver reads: the key, the part, or the change, not the whole state",
            "a message is copied whole, for each receiver, however little of it is read",
            "words reclaimed in a second, and CPU per request, under the same load",
        ))
        .fix(remedy::of(
            period,
            "code.shared_terms",
            "put what many read into persistent_term (if it hardly changes) or an ETS table, and send the key; keep large texts as binaries",
            "persistent terms and binaries above 64 bytes are not copied, and ETS copies only what is looked up",
            "words reclaimed in a second, and CPU per request, under the same load",
        ))
        .fix_if(held >= HELD.notice && first.is_on_heap, || {
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

/// What a process gets in one message.
struct Received<'p> {
    process: &'p ProcessUse,
    is_on_heap: bool,
    /// Bytes of a message, at least.
    each: f64,
    /// Bytes of those that wait in its queue, at least; 0 where none is known to.
    waiting: f64,
    how: String,
}

impl Received<'_> {
    fn evidence(&self) -> Evidence {
        Evidence::number(format!("a message to {}", self.process.title()), self.each, Unit::Bytes)
            .against(LARGE_BYTES, LARGE_SOURCE)
            .with_text(self.how.clone())
    }
}

/// All that could be weighed.
fn received(period: &Period) -> Vec<Received<'_>> {
    let links = links_bytes(period);
    let mut all: BTreeMap<&str, Received<'_>> = BTreeMap::new();
    for process in &period.processes {
        if let Some(received) = waiting(process, links) {
            all.insert(&process.pid, received);
        }
    }
    if let Some(alike) = alike(period) {
        // Who does nothing keeps what came long ago.
        let works = |process: &&ProcessUse| process.queue_max > 0 && process.reductions >= MIN_REDUCTIONS;
        let of_size = |process: &&ProcessUse| alike.pids.contains(&process.pid);
        for process in period.processes.iter().filter(of_size).filter(works) {
            let before = all.remove(process.pid.as_str());
            let same = Received {
                process,
                is_on_heap: process.row.as_ref().is_some_and(beside::is_on_heap),
                each: alike.bytes as f64,
                waiting: before.as_ref().map_or(0.0, |before| before.waiting),
                how: format!(
                    "the same in fragments of heaps, {} times at {} moments",
                    alike.rows, alike.looks
                ),
            };
            all.insert(&process.pid, before.filter(|before| before.each >= same.each).unwrap_or(same));
        }
    }
    all.into_values().collect()
}

/// By the messages that waited when a process was looked at.
fn waiting(process: &ProcessUse, links: Option<f64>) -> Option<Received<'_>> {
    let mail = process.mail.as_ref()?;
    let bytes = mail.least_bytes() as f64;
    let (bytes, place) = if mail.is_on_heap {
        (bytes, "in fragments beyond the size of its heap")
    } else {
        // Whether its links are many is not known: as if all of the node's were its own.
        (bytes - links? - beside::HEAD_BYTES * mail.messages as f64, "off the heap")
    };
    let waiting = bytes.max(0.0);
    let how = format!("at least: {:.1} MB {place}, {} in the queue", waiting / 1e6, mail.messages);
    let each = waiting / mail.messages.max(1) as f64;
    Some(Received { process, is_on_heap: mail.is_on_heap, each, waiting, how })
}

/// The most frequent size of large fragments, if it is so frequent that they are one message each.
fn alike(period: &Period) -> Option<&Alike> {
    let mut large = period.fragments.iter().filter(|alike| alike.bytes as f64 >= LARGE_BYTES);
    let first = large.next()?;
    let all = large.fold(first.rows, |sum, alike| sum.saturating_add(alike.rows));
    let is_most = f64::from(first.rows) >= MIN_SHARE * f64::from(all);
    (is_most && first.rows >= MIN_ROWS && first.looks >= MIN_LOOKS).then_some(first)
}

/// What all links and monitors of the node are charged with, in bytes, at most.
fn links_bytes(period: &Period) -> Option<f64> {
    let processes = period.stat(&metrics::PROCESS_COUNT, "").ok()?.last.value as f64;
    Some((Blocks::of(period).ok()?.last - processes).max(0.0) * beside::side_bytes(period))
}
