//! BT038: why the node died, by its crash dump, and who held what it lacked.

use beamtune_model::{
    Account, Code, Confidence, Evidence, Group, Missing, Period, ProcessRow, ProcessUse, Scale, Subject,
    Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::known_processes;
use crate::signals::memory::megabytes;
use crate::signals::products;

pub const RULE: Rule = Rule {
    code: Code("BT038"),
    name: "node-died",
    question: "Why did the node die?",
    confirm: "start the node again under the same load with beamtune record --keep: what grows before the end is the cause, what the dump names is who met it",
    needs: &[],
    account: Account::Delay,
    judges_dumps: true,
    judge,
    thresholds: &[QUEUE],
    ..Rule::COMMON
};

/// A dump says that the VM has ended.
const DIED: f64 = 100.0;

/// Somebody wanted it. It stands before the queues, which are told as what was seen at that moment.
const ASKED: f64 = 74.5;

/// Messages in one queue at that moment. Whether it grew is not known.
const QUEUE: Threshold = Threshold::new(
    "node-died.queue_length",
    "messages in one queue when the node ended",
    Scale {
        notice: 1_000.0,
        warning: 5_000.0,
        critical: 500_000.0,
        source: "a queue above 5,000 makes a process suspect (practice of RabbitMQ's and EMQX's operators)",
    },
);

/// Long queues that are named.
const QUEUES: usize = 3;

/// The process that was at work is the one to name only if it held at least this share of what the largest one held.
const SHARE_OF_LARGEST: f64 = 0.5;

/// A request for so many times what the VM had is no leak.
const WRONG_SIZE: f64 = 10.0;

/// The most that is told of a reason, in characters.
const MOST_OF_REASON: usize = 400;

/// Why the VM ended, by its own words.
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
    /// A signal, or a person at the console.
    Asked { how: &'static str },
    /// The process that starts programs for the VM has ended.
    Forker,
    /// `erlang:halt(Text)`, mostly.
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
        "Received SIGUSR1" => Death::Asked { how: "by the signal SIGUSR1" },
        "Crash dump requested by user" => Death::Asked { how: "at its console (A behind Ctrl-C)" },
        "erl_child_setup closed" => Death::Forker,
        _ => Death::Other,
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if !period.is_crash_dump() {
        if period.is_imported() {
            return Err(period.missing_group(Group::Vm, "whether the node lives"));
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
            reason: "the dump does not hold its slogan, in which the VM says why it ended".to_owned(),
            next: "take the dump of the next end as it is written".to_owned(),
        });
    }
    Ok(Judgement::Found(drafts))
}

/// Of a node that was recorded while it ran.
fn alive(period: &Period) -> Judgement {
    if let Some(gone) = period.events.iter().rev().find(|event| event.kind == "gone") {
        return Judgement::NotJudged {
            reason: format!("the node was lost: {}", gone.detail),
            next: "beamtune import erl_crash.dump, if it has left one".to_owned(),
        };
    }
    if period.vm_ticks == 0 {
        return Judgement::NotJudged {
            reason: "nothing of a crash dump was read, and no VM has answered".to_owned(),
            next: "beamtune import erl_crash.dump".to_owned(),
        };
    }
    Judgement::Healthy(format!(
        "the node was alive: it answered {} of {} times",
        period.vm_ticks, period.ticks
    ))
}

