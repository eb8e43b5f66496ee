//! Tests of rules on hot code, on libraries and on hibernation.

use beamtune_model::{Finding, Level, Outcome, Period, Signal, SpawnRow, WorkSample};

use super::node::{SyntheticNode, SyntheticProcess, node};
use super::{Read, entries, outcome, row};

fn sample(kind: &str, looks: i64, collects: bool, stack: &str) -> WorkSample {
    WorkSample {
        kind: Some(kind.to_owned()),
        stack: stack.split_whitespace().map(str::to_owned).collect(),
        samples: looks,
        is_collecting: collects,
        is_runnable: false,
    }
}

/// A node that uses a core and a half.
fn busy() -> SyntheticNode {
    node().with(|n| (n.utilization, n.cpu) = (1.5, 1.5))
}

fn with(node: &SyntheticNode, samples: &[WorkSample]) -> Period {
    let mut period = node.period();
    period.work_samples = samples.to_vec();
    period
}

pub(super) fn found(period: &Period, code: &str) -> Option<Finding> {
    match outcome(period, code) {
        Outcome::Found(findings) => findings.into_iter().next(),
        _ => None,
    }
}

fn text(finding: &Finding, what: &str) -> Option<String> {
    finding.evidence.iter().find(|evidence| evidence.what == what).and_then(|evidence| evidence.text.clone())
}

/// Returns title and detail.
fn words(finding: &Finding) -> String {
    format!("{}; {}", finding.title, finding.detail)
}

const ENCODE: &str = "codec:encode/1 Elixir.Enum:map/2 codec:encode/1 audit:handle/3 shop:request/1";

#[test]
fn the_innermost_function_that_most_samples_are_within_is_named() {
    let samples = [
        sample("shop:request/1", 6, false, ENCODE),
        sample(
            "shop:request/1",
            4,
            false,
            "erlang:++/2 codec:-encode/1-fun-0-/2 audit:handle/3 shop:request/1",
        ),
        sample("shop:request/1", 2, false, "shop:total/1 shop:request/1"),
        sample("shop_stock", 1, false, "gen_server:loop/7"),
    ];
    let code = found(&with(&busy(), &samples), "BT073").expect("a finding");
    assert_eq!((code.level, code.subject_text().as_deref()), (Level::Notice, Some("codec:encode/1")));
    assert_eq!(code.title, "77 % of stack samples are in codec:encode/1");
    let callers =
        code.evidence.iter().find(|evidence| evidence.what == "called by").and_then(|e| e.text.clone());
    assert_eq!(callers.as_deref(), Some("audit:handle/3, shop:request/1"));
    // A process that was just woken has not run.
    let woken = WorkSample { is_runnable: true, ..sample("web", 30, false, "timer:sleep/1 web:loop/0") };
    let with_woken: Vec<_> = samples.iter().cloned().chain([woken]).collect();
    assert_eq!(found(&with(&busy(), &with_woken), "BT073").map(|code| code.title), Some(code.title.clone()));
    // In this order: no function has most samples; there are too few samples; the node is nearly idle.
    let spread = [sample("a", 5, false, "a:b/0"), sample("c", 5, false, "c:d/0")];
    assert!(found(&with(&busy(), &spread), "BT073").is_none());
    assert!(found(&with(&busy(), &samples[2..]), "BT073").is_none());
    let idle = node().with(|n| (n.utilization, n.cpu) = (0.1, 0.1));
    assert!(found(&with(&idle, &samples), "BT073").is_none());
    // Five of nine samples may be a true share of a quarter.
    let few = [sample("web", 5, false, "shop:tax/1"), sample("mail", 4, false, "mail:send/2")];
    assert!(found(&with(&busy(), &few), "BT073").is_none());
    let more = few.map(|few| WorkSample { samples: 10 * few.samples, ..few });
    assert!(found(&with(&busy(), &more), "BT073").is_some());
}

