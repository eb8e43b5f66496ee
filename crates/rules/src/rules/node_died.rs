//! BT038: why the node died, according to its crash dump, and what held the resource that was missing.

use beamtune_model::{
    Account, Code, Confidence, Evidence, Group, Missing, Period, ProcessActivity, ProcessRow, Scale, Subject,
    Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::known_processes;
use crate::signals::memory::format_bytes;
use crate::signals::products;
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT038"),
    name: "node-died",
    question: "Why did the node die?",
    confirm: "restart the node under the same load with beamtune record --keep: the process or table that grows before the end is the \
              cause; the dump names the limit",
    needs: &[],
    account: Account::Delay,
    judges_dumps: true,
    judge,
    thresholds: &[QUEUE],
    ..Rule::COMMON
};

/// Any crash is critical.
const DIED: f64 = 100.0;

/// A dump that was requested on purpose. It sorts above the findings about queues, which only add context.
const REQUESTED: f64 = 74.5;

/// A crash dump does not show whether the queue grew.
const QUEUE: Threshold = Threshold::new(
    "node-died.queue_length",
    "messages in one queue when the node died",
    Scale {
        notice: 1_000.0,
        warning: 5_000.0,
        critical: 500_000.0,
        source: "a queue above 5,000 makes a process suspect (practice of RabbitMQ's and EMQX's operators)",
    },
);

/// Maximum number of findings about queues.
const MAX_QUEUES: usize = 3;

/// The running process is named if it held at least this share of the largest one's memory.
const MIN_SHARE_OF_LARGEST: f64 = 0.5;

/// A request for this multiple of the memory of the VM does not come from a leak.
const WRONG_SIZE_FACTOR: f64 = 10.0;

/// Maximum number of characters of a reason or slogan in evidence, in a detail and in a title.
const MAX_EVIDENCE_CHARS: usize = 400;
const MAX_DETAIL_CHARS: usize = 150;
const MAX_TITLE_CHARS: usize = 45;