fn died(period: &Period, slogan: &str) -> Draft {
    let draft = match death(slogan) {
        Death::Memory { allocator, bytes, kind } => out_of_memory(period, allocator, bytes, kind),
        Death::Table { table, limit } => table_full(period, table, limit),
        Death::Kernel { process, reason } => kernel(period, process, reason),
        Death::Boot { reason } => {
            Draft::new(DIED, format!("the VM could not start: {}", shortened(reason)))
                .about(Subject::Emulator { name: "start".to_owned() })
                .but("a node that runs uses the same boot file, modules and arguments: compare them first")
                .fix(restart(period))
        }
        Death::Asked { how } => Draft::new(ASKED, format!("somebody has ended the VM {how}, to have a dump of it"))
            .about(Subject::Emulator { name: "asked for".to_owned() })
            .but("what made them do so stands in the other findings, or was not in the VM"),
        Death::Forker => Draft::new(DIED, "the VM ended because erl_child_setup, which starts programs for it, has ended")
            .about(Subject::OsProcess { name: "erl_child_setup".to_owned(), pid: None })
            .but("it does nothing by itself: somebody has killed it, mostly the kernel when memory was short (dmesg)"),
        Death::Other => halted(period, slogan),
    };
    let missing = period.facts.get(facts::CRASH_DUMP_MISSING);
    let bytes = missing.is_some_and(|missing| missing.contains("SIZE LIMIT"));
    draft
        .because(Evidence::text("its last words", shortened(slogan)))
        .because_some(period.facts.get(facts::CRASH_TIME).map(|time| Evidence::text("when, by its host's time", time)))
        .because_some(
            period.facts.get(facts::CRASH_TAINTS).map(|modules| Evidence::text("modules with native code", modules)),
        )
        .because_some(missing.map(|missing| Evidence::text("the dump is not whole", missing)))
        .fix_if(missing.is_some() && bytes, || {
            remedy::of(
                period,
                "ERL_CRASH_DUMP_BYTES",
                "let dumps be larger: ERL_CRASH_DUMP_BYTES",
                "what is missing comes last in a dump",
                "the next dump ends with =end",
            )
        })
        .fix_if(missing.is_some() && !bytes, || {
            remedy::of(
                period,
                "ERL_CRASH_DUMP_SECONDS",
                "give the VM time to write its dump before it is started again or killed: ERL_CRASH_DUMP_SECONDS, and TimeoutStopSec= of systemd",
                "what is missing comes last in a dump",
                "the next dump ends with =end",
            )
        })
}

/// Those that were at work, or large: the process, its row, and what it held, in bytes.
struct Holder {
    title: String,
    subject: Subject,
    bytes: f64,
    evidence: Evidence,
}

