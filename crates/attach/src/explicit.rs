//! Items that are read only when somebody asks for them by name, because they take long, or disturb the node.
//!
//! They are asked for once, with [`crate::source::NodeSource::ask_once`], and come with the next closer look as rows of that
//! sample. `docs/agent-protocol.md` says what each of them does to a node.

use std::time::Duration;

use crate::agent::milliseconds;
use crate::etf::{Term, TermError, Value};
use crate::sample::locks::refusal;

/// Their names in the protocol.
pub(crate) const NAMES: &[&str] = &["carriers", "allocations", "code_memory", "holders", "collect", "locks"];

/// How long an item may have: what the agent takes.
const LIMITS: std::ops::RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(600);

/// How long locks may be counted: what the agent takes.
const COUNTED: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(600);

/// How long collecting their counts may take besides: at least, usually, at most.
const COLLECTED: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(30), Duration::from_secs(120)];

/// How much longer than its limit the agent waits for an item before it gives it up, and a little for the way.
const GRACE: Duration = Duration::from_secs(4);

/// Instances that an estimate names; no VM has so many.
const MOST_SKIPPED: usize = 16_384;

/// An item, with the time that it may take on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explicit {
    /// What is to be read or done.
    pub what: What,
    /// What does not get its turn in that time is told as such. 50 ms to 10 minutes.
    pub limit: Duration,
}

/// What can be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// What is in the carriers: [`beamtune_model::CarrierRow`].
    Carriers(Walk),
    /// What that would cost; tells no rows. See [`crate::source::NodeSource::estimate_walk`].
    WalkCost(Walk),
    /// By whom blocks were allocated, and for what: [`beamtune_model::AllocationRow`]. Costs what walking the carriers of these
    /// allocators costs; unsupported where none has tags.
    Allocations {
        /// Where they are looked for.
        walk: Walk,
        /// So many of the largest are told. 1 to 1,000.
        top: u32,
    },
    /// Code by application ([`beamtune_model::CodeRow`]), and persistent terms. For this the VM stands still: 0.25 ms for a thousand
    /// modules, and until each scheduler is between two processes. Not done where a scheduler does not answer at once.
    CodeMemory {
        /// So many applications are told. 1 to 200.
        top: u32,
    },
    /// Who holds binaries: [`beamtune_model::HolderRow`]. Finding them looks at all processes from outside (a second for a million of
    /// them); then each is asked for a list of its references, which holds it for 0.1 to 0.3 s if there are a million.
    Holders {
        /// These processes, by their pids (`<0.123.0>`) or registered names; empty: those that refer to the most.
        pids: Vec<String>,
        /// So many are asked where none are named. 1 to 50.
        top: u32,
    },
    /// **Changes the node**: collects the garbage of processes, one after the other. [`beamtune_model::CollectionRow`] and
    /// [`beamtune_model::CollectRow`].
    Collect(Collect),
    /// Which locks are waited for, on an emulator that counts them: [`beamtune_model::LockSession`] and [`beamtune_model::LockRow`].
    /// **Sets the node's counts of locks to nothing**, and for that time what is counted; any other emulator is left as it is, and
    /// there is a gap that says so.
    Locks(Locks),
    /// What that would cost; tells no rows. See [`crate::source::NodeSource::estimate_locks`].
    LocksCost(Locks),
}

/// Categories of locks, as the VM names them (`lcnt_category_map` in erl_bif_info.c, OTP 23 to 29).
pub const LOCK_CATEGORIES: [&str; 8] =
    ["allocator", "db", "debug", "distribution", "generic", "io", "process", "scheduler"];

/// Which locks are counted, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locks {
    /// Those of these [categories](LOCK_CATEGORIES); empty: of all but `process`, of which there are five for each process, and
    /// `debug`.
    pub categories: Vec<String>,
    /// For how long. 100 ms to 10 minutes.
    pub length: Duration,
    /// So many single locks are told of those that were waited for the longest. 1 to 2,000.
    pub top: u32,
    /// Nothing is counted where the counts may need a larger address space than this, in bytes, or half of what the host has left.
    pub max_bytes: u64,
}