/// Why the VM ended, according to its slogan.
#[derive(Debug, PartialEq)]
enum Death<'a> {
    /// `eheap_alloc: Cannot allocate 562077704 bytes of memory (of type "heap").`
    Memory { allocator: &'a str, bytes: f64, kind: &'a str },
    /// `no more index entries in atom_tab (max=1048576)`
    Table { table: &'a str, limit: Option<f64> },
    /// `Kernel pid terminated (application_controller) (REASON)`
    Kernel { process: &'a str, reason: &'a str },
    /// `init terminating in do_boot (REASON)`
    Boot { reason: &'a str },
    /// The dump was requested by a signal, or at the console.
    Requested { how: &'static str },
    /// `erl_child_setup`, which starts external programs, terminated.
    Forker,
    /// Any other slogan, usually that of `erlang:halt(Text)`.
    Other,
}

fn death(slogan: &str) -> Death<'_> {
    let within = |text: &'static str, before: &str| {
        let (_, rest) = slogan.split_once(text)?;
        Some(rest.split_once(before).map_or(rest, |(reason, _)| reason))
    };
    if let Some((allocator, rest)) = slogan.split_once(": Cannot ")
        && let Some(rest) = rest.strip_prefix("allocate ").or(rest.strip_prefix("reallocate "))
        && let Some((bytes, rest)) = rest.split_once(" bytes")
        && let Ok(bytes) = bytes.parse()
    {
        let kind = rest.split('"').nth(1).unwrap_or("unknown");
        return Death::Memory { allocator, bytes, kind };
    }
    if let Some(table) = within("no more index entries in ", " (") {
        let limit = within("max=", ")").and_then(|limit| limit.parse().ok());
        return Death::Table { table, limit };
    }
    if let Some(rest) = slogan.strip_prefix("Kernel pid terminated (")
        && let Some((process, reason)) = rest.split_once(") (")
    {
        let reason = reason.strip_suffix(')').unwrap_or(reason).trim_matches('"');
        return Death::Kernel { process, reason };
    }
    for boot in ["init terminating in ", "Runtime terminating during boot"] {
        if let Some((_, reason)) = slogan.strip_prefix(boot).and_then(|rest| rest.split_once('(')) {
            return Death::Boot { reason: reason.strip_suffix(')').unwrap_or(reason) };
        }
    }
    match slogan {
        "Received SIGUSR1" => Death::Requested { how: "by SIGUSR1" },
        "Crash dump requested by user" => Death::Requested { how: "at its console (Ctrl-C, A)" },
        "erl_child_setup closed" => Death::Forker,
        _ => Death::Other,
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if !period.is_crash_dump() {
        if period.is_imported() {
            return Err(period.missing_group(Group::Vm, "whether the node is alive"));
        }
        return Ok(alive(period));
    }
    let mut drafts = match period.facts.get(facts::CRASH_SLOGAN) {
        Some(slogan) => vec![died(period, slogan)],
        None => Vec::new(),
    };
    drafts.extend(queues(period));
    if drafts.is_empty() {
        return Ok(Judgement::NotJudged {
            reason: "the dump has no slogan, which says why the VM ended".to_owned(),
            next: "import the next dump unmodified".to_owned(),
        });
    }
    Ok(Judgement::Found(drafts))
}

/// Judges a node that was recorded while it ran.
fn alive(period: &Period) -> Judgement {
    if let Some(gone) = period.events.iter().rev().find(|event| event.kind == "gone") {
        return Judgement::NotJudged {
            reason: format!("the node was lost: {}", gone.detail),
            next: "run beamtune import erl_crash.dump, if there is one".to_owned(),
        };
    }
    if period.vm_ticks == 0 {
        return Judgement::NotJudged {
            reason: "no crash dump was read, and no VM answered".to_owned(),
            next: "run beamtune import erl_crash.dump".to_owned(),
        };
    }
    Judgement::Healthy(format!("the node answered {} of {} times", period.vm_ticks, period.ticks))
}

fn died(period: &Period, slogan: &str) -> Draft {
    let draft = match death(slogan) {
        Death::Memory { allocator, bytes, kind } => out_of_memory(period, allocator, bytes, kind),
        Death::Table { table, limit } => table_full(period, table, limit),
        Death::Kernel { process, reason } => kernel(period, process, reason),
        Death::Boot { reason } => Draft::new(DIED, "Node could not start")
            .detail(shortened(reason, MAX_DETAIL_CHARS))
            .about(Subject::Emulator { name: "start".to_owned() })
            .counter_evidence("compare boot file, modules and arguments with those of a node that starts")
            .remedy(restart(period)),
        Death::Requested { how } => Draft::new(REQUESTED, format!("Node ended {how} to write a crash dump"))
            .about(Subject::Emulator { name: "asked for".to_owned() })
            .counter_evidence("the reason is in the other findings, or outside the VM"),
        Death::Forker => Draft::new(DIED, "Node died: erl_child_setup terminated")
            .detail("it starts external programs for the VM")
            .about(Subject::OsProcess { name: "erl_child_setup".to_owned(), pid: None })
            .counter_evidence(
                "it does not end on its own: usually the kernel kills it when memory is short (see dmesg)",
            ),
        Death::Other => halted(period, slogan),
    };
    let missing = period.facts.get(facts::CRASH_DUMP_MISSING);
    let is_size = missing.is_some_and(|missing| missing.contains("SIZE LIMIT"));
    draft
        .evidence(Evidence::text("slogan", shortened(slogan, MAX_EVIDENCE_CHARS)))
        .because_some(
            period.facts.get(facts::CRASH_TIME).map(|time| Evidence::text("time, by the host's clock", time)),
        )
        .because_some(
            period
                .facts
                .get(facts::CRASH_TAINTS)
                .map(|modules| Evidence::text("modules with native code", modules)),
        )
        .because_some(missing.map(|missing| Evidence::text("incomplete dump", missing)))
        .fix_if(missing.is_some() && is_size, || {
            remedy::of(
                period,
                "ERL_CRASH_DUMP_BYTES",
                "raise ERL_CRASH_DUMP_BYTES",
                "the end of the dump is missing",
                "the next dump ends with =end",
            )
        })
        .fix_if(missing.is_some() && !is_size, || {
            remedy::of(
                period,
                "ERL_CRASH_DUMP_SECONDS",
                "give the VM time to write its dump: ERL_CRASH_DUMP_SECONDS, and TimeoutStopSec= in systemd",
                "the end of the dump is missing",
                "the next dump ends with =end",
            )
        })
}

/// The process or table that held most of the memory.
struct Holder {
    /// Its name in titles, without a pid.
    name: String,
    subject: Subject,
    bytes: f64,
    evidence: Evidence,
}

fn out_of_memory(period: &Period, allocator: &str, bytes: f64, kind: &str) -> Draft {
    let memory = |name: &str| period.find(Group::Memory, "", name).map(|stat| stat.last.value as f64);
    let total = memory("total");
    let holder = holder(period);
    let held = holder.as_ref().map(|holder| {
        let of = total.map_or(String::new(), |total| format!(" of {}", format_bytes(total)));
        format!("; {} held {}{of}", holder.name, format_bytes(holder.bytes))
    });
    let kinds: Vec<String> = ["processes", "binary", "ets", "code", "atom"]
        .into_iter()
        .filter_map(|name| Some(format!("{name} {}", format_bytes(memory(name)?))))
        .collect();
    let process = running(period);
    let wrong = total.is_some_and(|total| bytes > WRONG_SIZE_FACTOR * total);
    let is_literal = kind == "literal" || allocator == "literal_alloc";
    let is_own = !products::is_of_others(period);
    let queue = process.and_then(|process| Some((process, process.row.as_ref()?.queue)));
    Draft::new(DIED, format!("Node died: out of memory{}", held.unwrap_or_default()))
        .detail(format!("{allocator} could not allocate {} of type \"{kind}\"", format_bytes(bytes)))
        .detail(holder.as_ref().map_or("", |holder| text::pid(&holder.subject)))
        .about(holder.as_ref().map(|holder| holder.subject.clone()))
        .evidence(Evidence::number("requested allocation", bytes, Unit::Bytes).with_text(allocator.to_owned()))
        .because_some(total.map(|total| Evidence::number("erlang:memory(total)", total, Unit::Bytes)))
        .because_some((!kinds.is_empty()).then(|| Evidence::text("memory by kind", kinds.join(", "))))
        .because_some(holder.map(|holder| holder.evidence))
        .because_some(process.map(running_evidence))
        .because_some(process.and_then(current_function))
        .but_if(
            wrong,
            "a request this large comes from a wrong size, not from a leak: a length or count from outside",
        )
        .but_if(
            !wrong && !is_literal,
            "address space may be missing instead of memory: ulimit -v, or overcommit of the host",
        )
        .fix_if(is_literal, || {
            remedy::of(
                period,
                "+MIscs",
                &format!("+MIscs {}", larger_area_mb(period)),
                "literals and persistent terms have an area of their own, 1 GB by default",
                "beamtune memory TARGET shows how much of the area is used",
            )
        })
        .fix_if(is_own && queue.is_some_and(|(_, queue)| queue as f64 >= QUEUE.of(period).notice), || {
            remedy::of(
                period,
                "code.back_pressure",
                "make senders wait (call instead of cast), or drop messages when the queue is long",
                "its heap grew with its queue",
                "the queue stays bounded under the same load: beamtune doctor TARGET",
            )
        })
        .fix_if(!wrong && !is_literal && is_own && kind.contains("heap"), || {
            remedy::of(
                period,
                "process.max_heap_size",
                "spawn_opt {max_heap_size, Words} for processes like this one (+hmax is for system processes too)",
                "the process dies instead of the node, and a report names it",
                "the same input kills the process, but not the node",
            )
        })
        .fix_if(is_own && largest_kind(period) == Some("ets"), || {
            remedy::of(
                period,
                "code.bounded_table",
                "delete old objects, or bound the table: a timestamp and ets:select_delete/2",
                "ETS tables held most of the memory",
                "beamtune record --keep 6h: the table stops growing under the same load",
            )
        })
        .fix_if(is_own && largest_kind(period) == Some("binary"), || {
            remedy::of(
                period,
                "code.binary_copy",
                "binary:copy/1 the parts that are kept of larger binaries",
                "binaries held most of the memory, and a sub-binary keeps its whole binary",
                "beamtune record --keep 6h: binary memory stops growing under the same load",
            )
        })
        .fix_if(!wrong && !is_literal, || {
            remedy::of(
                period,
                "host.memory_limit",
                "add memory, or raise the limit, if the node needs it",
                "a garbage collection needs room for a second heap",
                "beamtune record --keep 6h: memory before the next crash",
            )
        })
}

/// Returns twice the size of the literal area that was too small, in MB.
fn larger_area_mb(period: &Period) -> i64 {
    /// Used if the dump does not contain its size.
    const DEFAULT_MB: i64 = 1_024;
    let size = period.stat(&metrics::MMAP_TOTAL, "literal").ok().map(|stat| stat.last.value >> 20);
    size.filter(|size| *size > 0).unwrap_or(DEFAULT_MB).saturating_mul(2)
}

/// Returns the largest kind of memory that processes or tables hold.
fn largest_kind(period: &Period) -> Option<&'static str> {
    let known = ["processes", "binary", "ets"]
        .into_iter()
        .filter_map(|kind| Some((period.find(Group::Memory, "", kind)?.last.value, kind)));
    known.max().map(|(_, kind)| kind)
}

