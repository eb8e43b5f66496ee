//! Explicit items, which are read only on request because they take long or disturb the node.
//!
//! [`crate::source::NodeSource::ask_once`] requests items for one reading. They arrive as rows of the next detailed sample.
//! `docs/agent-protocol.md` describes how each item affects the node.

use std::time::Duration;

use crate::agent::milliseconds;
use crate::etf::{Term, TermError, Value};
use crate::sample::locks::refusal;

/// Range of time limits that the agent accepts for an item.
const ITEM_LIMITS: std::ops::RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(600);

/// Range of lock counting periods that the agent accepts.
const COUNT_PERIODS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(600);

/// Time allowed for reading the lock counters after the counting period: minimum, default, maximum.
const READ_TIMES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(30), Duration::from_secs(120)];

/// How long after an item's time limit the agent gives up on the item, plus the round trip.
const GRACE: Duration = Duration::from_secs(4);

/// Maximum number of allocator instances read from an estimate. No VM has this many.
const MAX_SKIPPED: usize = 16_384;

/// An explicit item and its time limit on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplicitItem {
    /// Which item to read, or which action to perform.
    pub kind: ExplicitKind,
    /// Time limit, 50 ms to 10 minutes. The rows report what was not reached within it.
    pub limit: Duration,
}

/// The kinds of explicit items.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExplicitKind {
    /// Reads the contents of carriers: [`beamtune_model::CarrierRow`].
    Carriers(CarrierWalk),
    /// Estimates the cost of `Carriers`, and yields no rows. See [`crate::source::NodeSource::estimate_walk`].
    WalkCost(CarrierWalk),
    /// Reads blocks by allocating function and type: [`beamtune_model::AllocationRow`]. Costs as much as walking the carriers of
    /// the same allocators. Unsupported if no allocator has tags (`+M<S>atags`).
    Allocations {
        /// The carriers to walk.
        walk: CarrierWalk,
        /// Maximum number of rows to report, 1 to 1,000. The largest are reported.
        top: u32,
    },
    /// Reads code size by application ([`beamtune_model::CodeRow`]), and persistent terms. Stops all schedulers for 0.25 ms per
    /// thousand modules, after waiting until each is between two processes. Skipped if a scheduler does not answer immediately.
    CodeMemory {
        /// Maximum number of applications to report, 1 to 200.
        top: u32,
    },
    /// Reads which processes refer to binaries: [`beamtune_model::HolderRow`]. Finding these processes reads all processes from
    /// outside (1 s per million processes). Each one found then lists its references, which occupies it for 0.1 to 0.3 s per
    /// million references.
    Holders {
        /// The processes, by pid (`<0.123.0>`) or registered name. If empty: those that refer to the most bytes.
        pids: Vec<String>,
        /// Number of processes to read if none are named, 1 to 50.
        top: u32,
    },
    /// **Changes the node**: garbage-collects processes, one after the other. Yields [`beamtune_model::CollectionRow`] and
    /// [`beamtune_model::CollectRow`].
    Collect(Collect),
    /// Measures lock contention, on an emulator with lock counting: [`beamtune_model::LockSession`] and
    /// [`beamtune_model::LockRow`]. **Resets the node's lock counters**, and changes which locks are counted during the counting
    /// period. An emulator without lock counting is left untouched, and a gap reports that.
    Locks(Locks),
    /// Estimates the cost of `Locks`, and yields no rows. See [`crate::source::NodeSource::estimate_locks`].
    LocksCost(Locks),
}

/// Lock categories, as the VM names them (`lcnt_category_map` in erl_bif_info.c, OTP 23 to 29).
pub const LOCK_CATEGORIES: [&str; 8] =
    ["allocator", "db", "debug", "distribution", "generic", "io", "process", "scheduler"];

/// Which locks to count, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locks {
    /// [Categories](LOCK_CATEGORIES) of the locks. If empty: all but `debug` and `process` (the latter has five locks per
    /// process).
    pub categories: Vec<String>,
    /// Counting period, 100 ms to 10 minutes.
    pub duration: Duration,
    /// Maximum number of individual locks to report, 1 to 2,000. Those with the longest waits are reported.
    pub top: u32,
    /// Count nothing if the counters may need more address space than this, in bytes, or than half of the host's available
    /// memory.
    pub max_bytes: u64,
}