impl Locks {
    /// Those that are few, with the 200 that stand out the most, and no more than 1 GiB.
    pub fn new(length: Duration) -> Locks {
        Locks { categories: Vec::new(), length, top: 200, max_bytes: 1 << 30 }
    }

    fn length(&self) -> Duration {
        self.length.clamp(*COUNTED.start(), *COUNTED.end())
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

/// Whose garbage is collected, and when that is to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collect {
    /// Whose.
    pub whom: Whom,
    /// So many are collected between two pauses, in which others have their turn. 1 to 1,000.
    pub batch: u32,
    /// How long these are. 1 ms to 1 s.
    pub pause: Duration,
    /// It stops when a process has to wait longer than this for a scheduler. 1 ms to 1 min.
    pub latency_limit: Duration,
    /// Processes with a larger heap than this are left out: a collection needs room for a second one, and takes long. In bytes.
    pub max_heap_bytes: u64,
    /// So many of those that gave back the most are told. 1 to 100.
    pub top: u32,
}

/// Processes to be collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whom {
    /// These, by their pids (`<0.123.0>`) or registered names; at most 1,000.
    Named(Vec<String>),
    /// The largest ones, and some chosen by chance.
    Sample {
        /// Thousandths of all processes.
        permille: u32,
        /// No more than these. 1 to 100,000.
        most: u32,
    },
}