/// Returns the largest holder of the largest kind of memory: a process or a table.
fn holder(period: &Period) -> Option<Holder> {
    let rows = || period.processes.iter().filter_map(|process| Some((process, process.row.as_ref()?)));
    let kind = largest_kind(period);
    if kind == Some("ets")
        && let Some(table) = period.tables.first()
    {
        let owner = period.title_of(&table.owner);
        let name = format!("ETS table {}", table.name);
        let bytes = table.memory_bytes as f64;
        let text = format!("{} objects, owner {owner}", text::number(table.objects as f64));
        let evidence = Evidence::number(format!("memory of {name}"), bytes, Unit::Bytes).with_text(text);
        let subject = Subject::Table { name: table.name.clone(), owner: Some(owner) };
        return Some(Holder { name, subject, bytes, evidence });
    }
    if kind == Some("binary")
        && let Some((process, row)) = rows().max_by_key(|(_, row)| row.binary_bytes)
        && let Some(bytes) = row.binary_bytes
    {
        let evidence = Evidence::number("referenced binaries", bytes as f64, Unit::Bytes);
        let subject = process.subject();
        return Some(Holder { name: text::name(&subject), subject, bytes: bytes as f64, evidence });
    }
    let (largest, row) = rows().max_by_key(|(_, row)| row.memory_bytes)?;
    let running = running(period).and_then(|process| Some((process, process.row.as_ref()?)));
    let min_bytes = MIN_SHARE_OF_LARGEST * row.memory_bytes as f64;
    let (process, row) =
        running.filter(|(_, row)| row.memory_bytes as f64 >= min_bytes).unwrap_or((largest, row));
    let evidence =
        Evidence::number(format!("memory of {}", process.title()), row.memory_bytes as f64, Unit::Bytes);
    let call = row.initial_call.as_deref().map(|call| format!("initial call {call}"));
    let evidence = call.into_iter().fold(evidence, Evidence::with_text);
    let subject = process.subject();
    Some(Holder { name: text::name(&subject), subject, bytes: row.memory_bytes as f64, evidence })
}