#[test]
fn reductions_outweigh_samples_of_processes_that_wait_for_a_cpu() {
    let waits = |reductions: i64| {
        let ranker = SyntheticProcess {
            pid: "<0.70.0>",
            reductions,
            row: row(|row| row.name = Some("ranker".to_owned())),
            ..SyntheticProcess::default()
        };
        let node = busy().with(|n| (n.busiest, n.total_reductions) = (vec![ranker], 9_000_000));
        let ready =
            WorkSample { is_runnable: true, ..sample("web:serve/1", 12, false, "shop:buy/1 web:serve/1") };
        found(&with(&node, &[ready]), "BT073")
    };
    assert!(waits(8_500_000).is_none(), "another process did most of the work");
    assert!(waits(4_000_000).is_some());
}

#[test]
fn hot_code_with_less_cpu_is_reported_if_cpu_is_short() {
    let samples = [sample("web:serve/1", 12, false, "shop:buy/1 web:serve/1")];
    // The node uses 0.25 of 2 cores, and waits for a CPU for as long.
    let node = |wait: f64| node().with(|n| (n.utilization, n.cpu, n.run_queue_delay) = (0.13, 0.13, wait));
    assert!(found(&with(&node(0.0), &samples), "BT073").is_none());
    assert!(found(&with(&node(0.13), &samples), "BT073").is_some());
}

#[test]
fn code_that_never_waits_is_reported_with_the_processes_that_run_it() {
    let spins = |pid, stack: &str, runnable_of_10| SyntheticProcess {
        pid,
        reductions: 4_000_000,
        runnable_of_10,
        row: row(|row| {
            row.initial_call = Some("feed:poll/1".to_owned());
            row.stack = stack.split_whitespace().map(str::to_owned).collect();
        }),
        ..SyntheticProcess::default()
    };
    let samples = [sample("feed:poll/1", 12, false, "lists:keyfind/3 feed:next/2 feed:poll/1")];
    let found_of = |busiest: Vec<SyntheticProcess>| {
        let node = busy().with(|n| (n.busiest, n.total_reductions) = (busiest, 9_000_000));
        found(&with(&node, &samples), "BT073").expect("a finding")
    };
    let never = "feed:next/2 feed:poll/1";
    let two = found_of(vec![spins("<0.77.0>", never, 10), spins("<0.78.0>", never, 10)]);
    assert!(
        two.title == "2 processes are always runnable, in feed:next/2 (100 % of samples)",
        "{}",
        two.title
    );
    assert!(two.detail.contains("of it in searching lists by key"), "{}", two.detail);
    assert!(two.has(&Signal::NeverWaits) && two.level == Level::Notice);
    assert_eq!(entries(&two), ["code.end_of_loop", "code.cheaper_function"]);
    let waits = |busiest: Vec<SyntheticProcess>| !found_of(busiest).has(&Signal::NeverWaits);
    // In this order: one of the processes waited in a sample; it waits within the code; it has messages; it does not do most of the work.
    assert!(waits(vec![spins("<0.77.0>", never, 9), spins("<0.78.0>", never, 9)]));
    assert!(waits(vec![SyntheticProcess {
        waiting_stack: vec!["timer:sleep/1".to_owned()],
        ..spins("<0.77.0>", never, 10)
    }]));
    assert!(waits(vec![SyntheticProcess { queue: (1, 0), ..spins("<0.77.0>", never, 10) }]));
    assert!(waits(vec![
        spins("<0.77.0>", "gen:do_call/4 feed:next/2", 10),
        spins("<0.78.0>", "gen_server:loop/7", 10)
    ]));
    assert!(waits(vec![spins("<0.77.0>", never, 10)]));
}