impl Collect {
    /// With limits that a busy node does not notice: 10 at a time with 10 ms between them, heaps of at most 256 MiB, and an end as
    /// soon as a process has to wait for 50 ms.
    pub fn new(whom: Whom) -> Collect {
        let (pause, latency_limit) = (Duration::from_millis(10), Duration::from_millis(50));
        Collect { whom, batch: 10, pause, latency_limit, max_heap_bytes: 256 << 20, top: 20 }
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
        match &self.whom {
            Whom::Named(pids) => parameters.push((Value::atom("pids"), names(pids))),
            Whom::Sample { permille, most } => {
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

/// Which carriers are walked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walk {
    /// Those of these allocators (`eheap_alloc`); empty: of all.
    pub allocators: Vec<String>,
    /// Before ERTS 15.1 (OTP 27.1), a walk through large pools of carriers leaves the VM's own count of pooled carriers wrong
    /// until the node is started anew. So there they are left out, unless this is true.
    pub pools: bool,
}

impl Explicit {
    /// With the time that is usual for it.
    pub fn new(what: What) -> Explicit {
        let limit = match &what {
            What::Carriers(_)
            | What::WalkCost(_)
            | What::Allocations { .. }
            | What::Holders { .. }
            | What::LocksCost(_) => Duration::from_secs(10),
            What::Collect(_) => Duration::from_secs(30),
            What::CodeMemory { .. } => Duration::from_secs(5),
            What::Locks(locks) => locks.length() + COLLECTED[1],
        };
        Explicit { what, limit }
    }

    /// After so long it has been answered, or given up.
    pub(crate) fn patience(&self) -> Duration {
        self.limit().saturating_add(GRACE)
    }

    fn limit(&self) -> Duration {
        match &self.what {
            What::Locks(locks) => {
                let [least, _, most] = COLLECTED.map(|collected| locks.length() + collected);
                self.limit.clamp(least, most)
            }
            _ => self.limit.clamp(*LIMITS.start(), *LIMITS.end()),
        }
    }

    /// As the agent takes it.
    pub(crate) fn to_value(&self) -> Value<'static> {
        let (name, mut parameters) = match &self.what {
            What::Carriers(walk) => ("carriers", walk.parameters()),
            What::WalkCost(walk) => {
                let only = (Value::atom("estimate"), Value::from(true));
                ("carriers", walk.parameters().into_iter().chain([only]).collect())
            }
            What::Allocations { walk, top: most } => {
                ("allocations", walk.parameters().into_iter().chain([top(*most)]).collect())
            }
            What::Holders { pids, top: most } => {
                let pids = (!pids.is_empty()).then(|| (Value::atom("pids"), names(pids)));
                ("holders", pids.into_iter().chain([top(*most)]).collect())
            }
            What::Collect(collect) => ("collect", collect.parameters()),
            What::CodeMemory { top: most } => ("code_memory", vec![top(*most)]),
            What::Locks(locks) => ("locks", locks.parameters()),
            What::LocksCost(locks) => {
                // The agent takes no limit that is below the time for which it would count.
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

fn top(most: u32) -> (Value<'static>, Value<'static>) {
    (Value::atom("top"), Value::from(u64::from(most)))
}

impl Walk {
    fn parameters(&self) -> Vec<(Value<'static>, Value<'static>)> {
        let mut parameters = vec![(Value::atom("pools"), Value::from(self.pools))];
        if !self.allocators.is_empty() {
            parameters.push((Value::atom("allocators"), names(&self.allocators)));
        }
        parameters
    }
}

/// What a walk through carriers would cost the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalkCost {
    /// Instances of allocators that would be walked.
    pub instances: u64,
    /// Their carriers.
    pub carriers: u64,
    /// The size of these, in bytes.
    pub bytes: u64,
    /// Blocks in them that would be looked at, used ones and free ones.
    pub blocks: u64,
    /// How long it would take, one instance after the other.
    pub takes: Duration,
    /// How long at most one scheduler would be held in one go.
    pub holds: Duration,
    /// The instance by which that was measured, such as `ll_alloc/0`; `None` if there was no cheap one, so that only experience with
    /// other nodes stands behind it.
    pub measured_by: Option<String>,
    /// What would be left out.
    pub skipped: Vec<SkippedCarriers>,
}

/// Carriers of an instance that would not be walked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkippedCarriers {
    /// The allocator.
    pub allocator: String,
    /// Its instance.
    pub instance: u64,
    /// Why, as in [`beamtune_model::CarrierRow::skipped`].
    pub why: String,
    /// Carriers.
    pub carriers: u64,
    /// Their size, in bytes.
    pub bytes: u64,
}

impl WalkCost {
    /// Reads the agent's `estimate`.
    pub(crate) fn read(value: Term<'_>) -> Result<WalkCost, TermError> {
        let number = |key| value.field(key).and_then(Term::as_u64);
        let measured = value.field("measured")?;
        let measured_by = match measured.get("allocator")? {
            Some(name) => Some(format!("{}/{}", name.as_str()?, measured.field("instance")?.as_u64()?)),
            None => None,
        };
        let skipped = value.field("skipped")?.list()?.take(MOST_SKIPPED).map(SkippedCarriers::read);
        Ok(WalkCost {
            instances: number("instances")?,
            carriers: number("carriers")?,
            bytes: number("bytes")?,
            blocks: number("blocks")?,
            takes: Duration::from_micros(number("us")?),
            holds: Duration::from_micros(number("hold_us")?),
            measured_by,
            skipped: skipped.collect::<Result<_, _>>()?,
        })
    }
}

/// What the agent says of an emulator that counts no locks.
const NOT_LCNT: &str = "not_lcnt";

/// What counting locks would cost the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocksCost {
    /// Why they would not be counted, in the protocol's word: `not_lcnt`, `copy_save`, `no_answer`. What is said below is then 0 where it
    /// is not known.
    pub refused: Option<String>,
    /// Locks that would be counted, about.
    pub locks: u64,
    /// Processes of the node.
    pub processes: u64,
    /// Tables of the node.
    pub tables: u64,
    /// What collecting their counts would take of memory for a moment, in bytes, about.
    pub bytes: u64,
    /// What it would take of address space, in bytes; [`Locks::max_bytes`] is the most that is allowed.
    pub reserved_bytes: u64,
    /// What the host and the node's control groups have left, in bytes; `None` where that cannot be read.
    pub available_bytes: Option<u64>,
}

impl LocksCost {
    /// True where the emulator is one that counts locks, whether or not it can be asked to now.
    pub fn can_count(&self) -> bool {
        self.refused.as_deref() != Some(NOT_LCNT)
    }

    /// Why they would not be counted, and what to do about it; `None`: they would.
    pub fn why_not(&self) -> Option<String> {
        self.refused.as_deref().map(|told| refusal(told).1)
    }

    /// Reads the agent's answer.
    pub(crate) fn read(value: Term<'_>) -> Result<LocksCost, TermError> {
        let refused = Some(value.field("told")?.as_atom()?).filter(|told| *told != "ok").map(str::to_owned);
        let Some(estimate) = value.get("estimate")? else {
            return Ok(LocksCost { refused, ..LocksCost::default() });
        };
        let number = |key| estimate.field(key).and_then(Term::as_u64);
        Ok(LocksCost {
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
    /// Reads `{Allocator, Instance, Why, Carriers, Bytes, Blocks}`.
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

    /// An item's name, and its parameters in an order of their own.
    fn plain(item: Term<'_>) -> (String, Vec<String>) {
        let [name, parameters] = item.tuple_of().unwrap();
        let mut pairs: Vec<_> =
            parameters.map().unwrap().map(|(key, value)| format!("{key} {value}")).collect();
        pairs.sort();
        (name.to_string(), pairs)
    }

    #[test]
    fn what_is_asked_is_what_real_agents_have_answered() {
        let walk = Walk { allocators: vec!["binary_alloc".to_owned(), "ets_alloc".to_owned()], pools: true };
        let everywhere = Walk { allocators: Vec::new(), ..walk.clone() };
        let whom = Whom::Sample { permille: 1_000, most: 50 };
        let (pause, latency_limit) = (Duration::from_millis(1), Duration::from_secs(60));
        let asked = [
            What::Carriers(walk),
            What::Allocations { walk: everywhere, top: 3 },
            What::CodeMemory { top: 3 },
            What::Holders { pids: Vec::new(), top: 3 },
            What::Collect(Collect { pause, latency_limit, top: 3, ..Collect::new(whom) }),
            What::Locks(Locks { top: 3, ..Locks::new(Duration::from_millis(200)) }),
        ];
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../agent/fixtures/request-sample-asked.etf");
        let fixture = Document::decode(std::fs::read(path).unwrap(), 0, Limits::default()).unwrap();
        let [_, _, _, items, _] = fixture.root().tuple_of().unwrap();
        let expect: Vec<_> = items.list().unwrap().map(plain).collect();
        let names: Vec<_> = expect.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, NAMES);
        for (what, expect) in asked.into_iter().zip(expect) {
            let value = Explicit::new(what).to_value();
            let document = Document::decode(value.to_bytes().unwrap(), 0, Limits::default()).unwrap();
            assert_eq!(plain(document.root()), expect);
        }
    }

    #[test]
    fn limits_are_those_that_the_agent_takes() {
        let check = |limit, expect| {
            let explicit = Explicit { what: What::CodeMemory { top: 1 }, limit };
            assert_eq!(explicit.limit(), Duration::from_millis(expect));
            assert_eq!(explicit.patience(), Duration::from_millis(expect) + GRACE);
        };
        check(Duration::ZERO, 50);
        check(Duration::from_secs(7), 7_000);
        check(Duration::MAX, 600_000);
        let check = |length, limit, expect: [u64; 2]| {
            let mut explicit = Explicit::new(What::Locks(Locks::new(Duration::from_millis(length))));
            explicit.limit = Duration::from_millis(limit);
            let value = explicit.to_value();
            let document = Document::decode(value.to_bytes().unwrap(), 0, Limits::default()).unwrap();
            let (_, parameters) = plain(document.root());
            for told in [format!("for_ms {}", expect[0]), format!("limit_ms {}", expect[1])] {
                assert!(parameters.contains(&told), "{told} of {parameters:?}");
            }
        };
        check(0, 0, [100, 1_100]);
        check(5_000, 20_000, [5_000, 20_000]);
        check(5_000, 4_000, [5_000, 6_000]);
        check(10_000_000, 10_000_000, [600_000, 720_000]);
    }

    #[test]
    fn what_counting_locks_costs_is_asked_without_counting() {
        let locks = Locks { categories: vec!["db".to_owned()], ..Locks::new(Duration::from_secs(90)) };
        let value = Explicit::new(What::LocksCost(locks)).to_value();
        let document = Document::decode(value.to_bytes().unwrap(), 0, Limits::default()).unwrap();
        let (name, parameters) = plain(document.root());
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
    fn the_cost_of_counting_locks_is_read_as_it_is() {
        let map = |pairs: &[(&'static str, Value<'static>)]| {
            Value::Map(pairs.iter().map(|(key, value)| (Value::atom(*key), value.clone())).collect())
        };
        let read = |value: Value<'static>| {
            let document = Document::decode(value.to_bytes().unwrap(), 0, Limits::default()).unwrap();
            LocksCost::read(document.root())
        };
        let told = |told| ("told", Value::atom(told));
        let keys = ["locks", "processes", "tables", "bytes", "reserved_bytes"];
        let estimate = |numbers: [i64; 5]| {
            let pairs: Vec<_> = keys.into_iter().zip(numbers.map(Value::from)).collect();
            ("estimate", map(&pairs))
        };
        let expect = LocksCost {
            refused: None,
            locks: 500,
            processes: 40,
            tables: 30,
            bytes: 60_000,
            reserved_bytes: 70_000,
            available_bytes: None,
        };
        assert_eq!(read(map(&[told("ok"), estimate([500, 40, 30, 60_000, 70_000])])).unwrap(), expect);
        let refused = Some("copy_save".to_owned());
        assert!(expect.can_count() && expect.why_not().is_none());
        let expect = LocksCost { refused, ..expect };
        assert_eq!(read(map(&[told("copy_save"), estimate([500, 40, 30, 60_000, 70_000])])).unwrap(), expect);
        assert!(expect.can_count() && expect.why_not().unwrap().contains("(copy_save, false)"));
        let expect = LocksCost { refused: Some("not_lcnt".to_owned()), ..LocksCost::default() };
        assert_eq!(read(map(&[told("not_lcnt")])).unwrap(), expect);
        assert!(!expect.can_count());
        for place in 0..5 {
            let mut numbers = [1; 5];
            numbers[place] = -1;
            read(map(&[told("ok"), estimate(numbers)])).unwrap_err();
        }
        read(map(&[estimate([1; 5])])).unwrap_err();
    }

    #[test]
    fn an_estimate_is_read_as_it_is_and_nothing_in_it_is_negative() {
        let map = |pairs: &[(&'static str, Value<'static>)]| {
            Value::Map(pairs.iter().map(|(key, value)| (Value::atom(*key), value.clone())).collect())
        };
        let read = |numbers: [i64; 6], measured: Value<'static>, skipped: Value<'static>| {
            let keys = ["instances", "carriers", "bytes", "blocks", "us", "hold_us"];
            let mut pairs: Vec<_> = keys.into_iter().zip(numbers.map(Value::from)).collect();
            pairs.extend([("measured", measured), ("skipped", skipped)]);
            let document = Document::decode(map(&pairs).to_bytes().unwrap(), 0, Limits::default()).unwrap();
            WalkCost::read(document.root())
        };
        let measured =
            || map(&[("allocator", Value::binary(&b"ll_alloc"[..])), ("instance", Value::from(0u64))]);
        let skip = |instance: i64| {
            let [instance, carriers, bytes, blocks] = [instance, 3, 4_096, 9].map(Value::from);
            let (allocator, why) = (Value::binary(&b"ets_alloc"[..]), Value::atom("pool"));
            Value::list([Value::tuple([allocator, instance, why, carriers, bytes, blocks])])
        };
        let cost = read([2, 30, 400, 5_000, 6_000, 700], measured(), skip(1)).unwrap();
        let expect = WalkCost {
            instances: 2,
            carriers: 30,
            bytes: 400,
            blocks: 5_000,
            takes: Duration::from_millis(6),
            holds: Duration::from_micros(700),
            measured_by: Some("ll_alloc/0".to_owned()),
            skipped: vec![SkippedCarriers {
                allocator: "ets_alloc".to_owned(),
                instance: 1,
                why: "pool".to_owned(),
                carriers: 3,
                bytes: 4_096,
            }],
        };
        assert_eq!(cost, expect);
        assert_eq!(read([0; 6], map(&[]), Value::list([])).unwrap(), WalkCost::default());
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
