//! One recording of all that a text tells.
//!
//! What counts is told from nothing to the end of a period as long as the tools have measured: two samples. Where nobody told how long that
//! was, shares are of a second, and a fact says so.

use std::collections::HashMap;

use beamtune_model::units::Nanos;
use beamtune_model::{
    AllocationRow, CarrierRow, Gap, Group, LockRow, LockSession, Metric, Sample, SampleBuilder, SeriesTable,
    Span, Tick, TroubleKind, facts, metrics,
};

use crate::Unread;
use crate::banner::Banner;
use crate::instrument::TOOL as INSTRUMENT;
use crate::join::Imported;
use crate::part::{CARRIERS, Mean, Named, Part, Partial, Told, Tool, Value, Whole};
use crate::rabbitmq::ROUNDED;
use crate::terms::{RECON, UNKNOWN_LENGTH_US};

/// The tool of lock counting.
const LCNT: Tool = "lcnt";

const MICROSECOND: Nanos = 1_000;

const TOLD_BEFORE: &str = "the same was told before, and otherwise: import one measurement at a time";
const NO_SIZES: &str =
    "of how much memory these averages are is not known: print recon_alloc:fragmentation(current) too";
const NO_LENGTH: &str = "how long was measured is not known: times and rates are of one second";

/// What was read of a text, of all tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// Tools that something was read of, in the order of their first part.
    pub tools: Vec<Tool>,
    /// What lcnt has printed; `None` if no row of its tables was read. The length of the session is 0 where neither `information` nor the
    /// shares in the tables tell it, its `locks` are at least those that the tables tell of, and its `remark` says what is not exact.
    /// Of a row, `locks` is 0 where it was not printed how many it is of, `waits` where nobody printed a histogram, and `kind` is empty
    /// where it was not printed.
    pub locks: Option<(LockSession, Vec<LockRow>)>,
    /// What all other tools tell.
    values: Vec<Value>,
    facts: Vec<(&'static str, String)>,
    carriers: Vec<CarrierRow>,
    allocations: Vec<AllocationRow>,
    means: Vec<Mean>,
    /// Sums over all allocators, as they were told.
    whole: Vec<(Whole, f64)>,
    length_us: Option<i64>,
    partial: Vec<Cut>,
    remarks: Vec<&'static str>,
    /// What was not read.
    pub unread: Vec<Unread>,
    /// What a banner tells of the VM, where it is there.
    pub banner: Banner,
}

/// What was told, by what it is of; and whether it was rounded.
type Known = HashMap<(Group, String, String), (i64, bool)>;

/// A part that tells some of it only.
#[derive(Debug, Clone, PartialEq)]
struct Cut {
    tool: Tool,
    partial: Partial,
    /// Where it begins, in bytes, and in which line, from 1.
    begin: usize,
    line: usize,
}

/// Puts parts together, each as a whole or not at all, and says where those stand that are not.
pub fn join(text: &str, parts: Vec<Part>, banner: Banner) -> (Reading, Vec<(usize, usize, String)>) {
    let mut reading = Reading { banner, ..Reading::default() };
    let mut refused = Vec::new();
    let mut known = Known::new();
    // Averages say something of sizes that are told before or after them.
    let (averages, parts): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| part.told.as_ref().is_ok_and(|told| !told.means.is_empty()));
    for Part { tool, begin, end, told } in parts.into_iter().chain(averages) {
        match told.and_then(|told| reading.take(tool, begin, told, &mut known)) {
            Ok(()) => {}
            Err(why) => refused.push((begin, end, why.to_owned())),
        }
    }
    refused.sort_by_key(|(begin, ..)| *begin);
    for cut in &mut reading.partial {
        cut.line = 1 + text[..cut.begin].matches('\n').count();
    }
    (reading, refused)
}

