//! Merges all data of a text into one recording.
//!
//! Counters become two samples: zero at the beginning, and the printed counts at the end of a period as long as the measurement. If the
//! duration was not printed, it is assumed to be one second, which is recorded as a fact.

use std::collections::HashMap;

use beamtune_model::units::Nanos;
use beamtune_model::{
    AllocationRow, CarrierRow, Gap, Group, LockRow, LockSession, Metric, Sample, SampleBuilder, SeriesTable,
    Span, Tick, TroubleKind, facts, metrics,
};

use crate::Unread;
use crate::answers::{DEFAULT_LENGTH_US, RECON};
use crate::banner::Banner;
use crate::instrument::TOOL as INSTRUMENT;
use crate::join::Imported;
use crate::part::{CARRIERS, MeanBlockSize, Omission, Part, PartData, SeriesRef, Tool, TotalKind, Value};
use crate::rabbitmq::ROUNDED;

/// The tool of lock counting.
const LCNT: Tool = "lcnt";

const MICROSECOND: Nanos = 1_000;

const CONTRADICTS_EARLIER: &str = "it contradicts earlier output: import one measurement at a time";
const NO_SIZES: &str =
    "the sizes that these averages belong to are missing: print recon_alloc:fragmentation(current) too";
const NO_LENGTH: &str = "the duration is unknown: times and rates assume one second";

/// The data of a text, from all tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportedText {
    /// Tools whose output was read, in the order of their first part.
    pub tools: Vec<Tool>,
    /// The data of lcnt's tables; `None` if no row was read. In the session, `length` is 0 if neither `information` nor percentages contain
    /// it. `locks` may be a lower bound derived from the rows, and `remark` describes what is not exact. In rows, `locks` is 0 and `kind`
    /// is empty if they were not printed, and `waits` is 0 if there is no histogram.
    pub locks: Option<(LockSession, Vec<LockRow>)>,
    /// The values from all other tools.
    values: Vec<Value>,
    facts: Vec<(&'static str, String)>,
    carriers: Vec<CarrierRow>,
    allocations: Vec<AllocationRow>,
    means: Vec<MeanBlockSize>,
    /// Sums over all allocators, as printed.
    totals: Vec<(TotalKind, f64)>,
    length_us: Option<i64>,
    omissions: Vec<LocatedOmission>,
    remarks: Vec<&'static str>,
    /// The parts that were not read.
    pub unread: Vec<Unread>,
    /// The VM's banner; empty if it is missing.
    pub banner: Banner,
}

/// Values by series, and whether they were rounded.
type KnownValues = HashMap<(Group, String, String), (i64, bool)>;

/// Missing data, with the position of the part that lacks them.
#[derive(Debug, Clone, PartialEq)]
struct LocatedOmission {
    tool: Tool,
    omission: Omission,
    /// Position of the part in the text, in bytes.
    begin: usize,
    /// Its first line, from 1.
    line: usize,
}

/// Merges parts, each completely or not at all. Returns the byte ranges of refused parts, with the reason.
pub fn join(text: &str, parts: Vec<Part>, banner: Banner) -> (ImportedText, Vec<(usize, usize, String)>) {
    let mut reading = ImportedText { banner, ..ImportedText::default() };
    let mut refused = Vec::new();
    let mut known = KnownValues::new();
    // Averages are merged last, because they need the sizes, which may be printed before or after them.
    let (averages, parts): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| part.data.as_ref().is_ok_and(|data| !data.means.is_empty()));
    for Part { tool, begin, end, data } in parts.into_iter().chain(averages) {
        match data.and_then(|data| reading.take(tool, begin, data, &mut known)) {
            Ok(()) => {}
            Err(why) => refused.push((begin, end, why.to_owned())),
        }
    }
    refused.sort_by_key(|(begin, ..)| *begin);
    for located in &mut reading.omissions {
        located.line = 1 + text[..located.begin].matches('\n').count();
    }
    (reading, refused)
}