fn out_of_memory(period: &Period, allocator: &str, bytes: f64, kind: &str) -> Draft {
    let memory = |name: &str| period.find(Group::Memory, "", name).map(|stat| stat.last.value as f64);
    let total = memory("total");
    let holder = holder(period);
    let held = holder.as_ref().map(|holder| {
        let of = total.map_or(String::new(), |total| format!(" of {}", megabytes(total)));
        format!("; {} held {}{of}", holder.title, megabytes(holder.bytes))
    });
    let kinds: Vec<String> = ["processes", "binary", "ets", "code", "atom"]
        .into_iter()
        .filter_map(|name| Some(format!("{name} {}", megabytes(memory(name)?))))
        .collect();
    let process = worker(period);
    let wrong = total.is_some_and(|total| bytes > WRONG_SIZE * total);
    let is_literal = kind == "literal" || allocator == "literal_alloc";
    let is_own = !products::is_of_others(period);
    let queue = process.and_then(|process| Some((process, process.row.as_ref()?.queue)));
    Draft::new(
        DIED,
        format!(
            "the VM ended because it could not have {} more memory for \"{kind}\"{}",
            megabytes(bytes),
            held.unwrap_or_default()
        ),
    )
    .about(holder.as_ref().map(|holder| holder.subject.clone()))
    .because(Evidence::number("asked for at once", bytes, Unit::Bytes).with_text(allocator.to_owned()))
    .because_some(total.map(|total| Evidence::number("all that the VM had (erlang:memory(total))", total, Unit::Bytes)))
    .because_some((!kinds.is_empty()).then(|| Evidence::text("by kind", kinds.join(", "))))
    .because_some(holder.map(|holder| holder.evidence))
    .because_some(process.map(at_work))
    .because_some(process.and_then(|process| Some(Evidence::text("where it was", process.row.as_ref()?.current_function.clone()?))))
    .but_if(
        wrong,
        "so much more than there was is asked for by a wrong size rather than by a leak: a length or a count from outside",
    )
    .but_if(
        !wrong && !is_literal,
        "what it could not have may be address space: ulimit -v, or overcommit of the host, end a VM while memory is left",
    )
    .fix_if(is_literal, || {
        remedy::of(
            period,
            "+MIscs",
            &format!("+MIscs {}", larger_area_mb(period)),
            "literals and persistent terms have an area of their own, 1 GB unless it is told otherwise",
            "beamtune memory shows how far the area is used",
        )
    })
    .fix_if(is_own && queue.is_some_and(|(_, queue)| queue as f64 >= QUEUE.of(period).notice), || {
        remedy::of(
            period,
            "code.back_pressure",
            "let who sends to it wait (call instead of cast), or drop when its queue is long",
            "its heap grew with its queue",
            "the queue must stay bounded under the same load: beamtune doctor",
        )
    })
    .fix_if(!wrong && !is_literal && is_own && kind.contains("heap"), || {
        remedy::of(
            period,
            "process.max_heap_size",
            "spawn_opt {max_heap_size, Words} of processes like this one (+hmax is for all, those of the system too)",
            "the process ends instead of the node, and its report names it",
            "the same input ends the process, and the node lives on",
        )
    })
    .fix_if(is_own && most(period) == Some("ets"), || {
        remedy::of(
            period,
            "code.bounded_table",
            "delete what is old, or bound what is put in: a time stamp and ets:select_delete/2",
            "most memory was that of ETS tables",
            "beamtune record --keep 6h: the table must not grow under the same load",
        )
    })
    .fix_if(is_own && most(period) == Some("binary"), || {
        remedy::of(
            period,
            "code.binary_copy",
            "binary:copy/1 what is kept of larger binaries",
            "most memory was that of binaries: a part of one keeps all of it",
            "beamtune record --keep 6h: memory of binaries must not grow under the same load",
        )
    })
    .fix_if(!wrong && !is_literal, || {
        remedy::of(
            period,
            "host.memory_limit",
            "more memory, or a higher limit, if this is what the node needs",
            "a collection needs room for a second heap beside the one that it collects",
            "beamtune record --keep 6h: how memory goes before the next end",
        )
    })
}

/// Twice the area for literals that was too small, in MB.
fn larger_area_mb(period: &Period) -> i64 {
    /// Where the dump does not tell its size.
    const DEFAULT_MB: i64 = 1_024;
    let size = period.stat(&metrics::MMAP_TOTAL, "literal").ok().map(|stat| stat.last.value >> 20);
    size.filter(|size| *size > 0).unwrap_or(DEFAULT_MB).saturating_mul(2)
}

/// The kind of memory that there was most of, of those that somebody holds.
fn most(period: &Period) -> Option<&'static str> {
    let known = ["processes", "binary", "ets"]
        .into_iter()
        .filter_map(|kind| Some((period.find(Group::Memory, "", kind)?.last.value, kind)));
    known.max().map(|(_, kind)| kind)
}

/// Who held most of what there was most of: processes, tables or binaries.
fn holder(period: &Period) -> Option<Holder> {
    let rows = || period.processes.iter().filter_map(|process| Some((process, process.row.as_ref()?)));
    let most = most(period);
    if most == Some("ets")
        && let Some(table) = period.tables.first()
    {
        let owner = period.title_of(&table.owner);
        let title = format!("the ETS table {}", table.name);
        let bytes = table.memory_bytes as f64;
        let text = format!("{} objects, owner {owner}", table.objects);
        let evidence = Evidence::number(format!("memory of {title}"), bytes, Unit::Bytes).with_text(text);
        let subject = Subject::Table { name: table.name.clone(), owner: Some(owner) };
        return Some(Holder { title, subject, bytes, evidence });
    }
    if most == Some("binary")
        && let Some((process, row)) = rows().max_by_key(|(_, row)| row.binary_bytes)
        && let Some(bytes) = row.binary_bytes
    {
        let evidence = Evidence::number("binaries that it referred to", bytes as f64, Unit::Bytes);
        return Some(Holder {
            title: process.title(),
            subject: process.subject(),
            bytes: bytes as f64,
            evidence,
        });
    }
    let (largest, row) = rows().max_by_key(|(_, row)| row.memory_bytes)?;
    let at_work = worker(period).and_then(|process| Some((process, process.row.as_ref()?)));
    let share = SHARE_OF_LARGEST * row.memory_bytes as f64;
    let (process, row) =
        at_work.filter(|(_, row)| row.memory_bytes as f64 >= share).unwrap_or((largest, row));
    let evidence =
        Evidence::number(format!("memory of {}", process.title()), row.memory_bytes as f64, Unit::Bytes);
    let started = row.initial_call.as_deref().map(|call| format!("started with {call}"));
    let evidence = started.into_iter().fold(evidence, Evidence::with_text);
    Some(Holder {
        title: process.title(),
        subject: process.subject(),
        bytes: row.memory_bytes as f64,
        evidence,
    })
}