/// Returns the process that ran on the thread that ended the VM.
fn running(period: &Period) -> Option<&ProcessActivity> {
    let pid = period.facts.get(facts::CRASH_PROCESS)?;
    period.process(pid)
}

fn running_evidence(process: &ProcessActivity) -> Evidence {
    let status = process.row.as_ref().and_then(|row: &ProcessRow| row.status.as_deref());
    let what = if status == Some("garbage_collecting") {
        "process in garbage collection"
    } else {
        "running process"
    };
    Evidence::text(what, process.title())
}

fn current_function(process: &ProcessActivity) -> Option<Evidence> {
    Some(Evidence::text("current function", process.row.as_ref()?.current_function.clone()?))
}

fn table_full(period: &Period, table: &str, limit: Option<f64>) -> Draft {
    let process = running(period);
    let (name, is_atoms) = match table {
        "atom_tab" => ("atoms", true),
        "module_code" => ("modules", false),
        "export_list" => ("exported functions", false),
        other => (other, false),
    };
    let number = limit.map_or(String::new(), |limit| format!("{} ", text::number(limit)));
    let larger = limit.map_or(4_194_304.0, |limit| (4.0 * limit).min(2_147_483_647.0));
    Draft::new(DIED, format!("Node died: limit of {number}{name} reached"))
        .detail(process.map_or(String::new(), |process| format!("{} was running", process.title())))
        .about(process.map(ProcessActivity::subject))
        .because_some(limit.map(|limit| Evidence::number("limit", limit, Unit::Count)))
        .because_some(period.stat(&metrics::ATOM_COUNT, "").ok().filter(|_| is_atoms).map(|stat| {
            Evidence::number("atoms, in whole pages of the table", stat.last.value as f64, Unit::Count)
        }))
        .because_some(process.map(running_evidence))
        .because_some(process.and_then(current_function))
        .but_if(process.is_some(), "it created the last one, not necessarily the others")
        .fix_if(is_atoms, || {
            remedy::of(
                period,
                "code.no_atoms_from_input",
                "find list_to_atom, binary_to_atom, String.to_atom and keys: :atoms on outside input; use \
                 the *_existing_* forms or binaries",
                "atoms are never freed; the section =atoms of the dump lists them, newest first",
                "the atom count stops growing under the same load: beamtune doctor TARGET",
            )
        })
        .fix_if(is_atoms, || {
            remedy::of(
                period,
                "+t",
                &format!("+t {larger:.0}"),
                "buys time, does not fix the leak",
                "restart with the flag: system_info(atom_limit) shows the new size",
            )
        })
        .fix_if(!is_atoms, || {
            remedy::of(
                period,
                "code.no_code_at_run_time",
                "do not create modules under new names at run time",
                "the name of a deleted module keeps its entry",
                "beamtune memory TARGET: the number of modules stops growing",
            )
        })
}