impl Reading {
    fn take(&mut self, tool: Tool, begin: usize, told: Told, known: &mut Known) -> Result<(), &'static str> {
        let key = |value: &Value| match &value.series {
            Named::Metric(metric) => (metric.group, value.entity.clone(), metric.name.to_owned()),
            Named::Family(family, name) => (family.group, value.entity.clone(), name.clone()),
        };
        // What was rounded says nothing against what was not, and gives way to it.
        let is_rounded = told.remark == Some(ROUNDED);
        let differs = |value: &Value| {
            let before = known.get(&key(value)).filter(|(_, rounded)| *rounded == is_rounded);
            before.is_some_and(|(before, _)| *before != value.value)
        };
        let of_banner = self.banner.facts();
        let another = |(key, value): &(&str, String)| {
            self.facts.iter().chain(&of_banner).any(|(known, before)| known == key && before != value)
        };
        // A second measurement of the same threads or allocators is another one, even if some of its values are the same.
        let again = |group: Group| {
            let has = |value: &Value| matches!(key(value), (of, ..) if of == group);
            told.values.iter().any(has) && known.keys().any(|(of, ..)| *of == group)
        };
        let is_other = told.values.iter().any(differs) || told.facts.iter().any(another);
        let is_mixed = [Group::Msacc, Group::SchedulerTime].into_iter().any(again)
            && told.values.iter().any(|value| !known.contains_key(&key(value)));
        let has_rows =
            !told.carriers.is_empty() && !self.carriers.is_empty() && told.carriers != self.carriers
                || !told.allocations.is_empty()
                    && !self.allocations.is_empty()
                    && told.allocations != self.allocations;
        let has_means = !told.means.is_empty() && !self.means.is_empty() && told.means != self.means;
        let has_sum =
            |(of, sum): &(Whole, f64)| self.whole.iter().any(|told| told.0 == *of && told.1 != *sum);
        let has_whole = told.whole.as_ref().is_some_and(has_sum);
        if is_other || is_mixed || has_rows || has_means || has_whole {
            return Err(TOLD_BEFORE);
        }
        if !told.means.is_empty() && of_carriers(&self.values, &self.carriers) != RECON {
            return Err(NO_SIZES);
        }
        for value in told.values {
            let of = key(&value);
            match known.get(&of) {
                Some((_, true)) if !is_rounded => self.values.retain(|before| key(before) != of),
                Some(_) => continue,
                None => {}
            }
            known.insert(of, (value.value, is_rounded));
            self.values.push(value);
        }
        for fact in told.facts {
            if !self.facts.contains(&fact) {
                self.facts.push(fact);
            }
        }
        if !told.carriers.is_empty() {
            self.carriers = told.carriers;
        }
        if !told.allocations.is_empty() {
            self.allocations = told.allocations;
        }
        // Where blocks were counted, averages say nothing more.
        let is_counted =
            !told.means.is_empty() && self.values.iter().any(|value| is_of(value, &metrics::MBCS_BLOCKS));
        if !told.means.is_empty() {
            self.means = told.means;
        }
        self.whole.extend(told.whole);
        // Microstates are counted in microseconds of their own length, and are the better clock.
        if self.length_us.is_none() || tool == crate::msacc::TOOL {
            self.length_us = told.length_us.or(self.length_us);
        }
        if let Some(partial) = told.partial.filter(|partial| !self.has_gap(tool, partial.item)) {
            self.partial.push(Cut { tool, partial, begin, line: 0 });
        }
        if let Some(remark) = told.remark.filter(|remark| !is_counted && !self.remarks.contains(remark)) {
            self.remarks.push(remark);
        }
        self.saw(tool);
        Ok(())
    }

    fn has_gap(&self, tool: Tool, item: &str) -> bool {
        self.partial.iter().any(|cut| cut.tool == tool && cut.partial.item == item)
    }

    fn saw(&mut self, tool: Tool) {
        if !self.tools.contains(&tool) {
            self.tools.push(tool);
        }
    }

    /// Adds what lcnt has printed. Without any row there is nothing to keep, and what there was besides is named.
    pub(crate) fn add_locks(&mut self, imported: Imported) {
        self.unread.extend(imported.unread);
        if !imported.rows.is_empty() {
            self.tools.insert(0, LCNT);
            self.locks = Some((imported.session, imported.rows));
        }
    }

    /// Whether anything but counts of locks was read.
    pub fn is_of_locks_alone(&self) -> bool {
        self.tools == [LCNT]
    }

    /// The samples of a recording that holds it, `by` naming who made it.
    pub fn samples(self, by: &str, table: &mut SeriesTable) -> Vec<Sample> {
        let values = self.counted_once();
        let counts = |value: &&Value| matches!(group(value), Group::Msacc | Group::SchedulerTime);
        let has_length = values.iter().any(|value| counts(&value));
        let teller = of_carriers(&values, &self.carriers);
        let end = if has_length {
            self.length_us.unwrap_or(UNKNOWN_LENGTH_US).saturating_mul(MICROSECOND)
        } else {
            0
        };
        let mut first = None;
        if has_length {
            let mut builder = SampleBuilder::new(table, tick(0, true, false));
            values.iter().filter(counts).for_each(|value| add(&mut builder, value, 0));
            first = Some(builder.sample);
        }
        let of_host = values.iter().any(|value| group(value).is_host());
        let is_asked = !self.is_of_locks_alone();
        let mut builder = SampleBuilder::new(table, tick(end, is_asked, of_host));
        values.iter().for_each(|value| add(&mut builder, value, value.value));
        let mut last = builder.sample;
        last.facts.extend(self.all_facts(by, has_length));
        for Cut { tool, partial: Partial { item, why }, line, .. } in self.partial {
            // Of two tools that tell of carriers one counts.
            if item != CARRIERS || tool == teller {
                last.gaps.push(Gap {
                    begin: 0,
                    end,
                    source: item.to_owned(),
                    kind: TroubleKind::Garbled,
                    reason: format!("line {line}: {why}"),
                });
            }
        }
        let at = |t: &mut Nanos| *t = end;
        last.carriers = self.carriers;
        last.carriers.iter_mut().for_each(|row| at(&mut row.t));
        last.allocations = self.allocations;
        last.allocations.iter_mut().for_each(|row| at(&mut row.t));
        if let Some((session, rows)) = self.locks {
            last.lock_sessions.push(session);
            last.locks = rows;
        }
        first.into_iter().chain([last]).collect()
    }

    /// The values, but for sums over all instances of allocators where the instances are told too.
    fn counted_once(&self) -> Vec<Value> {
        let by_instance = self.values.iter().any(|value| tells_carriers(value, true));
        let is_sum = |value: &Value| {
            group(value) == Group::Allocator
                && !value.entity.contains('/')
                && !is_of(value, &metrics::CARRIERS_SIZE)
        };
        let values: Vec<Value> =
            self.values.iter().filter(|value| !by_instance || !is_sum(value)).cloned().collect();
        let (counts, sums) = (self.numbers_of_blocks(&values), self.all_together());
        values.into_iter().chain(counts).chain(sums).collect()
    }

    /// How many blocks there are: their size, of all instances of an allocator, by the average.
    fn numbers_of_blocks(&self, values: &[Value]) -> Vec<Value> {
        if values.iter().any(|value| is_of(value, &metrics::MBCS_BLOCKS)) {
            return Vec::new();
        }
        let (mbcs_sizes, sbcs_sizes) = (
            by_allocator(values, &metrics::MBCS_BLOCKS_SIZE),
            by_allocator(values, &metrics::SBCS_BLOCKS_SIZE),
        );
        let count = |size: Option<&f64>, mean: f64| match mean > 0.0 {
            true => Some((size? / mean).round() as i64),
            false => (*size? <= 0.0).then_some(0),
        };
        let mut counts = Vec::new();
        for Mean { allocator, mbcs, sbcs } in &self.means {
            let mut add = |metric, number: Option<i64>| {
                counts.extend(number.map(|number| Value::of(metric, allocator.as_str(), number)));
            };
            add(&metrics::MBCS_BLOCKS, count(mbcs_sizes.get(allocator.as_str()), *mbcs));
            let single = count(sbcs_sizes.get(allocator.as_str()), *sbcs);
            add(&metrics::SBCS_BLOCKS, single);
            add(&metrics::SBCS_CARRIERS, single);
        }
        counts
    }

    /// Carriers and blocks of all allocators: what of it was told, and what follows from that.
    fn all_together(&self) -> Vec<Value> {
        let told = |of| self.whole.iter().find(|(whole, _)| *whole == of).map(|(_, number)| *number);
        let of_parts = || told(Whole::AllocatedByType).or(told(Whole::AllocatedByInstance));
        let (allocated, used) = (told(Whole::Allocated).or_else(of_parts), told(Whole::Used));
        let (unused, usage) = (told(Whole::Unused), told(Whole::Usage));
        let carriers = allocated
            .or_else(|| Some(used? + unused?))
            .or_else(|| Some(used? / usage?))
            .or_else(|| Some(unused? / (1.0 - usage.filter(|usage| *usage < 1.0)?)));
        let blocks = used.or_else(|| Some(carriers? - unused?)).or_else(|| Some(carriers? * usage?));
        let value = |metric, number: f64| Value::of(metric, "", number.round() as i64);
        let carriers = carriers.map(|size| value(&metrics::CARRIERS_SIZE, size));
        carriers.into_iter().chain(blocks.map(|size| value(&metrics::BLOCKS_SIZE, size))).collect()
    }

    fn all_facts(&self, by: &str, has_length: bool) -> Vec<(String, String)> {
        let no_length = (has_length && self.length_us.is_none()).then_some(NO_LENGTH);
        let remarks: Vec<&str> = self.remarks.iter().copied().chain(no_length).collect();
        let remarks = (!remarks.is_empty()).then(|| remarks.join("; "));
        let told = [
            (facts::IMPORTED_FROM, Some(self.tools.join(", "))),
            (facts::IMPORTED_REMARK, remarks),
            (facts::RECORDED_BY, Some(by.to_owned())),
        ];
        let told = told.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let mut of_parts = self.banner.facts();
        let more: Vec<_> = self.facts.iter().filter(|fact| !of_parts.contains(fact)).cloned().collect();
        of_parts.extend(more);
        told.chain(of_parts).map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// What all instances of each allocator have together.
fn by_allocator<'a>(values: &'a [Value], of: &Metric) -> HashMap<&'a str, f64> {
    let mut sums = HashMap::new();
    for value in values.iter().filter(|value| is_of(value, of)) {
        if let Some((allocator, _)) = value.entity.rsplit_once('/') {
            *sums.entry(allocator).or_insert(0.0) += value.value as f64;
        }
    }
    sums
}