impl Locks {
    /// Creates a request with the default categories, 200 individual locks, and at most 1 GiB.
    pub fn new(length: Duration) -> Locks {
        Locks { categories: Vec::new(), duration: length, top: 200, max_bytes: 1 << 30 }
    }

    fn length(&self) -> Duration {
        self.duration.clamp(*COUNT_PERIODS.start(), *COUNT_PERIODS.end())
    }

    fn parameters(&self) -> Vec<(Value<'static>, Value<'static>)> {
        let mut parameters = vec![
            (Value::atom("for_ms"), milliseconds(self.length())),
            (Value::atom("max_bytes"), Value::from(self.max_bytes)),
            top(self.top),
        ];
        if !self.categories.is_empty() {
            parameters.push((Value::atom("categories"), names(&self.categories)));
        }
        parameters
    }
}

/// Which processes to garbage-collect, and when to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collect {
    /// The processes.
    pub processes: ProcessSelection,
    /// Number of processes to garbage-collect between two pauses, 1 to 1,000.
    pub batch: u32,
    /// Length of a pause, in which other processes can run: 1 ms to 1 s.
    pub pause: Duration,
    /// Stop when a process waits longer than this for a scheduler: 1 ms to 1 min.
    pub latency_limit: Duration,
    /// Skip processes with a larger heap than this, in bytes. Their garbage collection takes long, and needs room for a second
    /// heap.
    pub max_heap_bytes: u64,
    /// Maximum number of processes to report, 1 to 100. Those that freed the most memory are reported.
    pub top: u32,
}

/// Processes to garbage-collect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessSelection {
    /// The named ones, by pid (`<0.123.0>`) or registered name; at most 1,000.
    Named(Vec<String>),
    /// The largest ones, and a random sample.
    Sample {
        /// Share of all processes, in permille.
        permille: u32,
        /// Maximum number of processes, 1 to 100,000.
        max_processes: u32,
    },
}

impl Collect {
    /// Creates a request whose limits protect even a busy node: batches of 10, pauses of 10 ms, and heaps of at most 256 MiB. It
    /// stops as soon as a process waits longer than 50 ms.
    pub fn new(whom: ProcessSelection) -> Collect {
        let (pause, latency_limit) = (Duration::from_millis(10), Duration::from_millis(50));
        Collect { processes: whom, batch: 10, pause, latency_limit, max_heap_bytes: 256 << 20, top: 20 }
    }

    fn parameters(&self) -> Vec<(Value<'static>, Value<'static>)> {
        let number = |name: &'static str, value: u64| (Value::atom(name), Value::from(value));
        let mut parameters = vec![
            number("batch", self.batch.into()),
            (Value::atom("pause_ms"), milliseconds(self.pause)),
            (Value::atom("latency_limit_ms"), milliseconds(self.latency_limit)),
            number("max_heap_bytes", self.max_heap_bytes),
            top(self.top),
        ];
        match &self.processes {
            ProcessSelection::Named(pids) => parameters.push((Value::atom("pids"), names(pids))),
            ProcessSelection::Sample { permille, max_processes: most } => {
                parameters.push(number("share", (*permille).into()));
                parameters.push(number("max_processes", (*most).into()));
            }
        }
        parameters
    }
}

fn names(names: &[String]) -> Value<'static> {
    Value::List(names.iter().map(|name| Value::binary(name.clone().into_bytes())).collect())
}

/// Which carriers to walk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CarrierWalk {
    /// Allocators of the carriers, such as `eheap_alloc`. If empty: all.
    pub allocators: Vec<String>,
    /// Whether to walk large carrier pools even before ERTS 15.1 (OTP 27.1). There, the walk leaves the VM's own count of pooled
    /// carriers wrong until the node restarts.
    pub include_pools: bool,
}

impl ExplicitItem {
    /// Creates an item with its default time limit.
    pub fn new(what: ExplicitKind) -> ExplicitItem {
        let limit = match &what {
            ExplicitKind::Carriers(_)
            | ExplicitKind::WalkCost(_)
            | ExplicitKind::Allocations { .. }
            | ExplicitKind::Holders { .. }
            | ExplicitKind::LocksCost(_) => Duration::from_secs(10),
            ExplicitKind::Collect(_) => Duration::from_secs(30),
            ExplicitKind::CodeMemory { .. } => Duration::from_secs(5),
            ExplicitKind::Locks(locks) => locks.length() + READ_TIMES[1],
        };
        ExplicitItem { kind: what, limit }
    }

