//! What helps against contention of a lock class on this node, given its release, its flags, and the table or process.

use beamtune_flags::{Alternative, LockClass, OtpVersion, entry, lock_class};
use beamtune_model::{Period, ProcessRow, Remedy, facts};

use super::entities::{LockOwner, OwnerKind};
use crate::remedy;
use crate::view::{self, Flag};

/// What is known about a lock class.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Explanation {
    /// What it protects; `None` for a lock of a library.
    pub protects: Option<String>,
    /// The usual cause of contention; `None` for a lock of a library.
    pub cause: Option<String>,
    /// What usually helps on the node's release; `None` without a known remedy.
    pub advice: Option<String>,
    /// Settings that help here, best first.
    pub remedies: Vec<Remedy>,
}

/// Explains a lock class, for the owner with the longest wait.
pub fn explain(period: &Period, class: &str, entity: Option<&LockOwner>) -> Explanation {
    let Some(known) = lock_class(class) else { return Explanation::default() };
    let at = version(period);
    let referred = known.remedy_as.as_deref().and_then(lock_class);
    let mut ids: Vec<&str> = known.settings.iter().map(String::as_str).collect();
    for id in referred.iter().flat_map(|other| &other.settings) {
        if !ids.contains(&id.as_str()) {
            ids.push(id);
        }
    }
    let remedies = ids.into_iter().filter_map(|id| remedy_of(period, &known.name, id, entity, at.as_ref()));
    Explanation {
        protects: Some(known.protects.clone()),
        cause: Some(known.contended_by.clone()),
        advice: advice(period, known, referred, entity, at.as_ref()),
        remedies: remedies.collect(),
    }
}

/// The node's OTP version, or its release if only that is known.
fn version(period: &Period) -> Option<OtpVersion> {
    let version = period.facts.get(facts::OTP_VERSION).and_then(OtpVersion::parse);
    version.or_else(|| period.facts.otp_release().map(OtpVersion::from))
}

/// What usually helps, without what the version lacks or the node already has.
fn advice(
    period: &Period,
    known: &LockClass,
    referred: Option<&LockClass>,
    entity: Option<&LockOwner>,
    at: Option<&OtpVersion>,
) -> Option<String> {
    let alternatives = referred.iter().flat_map(|other| &other.remedy).chain(&known.remedy);
    let texts: Vec<&str> = alternatives
        .filter(|one| !is_left_out(period, &known.name, entity, at, one))
        .filter_map(|one| one.text_in(at))
        .collect();
    let text = texts.join("; ");
    // Code and flags are not capitalised.
    let is_word = text.split(' ').next().is_some_and(|word| !word.contains(['_', ':', '{', '+']));
    let mut letters = text.chars();
    let first = letters.next()?;
    Some(match is_word {
        true => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        false => format!("{text}."),
    })
}

/// Whether an alternative is left out: the version lacks its setting, the node, table or process already has it, or it would not help.
fn is_left_out(
    period: &Period,
    class: &str,
    entity: Option<&LockOwner>,
    at: Option<&OtpVersion>,
    alternative: &Alternative,
) -> bool {
    let Some(setting) = alternative.setting.as_deref() else { return false };
    let lacks = |at: &OtpVersion| entry(setting).is_some_and(|entry| !entry.works_in(at.clone()));
    if at.is_some_and(lacks) {
        return true;
    }
    match setting {
        "+Mdai" => why_more_instances(period, entity).is_none(),
        "ets.write_concurrency" => wanted_write_concurrency(class, entity, at).is_none(),
        "ets.read_concurrency" => option(entity, "read_concurrency").is_some(),
        "process.message_queue_data" => is_off_heap(period, entity),
        flag => {
            let set = view::emulator_flag(&period.facts, flag);
            let default = || entry(flag)?.default_value_in(at?.clone());
            let now = match &set {
                Flag::Set(value) => Some(value.as_str()),
                Flag::Default => default(),
                Flag::Unknown => None,
            };
            alternative.value.is_some() && now == alternative.value.as_deref()
        }
    }
}

/// Value of a table option, `true` for an option without a value; `None` if the option is not set, or the table is unknown.
fn option(entity: Option<&LockOwner>, name: &str) -> Option<String> {
    let table = entity?.table.as_ref()?;
    table.options.iter().find_map(|option| match option.split_once('=') {
        Some((key, value)) if key == name => Some(value.to_owned()),
        None if option == name => Some("true".to_owned()),
        _ => None,
    })
}