/// Which tool tells what carriers and blocks there are: recon if it does so by instance, or if nobody has told carriers one by one.
fn of_carriers(values: &[Value], one_by_one: &[CarrierRow]) -> Tool {
    let tells = |by_instance| values.iter().any(|value| tells_carriers(value, by_instance));
    if tells(true) || tells(false) && one_by_one.is_empty() { RECON } else { INSTRUMENT }
}

/// Whether a value is of the carriers of an instance, or of those of all instances of an allocator.
fn tells_carriers(value: &Value, by_instance: bool) -> bool {
    is_of(value, &metrics::MBCS_CARRIERS_SIZE) && value.entity.contains('/') == by_instance
}

fn is_of(value: &Value, of: &Metric) -> bool {
    matches!(&value.series, Named::Metric(metric) if *metric == of)
}

fn group(value: &Value) -> Group {
    match &value.series {
        Named::Metric(metric) => metric.group,
        Named::Family(family, _) => family.group,
    }
}

fn tick(t: Nanos, vm: bool, host: bool) -> Tick {
    let span = Span { begin: t, end: t };
    Tick { t, incarnation: 0, vm: vm.then_some(span), host: host.then_some(span), late: 0 }
}

fn add(builder: &mut SampleBuilder<'_>, value: &Value, number: i64) {
    match &value.series {
        Named::Metric(metric) => builder.metric(metric, &value.entity, number),
        Named::Family(family, name) => builder.family(family, &value.entity, name, number),
    }
}
