//! Redacted copies of a recording: identifying texts are replaced, numbers are kept.
//!
//! The copy is written sample by sample, by the same writer as any recording. So it contains only data that pass through this
//! module: no free pages, no log, no tables or columns that this version does not know.
//!
//! A text is kept only if it is known to be public (a word of the VM, a number, a pid, `module:function/arity`); every other text is
//! replaced. Equal texts get equal replacements throughout the file, so that processes, tables and nodes remain distinguishable.
//! Replacements are numbered in order of first occurrence rather than hashed, because short names can be guessed from their hashes.

mod known;
mod locks;
mod profile;

use std::collections::HashMap;
use std::path::Path;

use beamtune_model::series::PART_SEPARATOR;
use beamtune_model::{
    AllocationRow, BinaryHolderRow, CarrierRow, CollectedProcessRow, Event, ExitRow, Gap, Group, PortRow,
    ProcessRow, RequestedGcRow, Sample, Series, SeriesTable, SpawnRow, TableRow, TroubleKind, WaitSampleRow,
    facts,
};

use crate::error::Error;
use crate::reader::Reader;
use crate::writer::{Existing, Writer};

/// Replacements that are optional.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Redaction {
    /// Replace modules, functions and applications outside of OTP and Elixir.
    pub modules: bool,
}

/// Writes a redacted copy of a recording. Returns the number of distinct texts that were replaced.
///
/// Snapshots and the settings of a ring are omitted; reasons of gaps and details of events are replaced by generic texts.
pub fn redact(from: &Reader, to: &Path, what: Redaction) -> Result<usize, Error> {
    let mut replace = Replacer { what, known: HashMap::new(), counts: HashMap::new() };
    let mut writer = Writer::create(to, Existing::Refuse)?;
    let mut table = SeriesTable::default();
    let mut ids = Vec::new();
    let mut samples = from.samples();
    let mut wall = None;
    while let Some(sample) = samples.next() {
        let mut sample = sample?;
        for (_, series) in samples.table().iter().skip(ids.len()) {
            let Series { group, entity, name, unit, kind } = series;
            let entity = replace.entity(*group, entity);
            let name = replace.path_of_words(name);
            ids.push(table.intern(*group, &entity, &name, *unit, *kind));
        }
        for (id, _) in &mut sample.readings {
            *id = ids[id.index()];
        }
        sample.readings.sort_unstable_by_key(|(id, _)| *id);
        replace.sample(&mut sample);
        if wall.is_none() {
            wall = from.wall_at(sample.tick.t).map(|wall| wall.saturating_sub(sample.tick.t));
            if let Some(wall) = wall {
                writer.set_wall_at_zero(wall)?;
            }
        }
        writer.append(&sample, &table)?;
    }
    writer.finish()?;
    Ok(replace.known.len())
}