/// The `write_concurrency` that helps a table; `None` if the table already has it or better. An operation on the whole table takes the
/// table's single lock in any case.
fn wanted_write_concurrency(
    class: &str,
    entity: Option<&LockOwner>,
    at: Option<&OtpVersion>,
) -> Option<&'static str> {
    let has_auto = at.is_none_or(|at| *at >= OtpVersion::from(25));
    match (class, option(entity, "write_concurrency").as_deref()) {
        (_, Some("auto")) => None,
        ("db_hash_slot", _) => has_auto.then_some("auto"),
        (_, Some("true")) => None,
        _ => Some(if has_auto { "auto" } else { "true" }),
    }
}

/// Why more allocator instances for dirty schedulers (`+Mdai max`) help; `None` if they do not.
fn why_more_instances(period: &Period, entity: Option<&LockOwner>) -> Option<&'static str> {
    let instances = entity.map_or(0, |entity| entity.counts.locks);
    // These allocators have one instance, regardless of flags.
    if entity.is_some_and(|entity| ["literal_alloc", "exec_alloc"].contains(&entity.id.as_str())) {
        return None;
    }
    match view::emulator_flag(&period.facts, "+Mdai") {
        Flag::Set(value) if value == "max" => None,
        Flag::Set(_) => Some("several dirty schedulers share an instance of each allocator"),
        // By default there is one shared instance of each, so several instances mean that the flag is set.
        Flag::Unknown if instances > 1 => None,
        Flag::Default | Flag::Unknown => {
            Some("all dirty schedulers share one instance of each allocator, and contend for its lock")
        }
    }
}

/// Whether the process is known to have `message_queue_data` `off_heap`.
fn is_off_heap(period: &Period, entity: Option<&LockOwner>) -> bool {
    entity.is_some_and(|entity| {
        let is_it =
            |row: &&ProcessRow| row.pid == entity.id || row.name.as_deref() == Some(entity.id.as_str());
        let mut rows = period.processes.iter().filter_map(|process| process.row.as_ref());
        rows.find(is_it).is_some_and(|row| row.message_queue_data.as_deref() == Some("off_heap"))
    })
}

/// Creates the remedy for a setting; `None` if the node's release lacks it, it is already set, or it does not help here.
fn remedy_of(
    period: &Period,
    class: &str,
    id: &str,
    entity: Option<&LockOwner>,
    at: Option<&OtpVersion>,
) -> Option<Remedy> {
    let (change, why) = change(period, class, id, entity, at)?;
    let prove = "wait time as a share of the duration (beamtune locks), and throughput, under the same load";
    remedy::of(period, id, &change, why, prove)
}