/// The process that was at work on the thread that ended the VM.
fn worker(period: &Period) -> Option<&ProcessUse> {
    let pid = period.facts.get(facts::CRASH_PROCESS)?;
    period.process(pid)
}

fn at_work(process: &ProcessUse) -> Evidence {
    let status = process.row.as_ref().and_then(|row: &ProcessRow| row.status.as_deref());
    let what = if status == Some("garbage_collecting") {
        "collected at that moment"
    } else {
        "at work at that moment"
    };
    Evidence::text(what, process.title())
}

fn table_full(period: &Period, table: &str, limit: Option<f64>) -> Draft {
    let process = worker(period);
    let of = limit.map_or(String::new(), |limit| format!(" of {limit:.0}"));
    let (name, is_atoms) = match table {
        "atom_tab" => ("atoms", true),
        "module_code" => ("modules", false),
        "export_list" => ("exported functions", false),
        other => (other, false),
    };
    let by = process.map_or(String::new(), |process| format!("; {} was at work", process.title()));
    let larger = limit.map_or(4_194_304.0, |limit| (4.0 * limit).min(2_147_483_647.0));
    Draft::new(DIED, format!("the VM ended because its table of {name} was full, with its limit{of} reached{by}"))
        .about(process.map(ProcessUse::subject))
        .because_some(limit.map(|limit| Evidence::number("limit", limit, Unit::Count)))
        .because_some(period.stat(&metrics::ATOM_COUNT, "").ok().filter(|_| is_atoms).map(|stat| {
            Evidence::number("atoms, in whole pages of the table", stat.last.value as f64, Unit::Count)
        }))
        .because_some(process.map(at_work))
        .because_some(
            process.and_then(|process| Some(Evidence::text("where it was", process.row.as_ref()?.current_function.clone()?))),
        )
        .but_if(process.is_some(), "it made the last one, and need not have made the others")
        .fix_if(is_atoms, || {
            remedy::of(
                period,
                "code.no_atoms_from_input",
                "find list_to_atom, binary_to_atom, String.to_atom and keys: :atoms on outside input; use the *_existing_* forms or binaries",
                "atoms are never freed; the section =atoms of the dump lists them, the newest first",
                "the atom count must stop growing under the same load: beamtune doctor",
            )
        })
        .fix_if(is_atoms, || {
            remedy::of(
                period,
                "+t",
                &format!("+t {larger:.0}"),
                "gives time, cures no leak",
                "restart with the flag: system_info(atom_limit) shows the new size",
            )
        })
        .fix_if(!is_atoms, || {
            remedy::of(
                period,
                "code.no_code_at_run_time",
                "do not make modules under ever new names in the course of work",
                "a name that was once a module's keeps its place",
                "beamtune memory: the number of modules must stop growing",
            )
        })
}