struct Replacer {
    what: Redaction,
    /// Replacements by kind and original text.
    known: HashMap<(&'static str, String), String>,
    /// Number of replacements by kind.
    counts: HashMap<&'static str, usize>,
}

impl Replacer {
    /// Replaces a text of this kind: `name7`.
    fn by(&mut self, kind: &'static str, text: &str) -> String {
        if let Some(replacement) = self.known.get(&(kind, text.to_owned())) {
            return replacement.clone();
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let replacement = format!("{kind}{count}");
        self.known.insert((kind, text.to_owned()), replacement.clone());
        replacement
    }

    fn sample(&mut self, sample: &mut Sample) {
        if let Some(incarnation) = &mut sample.incarnation {
            incarnation.node = self.node(&incarnation.node);
            incarnation.boot = self.by("boot", &incarnation.boot);
        }
        for (key, value) in &mut sample.facts {
            *value = self.fact(key, value);
            if !facts::KEYS.iter().any(|(known, _)| known == key) {
                *key = self.by("key", key);
            }
        }
        sample.busiest.iter_mut().for_each(|process| process.pid = self.id(&process.pid).into());
        sample.processes.iter_mut().for_each(|row| self.process(row));
        sample.tables.iter_mut().for_each(|row| self.table(row));
        sample.ports.iter_mut().for_each(|row| self.port(row));
        sample.spawns.iter_mut().for_each(|row| self.spawn(row));
        sample.wait_samples.iter_mut().for_each(|row| self.wait_sample(row));
        for row in &mut sample.run_samples {
            if !row.pid.is_empty() {
                row.pid = self.id(&row.pid);
            }
            some(&mut row.kind, |text| self.name(text));
            self.stack(&mut row.stack);
        }
        sample.exits.iter_mut().for_each(|row| self.exit(row));
        sample.messages.iter_mut().for_each(|row| some(&mut row.pid, |text| self.id(text)));
        sample.carriers.iter_mut().for_each(|row| self.carriers(row));
        sample.allocations.iter_mut().for_each(|row| self.allocations(row));
        sample.holders.iter_mut().for_each(|row| self.holder(row));
        sample.collections.iter_mut().for_each(|row| self.collection(row));
        sample.collected.iter_mut().for_each(|row| self.collected(row));
        sample.lock_sessions.iter_mut().for_each(|session| self.lock_session(session));
        sample.locks.iter_mut().for_each(|row| self.lock(row));
        sample.lock_waits.iter_mut().for_each(|row| self.wait(row));
        sample.code.iter_mut().for_each(|row| some(&mut row.application, |text| self.application(text)));
        sample.events.iter_mut().for_each(|event| self.event(event));
        sample.gaps.iter_mut().for_each(|gap| self.gap(gap));
        sample.profiles.iter_mut().for_each(|row| self.profile(&mut row.profile));
        // The format of snapshots is unknown here.
        sample.snapshots.clear();
    }

    fn process(&mut self, row: &mut ProcessRow) {
        row.pid = self.id(&row.pid);
        some(&mut row.name, |text| self.name(text));
        some(&mut row.label, |text| self.name(text));
        some(&mut row.initial_call, |text| self.name(text));
        some(&mut row.current_function, |text| self.name(text));
        self.stack(&mut row.stack);
        some(&mut row.application, |text| self.application(text));
        some(&mut row.parent, |text| self.id(text));
        some(&mut row.status, |text| self.word(text));
        some(&mut row.message_queue_data, |text| self.word(text));
        some(&mut row.priority, |text| self.word(text));
    }

    fn table(&mut self, row: &mut TableRow) {
        row.id = if is_id(&row.id) { row.id.clone() } else { self.name(&row.id) };
        row.name = self.name(&row.name);
        row.owner = self.id(&row.owner);
        some(&mut row.owner_name, |text| self.name(text));
        row.kind = self.word(&row.kind);
        row.protection = self.word(&row.protection);
        row.options.iter_mut().for_each(|option| *option = self.words(option, '='));
    }

    fn port(&mut self, row: &mut PortRow) {
        row.id = self.id(&row.id);
        row.name = self.name(&row.name);
        some(&mut row.connected, |text| self.id(text));
    }

    fn spawn(&mut self, row: &mut SpawnRow) {
        let is_step = row.what == SpawnRow::ATTEMPT_STEP;
        row.kind = match (row.is_of_node(), row.is_of_table() && is_id(&row.kind)) {
            (true, _) => self.node(&row.kind),
            (_, true) => row.kind.clone(),
            _ => self.name(&row.kind),
        };
        some(&mut row.creator, |text| if is_step { self.word(text) } else { self.name(text) });
        row.what = self.word(&row.what);
    }

    fn exit(&mut self, row: &mut ExitRow) {
        some(&mut row.parent, |text| self.id(text));
        some(&mut row.parent_name, |text| self.name(text));
        some(&mut row.parent_call, |text| self.name(text));
        some(&mut row.name, |text| self.name(text));
        some(&mut row.call, |text| self.name(text));
        some(&mut row.reason, |text| self.word(text));
        row.stack.iter_mut().for_each(|(function, _)| *function = self.name(function));
        some(&mut row.callee, |text| self.name(text));
    }

    fn stack(&mut self, stack: &mut [String]) {
        stack.iter_mut().for_each(|function| *function = self.name(function));
    }

    fn wait_sample(&mut self, row: &mut WaitSampleRow) {
        some(&mut row.pid, |text| self.id(text));
        row.status = self.word(&row.status);
        some(&mut row.kind, |text| self.name(text));
        self.stack(&mut row.stack);
        for (who, _) in &mut row.targets {
            *who = match &*who {
                who if is_id(who) => self.id(who),
                who if who.contains('@') => self.node(who),
                who => self.address(who),
            };
        }
    }

    fn carriers(&mut self, row: &mut CarrierRow) {
        row.allocator = self.word(&row.allocator);
        some(&mut row.skipped, |text| self.word(text));
        row.blocks.iter_mut().for_each(|sum| sum.allocator = self.word(&sum.allocator));
    }

    fn allocations(&mut self, row: &mut AllocationRow) {
        row.origin = self.word(&row.origin);
        row.kind = self.word(&row.kind);
        some(&mut row.skipped, |text| self.word(text));
    }

    fn holder(&mut self, row: &mut BinaryHolderRow) {
        row.pid = self.id(&row.pid);
        some(&mut row.name, |text| self.name(text));
        some(&mut row.label, |text| self.name(text));
        some(&mut row.initial_call, |text| self.name(text));
        some(&mut row.skipped, |text| self.word(text));
    }

    fn collection(&mut self, row: &mut RequestedGcRow) {
        row.selection = self.word(&row.selection);
        row.stopped = self.word(&row.stopped);
    }

    fn collected(&mut self, row: &mut CollectedProcessRow) {
        row.pid = self.id(&row.pid);
        some(&mut row.name, |text| self.name(text));
        some(&mut row.label, |text| self.name(text));
        some(&mut row.initial_call, |text| self.name(text));
    }

    fn event(&mut self, event: &mut Event) {
        event.kind = self.word(&event.kind);
        event.subject = match &event.subject {
            subject if subject.contains('@') => self.node(subject),
            subject if is_id(subject) => subject.clone(),
            subject => self.name(subject),
        };
        event.detail = self.numbers(&event.detail);
    }

    fn gap(&mut self, gap: &mut Gap) {
        gap.source = match gap.source.split_once('.') {
            Some((source, item)) => format!("{}.{}", self.word(source), self.word(item)),
            None => self.word(&gap.source),
        };
        gap.reason = match gap.kind {
            TroubleKind::TimedOut => "no answer in time (redacted)",
            TroubleKind::Gone => "the connection or the process was gone (redacted)",
            TroubleKind::Denied => "refused (redacted)",
            TroubleKind::Unsupported => "not available (redacted)",
            TroubleKind::Garbled => "malformed data (redacted)",
            TroubleKind::Recorder => "the recorder was late, did not run, or could not store (redacted)",
        }
        .to_owned();
    }

    fn fact(&mut self, key: &str, value: &str) -> String {
        if value.is_empty() {
            return String::new();
        }
        match key {
            facts::NODE_NAME => self.node(value),
            facts::HOST_NAME => self.by("host", value),
            facts::CRASH_PROCESS => self.id(value),
            facts::CGROUP_PATH | facts::CGROUP_OWN_PATH => self.path(value),
            facts::NATIVE_LIBRARIES => self.each(value, Self::path),
            facts::LOG_HANDLERS => self.handlers(value),
            facts::NIFS => self.each(value, Self::name),
            facts::EMU_ARGS | facts::INIT_ARGS | facts::COMMAND_LINE => self.list(value),
            facts::COLLECTED => self.processes(value),
            facts::ENVIRONMENT | facts::APPLICATIONS => self.object(key, value),
            _ if known::FACTS.contains(&key) && is_public(value) => value.to_owned(),
            _ => self.numbers(value),
        }
    }

    /// Redacts a JSON list of arguments.
    fn list(&mut self, json: &str) -> String {
        match serde_json::from_str::<Vec<String>>(json) {
            Ok(list) => {
                let list: Vec<String> = list.iter().map(|item| self.arguments(item)).collect();
                serde_json::Value::from(list).to_string()
            }
            Err(_) => self.by("text", json),
        }
    }

    /// Redacts a JSON list of pids and registered names.
    fn processes(&mut self, json: &str) -> String {
        match serde_json::from_str::<Vec<String>>(json) {
            Ok(list) => {
                let who = |who: &String| if is_id(who) { self.id(who) } else { self.name(who) };
                let list: Vec<String> = list.iter().map(who).collect();
                serde_json::Value::from(list).to_string()
            }
            Err(_) => self.by("text", json),
        }
    }

    /// Redacts a JSON object of log handlers: process names, each with settings (numbers, booleans and the name of the handler).
    fn handlers(&mut self, json: &str) -> String {
        let Ok(object) = serde_json::from_str::<std::collections::BTreeMap<String, String>>(json) else {
            return self.by("text", json);
        };
        let mut out = serde_json::Map::new();
        for (name, settings) in object {
            let words = settings.split(' ').map(|word| match word {
                "true" | "false" | "default" => word.to_owned(),
                _ => self.name(word),
            });
            let settings: Vec<String> = words.collect();
            out.insert(self.name(&name), settings.join(" ").into());
        }
        serde_json::Value::Object(out).to_string()
    }

    /// Redacts a JSON object of strings: environment variables, or versions of applications.
    fn object(&mut self, key: &str, json: &str) -> String {
        let Ok(object) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(json) else {
            return self.by("text", json);
        };
        let of_applications = key == facts::APPLICATIONS;
        let mut out = serde_json::Map::new();
        for (name, value) in object {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let (name, value) = if of_applications {
                (self.application(&name), self.numbers(&value))
            } else {
                let known = ["ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"].contains(&name.as_str());
                (if known { name } else { self.by("variable", &name) }, self.arguments(&value))
            };
            out.insert(name, value.into());
        }
        serde_json::Value::Object(out).to_string()
    }

    /// Redacts the words of a command line. Flags of the VM are kept, and values that are numbers or public words.
    fn arguments(&mut self, text: &str) -> String {
        let word = |word: &str| {
            let stays = known::FLAGS.contains(&word) || is_emulator_flag(word) || self.stays(word);
            if stays { word.to_owned() } else { self.by("argument", word) }
        };
        text.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
    }

    fn node(&mut self, text: &str) -> String {
        match text.split_once('@') {
            Some((name, host)) => format!("{}@{}", self.by("node", name), self.by("host", host)),
            None => self.by("node", text),
        }
    }

    fn path(&mut self, text: &str) -> String {
        let part = |part: &str| if part.is_empty() { String::new() } else { self.by("folder", part) };
        text.split('/').map(part).collect::<Vec<_>>().join("/")
    }

    /// Redacts each text of a JSON list.
    fn each(&mut self, json: &str, replace: fn(&mut Self, &str) -> String) -> String {
        match serde_json::from_str::<Vec<String>>(json) {
            Ok(list) => serde_json::Value::from_iter(list.iter().map(|text| replace(self, text))).to_string(),
            Err(_) => self.by("text", json),
        }
    }

    /// Redacts the name of a process, table or port, or an initial call.
    fn name(&mut self, text: &str) -> String {
        if known::NAMES.contains(&text) || self.stays(text) {
            return text.to_owned();
        }
        match module_function_arity(text) {
            Some(_) if !self.what.modules => text.to_owned(),
            Some((module, _, _)) if known::is_otp(module) => text.to_owned(),
            Some((module, function, arity)) => {
                format!("{}:{}/{arity}", self.by("module", module), self.by("function", function))
            }
            None => self.by("name", text),
        }
    }

    fn application(&mut self, text: &str) -> String {
        let is_atom = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let stays = known::APPLICATIONS.contains(&text) || is_atom && !self.what.modules;
        if stays { text.to_owned() } else { self.by("application", text) }
    }

    fn entity(&mut self, group: Group, text: &str) -> String {
        match group {
            Group::Dist | Group::Connect if !text.is_empty() => self.node(text),
            Group::HostListen | Group::HostUdp => self.address(text),
            Group::HostTcp if text.is_empty() => String::new(),
            Group::HostTcp => {
                let parts: Vec<String> = text.split(',').map(|part| self.end(part)).collect();
                parts.join(",")
            }
            // Replaced in the same way as the labels of processes, which contain the same names of queues and connections.
            Group::BrokerQueue | Group::BrokerClient | Group::BrokerConnection | Group::BrokerOpener => {
                let parts: Vec<String> = text.split(PART_SEPARATOR).map(|part| self.name(part)).collect();
                parts.join(&PART_SEPARATOR.to_string())
            }
            Group::Table if text.is_empty() || is_id(text) => text.to_owned(),
            Group::Table => self.name(text),
            Group::Trace | Group::TraceFlag => {
                let part = |part: &str| if is_id(part) { part.to_owned() } else { self.name(part) };
                text.split(PART_SEPARATOR).map(part).collect::<Vec<_>>().join(&PART_SEPARATOR.to_string())
            }
            Group::HostFiles if text.starts_with('/') => self.path(text),
            _ => self.path_of_words(text),
        }
    }

    /// Redacts one part of an entity of TCP connections: `10.0.0.1:5222`, `to 10.0.0.9:5432`, or a number of seconds.
    fn end(&mut self, text: &str) -> String {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.to_owned();
        }
        match text.strip_prefix("to ") {
            Some(peer) => format!("to {}", self.address(peer)),
            None => self.address(text),
        }
    }