impl ImportedText {
    fn take(
        &mut self,
        tool: Tool,
        begin: usize,
        data: PartData,
        known: &mut KnownValues,
    ) -> Result<(), &'static str> {
        let key = |value: &Value| match &value.series {
            SeriesRef::Metric(metric) => (metric.group, value.entity.clone(), metric.name.to_owned()),
            SeriesRef::Family(family, name) => (family.group, value.entity.clone(), name.clone()),
        };
        // Rounded values never contradict exact ones, and are replaced by them.
        let is_rounded = data.remark == Some(ROUNDED);
        let differs = |value: &Value| {
            let before = known.get(&key(value)).filter(|(_, rounded)| *rounded == is_rounded);
            before.is_some_and(|(before, _)| *before != value.value)
        };
        let of_banner = self.banner.facts();
        let another = |(key, value): &(&str, String)| {
            self.facts.iter().chain(&of_banner).any(|(known, before)| known == key && before != value)
        };
        // Another measurement of the same threads or allocators is refused, even if some of its values are equal.
        let again = |group: Group| {
            let has = |value: &Value| matches!(key(value), (of, ..) if of == group);
            data.values.iter().any(has) && known.keys().any(|(of, ..)| *of == group)
        };
        let is_other = data.values.iter().any(differs) || data.facts.iter().any(another);
        let is_mixed = [Group::Msacc, Group::SchedulerTime].into_iter().any(again)
            && data.values.iter().any(|value| !known.contains_key(&key(value)));
        let has_other_rows =
            !data.carriers.is_empty() && !self.carriers.is_empty() && data.carriers != self.carriers
                || !data.allocations.is_empty()
                    && !self.allocations.is_empty()
                    && data.allocations != self.allocations;
        let has_other_means = !data.means.is_empty() && !self.means.is_empty() && data.means != self.means;
        let has_sum =
            |(of, sum): &(TotalKind, f64)| self.totals.iter().any(|known| known.0 == *of && known.1 != *sum);
        let has_other_total = data.total.as_ref().is_some_and(has_sum);
        if is_other || is_mixed || has_other_rows || has_other_means || has_other_total {
            return Err(CONTRADICTS_EARLIER);
        }
        if !data.means.is_empty() && carrier_tool(&self.values, &self.carriers) != RECON {
            return Err(NO_SIZES);
        }
        for value in data.values {
            let of = key(&value);
            match known.get(&of) {
                Some((_, true)) if !is_rounded => self.values.retain(|before| key(before) != of),
                Some(_) => continue,
                None => {}
            }
            known.insert(of, (value.value, is_rounded));
            self.values.push(value);
        }
        for fact in data.facts {
            if !self.facts.contains(&fact) {
                self.facts.push(fact);
            }
        }
        if !data.carriers.is_empty() {
            self.carriers = data.carriers;
        }
        if !data.allocations.is_empty() {
            self.allocations = data.allocations;
        }
        // If the number of blocks is known, averages contain no new information.
        let is_counted =
            !data.means.is_empty() && self.values.iter().any(|value| is_metric(value, &metrics::MBCS_BLOCKS));
        if !data.means.is_empty() {
            self.means = data.means;
        }
        self.totals.extend(data.total);
        // The values of msacc are microseconds that add up to its own duration, so this duration is preferred.
        if self.length_us.is_none() || tool == crate::msacc::TOOL {
            self.length_us = data.length_us.or(self.length_us);
        }
        if let Some(omission) = data.omission.filter(|omission| !self.has_omission(tool, omission.source)) {
            self.omissions.push(LocatedOmission { tool, omission, begin, line: 0 });
        }
        if let Some(remark) = data.remark.filter(|remark| !is_counted && !self.remarks.contains(remark)) {
            self.remarks.push(remark);
        }
        self.add_tool(tool);
        Ok(())
    }

    fn has_omission(&self, tool: Tool, source: &str) -> bool {
        self.omissions.iter().any(|located| located.tool == tool && located.omission.source == source)
    }

    fn add_tool(&mut self, tool: Tool) {
        if !self.tools.contains(&tool) {
            self.tools.push(tool);
        }
    }

    /// Adds the data of lcnt's tables. If there are no rows, only the unread parts are added.
    pub(crate) fn add_locks(&mut self, imported: Imported) {
        self.unread.extend(imported.unread);
        if !imported.rows.is_empty() {
            self.tools.insert(0, LCNT);
            self.locks = Some((imported.session, imported.rows));
        }
    }

    /// Whether only lock counts were read.
    pub fn has_only_locks(&self) -> bool {
        self.tools == [LCNT]
    }

    /// Returns the samples of a recording with these data. `by` is the program that creates the recording.
    pub fn samples(self, by: &str, table: &mut SeriesTable) -> Vec<Sample> {
        let values = self.without_double_sums();
        let counts = |value: &&Value| matches!(group(value), Group::Msacc | Group::SchedulerTime);
        let has_length = values.iter().any(|value| counts(&value));
        let carrier_tool = carrier_tool(&values, &self.carriers);
        let end = if has_length {
            self.length_us.unwrap_or(DEFAULT_LENGTH_US).saturating_mul(MICROSECOND)
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
        let of_vm = !self.has_only_locks();
        let mut builder = SampleBuilder::new(table, tick(end, of_vm, of_host));
        values.iter().for_each(|value| add(&mut builder, value, value.value));
        let mut last = builder.sample;
        last.facts.extend(self.all_facts(by, has_length));
        for LocatedOmission { tool, omission: Omission { source, why }, line, .. } in self.omissions {
            // If two tools report carriers, only one of them is used.
            if source != CARRIERS || tool == carrier_tool {
                last.gaps.push(Gap {
                    begin: 0,
                    end,
                    source: source.to_owned(),
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

    /// Returns the values, without sums over all instances of an allocator if the values of the instances are known.
    fn without_double_sums(&self) -> Vec<Value> {
        let by_instance = self.values.iter().any(|value| is_carrier_size(value, true));
        let is_sum = |value: &Value| {
            group(value) == Group::Allocator
                && !value.entity.contains('/')
                && !is_metric(value, &metrics::CARRIERS_SIZE)
        };
        let values: Vec<Value> =
            self.values.iter().filter(|value| !by_instance || !is_sum(value)).cloned().collect();
        let (counts, sums) = (self.estimated_block_counts(&values), self.total_sizes());
        values.into_iter().chain(counts).chain(sums).collect()
    }

    /// Estimates the number of blocks per allocator from their total and average size.
    fn estimated_block_counts(&self, values: &[Value]) -> Vec<Value> {
        if values.iter().any(|value| is_metric(value, &metrics::MBCS_BLOCKS)) {
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
        for MeanBlockSize { allocator, mbcs, sbcs } in &self.means {
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

    /// Returns the sizes of all carriers and of all blocks, as printed or computed from other printed totals.
    fn total_sizes(&self) -> Vec<Value> {
        let printed = |of| self.totals.iter().find(|(kind, _)| *kind == of).map(|(_, number)| *number);
        let of_parts = || printed(TotalKind::AllocatedByType).or(printed(TotalKind::AllocatedByInstance));
        let (allocated, used) = (printed(TotalKind::Allocated).or_else(of_parts), printed(TotalKind::Used));
        let (unused, usage) = (printed(TotalKind::Unused), printed(TotalKind::Usage));
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
        let own = [
            (facts::IMPORTED_FROM, Some(self.tools.join(", "))),
            (facts::IMPORTED_REMARK, remarks),
            (facts::RECORDED_BY, Some(by.to_owned())),
        ];
        let own = own.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let mut of_parts = self.banner.facts();
        let more: Vec<_> = self.facts.iter().filter(|fact| !of_parts.contains(fact)).cloned().collect();
        of_parts.extend(more);
        own.chain(of_parts).map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Sums a metric over all instances of each allocator.
fn by_allocator<'a>(values: &'a [Value], of: &Metric) -> HashMap<&'a str, f64> {
    let mut sums = HashMap::new();
    for value in values.iter().filter(|value| is_metric(value, of)) {
        if let Some((allocator, _)) = value.entity.rsplit_once('/') {
            *sums.entry(allocator).or_insert(0.0) += value.value as f64;
        }
    }
    sums
}

/// Selects the tool that provides carriers and blocks: recon_alloc if it lists instances, or if instrument lists no carriers.
fn carrier_tool(values: &[Value], carriers: &[CarrierRow]) -> Tool {
    let has = |by_instance| values.iter().any(|value| is_carrier_size(value, by_instance));
    if has(true) || has(false) && carriers.is_empty() { RECON } else { INSTRUMENT }
}

/// Whether a value is the size of carriers, either of an instance or of a whole allocator.
fn is_carrier_size(value: &Value, by_instance: bool) -> bool {
    is_metric(value, &metrics::MBCS_CARRIERS_SIZE) && value.entity.contains('/') == by_instance
}

fn is_metric(value: &Value, of: &Metric) -> bool {
    matches!(&value.series, SeriesRef::Metric(metric) if *metric == of)
}

fn group(value: &Value) -> Group {
    match &value.series {
        SeriesRef::Metric(metric) => metric.group,
        SeriesRef::Family(family, _) => family.group,
    }
}

fn tick(t: Nanos, vm: bool, host: bool) -> Tick {
    let span = Span { begin: t, end: t };
    Tick { t, incarnation: 0, vm: vm.then_some(span), host: host.then_some(span), late: 0 }
}

fn add(builder: &mut SampleBuilder<'_>, value: &Value, number: i64) {
    match &value.series {
        SeriesRef::Metric(metric) => builder.metric(metric, &value.entity, number),
        SeriesRef::Family(family, name) => builder.family(family, &value.entity, name, number),
    }
}