#[test]
fn the_work_of_a_library_is_attributed_to_its_caller() {
    let json = "Elixir.Jason.Encode:escape/1 Elixir.Jason.Encode:map/2 shop:page/1 shop:request/1";
    let of_other = "jsonic:walk/1 shop:page/1 shop:request/1";
    let samples = [sample("shop:request/1", 7, false, json), sample("shop:request/1", 3, false, of_other)];
    let code = found(&with(&busy(), &samples), "BT073").expect("a finding");
    assert_eq!(code.subject_text().as_deref(), Some("shop:page/1"));
    assert_eq!(text(&code, "known function or library").as_deref(), Some("JSON, 7 of 10"));
    assert!(code.title.ends_with("are in JSON, called by shop:page/1"), "{}", code.title);
    assert!(code.remedies[0].change.starts_with("encode once"), "{:?}", code.remedies);
    // Short-lived tasks that each run a different function have the library in common.
    let samples: Vec<_> = ["a", "b", "c", "d"]
        .map(|name| sample(name, 3, false, &format!("re:run/3 {name}:check/1 {name}:task/0")))
        .to_vec();
    let code = found(&with(&busy(), &samples), "BT073").expect("a finding");
    assert!(code.title.ends_with("regular expressions (re, Regex)"), "{}", code.title);
    assert!(code.remedies[0].change.contains("backtracks"), "{:?}", code.remedies);
}

#[test]
fn a_known_expensive_part_is_reported() {
    let reading = "io:execute_request/3 import:lines/2 import:loop/0";
    let server = |at| sample("file_io_server:server_loop/1", 3, false, at);
    let told = |samples: &[WorkSample]| {
        let code = found(&with(&busy(), samples), "BT073").expect("a finding");
        (words(&code), code.remedies[0].change.clone(), code.remedies[0].why.clone())
    };
    let lines = server("prim_file:read_nif/2 file_io_server:get_line/4 file_io_server:server_loop/1");
    let (summary, advice, why) = told(&[sample("import", 9, false, reading), lines.clone()]);
    let lines_of = "% of it in line reads through a file's I/O server";
    assert!(summary.starts_with("75 % of stack samples are in import:lines/2; "), "{summary}");
    assert!(summary.contains(lines_of), "{summary}");
    assert!(advice.contains("raw") && why.contains("https://www.erlang.org/"), "{advice} {why}");
    // Most of the time may be spent in the I/O server. Functions of Elixir in between do not belong to the program.
    let by_stream =
        "io:execute_request/3 Elixir.IO:each_stream/2 Elixir.Stream:do_resource/5 Elixir.Import:load/1";
    let (summary, ..) = told(&[sample("import", 9, false, by_stream), lines.clone()]);
    assert!(summary.contains("are in Elixir.Import:load/1; ") && summary.contains(lines_of), "{summary}");
    let (summary, ..) =
        told(&[WorkSample { samples: 20, ..lines.clone() }, sample("import", 9, false, reading)]);
    assert!(
        summary.starts_with("69 % of stack samples are in file_io_server:server_loop/1 processes"),
        "{summary}"
    );
    assert!(summary.contains(lines_of), "{summary}");
    // The I/O device is not a file.
    let (summary, advice, _) = told(&[sample("import", 9, false, reading)]);
    assert!(summary.contains("requests to an I/O server"), "{summary}");
    assert!(!advice.contains("read_ahead"), "{advice}");
    // The processes run no function of the program.
    let children = "maps:fold_1/4 Elixir.DynamicSupervisor:handle_call/3 gen_server:try_handle_call/4";
    let (summary, ..) = told(&[sample("Elixir.Shop.Carts", 9, false, children)]);
    assert!(
        summary.contains("are in Elixir.Shop.Carts; ")
            && summary.contains("of it in listing the children of a supervisor"),
        "{summary}"
    );
    // In this order: the function is a part of the work; the work of a library belongs to that library.
    let rest = sample("import", 4, false, "import:parse/1 import:lines/2");
    let (summary, ..) = told(&[sample("import", 6, false, reading), rest]);
    assert!(
        summary.contains("import:lines/2; ")
            && summary.contains("60 % of it in requests to an I/O server (io, IO)"),
        "{summary}"
    );
    let json = "erlang:++/2 Elixir.Jason.Encode:list/2 shop:page/1";
    let (summary, advice, _) = told(&[sample("web", 9, false, json)]);
    assert!(
        summary.contains("are in JSON, called by shop:page/1; ") && advice.starts_with("encode once"),
        "{summary}"
    );
}