    /// Redacts `ADDRESS:PORT`. The port is kept, since it only identifies the kind of service.
    fn address(&mut self, text: &str) -> String {
        match text.rsplit_once(':') {
            Some((address, port)) => format!("{}:{}", self.by("address", address), self.word(port)),
            None => self.word(text),
        }
    }

    fn path_of_words(&mut self, text: &str) -> String {
        self.words(text, '/')
    }

    /// Redacts words with a separator, one by one.
    fn words(&mut self, text: &str, separator: char) -> String {
        let parts: Vec<String> = text.split(separator).map(|part| self.word(part)).collect();
        parts.join(&separator.to_string())
    }

    fn word(&mut self, text: &str) -> String {
        if self.stays(text) { text.to_owned() } else { self.by("word", text) }
    }

    /// Redacts an identifier, unless it has the form `<0.123.0>`, `#Port<0.5>` or `#Ref<…>`.
    fn id(&mut self, text: &str) -> String {
        if is_id(text) { text.to_owned() } else { self.by("id", text) }
    }

    /// Redacts a text except for numbers and public words.
    fn numbers(&mut self, text: &str) -> String {
        text.split(' ').map(|word| self.word(word)).collect::<Vec<_>>().join(" ")
    }

    fn stays(&self, text: &str) -> bool {
        is_number(text) || known::WORDS.contains(&text) || is_metric(text)
    }
}

fn some(text: &mut Option<String>, mut replace: impl FnMut(&str) -> String) {
    if let Some(text) = text {
        *text = replace(text);
    }
}

/// Whether a text has only digits and the separators of a version, a size or a list of CPUs. An IP address, with three dots, does not
/// qualify.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || b".,:-".contains(&byte))
        && text.bytes().filter(|byte| b".:".contains(byte)).count() < 3
}