/// The text of the change, and why it helps.
fn change(
    period: &Period,
    class: &str,
    id: &str,
    entity: Option<&LockOwner>,
    at: Option<&OtpVersion>,
) -> Option<(String, &'static str)> {
    let before = |release: u32| at.is_some_and(|at| *at < OtpVersion::from(release));
    let is_set = |flag: &str| view::emulator_flag(&period.facts, flag).value().is_some();
    let title = |other: &str| {
        entity
            .filter(|entity| entity.kind.has_own_remedy())
            .map_or_else(|| other.to_owned(), |entity| entity.title.clone())
    };
    let table = || title("the table");
    let plain = |change: &str, why: &'static str| Some((change.to_owned(), why));
    match id {
        "ets.write_concurrency" => {
            let value = wanted_write_concurrency(class, entity, at)?;
            let why = match class {
                "db_hash_slot" => "true gives 64 locks for all keys; auto adds locks as contention grows",
                _ => "the table has one lock, which every write takes",
            };
            Some((format!("{{write_concurrency, {value}}} for {}", table()), why))
        }
        "ets.read_concurrency" => option(entity, "read_concurrency").is_none().then(|| {
            (
                format!("{{read_concurrency, true}} for {}, if it is mostly read", table()),
                "readers then do not write to a shared word of the lock",
            )
        }),
        "+rg" => option(entity, "read_concurrency").map(|_| {
            (
                format!("fewer reader groups (+rg), if {} is written often", table()),
                "a writer waits for every reader group",
            )
        }),
        // From OTP 29.0, a lookup takes no lock.
        "ets.named_table" if at.is_some_and(|at| *at >= OtpVersion::from(29)) => None,
        "ets.named_table" => plain(
            "the table's identifier (ets:whereis/1) instead of its name, where it is used most",
            "each use of a name takes a lock that many names share",
        ),
        "+Mdai" => Some(("+Mdai max".to_owned(), why_more_instances(period, entity)?)),
        "+MMmcs" => {
            (!is_set("+MMmcs")).then_some(("+MMmcs 30".to_owned(), "cached segments need no new mmap"))
        }
        "+M<S>sbct" => plain(
            "a larger singleblock threshold (+M<S>sbct) for the allocator that maps most",
            "each large block has its own carrier, and takes the lock twice",
        ),
        "+M<S>lmbcs" => plain(
            "larger carriers (+M<S>lmbcs) for the allocator that maps most",
            "fewer carriers are created and destroyed",
        ),
        "+MMscs" => {
            let may_be = !matches!(view::emulator_flag(&period.facts, "+MMscs"), Flag::Default);
            may_be.then_some((
                "remove +MMscs (no super carrier)".to_owned(),
                "the kernel provides memory without this lock",
            ))
        }
        "code.split_process" if class.starts_with("db_") => {
            plain("split the table into several by key", "each has its own locks")
        }
        "code.split_process" => Some((
            format!(
                "split {} into several processes by key, or let callers read an ETS table",
                title("the process that everything sends to")
            ),
            "every send takes a lock of the receiver",
        )),
        "process.message_queue_data" => (!before(25) && !is_off_heap(period, entity)).then(|| {
            let change = format!(
                "process_flag(message_queue_data, off_heap) in {}",
                title("the process that everything sends to")
            );
            (change, "since 25.0 senders to such a process use several buffers")
        }),
        "+S" => {
            let schedulers = period.facts.number(facts::SCHEDULERS_ONLINE);
            let change = match schedulers {
                Some(few) if few < 4 => return None,
                Some(now) => format!("fewer schedulers, such as +S {0}:{0} (now {now} online)", now / 2),
                None => "fewer schedulers (+S)".to_owned(),
            };
            Some((change, "each scheduler checks the queues of the others for work"))
        }
        "+swt" => {
            (!is_set("+swt")).then_some(("+swt high".to_owned(), "sleeping schedulers are woken less often"))
        }
        "+sbwtdcpu" => plain("+sbwtdcpu long", "dirty CPU schedulers that are awake need not be woken"),
        "+sbwtdio" => plain("+sbwtdio long", "dirty I/O schedulers that are awake need not be woken"),
        "+A" => plain(
            "more async threads (+A), or dirty NIFs instead of such a driver",
            "each thread has its own queue",
        ),
        "socket.inet_backend" => plain(
            "one process per socket; {inet_backend, socket} if a process has many",
            "only one process at a time can use a port",
        ),
        "+spp" => (!is_set("+spp"))
            .then_some(("+spp true".to_owned(), "port calls become tasks, and their callers continue")),
        "socket.active" => {
            plain("{active, N} instead of {active, once}", "the descriptor is armed once for N packets")
        }
        "+IOs" => {
            let is_off = view::emulator_flag(&period.facts, "+IOs").value() == Some("false");
            is_off.then_some((
                "remove +IOs false".to_owned(),
                "descriptors that are nearly always ready need not be re-armed",
            ))
        }
        "+IOp" => plain("several poll sets (+IOt 2 +IOp 2)", "descriptors are spread over them"),
        "+zdbbl" => {
            plain("a larger distribution buffer (+zdbbl)", "senders are suspended and resumed less often")
        }
        "process.async_dist" => plain(
            "process_flag(async_dist, true) in the processes that send most",
            "they are never suspended",
        ),
        "+zdntgc" => {
            plain("node names kept longer (+zdntgc)", "entries of returning nodes are not created anew")
        }
        "code.no_atoms_from_input" => plain(
            "use binaries as keys, and create no atoms from input",
            "a binary needs no lookup in the atom table",
        ),
        "-mode" => plain(
            "all code loaded at start (code:ensure_modules_loaded/1; a release: -mode embedded)",
            "modules are not loaded while the node works",
        ),
        "+zosrl" => plain("a lower +zosrl, such as 2", "fewer processes handle a request at the same time"),
        "code.ets_in_place_of_process" => plain(
            "ETS for data that changes, and few and large changes of persistent terms",
            "persistent terms are updated one at a time",
        ),
        "code.less_garbage" => plain(
            "fewer very large heaps",
            "GC of large heaps runs on dirty schedulers, which count it under this lock",
        ),
        "socket.reuseport_lb" => {
            plain("several listening sockets ({reuseport_lb, true})", "acceptors then use different locks")
        }
        _ => None,
    }
}

impl LockOwner {
    /// Whether most of the wait is for one lock of the table: a hot key.
    pub fn is_one_hot_lock(&self) -> bool {
        self.kind == OwnerKind::Table
            && self.counts.locks > 8
            && self.hottest.is_some_and(|hottest| hottest >= 0.5)
    }
}
