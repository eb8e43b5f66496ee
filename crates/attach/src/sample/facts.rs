//! Decodes facts: properties of the node that rarely change while its VM runs.

use std::collections::BTreeMap;

use beamtune_model::facts;

use super::{Identity, bounded_text, function, list, number, required};
use crate::etf::{Kind, Term, TermError};

/// Maximum number of log handlers. The agent sends no more than these.
const MAX_LOG_HANDLERS: usize = 20;

/// Facts that are copied unchanged: numbers, names and booleans.
const PLAIN: &[(&str, &str)] = &[
    ("node", facts::NODE_NAME),
    ("otp_release", facts::OTP_RELEASE),
    ("erts_version", facts::ERTS_VERSION),
    ("system_version", facts::SYSTEM_VERSION),
    ("build_type", facts::EMU_TYPE),
    ("emu_flavor", facts::EMU_FLAVOR),
    ("system_architecture", facts::ARCHITECTURE),
    ("creation", facts::CREATION),
    ("os_pid", facts::OS_PID),
    ("schedulers", facts::SCHEDULERS),
    ("schedulers_online", facts::SCHEDULERS_ONLINE),
    ("dirty_cpu_schedulers", facts::DIRTY_CPU_SCHEDULERS),
    ("dirty_cpu_schedulers_online", facts::DIRTY_CPU_SCHEDULERS_ONLINE),
    ("dirty_io_schedulers", facts::DIRTY_IO_SCHEDULERS),
    ("async_threads", facts::ASYNC_THREADS),
    ("scheduler_bind_type", facts::SCHEDULER_BIND_TYPE),
    ("logical_processors", facts::LOGICAL_PROCESSORS),
    ("logical_processors_available", facts::LOGICAL_PROCESSORS_AVAILABLE),
    ("cpu_quota", facts::CPU_QUOTA),
    ("process_limit", facts::PROCESS_LIMIT),
    ("port_limit", facts::PORT_LIMIT),
    ("atom_limit", facts::ATOM_LIMIT),
    ("ets_limit", facts::ETS_LIMIT),
    ("kernel_poll", facts::KERNEL_POLL),
    ("time_correction", facts::TIME_CORRECTION),
    ("time_warp_mode", facts::TIME_WARP_MODE),
    ("os_monotonic_time_source", facts::OS_MONOTONIC_SOURCE),
    ("perf_counter_per_s", facts::PERF_COUNTER_HZ),
    ("native_per_s", facts::NATIVE_TIME_HZ),
    ("message_queue_data", facts::MESSAGE_QUEUE_DATA),
    ("fullsweep_after", facts::FULLSWEEP_AFTER),
    ("min_heap_size_words", facts::MIN_HEAP_WORDS),
    ("min_bin_vheap_size_words", facts::MIN_BIN_VHEAP_WORDS),
    ("dist_buf_busy_limit_bytes", facts::DIST_BUF_BUSY_LIMIT),
    ("async_dist", facts::ASYNC_DIST),
    ("port_parallelism", facts::PORT_PARALLELISM),
    ("memory_watermark_set", facts::MEMORY_WATERMARK_SET),
    ("memory_total_set", facts::MEMORY_TOTAL_SET),
];

/// Products, identified by the name of a running application.
const PRODUCTS: &[(&str, &str)] = &[
    ("rabbit", "RabbitMQ"),
    ("ejabberd", "ejabberd"),
    ("mongooseim", "MongooseIM"),
    ("emqx", "EMQX"),
    ("vmq_server", "VerneMQ"),
    ("couch", "CouchDB"),
    ("riak_kv", "Riak"),
    ("livebook", "Livebook"),
];

pub(super) fn identity(value: Term<'_>) -> Result<Identity, TermError> {
    Ok(Identity {
        boot: format!("creation {} start {}", required(value, "creation")?, required(value, "start_ns")?),
        os_pid: number(value, "os_pid")?.and_then(|pid| pid.try_into().ok()),
    })
}