/// A stack of eight functions within the formatting of a term, so the caller is unknown.
const CUT: &str = "lists:reverse/1 Elixir.Macro:inspect_atom/3 Elixir.Inspect.List:keyword/2 Elixir.Inspect.Algebra:a/3 \
                   Elixir.Inspect.Algebra:b/5 Elixir.Inspect.Algebra:c/6 Elixir.Inspect.Algebra:d/2 Elixir.Inspect.Algebra:a/3";

#[test]
fn a_module_is_named_if_none_of_its_functions_has_most() {
    let samples = [
        sample("web", 4, false, "hook:log/2 hook:handle/1 web:serve/1"),
        sample("web", 3, false, "hook:done/2 web:serve/1"),
        sample("web", 4, false, "lists:map/2 hook:step/1 web:serve/1"),
        sample("web", 2, false, "web:parse/1 web:serve/1"),
        sample("other", 3, false, "gen_server:loop/7"),
    ];
    let code = found(&with(&busy(), &samples), "BT073").expect("a finding");
    assert_eq!(code.title, "69 % of stack samples are in functions of hook");
    assert_eq!(code.subject_text().as_deref(), Some("hook"));
    assert_eq!(
        text(&code, "functions (samples)").as_deref(),
        Some("hook:log/2 (4), hook:step/1 (4), hook:done/2 (3)")
    );
    assert_eq!(text(&code, "called by").as_deref(), Some("web:serve/1"));
    assert!(code.remedies[0].change.starts_with("make functions of hook cheaper"), "{:?}", code.remedies);
    // A function that is not just a loop is more informative than a module of helpers that it calls.
    let beneath: Vec<_> = samples
        .iter()
        .map(|one| WorkSample {
            stack: one.stack.iter().cloned().chain(["acceptor:run/1".to_owned()]).collect(),
            ..one.clone()
        })
        .collect();
    let code = found(&with(&busy(), &beneath), "BT073").expect("a finding");
    assert_eq!(code.subject_text().as_deref(), Some("web:serve/1"));
}

#[test]
fn truncated_stacks_in_a_library_are_attributed_to_the_callers_of_complete_ones() {
    let by = |caller, looks| {
        sample(
            "web",
            looks,
            false,
            &format!("Elixir.Inspect.Algebra:a/3 Elixir.Kernel:inspect/2 {caller} web:serve/1"),
        )
    };
    let told = |samples: &[WorkSample]| found(&with(&busy(), samples), "BT073").expect("a finding");
    let rest = sample("web", 1, false, "web:parse/1 web:serve/1");
    let cut = sample("web", 12, false, CUT);
    let code = told(&[by("hook:log/2", 3), by("page:show/1", 1), cut.clone(), rest.clone()]);
    assert_eq!(code.title, "71 % of stack samples are in hook:log/2");
    assert!(code.detail.contains("of it in formatting of terms (io_lib, Inspect)"), "{}", code.detail);
    // In this order: too few samples with callers; callers in another kind of process; a stack that ends at the first function of the
    // process.
    let unknown = |samples: &[WorkSample]| {
        let code = told(samples);
        let is_unknown = !code.detail.contains("called by");
        let expect = "are in formatting of terms (io_lib, Inspect)";
        assert!(code.title.ends_with(expect) && is_unknown, "{code:#?}");
    };
    unknown(&[by("hook:log/2", 2), cut.clone(), rest.clone()]);
    let other = WorkSample { kind: Some("other".to_owned()), ..by("hook:log/2", 4) };
    unknown(&[other, cut.clone(), rest.clone()]);
    let whole = WorkSample {
        stack: cut.stack.iter().take(7).cloned().chain(["proc_lib:init_p/5".to_owned()]).collect(),
        ..cut
    };
    unknown(&[by("hook:log/2", 3), whole, rest]);
}