/// Whether a word is `+` or `-`, at most eight letters, and optionally a number: `+sbwtdcpu`, `-A`, `+MBas`, `+SDio`.
fn is_emulator_flag(word: &str) -> bool {
    let Some(rest) = word.strip_prefix(['+', '-']) else { return false };
    let letters = rest.trim_end_matches(|c: char| c.is_ascii_digit() || ":,".contains(c));
    (1..=8).contains(&letters.len()) && letters.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn is_id(text: &str) -> bool {
    let inside =
        ["<", "#Port<", "#Ref<"].iter().find_map(|begin| text.strip_prefix(begin)?.strip_suffix('>'));
    inside.is_some_and(|inside| inside.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

/// Whether the value of a public fact can be from a VM or a kernel: not too long, and without `@`.
fn is_public(value: &str) -> bool {
    value.len() < 1_000 && !value.contains('@')
}

fn is_metric(text: &str) -> bool {
    beamtune_model::metrics::METRICS.iter().any(|metric| metric.name == text)
}

/// Splits `module:function/arity`, or the same in Elixir's notation (`Shop.Cart.add/2`).
fn module_function_arity(text: &str) -> Option<(&str, &str, &str)> {
    let (call, arity) = text.rsplit_once('/')?;
    if arity.is_empty() || arity.len() > 3 || !arity.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (module, function) = match call.rsplit_once(':') {
        Some(split) => split,
        None if call.starts_with(|c: char| c.is_ascii_uppercase()) => call.rsplit_once('.')?,
        None => return None,
    };
    let has_only = |name: &str, more: &[u8]| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
    };
    // Dots are accepted only in names of Elixir modules: `db1.example:5432/1` does not qualify, nor does `/srv/shop:x/1`.
    let is_module = has_only(module, b"_.'")
        && (!module.contains('.')
            || module.starts_with(|c: char| c.is_ascii_uppercase())
            || module.starts_with("'Elixir."));
    let is_function = has_only(function, b"_'-/!?$") && !function.starts_with(|c: char| c.is_ascii_digit());
    (is_module && is_function).then_some((module, function, arity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_texts_are_kept_and_equal_texts_get_equal_replacements() {
        let mut replace =
            Replacer { what: Redaction::default(), known: HashMap::new(), counts: HashMap::new() };
        assert_eq!(replace.name("logger_olp"), "name1");
        for stays in ["kernel_sup", "gen_server:loop/7", "shop_cart:add/2", "Shop.Cart.add/2"] {
            assert_eq!(replace.name(stays), stays);
        }
        assert_eq!(replace.name("customers_of_acme"), "name2");
        assert_eq!(replace.name("logger_olp"), "name1");
        assert_eq!(replace.node("shop@web1.acme.example"), "node1@host1");
        assert_eq!(replace.node("other@web1.acme.example"), "node2@host1");
        assert_eq!(replace.path("/system.slice/shop.service"), "/folder1/folder2");
        assert_eq!(
            replace.arguments("-setcookie hush +sbwt none -A 30 -s shop"),
            "-setcookie argument1 +sbwt none -A 30 -s argument2"
        );
        assert_eq!(replace.entity(Group::Dist, "shop@web1.acme.example"), "node1@host1");
        for (address, expect) in [("10.0.0.7:5672", "address1:5672"), ("[::]:80", "address2:80"), ("", "")] {
            assert_eq!(replace.entity(Group::HostListen, address), expect);
        }
        for (files, expect) in [
            ("/srv/acme/uploads", "/folder3/folder4/folder5"),
            ("socket", "socket"),
            ("eventpoll", "eventpoll"),
            ("", ""),
        ] {
            assert_eq!(replace.entity(Group::HostFiles, files), expect);
        }
        let label = replace.name("queue acme.orders");
        assert_eq!(label, "name3");
        assert_eq!(replace.entity(Group::BrokerQueue, "queue acme.orders"), label);
        assert_eq!(
            replace
                .entity(Group::BrokerClient, "queue acme.orders\u{1f}connection 10.0.0.7:4 - acme\u{1f}bob"),
            "name3\u{1f}name4\u{1f}name5"
        );
        assert_eq!(replace.entity(Group::HostThread, "other/acme_nif/123"), "other/word1/123");
        assert_eq!(replace.entity(Group::Msacc, "dirty_io_scheduler/3"), "dirty_io_scheduler/3");
        assert_eq!(
            ["default", "literal"].map(|area| replace.entity(Group::Mmap, area)),
            ["default", "literal"]
        );
        use beamtune_model::memory;
        for kind in memory::mapping::ALL {
            assert_eq!(replace.entity(Group::HostMapping, kind), *kind);
        }
        use memory::content::*;
        let carriers = [MBCS, SBCS, POOL].map(|set| carriers("eheap_alloc", set));
        let others = [
            MSEG_CACHE,
            SUPER_CARRIER,
            LITERAL_AREA,
            MALLOC_HEAP,
            MALLOC_ARENAS,
            MALLOC_MAPPED,
            JIT,
            UNKNOWN,
        ];
        for content in
            carriers.iter().map(String::as_str).chain(others).chain(["stacks/scheduler", "stacks/other"])
        {
            assert_eq!(replace.entity(Group::HostContent, content), content);
        }
        assert_eq!(replace.id("<0.12.0>"), "<0.12.0>");
        assert_eq!(replace.id("<secret>"), "id1");
        assert!(!is_number("192.168.0.1") && is_number("25.2.3") && is_number("0-3,8"));
        for (text, expect) in
            [("db1.example:5432/1", "name6"), ("/srv/shop:x/1", "name7"), ("10.0.0.7:80/1", "name8")]
        {
            assert_eq!(replace.name(text), expect, "an address or a path is not a module");
        }
        let table = replace.name("acme_baskets");
        assert_eq!(replace.entity(Group::Table, "acme_baskets"), table);
        for stays in ["", "#Ref<0.1.2.3>"] {
            assert_eq!(replace.entity(Group::Table, stays), stays);
        }
        replace.what.modules = true;
        assert_eq!(replace.name("shop_cart:add/2"), "module1:function1/2");
        assert_eq!(replace.name("gen_server:loop/7"), "gen_server:loop/7");
        assert_eq!(replace.application("shop"), "application1");
    }
}