/// Drafts the finding that a kernel process terminated, usually because a permanent application did.
fn kernel(period: &Period, process: &str, reason: &str) -> Draft {
    let application = ["{application_start_failure,", "{application_terminated,"].iter().find_map(|known| {
        let (_, rest) = reason.split_once(known)?;
        Some((*known, rest.split(',').next()?.trim_matches('\'')))
    });
    let (subject, title) = match application {
        Some((known, name)) if known.contains("start_failure") => {
            (name, format!("Node died: application {name} could not start"))
        }
        Some((_, name)) => (name, format!("Node died: permanent application {name} terminated")),
        None => (process, format!("Node died: kernel process {process} terminated")),
    };
    Draft::new(DIED, title)
        .detail(shortened(reason, MAX_DETAIL_CHARS))
        .about(Subject::process(subject))
        .evidence(Evidence::text("reason", shortened(reason, MAX_EVIDENCE_CHARS)))
        .counter_evidence(
            "this is the last failure: the first is earlier in the log, often in another process",
        )
        .fix_if(application.is_some(), || {
            remedy::of(
                period,
                "code.permanent_application",
                "fix what the reason names; if the node is useful without it, start it as temporary, or \
                 let its supervisors restart more often",
                "when a permanent application terminates, the node terminates",
                "the same failure is reported, and the node survives",
            )
        })
        .remedy(restart(period))
}

fn restart(period: &Period) -> Option<beamtune_model::Remedy> {
    remedy::of(
        period,
        "host.restart",
        "wait longer between restarts, and stop after a few attempts (systemd: RestartSec=, StartLimitBurst=)",
        "each crash overwrites the previous dump",
        "the first dump of a series is kept",
    )
}