#[test]
fn formatting_by_functions_that_log_is_part_of_logging() {
    let told = |logs_in: &str, looks| {
        let samples = [
            sample("web", 8, false, "io_lib:format/2 hook:log/2 web:serve/1"),
            sample(
                "web",
                looks,
                false,
                &format!(
                    "logger_h_common:log/2 logger_backend:call_handlers/3 {logs_in} hook:log/2 web:serve/1"
                ),
            ),
            sample("web", 2, false, "web:parse/1 web:serve/1"),
        ];
        let code = found(&with(&busy(), &samples), "BT073").expect("a finding");
        let changes: Vec<_> =
            code.remedies.iter().map(|remedy| remedy.change.chars().take(8).collect::<String>()).collect();
        (words(&code), changes.join("; "))
    };
    let (summary, changes) = told("", 4);
    assert!(
        summary.contains("are in hook:log/2; ")
            && summary.contains("of it in formatting of terms (io_lib, Inspect) for log messages"),
        "{summary}"
    );
    assert_eq!(changes, "raise th; log fewe");
    // In this order: the function logged only once; another function logs.
    let (summary, _) = told("", 1);
    assert!(summary.contains("of it in formatting of terms (io_lib, Inspect);"), "{summary}");
    let (summary, changes) = told("audit:write/1", 6);
    assert!(summary.contains("hook:log/2; 57 % of it in formatting of terms (io_lib, Inspect)"), "{summary}");
    assert_eq!(changes, "log fewe; make hoo");
}

#[test]
fn a_function_whose_tail_call_runs_its_fun_is_named() {
    let task = "lists:foldl/3 harvest:-run/1-fun-0-/1 Elixir.Task.Supervised:invoke_mfa/2";
    let subject = |samples: &[WorkSample]| {
        found(&with(&busy(), samples), "BT073").expect("a finding").subject_text().unwrap_or_default()
    };
    let within = sample("task", 5, false, &format!("monitor:-sum/1-fun-0-/2 maps:update_with/4 {task}"));
    let between = sample("task", 6, false, task);
    assert_eq!(subject(&[within.clone(), between.clone()]), "monitor:sum/1");
    // In this order: a fun of the caller runs there, too; the fun was hardly sampled.
    let own = sample("task", 5, false, &format!("harvest:-run/1-fun-1-/2 {task}"));
    assert_eq!(subject(&[within.clone(), between.clone(), own]), "harvest:run/1");
    assert_eq!(subject(&[WorkSample { samples: 2, ..within }, between]), "harvest:run/1");
}

#[test]
fn children_of_a_supervisor_are_named_by_their_labels_or_by_what_they_run() {
    let kind = "child of supervisor2:init/1";
    let child = |pid, reductions, label: Option<&str>| SyntheticProcess {
        pid,
        reductions,
        row: row(|row| {
            row.initial_call = Some(kind.to_owned());
            row.label = label.map(str::to_owned);
        }),
        ..SyntheticProcess::default()
    };
    let told = |busiest: Vec<SyntheticProcess>, own: &str| {
        let node = busy().with(|n| (n.busiest, n.total_reductions) = (busiest, 9_000_000));
        let places = ["a:b/1", "c:d/1", "e:f/1"].map(|at| sample(kind, 3, false, &format!("{at} {own}")));
        found(&with(&node, &places), "BT073").map(|code| (code.title.clone(), code.subject_text()))
    };
    let later = child("<0.77.0>", 4_000_000, Some("queue later"));
    let idle = child("<0.79.0>", 10_000, Some("queue mail"));
    let (summary, subject) =
        told(vec![child("<0.78.0>", 3_000_000, None), later, idle], "").expect("a finding");
    assert!(summary.ends_with("are in queue later (<0.77.0>) and <0.78.0>"), "{summary}");
    assert_eq!(subject.as_deref(), Some("queue later (<0.77.0>)"));
    let unlabelled = || vec![child("<0.78.0>", 3_000_000, None)];
    let (summary, subject) = told(unlabelled(), "").expect("a finding");
    assert!(summary.ends_with("are in processes that run a") && subject.is_none(), "{summary}");
    // Unknown processes that run short callbacks.
    let node = busy().with(|n| (n.busiest, n.total_reductions) = (unlabelled(), 9_000_000));
    let loops = [sample(kind, 9, false, "gen_server2:process_next_msg/1 proc_lib:init_p_do_apply/3")];
    assert!(matches!(outcome(&with(&node, &loops), "BT073"), Outcome::Healthy(_)));
}