    /// Returns the time after which the agent has answered or given up.
    pub(crate) fn answer_timeout(&self) -> Duration {
        self.limit().saturating_add(GRACE)
    }

    fn limit(&self) -> Duration {
        match &self.kind {
            ExplicitKind::Locks(locks) => {
                let [min, _, max] = READ_TIMES.map(|reading| locks.length() + reading);
                self.limit.clamp(min, max)
            }
            _ => self.limit.clamp(*ITEM_LIMITS.start(), *ITEM_LIMITS.end()),
        }
    }

    /// Encodes the item as the protocol defines it.
    pub(crate) fn to_value(&self) -> Value<'static> {
        let (name, mut parameters) = match &self.kind {
            ExplicitKind::Carriers(walk) => ("carriers", walk.parameters()),
            ExplicitKind::WalkCost(walk) => {
                let only = (Value::atom("estimate"), Value::from(true));
                ("carriers", walk.parameters().into_iter().chain([only]).collect())
            }
            ExplicitKind::Allocations { walk, top: count } => {
                ("allocations", walk.parameters().into_iter().chain([top(*count)]).collect())
            }
            ExplicitKind::Holders { pids, top: count } => {
                let pids = (!pids.is_empty()).then(|| (Value::atom("pids"), names(pids)));
                ("holders", pids.into_iter().chain([top(*count)]).collect())
            }
            ExplicitKind::Collect(collect) => ("collect", collect.parameters()),
            ExplicitKind::CodeMemory { top: count } => ("code_memory", vec![top(*count)]),
            ExplicitKind::Locks(locks) => ("locks", locks.parameters()),
            ExplicitKind::LocksCost(locks) => {
                // The agent rejects a time limit below the counting period, so request the shortest period.
                let only = [
                    (Value::atom("estimate"), Value::from(true)),
                    (Value::atom("for_ms"), Value::from(100u64)),
                ];
                let others = locks.parameters().into_iter().filter(|(key, _)| *key != Value::atom("for_ms"));
                ("locks", others.chain(only).collect())
            }
        };
        parameters.push((Value::atom("limit_ms"), milliseconds(self.limit())));
        Value::tuple([Value::atom(name), Value::Map(parameters)])
    }
}

fn top(count: u32) -> (Value<'static>, Value<'static>) {
    (Value::atom("top"), Value::from(u64::from(count)))
}

impl CarrierWalk {
    fn parameters(&self) -> Vec<(Value<'static>, Value<'static>)> {
        let mut parameters = vec![(Value::atom("pools"), Value::from(self.include_pools))];
        if !self.allocators.is_empty() {
            parameters.push((Value::atom("allocators"), names(&self.allocators)));
        }
        parameters
    }
}

/// Estimated cost of a carrier walk to the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CarrierWalkCost {
    /// Allocator instances that would be walked.
    pub instances: u64,
    /// Carriers that would be walked.
    pub carriers: u64,
    /// Total size of the carriers, in bytes.
    pub bytes: u64,
    /// Blocks that would be visited, used and free ones.
    pub blocks: u64,
    /// Duration of the walk, one instance after the other.
    pub duration: Duration,
    /// Longest time for which the walk would occupy a scheduler without a pause.
    pub max_hold: Duration,
    /// The allocator instance on which the estimate was calibrated, such as `ll_alloc/0`. `None` if no instance was cheap enough
    /// to walk; the estimate then relies on measurements of other nodes.
    pub calibrated_on: Option<String>,
    /// Carriers that would be skipped.
    pub skipped: Vec<SkippedCarriers>,
}

/// Carriers of one allocator instance that would not be walked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkippedCarriers {
    /// The allocator.
    pub allocator: String,
    /// The allocator's instance.
    pub instance: u64,
    /// The reason, as in [`beamtune_model::CarrierRow::skipped`].
    pub why: String,
    /// Number of carriers.
    pub carriers: u64,
    /// Their total size, in bytes.
    pub bytes: u64,
}

