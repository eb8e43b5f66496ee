//! Values that several rules need from a period, derived once. Rules read signals, never each other.

pub(crate) mod acceptors;
pub(crate) mod blocking;
pub(crate) mod broker;
pub(crate) mod busy_wait;
pub(crate) mod chains;
pub(crate) mod collected;
pub(crate) mod connection_setup;
pub(crate) mod counts;
pub(crate) mod dead_letters;
pub(crate) mod events;
pub(crate) mod forced_gc;
pub(crate) mod hibernation;
pub(crate) mod hot_code;
pub(crate) mod kernel_time;
pub(crate) mod kinds;
pub(crate) mod known_functions;
pub(crate) mod known_processes;
pub(crate) mod limits;
pub(crate) mod lock_suspects;
pub(crate) mod memory;
pub(crate) mod mnesia;
pub(crate) mod names;
pub(crate) mod never_waiting;
pub(crate) mod new_processes;
pub(crate) mod own_effect;
pub(crate) mod port_queues;
pub(crate) mod process_memory;
pub(crate) mod products;
pub(crate) mod program_locks;
pub(crate) mod programs;
pub(crate) mod queue_wait;
pub(crate) mod requests;
pub(crate) mod searches;
pub(crate) mod stack;
pub(crate) mod staying;
pub(crate) mod steps;
pub(crate) mod supervisors;
pub(crate) mod table_binaries;
pub(crate) mod unread;
pub(crate) mod watermark;

/// Parses a file of `data/`.
#[expect(clippy::panic, reason = "the data are part of the program, and a test parses all of them")]
fn data<T: serde::de::DeserializeOwned>(name: &str, text: &str) -> T {
    toml::from_str(text).unwrap_or_else(|error| panic!("data/{name}.toml: {error}"))
}