#[test]
fn traps_of_the_vm_are_not_reported_as_functions() {
    let of = |stack| {
        let code = found(&with(&busy(), &[sample("web", 9, false, stack)]), "BT073").expect("a finding");
        let at = code.evidence.iter().find(|evidence| evidence.what == "current function");
        (code.subject_text(), at.and_then(|at| at.text.clone()))
    };
    let own = || Some("shop:find/1".to_owned());
    assert_eq!(of("erlang:re_run_trap/3 shop:find/1"), (own(), Some("re:run/3, 9 of 9".to_owned())));
    assert_eq!(of("erlang:bif_return_trap/2 shop:find/1"), (own(), None));
    assert_eq!(
        of("erlang:bif_handle_signals_return/2 erlang:port_command/3 shop:find/1").1.as_deref(),
        Some("erlang:port_command/3, 9 of 9")
    );
}

#[test]
fn each_known_function_has_a_source() {
    for known in crate::signals::hot_code::known_functions() {
        assert!(known.source.starts_with("https://"), "{known:?}");
        assert!(!known.what.is_empty() && known.what.len() < 60, "{known:?}");
    }
}

#[test]
fn processes_that_ended_before_they_were_sampled_count_like_similar_ones() {
    let ended = WorkSample { kind: None, stack: Vec::new(), samples: 20, ..WorkSample::default() };
    let samples =
        [sample("shop:request/1", 5, false, ENCODE), sample("web:loop/0", 15, false, "web:loop/0"), ended];
    let mut period = with(&busy(), &samples);
    period.spawns = vec![SpawnRow {
        what: "process".to_owned(),
        kind: "shop:request/1".to_owned(),
        count: 9,
        sample_size: 9,
        ..SpawnRow::default()
    }];
    let code = found(&period, "BT073").expect("a finding");
    assert_eq!(code.subject_text().as_deref(), Some("codec:encode/1"));
    assert!(code.title.starts_with("62 %"), "{}", code.title);
}

#[test]
fn short_callbacks_are_reported_by_their_processes() {
    let samples =
        [sample("chat:init/1", 9, false, "gen_server:loop/7"), sample("web", 3, false, "gen_server:loop/7")];
    let code = found(&with(&busy(), &samples), "BT073").expect("a finding");
    assert_eq!(code.subject_text().as_deref(), Some("chat:init/1"));
}

#[test]
fn gc_of_the_hot_code_follows_from_it_and_names_its_processes() {
    let sick = busy().with(|n| n.gc = 0.5);
    let samples = [sample("shop:request/1", 6, false, ENCODE), sample("shop:request/1", 6, true, ENCODE)];
    let period = with(&sick, &samples);
    let gc = found(&period, "BT011").expect("gc");
    assert_eq!(gc.subject_text().as_deref(), Some("shop:request/1"));
    assert_eq!(gc.follows.map(|of| of.code.0), Some("BT073"));
    assert!(found(&period, "BT073").expect("code").has(&Signal::Allocates));
    // Other processes make the garbage.
    let other = [sample("shop:request/1", 12, false, ENCODE), sample("report", 6, true, "report:run/1")];
    let gc = found(&with(&sick, &other), "BT011").expect("gc");
    assert_eq!((gc.subject_text().as_deref(), gc.follows.is_none()), (Some("report"), true));
}