impl CarrierWalkCost {
    /// Parses the agent's `estimate`.
    pub(crate) fn read(value: Term<'_>) -> Result<CarrierWalkCost, TermError> {
        let number = |key| value.field(key).and_then(Term::as_u64);
        let measured = value.field("measured")?;
        let measured_by = match measured.get("allocator")? {
            Some(name) => Some(format!("{}/{}", name.as_str()?, measured.field("instance")?.as_u64()?)),
            None => None,
        };
        let skipped = value.field("skipped")?.list()?.take(MAX_SKIPPED).map(SkippedCarriers::read);
        Ok(CarrierWalkCost {
            instances: number("instances")?,
            carriers: number("carriers")?,
            bytes: number("bytes")?,
            blocks: number("blocks")?,
            duration: Duration::from_micros(number("us")?),
            max_hold: Duration::from_micros(number("hold_us")?),
            calibrated_on: measured_by,
            skipped: skipped.collect::<Result<_, _>>()?,
        })
    }
}

/// The agent's answer on an emulator without lock counting.
const NOT_LCNT: &str = "not_lcnt";

/// Estimated cost of lock counting to the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockCountingCost {
    /// The reason why locks would not be counted, as the protocol names it: `not_lcnt`, `copy_save` or `no_answer`. If set,
    /// unknown numbers below are 0.
    pub refused: Option<String>,
    /// Estimated number of locks that would be counted.
    pub locks: u64,
    /// Number of processes on the node.
    pub processes: u64,
    /// Number of ETS tables on the node.
    pub tables: u64,
    /// Approximate memory that is needed briefly to read the counters, in bytes.
    pub bytes: u64,
    /// Address space that is reserved to read the counters, in bytes. [`Locks::max_bytes`] limits it.
    pub reserved_bytes: u64,
    /// Memory available on the host and within the node's control groups, in bytes; `None` if it cannot be read.
    pub available_bytes: Option<u64>,
}

impl LockCountingCost {
    /// Returns whether the emulator supports lock counting, even if it would be refused now.
    pub fn can_count(&self) -> bool {
        self.refused.as_deref() != Some(NOT_LCNT)
    }

    /// Returns why locks would not be counted, and what to do about it; `None` if they would be.
    pub fn refusal(&self) -> Option<String> {
        self.refused.as_deref().map(|outcome| refusal(outcome).1)
    }

    /// Parses the agent's answer.
    pub(crate) fn read(value: Term<'_>) -> Result<LockCountingCost, TermError> {
        let outcome = value.field("told")?.as_atom()?;
        let refused = (outcome != "ok").then(|| outcome.to_owned());
        let Some(estimate) = value.get("estimate")? else {
            return Ok(LockCountingCost { refused, ..LockCountingCost::default() });
        };
        let number = |key| estimate.field(key).and_then(Term::as_u64);
        Ok(LockCountingCost {
            refused,
            locks: number("locks")?,
            processes: number("processes")?,
            tables: number("tables")?,
            bytes: number("bytes")?,
            reserved_bytes: number("reserved_bytes")?,
            available_bytes: estimate.get("available_bytes")?.map(Term::as_u64).transpose()?,
        })
    }
}