/// Returns all facts of the agent's answer, as text for the model.
pub(super) fn read(value: Term<'_>) -> Result<BTreeMap<String, String>, TermError> {
    let mut found = BTreeMap::new();
    let mut set = |key: &str, text: Option<String>| {
        if let Some(text) = text {
            found.insert(key.to_owned(), text);
        }
    };
    for (key, fact) in PLAIN {
        set(fact, value.get(key)?.map(plain).transpose()?.flatten());
    }
    // The model uses native units, the agent nanoseconds.
    let native = i128::from(required(value, "native_per_s")?) * i128::from(required(value, "start_ns")?)
        / 1_000_000_000;
    set(facts::START_TIME, Some(native.to_string()));
    let texts = |key| {
        list(value, key)?
            .map(|item| Ok(plain(item)?.unwrap_or_default()))
            .collect::<Result<Vec<_>, TermError>>()
    };
    // Absent in older agents.
    if let Some(nifs) = value.get("nifs")? {
        let functions: Vec<String> = nifs
            .list()?
            .map(function)
            .collect::<Result<Vec<_>, TermError>>()?
            .into_iter()
            .flatten()
            .collect();
        set(facts::NIFS, json(&functions));
    }
    if let Some(handlers) = value.get("log_handlers")? {
        let mut settings = BTreeMap::new();
        for handler in handlers.list()?.take(MAX_LOG_HANDLERS) {
            let [name, id, sync, drop, flush, limited, burst] = handler.tuple_of()?;
            let values = [sync, drop, flush, limited, burst, id].map(plain);
            let values = values.into_iter().collect::<Result<Vec<_>, TermError>>()?;
            let values: Vec<String> = values.into_iter().flatten().collect();
            settings.insert(plain(name)?.unwrap_or_default(), values.join(" "));
        }
        set(facts::LOG_HANDLERS, json(&settings));
    }
    set(facts::EMU_ARGS, json(&texts("emu_args")?));
    set(facts::SCHEDULER_BINDINGS, json(&texts("scheduler_bindings")?));
    let disabled = texts("disabled_allocators")?;
    let mark = |name: String| if disabled.contains(&name) { format!("{name}=false") } else { name };
    set(facts::ALLOCATORS, json(&texts("alloc_util_allocators")?.into_iter().map(mark).collect::<Vec<_>>()));
    let mut arguments = Vec::new();
    for argument in list(value, "init_args")? {
        let [flag, values] = argument.tuple_of()?;
        arguments
            .push(format!("-{} {}", plain(flag)?.unwrap_or_default(), joined(values)?).trim_end().to_owned());
    }
    set(facts::INIT_ARGS, json(&arguments));
    let mut environment = BTreeMap::new();
    for variable in list(value, "env")? {
        let [name, content] = variable.tuple_of()?;
        environment.insert(plain(name)?.unwrap_or_default(), joined(content)?);
    }
    set(facts::ENVIRONMENT, json(&environment));
    let applications = applications(value)?;
    set(facts::APPLICATIONS, json(&applications));
    set(facts::ELIXIR_VERSION, applications.get("elixir").cloned());
    let product = PRODUCTS.iter().find_map(|&(application, product)| {
        applications.get(application).map(|version| format!("{product} {version}"))
    });
    set(facts::PRODUCT, product);
    Ok(found)
}

/// Returns the running applications among the rows `{Name, Version, Running}`, with their versions.
fn applications(value: Term<'_>) -> Result<BTreeMap<String, String>, TermError> {
    let mut applications = BTreeMap::new();
    for application in list(value, "applications")? {
        let [name, version, running] = application.tuple_of()?;
        if running.as_bool()? {
            applications.insert(plain(name)?.unwrap_or_default(), plain(version)?.unwrap_or_default());
        }
    }
    Ok(applications)
}

/// Formats a number, name, boolean or text; returns `None` if it is unknown.
fn plain(value: Term<'_>) -> Result<Option<String>, TermError> {
    match value.kind() {
        Kind::Integer => Ok(Some(value.as_i128()?.to_string())),
        Kind::Atom if value.is_atom("unknown") => Ok(None),
        _ => bounded_text(value),
    }
}

/// Joins texts with spaces. A single text need not be in a list.
fn joined(value: Term<'_>) -> Result<String, TermError> {
    if value.kind() != Kind::List {
        return Ok(plain(value)?.unwrap_or_default());
    }
    let words = value.list()?.map(|word| Ok(plain(word)?.unwrap_or_default()));
    Ok(words.collect::<Result<Vec<_>, TermError>>()?.join(" "))
}

fn json(value: &impl serde::Serialize) -> Option<String> {
    serde_json::to_string(value).ok()
}