fn halted(period: &Period, slogan: &str) -> Draft {
    let process = running(period);
    Draft::new(DIED, format!("Node died: \"{}\"", shortened(slogan, MAX_TITLE_CHARS)))
        .detail(process.map_or(String::new(), |process| format!("{} was running", process.title())))
        .about(process.map_or_else(|| Subject::Function { name: "erlang:halt/1".to_owned() }, ProcessActivity::subject))
        .because_some(process.map(running_evidence))
        .because_some(process.and_then(current_function))
        .counter_evidence("not a known slogan of the VM: usually of the program's erlang:halt/1, else of a driver or a fault in the VM")
}

/// Drafts findings about the longest queues when the node died.
fn queues(period: &Period) -> Vec<Draft> {
    let mut long: Vec<(f64, i64, &ProcessActivity, &ProcessRow)> = period
        .processes
        .iter()
        .filter_map(|process| {
            let row = process.row.as_ref()?;
            let severity = QUEUE
                .of(period)
                .severity(row.queue as f64)
                .filter(|_| row.queue as f64 >= QUEUE.of(period).warning)?;
            Some((severity, row.queue, process, row))
        })
        .collect();
    long.sort_by_key(|(_, queue, ..)| std::cmp::Reverse(*queue));
    let draft = |(severity, queue, process, row): (f64, i64, &ProcessActivity, &ProcessRow)| {
        let subject = process.subject();
        let at = row.current_function.as_deref().map(|function| format!("in {function}"));
        let draft = Draft::new(
            severity,
            format!(
                "{} had {} queued messages when the node died",
                text::name(&subject),
                text::number(queue as f64)
            ),
        )
        .detail(text::pid(&subject))
        .detail(at.unwrap_or_default())
        .confidence(Confidence::Inferred)
        .about(subject)
        .evidence(Evidence::number("queue length", queue as f64, Unit::Count).against_scale(QUEUE.of(period)))
        .evidence(Evidence::number("memory", row.memory_bytes as f64, Unit::Bytes))
        .because_some(current_function(process))
        .because_some(row.initial_call.as_deref().map(|call| Evidence::text("initial call", call)))
        .counter_evidence("one moment does not show whether it grew");
        known_processes::explain(draft, period, process).remedy(remedy::of(
            period,
            "code.back_pressure",
            "make senders wait (call instead of cast), limit messages in flight, or drop when the queue is long",
            "a growing queue uses up memory",
            "the queue stays bounded under the same load: beamtune doctor TARGET",
        ))
    };
    long.into_iter().take(MAX_QUEUES).map(draft).collect()
}

fn shortened(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slogans_are_parsed() {
        let check = |slogan: &str, expect: Death| assert_eq!(death(slogan), expect, "{slogan}");
        check(
            "eheap_alloc: Cannot allocate 255489152 bytes of memory (of type \"heap\").",
            Death::Memory { allocator: "eheap_alloc", bytes: 255_489_152.0, kind: "heap" },
        );
        check(
            "binary_alloc: Cannot reallocate 8 bytes of memory (of type \"binary\", thread 2).",
            Death::Memory { allocator: "binary_alloc", bytes: 8.0, kind: "binary" },
        );
        check(
            "no more index entries in atom_tab (max=1048576)",
            Death::Table { table: "atom_tab", limit: Some(1_048_576.0) },
        );
        check(
            "Kernel pid terminated (application_controller) (\"{application_terminated,shop,shutdown}\")",
            Death::Kernel {
                process: "application_controller",
                reason: "{application_terminated,shop,shutdown}",
            },
        );
        check("init terminating in do_boot ({undef,[]})", Death::Boot { reason: "{undef,[]}" });
        check("Runtime terminating during boot (x)", Death::Boot { reason: "x" });
        check("Received SIGUSR1", Death::Requested { how: "by SIGUSR1" });
        check("eheap_alloc: Cannot allocate many bytes", Death::Other);
        check("", Death::Other);
    }

    #[test]
    fn a_long_reason_is_shortened_between_characters() {
        assert_eq!(shortened(&"ü".repeat(400), 400).chars().count(), 400);
        assert_eq!(shortened(&"ü".repeat(9_000), 400).chars().count(), 401);
    }
}