impl SkippedCarriers {
    /// Parses `{Allocator, Instance, Why, Carriers, Bytes, Blocks}`.
    pub(crate) fn read(value: Term<'_>) -> Result<SkippedCarriers, TermError> {
        let [allocator, instance, why, carriers, bytes, _blocks] = value.tuple_of()?;
        Ok(SkippedCarriers {
            allocator: allocator.as_str()?.to_owned(),
            instance: instance.as_u64()?,
            why: why.as_atom()?.to_owned(),
            carriers: carriers.as_u64()?,
            bytes: bytes.as_u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etf::{Document, Limits};
    use crate::sample::{ITEMS, When};

    /// Returns an item's name and its sorted parameters.
    fn name_and_parameters(item: Term<'_>) -> (String, Vec<String>) {
        let [name, parameters] = item.tuple_of().unwrap();
        let mut pairs: Vec<_> =
            parameters.map().unwrap().map(|(key, value)| format!("{key} {value}")).collect();
        pairs.sort();
        (name.to_string(), pairs)
    }

    #[test]
    fn requests_equal_those_of_the_fixtures() {
        let walk = CarrierWalk {
            allocators: vec!["binary_alloc".to_owned(), "ets_alloc".to_owned()],
            include_pools: true,
        };
        let everywhere = CarrierWalk { allocators: Vec::new(), ..walk.clone() };
        let whom = ProcessSelection::Sample { permille: 1_000, max_processes: 50 };
        let (pause, latency_limit) = (Duration::from_millis(1), Duration::from_secs(60));
        let asked = [
            ExplicitKind::Carriers(walk),
            ExplicitKind::Allocations { walk: everywhere, top: 3 },
            ExplicitKind::CodeMemory { top: 3 },
            ExplicitKind::Holders { pids: Vec::new(), top: 3 },
            ExplicitKind::Collect(Collect { pause, latency_limit, top: 3, ..Collect::new(whom) }),
            ExplicitKind::Locks(Locks { top: 3, ..Locks::new(Duration::from_millis(200)) }),
        ];
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../agent/fixtures/request-sample-asked.etf");
        let fixture = Document::decode(std::fs::read(path).unwrap(), 0, Limits::default()).unwrap();
        let [_, _, _, items, _] = fixture.root().tuple_of().unwrap();
        let expect: Vec<_> = items.list().unwrap().map(name_and_parameters).collect();
        let names: Vec<_> = expect.iter().map(|(name, _)| name.as_str()).collect();
        let on_request = ITEMS.iter().filter(|item| item.when == When::OnRequest);
        assert_eq!(names, on_request.map(|item| item.name).collect::<Vec<_>>());
        for (what, expect) in asked.into_iter().zip(expect) {
            let value = ExplicitItem::new(what).to_value();
            let document = Document::decode(value.to_bytes().unwrap(), 0, Limits::default()).unwrap();
            assert_eq!(name_and_parameters(document.root()), expect);
        }
    }

    #[test]
    fn limits_are_clamped_to_those_that_the_agent_accepts() {
        let check = |limit, expect| {
            let explicit = ExplicitItem { kind: ExplicitKind::CodeMemory { top: 1 }, limit };
            assert_eq!(explicit.limit(), Duration::from_millis(expect));
            assert_eq!(explicit.answer_timeout(), Duration::from_millis(expect) + GRACE);
        };
        check(Duration::ZERO, 50);
        check(Duration::from_secs(7), 7_000);
        check(Duration::MAX, 600_000);
        let check = |length, limit, expect: [u64; 2]| {
            let mut explicit =
                ExplicitItem::new(ExplicitKind::Locks(Locks::new(Duration::from_millis(length))));
            explicit.limit = Duration::from_millis(limit);
            let value = explicit.to_value();
            let document = Document::decode(value.to_bytes().unwrap(), 0, Limits::default()).unwrap();
            let (_, parameters) = name_and_parameters(document.root());
            for parameter in [format!("for_ms {}", expect[0]), format!("limit_ms {}", expect[1])] {
                assert!(parameters.contains(&parameter), "{parameter} in {parameters:?}");
            }
        };
        check(0, 0, [100, 1_100]);
        check(5_000, 20_000, [5_000, 20_000]);
        check(5_000, 4_000, [5_000, 6_000]);
        check(10_000_000, 10_000_000, [600_000, 720_000]);
    }

    #[test]
    fn lock_cost_is_requested_without_counting() {
        let locks = Locks { categories: vec!["db".to_owned()], ..Locks::new(Duration::from_secs(90)) };
        let value = ExplicitItem::new(ExplicitKind::LocksCost(locks)).to_value();
        let document = Document::decode(value.to_bytes().unwrap(), 0, Limits::default()).unwrap();
        let (name, parameters) = name_and_parameters(document.root());
        let expect = [
            "categories [<<\"db\">>]",
            "estimate true",
            "for_ms 100",
            "limit_ms 10000",
            "max_bytes 1073741824",
            "top 200",
        ];
        assert_eq!((name.as_str(), parameters), ("locks", expect.map(str::to_owned).to_vec()));
    }

    #[test]
    fn lock_cost_is_read_and_negative_numbers_are_errors() {
        let map = |pairs: &[(&'static str, Value<'static>)]| {
            Value::Map(pairs.iter().map(|(key, value)| (Value::atom(*key), value.clone())).collect())
        };
        let read = |value: Value<'static>| {
            let document = Document::decode(value.to_bytes().unwrap(), 0, Limits::default()).unwrap();
            LockCountingCost::read(document.root())
        };
        let outcome = |outcome| ("told", Value::atom(outcome));
        let keys = ["locks", "processes", "tables", "bytes", "reserved_bytes"];
        let estimate = |numbers: [i64; 5]| {
            let pairs: Vec<_> = keys.into_iter().zip(numbers.map(Value::from)).collect();
            ("estimate", map(&pairs))
        };
        let expect = LockCountingCost {
            refused: None,
            locks: 500,
            processes: 40,
            tables: 30,
            bytes: 60_000,
            reserved_bytes: 70_000,
            available_bytes: None,
        };
        assert_eq!(read(map(&[outcome("ok"), estimate([500, 40, 30, 60_000, 70_000])])).unwrap(), expect);
        let refused = Some("copy_save".to_owned());
        assert!(expect.can_count() && expect.refusal().is_none());
        let expect = LockCountingCost { refused, ..expect };
        let copy_save = map(&[outcome("copy_save"), estimate([500, 40, 30, 60_000, 70_000])]);
        assert_eq!(read(copy_save).unwrap(), expect);
        assert!(expect.can_count() && expect.refusal().unwrap().contains("(copy_save, false)"));
        let expect = LockCountingCost { refused: Some("not_lcnt".to_owned()), ..LockCountingCost::default() };
        assert_eq!(read(map(&[outcome("not_lcnt")])).unwrap(), expect);
        assert!(!expect.can_count());
        for place in 0..5 {
            let mut numbers = [1; 5];
            numbers[place] = -1;
            read(map(&[outcome("ok"), estimate(numbers)])).unwrap_err();
        }
        read(map(&[estimate([1; 5])])).unwrap_err();
    }

    #[test]
    fn walk_cost_is_read_and_negative_numbers_are_errors() {
        let map = |pairs: &[(&'static str, Value<'static>)]| {
            Value::Map(pairs.iter().map(|(key, value)| (Value::atom(*key), value.clone())).collect())
        };
        let read = |numbers: [i64; 6], measured: Value<'static>, skipped: Value<'static>| {
            let keys = ["instances", "carriers", "bytes", "blocks", "us", "hold_us"];
            let mut pairs: Vec<_> = keys.into_iter().zip(numbers.map(Value::from)).collect();
            pairs.extend([("measured", measured), ("skipped", skipped)]);
            let document = Document::decode(map(&pairs).to_bytes().unwrap(), 0, Limits::default()).unwrap();
            CarrierWalkCost::read(document.root())
        };
        let measured =
            || map(&[("allocator", Value::binary(&b"ll_alloc"[..])), ("instance", Value::from(0u64))]);
        let skip = |instance: i64| {
            let [instance, carriers, bytes, blocks] = [instance, 3, 4_096, 9].map(Value::from);
            let (allocator, why) = (Value::binary(&b"ets_alloc"[..]), Value::atom("pool"));
            Value::list([Value::tuple([allocator, instance, why, carriers, bytes, blocks])])
        };
        let cost = read([2, 30, 400, 5_000, 6_000, 700], measured(), skip(1)).unwrap();
        let expect = CarrierWalkCost {
            instances: 2,
            carriers: 30,
            bytes: 400,
            blocks: 5_000,
            duration: Duration::from_millis(6),
            max_hold: Duration::from_micros(700),
            calibrated_on: Some("ll_alloc/0".to_owned()),
            skipped: vec![SkippedCarriers {
                allocator: "ets_alloc".to_owned(),
                instance: 1,
                why: "pool".to_owned(),
                carriers: 3,
                bytes: 4_096,
            }],
        };
        assert_eq!(cost, expect);
        assert_eq!(read([0; 6], map(&[]), Value::list([])).unwrap(), CarrierWalkCost::default());
        for place in 0..6 {
            let mut numbers = [1; 6];
            numbers[place] = -1;
            read(numbers, map(&[]), Value::list([])).unwrap_err();
        }
        read([1; 6], Value::from(5u64), Value::list([])).unwrap_err();
        read([1; 6], measured(), skip(-1)).unwrap_err();
        read([1; 6], measured(), Value::from(7u64)).unwrap_err();
    }
}