/// A process without which there is no node has ended: that of an application's, mostly.
fn kernel(period: &Period, process: &str, reason: &str) -> Draft {
    let application = ["{application_start_failure,", "{application_terminated,"].iter().find_map(|known| {
        let (_, rest) = reason.split_once(known)?;
        Some((*known, rest.split(',').next()?.trim_matches('\'')))
    });
    let (subject, summary) = match application {
        Some((known, name)) if known.contains("start_failure") => {
            (name, format!("the node ended because the application {name} could not start"))
        }
        Some((_, name)) => (
            name,
            format!("the node ended because {name} has ended, an application that it must not be without"),
        ),
        None => (process, format!("the node ended because its process {process} has ended")),
    };
    Draft::new(DIED, summary)
        .about(Subject::process(subject))
        .because(Evidence::text("reason", shortened(reason)))
        .but("the reason is that of the last failure: what began it stands in the log before, often of another process")
        .fix_if(application.is_some(), || {
            remedy::of(
                period,
                "code.permanent_application",
                "mend what the reason names; where the node is of use without it, start it as temporary, or let its supervisors restart more often",
                "the end of a permanent application is the end of the node",
                "the same failure is reported, and the node lives on",
            )
        })
        .fix(restart(period))
}

fn restart(period: &Period) -> Option<beamtune_model::Remedy> {
    remedy::of(
        period,
        "host.restart",
        "wait longer between two starts, and give up after some (systemd: RestartSec=, StartLimitBurst=)",
        "each end writes over the dump of the one before",
        "the first dump of a series is there to be read",
    )
}

fn halted(period: &Period, slogan: &str) -> Draft {
    let process = worker(period);
    let by = process.map_or(String::new(), |process| format!(" while {} was at work", process.title()));
    Draft::new(DIED, format!("the VM ended with \"{}\"{by}", shortened(slogan)))
        .about(process.map_or_else(|| Subject::Function { name: "erlang:halt/1".to_owned() }, ProcessUse::subject))
        .because_some(process.map(at_work))
        .because_some(
            process.and_then(|process| Some(Evidence::text("where it was", process.row.as_ref()?.current_function.clone()?))),
        )
        .but("these are no words of the VM's that are known here: of the program by erlang:halt/1 mostly, else of a driver, or of a fault in the VM")
}

/// The longest queues at that moment.
fn queues(period: &Period) -> Vec<Draft> {
    let mut long: Vec<(f64, i64, &ProcessUse, &ProcessRow)> = period
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
    let draft = |(severity, queue, process, row): (f64, i64, &ProcessUse, &ProcessRow)| {
        let draft = Draft::new(
            severity,
            format!("the message queue of {} held {queue} messages when the node died", process.title()),
        )
        .confidence(Confidence::Inferred)
        .about(process.subject())
        .because(
            Evidence::number("messages in its queue", queue as f64, Unit::Count)
                .against_scale(QUEUE.of(period)),
        )
        .because(Evidence::number("its memory", row.memory_bytes as f64, Unit::Bytes))
        .because_some(
            row.current_function.as_deref().map(|function| Evidence::text("where it was", function)),
        )
        .because_some(row.initial_call.as_deref().map(|call| Evidence::text("started with", call)))
        .but("one moment does not tell whether it grew");
        known_processes::explain(draft, period, process).fix(remedy::of(
            period,
            "code.back_pressure",
            "let senders wait for an answer (call instead of cast), or limit what is in flight, or drop when the queue is long",
            "a queue that grows ends in memory",
            "the queue must stay bounded under the same load: beamtune doctor",
        ))
    };
    long.into_iter().take(QUEUES).map(draft).collect()
}

fn shortened(reason: &str) -> String {
    match reason.char_indices().nth(MOST_OF_REASON) {
        Some((end, _)) => format!("{}…", reason.get(..end).unwrap_or_default()),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_vm_are_understood() {
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
        check("Received SIGUSR1", Death::Asked { how: "by the signal SIGUSR1" });
        check("eheap_alloc: Cannot allocate many bytes", Death::Other);
        check("", Death::Other);
    }

    #[test]
    fn a_long_reason_is_shortened_between_characters() {
        assert_eq!(shortened(&"ü".repeat(MOST_OF_REASON)).chars().count(), MOST_OF_REASON);
        assert_eq!(shortened(&"ü".repeat(9_000)).chars().count(), MOST_OF_REASON + 1);
    }
}
