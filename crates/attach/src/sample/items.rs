//! The items that the agent reads, in the order in which they are requested. `docs/agent-protocol.md` defines them.

use beamtune_model::SampleBuilder;

use super::{
    Decoder, Read, allocators, broker, call_stacks, carriers, code, counters, holders, locks, messages,
    processes, tables,
};
use crate::etf::{TermError, Value};

/// An item that the agent can read.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// Its name in the protocol.
    pub name: &'static str,
    pub(crate) when: When,
    /// The parameter that sets the size of a top list or of a random sample.
    parameter: Option<(&'static str, u32)>,
    /// Adds the item's value to a sample.
    pub(super) decode: Decode,
}

type Decode = fn(&mut Decoder, Read<'_>, &mut SampleBuilder<'_>) -> Result<(), TermError>;

/// When an item is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// With the first sample of an incarnation and with each detailed sample.
    First,
    /// With each sample.
    Always,
    /// With each detailed sample.
    Detail,
    /// With files of the node's host.
    Files,
    /// Once, on request ([`crate::explicit`]).
    OnRequest,
}

const fn item(when: When, name: &'static str, decode: Decode) -> Item {
    Item { name, when, parameter: None, decode }
}

/// Creates an item with a top list.
const fn top(when: When, name: &'static str, top: u32, decode: Decode) -> Item {
    Item { name, when, parameter: Some(("top", top)), decode }
}

/// All items.
pub(crate) const ITEMS: &[Item] = &[
    // Facts are needed to decode other items. Some facts can change while the VM runs.
    item(When::First, "facts", |decoder, read, out| decoder.facts(read.value, out)),
    // Read before the agent's own processes have work, since run queue lengths include these processes.
    item(When::Always, "run_queues", |_, read, out| counters::run_queues(read.value, out)),
    item(When::Always, "msacc", |decoder, read, out| {
        counters::msacc(read.value, decoder.vm(read.value)?, out)
    }),
    item(When::Always, "scheduler_wall_time", |decoder, read, out| {
        counters::scheduler_wall_time(read.value, decoder.vm(read.value)?, out)
    }),
    item(When::Always, "statistics", |_, read, out| counters::statistics(read.value, out)),
    item(When::Always, "memory", |_, read, out| counters::memory(read.value, out)),
    item(When::Always, "counts", |_, read, out| counters::counts(read.value, out)),
    item(When::Always, "check_io", |_, read, out| counters::check_io(read.value, out)),
    // Scans all processes.
    top(When::Always, "procs", 20, |decoder, read, out| decoder.scans.procs(read.value, read.t(), out)),
    item(When::Always, "events", |decoder, read, out| {
        decoder.events.add(read.value, read.span, read.clock, out)
    }),
    // Samples the busiest processes that `procs` found. `processes` reports the result.
    item(When::Always, "ran", |_, _, _| Ok(())),
    item(When::Always, "broker", |_, read, out| broker::totals(read.value, out)),
    // Monitors new processes that `procs` found.
    item(When::Always, "crashes", |_, read, out| processes::exits(read.value, read.t(), out)),
    // Follows tables that `ets` found.
    item(When::Always, "table_growth", |_, read, out| tables::growth(read.value, read.t(), out)),
    // Last, because it pauses between its readings. `messages` reports the result.
    item(When::Always, "weigh", |_, _, _| Ok(())),
    // Before `processes`, which names the processes of the queues that this item finds.
    item(When::Detail, "broker_clients", |decoder, read, out| {
        broker::clients(read.value, &mut decoder.names, out)
    }),
    // This and the next item come before `processes`, which also covers blocking processes and those that receive the largest
    // messages.
    Item {
        parameter: Some(("sample", 200)),
        ..item(When::Detail, "stands", |_, read, out| call_stacks::waiting(read.value, read.t(), out))
    },
    item(When::Detail, "messages", |_, read, out| messages::messages(read.value, read.t(), out)),
    item(When::Detail, "traces", |_, read, out| counters::traces(read.value, out)),
    top(When::Detail, "processes", 20, |decoder, read, out| {
        processes::details(read.value, read.t(), decoder.vm(read.value)?, out)
    }),
    top(When::Detail, "ets", 20, |_, read, out| tables::ets(read.value, read.t(), out)),
    top(When::Detail, "ports", 20, |_, read, out| tables::ports(read.value, read.t(), out)),
    item(When::Detail, "dist", |_, read, out| tables::dist(read.value, read.t(), out)),
    item(When::Detail, "allocators", |_, read, out| allocators::allocators(read.value, out)),
    item(When::Detail, "spawns", |_, read, out| processes::spawns(read.value, read.t(), out)),
    item(When::Detail, "atoms", |_, read, out| tables::atoms(read.value, read.t(), out)),
    // Decoded by `files`, for the samples of the host.
    item(When::Files, "host", |_, _, _| Ok(())),
    item(When::OnRequest, "carriers", |_, read, out| carriers::carriers(read.value, read.t(), out)),
    item(When::OnRequest, "allocations", |_, read, out| carriers::allocations(read.value, read.t(), out)),
    item(When::OnRequest, "code_memory", |_, read, out| code::code(read.value, read.t(), out)),
    item(When::OnRequest, "holders", |_, read, out| holders::holders(read.value, read.t(), out)),
    item(When::OnRequest, "collect", |_, read, out| holders::collection(read.value, read.t(), out)),
    item(When::OnRequest, "locks", |_, read, out| locks::locks(read.value, read.span, read.clock, out)),
];

impl Item {
    /// Returns the item with this name in the protocol.
    pub fn named(name: &str) -> Option<&'static Item> {
        ITEMS.iter().find(|item| item.name == name)
    }

    pub(crate) fn to_value(self) -> Value<'static> {
        let name = Value::atom(self.name);
        let Some((key, count)) = self.parameter else { return name };
        let parameters = Value::Map(vec![(Value::atom(key), Value::from(u64::from(count)))]);
        Value::tuple([name, parameters])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_those_of_the_agent_and_of_the_protocol() {
        let sorted = |mut names: Vec<String>| {
            names.sort_unstable();
            names
        };
        let name = |rest: &str, end: char| rest.split(end).next().unwrap_or_default().to_owned();
        let agent = include_str!("../../../../agent/src/parts/items.hrl").lines();
        let agent: Vec<_> = agent.filter_map(|line| Some(name(line.strip_prefix("read(")?, ','))).collect();
        let protocol = include_str!("../../../../docs/agent-protocol.md");
        let (_, protocol) = protocol.split_once("\n## Items read once\n").expect("items");
        let protocol = protocol.lines().filter_map(|line| Some(name(line.strip_prefix("### `")?, '`')));
        let ours = sorted(ITEMS.iter().map(|item| item.name.to_owned()).collect());
        assert_eq!(sorted(agent.into_iter().filter(|name| name != "_").collect()), ours);
        assert_eq!(sorted(protocol.collect()), ours);
    }
}
