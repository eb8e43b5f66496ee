//! Items that are read only when somebody asks for them by name, because they take long, or disturb the node.
//!
//! They are asked for once, with [`crate::source::NodeSource::ask_once`], and come with the next closer look as rows of that
//! sample. `docs/agent-protocol.md` says what each of them does to a node.

use std::time::Duration;

use crate::agent::milliseconds;
use crate::etf::{Term, TermError, Value};

/// Their names in the protocol.
pub(crate) const NAMES: &[&str] = &["carriers", "allocations", "code_memory"];

/// How long an item may have: what the agent takes.
const LIMITS: std::ops::RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(600);

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
        let seconds = match what {
            What::Carriers(_) | What::WalkCost(_) | What::Allocations { .. } => 10,
            What::CodeMemory { .. } => 5,
        };
        Explicit { what, limit: Duration::from_secs(seconds) }
    }

    /// After so long it has been answered, or given up.
    pub(crate) fn patience(&self) -> Duration {
        self.limit().saturating_add(GRACE)
    }

    fn limit(&self) -> Duration {
        self.limit.clamp(*LIMITS.start(), *LIMITS.end())
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
            What::CodeMemory { top: most } => ("code_memory", vec![top(*most)]),
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
            let names = self.allocators.iter().map(|name| Value::binary(name.clone().into_bytes()));
            parameters.push((Value::atom("allocators"), Value::List(names.collect())));
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