#[test]
fn processes_that_hibernate_for_each_message_are_reported_and_explain_others() {
    let sick = busy().with(|n| n.gc = 0.5);
    let samples = [
        sample("chat:init/1", 12, false, "gen_server:wake_hib/6 proc_lib:wake_up/3"),
        sample("chat:init/1", 6, false, "erlang:hibernate/3"),
        sample("chat:init/1", 4, false, "chat:handle_cast/2 gen_server:try_dispatch/4"),
    ];
    let period = with(&sick, &samples);
    let hibernation = found(&period, "BT078").expect("hibernation");
    assert_eq!(
        (hibernation.level, hibernation.subject_text().as_deref()),
        (Level::Warning, Some("chat:init/1"))
    );
    let gc = found(&period, "BT011").expect("gc");
    assert_eq!(gc.follows.map(|of| of.code.0), Some("BT078"));
    // In this order: most of the samples show work; there is little GC; there are few samples.
    let works = [
        samples[1].clone(),
        sample("chat:init/1", 30, false, "chat:handle_cast/2 gen_server:try_dispatch/4"),
    ];
    let healthy = |period: &Period| matches!(outcome(period, "BT078"), Outcome::Healthy(_));
    assert!(
        healthy(&with(&sick, &works))
            && healthy(&with(&busy(), &samples))
            && healthy(&with(&sick, &samples[1..2]))
    );
    // The processes hibernated once, and have been working since.
    let worked = [sample("chat:init/1", 30, false, "lists:member/2 chat:loop/1 proc_lib:wake_up/3")];
    assert!(healthy(&with(&sick, &worked)));
    // The processes that hibernate make almost none of the garbage.
    let others = [samples[0].clone(), sample("report", 90, true, "report:run/1")];
    assert!(healthy(&with(&sick, &others)));
}

#[test]
fn replies_that_take_several_time_slices_to_copy_are_named() {
    let reply = "gen:reply/2 gen_server:handle_msg/3 proc_lib:init_p_do_apply/3";
    let interrupted = format!("erlang:bif_return_trap/2 {reply}");
    let samples = [
        sample("Elixir.Prices", 9, false, &interrupted),
        sample("Elixir.Prices", 2, false, "gen_server:loop/7"),
        sample("shop:request/1", 2, false, "shop:total/1 shop:request/1"),
    ];
    let code = found(&with(&busy(), &samples), "BT073").expect("a finding");
    assert!(words(&code).contains("copying replies to callers"), "{}", words(&code));
    assert!(code.remedies[0].change.contains("what the caller reads"), "{:?}", code.remedies);
    // The process has just replied: what it ran before is unknown.
    let done = [sample("Elixir.Prices", 9, false, reply), samples[1].clone(), samples[2].clone()];
    let code = found(&with(&busy(), &done), "BT073").expect("a finding");
    assert!(!words(&code).contains("copying"), "{}", words(&code));
}

#[test]
fn waits_inside_a_library_are_part_of_its_work() {
    // Short-lived processes do handshakes, and mostly wait for each other.
    let samples = [
        sample("ssl_gen_statem:init/1", 4, false, "gen_statem:loop_receive/3 tls_client_connection:init/1"),
        sample(
            "shop:request/1",
            3,
            false,
            "gen:do_call/4 gen_statem:call/3 ssl_gen_statem:call/2 prices:ask/1",
        ),
        sample(
            "shop:request/1",
            1,
            false,
            "proplists:get_bool/2 ssl:handle_options/5 ssl:connect/4 prices:ask/1",
        ),
        sample(
            "ssl_gen_statem:init/1",
            3,
            false,
            "unicode_util:cp/1 pubkey_cert:is_dir_name/3 ssl_handshake:certify/9",
        ),
        sample("file_server_2", 3, false, "prim_file:read_link_nif/1 file_server:handle_call/3"),
    ];
    let code = found(&with(&busy(), &samples), "BT073").expect("a finding");
    assert!(code.title.ends_with("are in TLS (ssl, public_key, crypto)"), "{}", code.title);
    assert!(code.detail.contains("called by prices:ask/1"), "{}", code.detail);
}
