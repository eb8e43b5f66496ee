//! Other tools on the same node: other beamtune processes, of the same and of another version, and third-party tools. No matter which one
//! ends first, the settings that others use are kept, and no unused setting remains.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::common::{Otp, Process, all_otps, beamtune, folder, otp, run, text, unique, wait_until};
use crate::figures::{add_figure, count};
use crate::node::{Node, NodeOptions};
use crate::recordings::vm_samples;

/// A process that calls the same function in a loop.
const TRACED: &str = "register(safety_traced, spawn(fun() -> (fun Loop() -> lists:seq(1, 3), timer:sleep(10), Loop() end)() end))";

/// A process that counts trace messages.
const TRACER: &str = "register(safety_tracer, spawn(fun() -> (fun Loop(N) -> receive {count, From} -> From ! {counted, N}, \
    Loop(N); _ -> Loop(N + 1) end end)(0) end))";
const TRACE_ARRIVES: &str = "begin Count = fun() -> safety_tracer ! {count, self()}, receive {counted, N} -> N end end, \
    Before = Count(), \
    Grows = fun Grows(0) -> false; Grows(Left) -> timer:sleep(20), Count() > Before orelse Grows(Left - 1) end, Grows(500) end.";

/// Returns code that starts a process, which evaluates `what` in a loop and counts the rounds.
fn busy(what: &str) -> String {
    format!(
        "begin ets:new(safety_rounds, [named_table, public]), ets:insert(safety_rounds, {{n, 0}}), \
         register(safety_busy, spawn(fun() -> (fun Loop() -> {what}, ets:update_counter(safety_rounds, n, 1), Loop() end)() end)) \
         end."
    )
}
const BUSY_CONTINUES: &str = "begin Count = fun() -> [{n, N}] = ets:lookup(safety_rounds, n), N end, Before = Count(), \
    Grows = fun Grows(0) -> false; Grows(Left) -> timer:sleep(20), Count() > Before orelse Grows(Left - 1) end, Grows(500) end.";
const END_BUSY: &str = "begin R = monitor(process, safety_busy), exit(whereis(safety_busy), kill), \
    receive {'DOWN', R, _, _, _} -> ets:delete(safety_rounds) end end.";

/// Another tool: how it starts, whether it works, and how it ends.
struct OtherTool<'a> {
    name: &'a str,
    start: Box<dyn FnMut(&mut Node) + 'a>,
    works: Box<dyn FnMut(&mut Node) -> bool + 'a>,
    end: Box<dyn FnMut(&mut Node) + 'a>,
    /// True if the tool may also start after beamtune.
    may_start_later: bool,
}

impl<'a> OtherTool<'a> {
    /// Creates a tool that consists of expressions on the node.
    fn new(name: &'a str, start: String, works: &'a str, end: &'a str) -> OtherTool<'a> {
        let line = |text: &str| if text.ends_with('.') { text.to_owned() } else { format!("{text}.") };
        let (start, end) = (line(&start), line(end));
        let ask = |line: String| {
            move |node: &mut Node| {
                let answer = node.ask(&line);
                assert!(!answer.starts_with("{failed,"), "{line}: {answer}");
            }
        };
        OtherTool {
            name,
            start: Box::new(ask(start)),
            works: Box::new(move |node| node.ask(works) == "true"),
            end: Box::new(ask(end)),
            may_start_later: true,
        }
    }
}

/// A beamtune process that records a node.
struct Recorder {
    process: Process,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Recorder {
    fn start(node: &Node) -> Recorder {
        Recorder::of_version(node, Path::new(beamtune().get_program()))
    }

    fn of_version(node: &Node, binary: &Path) -> Recorder {
        let folder = folder();
        let file = folder.path().join("other.btr");
        let mut command = Command::new(binary);
        command.args(["record", &node.name, "--every", "200ms", "-o"]).arg(&file);
        let command = command.env("BEAMTUNE_COOKIE", &node.cookie).stderr(Stdio::null());
        let mut recorder = Recorder { process: Process::start(command), file, _folder: folder };
        recorder.expect_samples();
        recorder
    }

    fn expect_samples(&mut self) {
        let before = vm_samples(&self.file);
        wait_until("samples", || vm_samples(&self.file) >= before + 3);
    }

    fn interrupt(mut self) {
        self.process.signal("INT");
        assert_eq!(self.process.wait().code(), Some(0));
    }
}

fn check_both_work(node: &mut Node, tool: &mut OtherTool<'_>) {
    let of = node.otp.release;
    // Start the tool once before, since what it loads and creates the first time is not due to beamtune.
    (tool.start)(node);
    wait_until(tool.name, || (tool.works)(node));
    (tool.end)(node);
    let before = node.settled_footprint();

    // beamtune ends first.
    (tool.start)(node);
    let with_tool = node.switches();
    let mut recorder = Recorder::start(node);
    assert!((tool.works)(node), "OTP {of}: {} together with beamtune", tool.name);
    recorder.expect_samples();
    recorder.interrupt();
    assert_eq!(node.switches(), with_tool, "OTP {of}: {} keeps its settings", tool.name);
    assert!((tool.works)(node), "OTP {of}: {} after beamtune", tool.name);
    (tool.end)(node);
    node.clean_again(&before, Instant::now());

    // The tool ends first.
    (tool.start)(node);
    let mut recorder = Recorder::start(node);
    (tool.end)(node);
    recorder.expect_samples();
    recorder.interrupt();
    node.clean_again(&before, Instant::now());

    // The tool starts while beamtune is attached.
    if tool.may_start_later {
        let mut recorder = Recorder::start(node);
        (tool.start)(node);
        assert!((tool.works)(node), "OTP {of}: {} started after beamtune", tool.name);
        recorder.expect_samples();
        recorder.interrupt();
        assert!((tool.works)(node), "OTP {of}: {} after beamtune", tool.name);
        (tool.end)(node);
        node.clean_again(&before, Instant::now());
    }
    node.assert_silent();
    add_figure("other tools on the node", tool.name, of, "still works; the node is as before");
}

/// Returns the releases to test; in short runs only two.
fn otps() -> Vec<Otp> {
    all_otps().into_iter().filter(|otp| count(true, [25, 29].contains(&otp.release))).collect()
}

#[test]
fn tools_that_measure_or_trace_keep_working() {
    for otp in otps() {
        let mut node = Node::visited(&otp, &NodeOptions::default());
        let mut tools = vec![
            OtherTool::new(
                "a user of scheduler_wall_time",
                "register(safety_swt, spawn(fun() -> erlang:system_flag(scheduler_wall_time, true), receive stop -> ok end end))".into(),
                "erlang:statistics(scheduler_wall_time) =/= undefined.",
                "begin R = monitor(process, safety_swt), safety_swt ! stop, receive {'DOWN', R, _, _, _} -> ok end end",
            ),
            OtherTool {
                // Known limitation: if a tool enables microstate accounting during one of the agent's windows, it is disabled afterwards.
                may_start_later: false,
                ..OtherTool::new(
                    "a user of microstate_accounting",
                    "erlang:system_flag(microstate_accounting, true)".into(),
                    "begin Sum = fun() -> lists:sum([N || #{counters := C} <- erlang:statistics(microstate_accounting), \
                     N <- maps:values(C)]) end, B = Sum(), timer:sleep(100), Sum() > B end.",
                    "erlang:system_flag(microstate_accounting, false)",
                )
            },
            OtherTool::new(
                "a user of system_monitor",
                "begin register(safety_owner, spawn(fun() -> receive stop -> ok end end)), \
                 erlang:system_monitor(whereis(safety_owner), [{long_gc, 500}, busy_port]) end".into(),
                "erlang:system_monitor() =:= {whereis(safety_owner), [{long_gc, 500}, busy_port]} \
                 orelse erlang:system_monitor() =:= {whereis(safety_owner), [busy_port, {long_gc, 500}]}.",
                "begin R = monitor(process, safety_owner), safety_owner ! stop, receive {'DOWN', R, _, _, _} -> ok end end",
            ),
            OtherTool::new(
                "a tracer (dbg)",
                format!(
                    "begin {TRACED}, {TRACER}, \
                     dbg:tracer(process, {{fun(M, S) -> (catch safety_tracer ! M), S end, ok}}), \
                     dbg:p(whereis(safety_traced), [call]), dbg:tp(lists, seq, 2, []) end"
                ),
                TRACE_ARRIVES,
                "begin case erlang:function_exported(dbg, stop_clear, 0) of true -> apply(dbg, stop_clear, []); \
                 false -> dbg:stop() end, \
                 [begin R = monitor(process, P), exit(whereis(P), kill), receive {'DOWN', R, _, _, _} -> ok end end \
                  || P <- [safety_traced, safety_tracer]] end",
            ),
        ];
        if otp.release >= 27 {
            tools.push(OtherTool::new(
                "a trace session",
                format!(
                    "begin {TRACED}, {TRACER}, S = trace:session_create(safety, whereis(safety_tracer), []), put(session, S), \
                     trace:process(S, whereis(safety_traced), true, [call]), trace:function(S, {{lists, seq, 2}}, true, [local]) end"
                ),
                TRACE_ARRIVES,
                "begin trace:session_destroy(get(session)), erase(session), \
                 [begin R = monitor(process, P), exit(whereis(P), kill), receive {'DOWN', R, _, _, _} -> ok end end \
                  || P <- [safety_traced, safety_tracer]] end",
            ));
        }
        for tool in &mut tools {
            check_both_work(&mut node, tool);
        }
    }
}

/// Copies a folder of compiled modules to a place where a release can read it. Returns the folder, and its path for the release.
fn modules_for(otp: &Otp, ebin: &Path) -> (tempfile::TempDir, String) {
    let root = otp.root.clone().unwrap_or_else(|| PathBuf::from("/"));
    let folder = tempfile::tempdir_in(root.join("tmp")).expect("a folder");
    for file in std::fs::read_dir(ebin).expect("modules").flatten() {
        std::fs::copy(file.path(), folder.path().join(file.file_name())).expect("copied");
    }
    let seen = Path::new("/").join(folder.path().strip_prefix(&root).expect("below"));
    (folder, text(&seen))
}

/// Returns the first folder that matches a shell pattern.
fn found(pattern: &str) -> Option<PathBuf> {
    let listed = run(Command::new("sh").args(["-c", &format!("ls -d {pattern} | head -1")])).stdout;
    Some(PathBuf::from(listed.trim())).filter(|path| path.is_dir())
}

#[test]
fn recon_works_together_with_beamtune() {
    let Some(ebin) = found("/usr/lib/rabbitmq/lib/*/plugins/recon-*/ebin") else {
        eprintln!("skipped, because there is no recon (RabbitMQ brings it: scripts/install.sh test)");
        return;
    };
    for otp in otps() {
        // Debian compiled recon with OTP 25. OTP 23 cannot load it, and OTP 29 can load only a part.
        if ![25, 27].contains(&otp.release) {
            eprintln!("skipped, because OTP {} does not load this recon", otp.release);
            continue;
        }
        let mut node = Node::visited(&otp, &NodeOptions::default());
        let (_folder, path) = modules_for(&otp, &ebin);
        node.ask(&format!("code:add_patha({path:?})."));
        let calls = "recon:scheduler_usage(100), recon:proc_count(memory, 5), recon:proc_window(reductions, 5, 50), \
            recon_alloc:memory(used), recon:bin_leak(3)";
        let mut tool = OtherTool::new("recon", busy(calls), BUSY_CONTINUES, END_BUSY);
        check_both_work(&mut node, &mut tool);
    }
}

#[test]
fn phoenix_live_dashboard_works_together_with_beamtune() {
    let Some(source) = std::env::var_os("LIVE_DASHBOARD") else {
        eprintln!("skipped, because LIVE_DASHBOARD names no system_info.ex of phoenix_live_dashboard");
        return;
    };
    for otp in otps() {
        let root = otp.root.clone().unwrap_or_else(|| PathBuf::from("/"));
        let folder = tempfile::tempdir_in(root.join("tmp")).expect("a folder");
        let seen = text(&Path::new("/").join(folder.path().strip_prefix(&root).expect("below")));
        std::fs::copy(&source, folder.path().join("system_info.ex")).expect("copied");
        let output = run(otp.command("elixirc").args(["-o", &seen, &format!("{seen}/system_info.ex")]));
        if output.status != Some(0) {
            eprintln!(
                "skipped, because the Elixir of OTP {} does not compile it: {}",
                otp.release, output.stderr
            );
            add_figure(
                "other tools on the node",
                "Phoenix LiveDashboard",
                otp.release,
                "not tried: does not compile",
            );
            continue;
        }
        let elixir = run(otp.command("elixir").args(["-e", "IO.puts(:code.lib_dir(:elixir))"])).stdout;
        let mut node = Node::visited(&otp, &NodeOptions::default());
        node.ask(&format!("code:add_pathsa([{seen:?}, {:?}]).", format!("{}/ebin", elixir.trim())));
        node.ask("application:ensure_all_started(elixir).");
        let module = "'Elixir.Phoenix.LiveDashboard.SystemInfo'";
        let calls = format!(
            "{module}:usage_callback(), {module}:processes_callback(<<>>, memory, desc, 50, #{{}}), \
             {module}:ets_callback(<<>>, memory, desc, 50), {module}:ports_callback(<<>>, input, desc, 50), \
             {module}:memory_allocators_callback(#{{}}), timer:sleep(50)"
        );
        let mut tool = OtherTool::new("Phoenix LiveDashboard", busy(&calls), BUSY_CONTINUES, END_BUSY);
        check_both_work(&mut node, &mut tool);
    }
}

/// Returns the folder of etop's modules; `None` if it is not available. Debian's package is unpacked instead of installed, since it
/// depends on 270 MB of graphics libraries that etop does not use.
fn observer(folder: &Path) -> Option<PathBuf> {
    let eval = "io:format(\"~s\", [code:which(etop)]), halt().";
    let which = run(Command::new("erl").args(["-noshell", "-eval", eval])).stdout;
    if which != "non_existing" {
        return Path::new(&which).parent().map(Path::to_owned);
    }
    // `make test` downloads nothing.
    if !count(true, false) {
        return None;
    }
    let get = "apt-get download -q erlang-observer && dpkg-deb -x erlang-observer_*.deb .";
    run(Command::new("sh").args(["-c", get]).current_dir(folder));
    found(&format!("{}/usr/lib/erlang/lib/observer-*/ebin", folder.display()))
}

#[test]
fn etop_works_together_with_beamtune() {
    let folder = folder();
    let (Some(_), Some(observer)) = (otp(25), observer(folder.path())) else {
        eprintln!("skipped, because there is no etop here (make safety fetches it)");
        return;
    };
    for otp in otps() {
        let mut node = Node::visited(&otp, &NodeOptions::default());
        let watching = std::cell::RefCell::new(None::<Process>);
        let start = |node: &mut Node| {
            let name = format!("{}@127.0.0.1", unique("etop"));
            let options = "{output, text}, {interval, 1}, {lines, 5}, {tracing, off}";
            let eval = format!("spawn(fun() -> etop:start([{{node, '{}'}}, {options}]) end).", node.name);
            let mut command = Command::new("erl");
            command.args(["-noinput", "-hidden", "-name", &name, "-setcookie", &node.cookie, "-pa"]);
            command.arg(&observer).args(["-eval", &eval]);
            let mut etop = Process::start(&mut command);
            etop.expect_line(" Load:");
            watching.replace(Some(etop));
        };
        let works = |_: &mut Node| {
            watching.borrow_mut().as_mut().expect("etop runs").expect_line(" Load:");
            true
        };
        let end = |node: &mut Node| {
            watching.replace(None);
            wait_until("etop has ended", || node.counts().connections == 0 || node.has_agent());
        };
        let mut tool = OtherTool {
            name: "etop (observer_backend)",
            start: Box::new(start),
            works: Box::new(works),
            end: Box::new(end),
            may_start_later: true,
        };
        check_both_work(&mut node, &mut tool);
    }
}

#[test]
fn two_beamtune_processes_do_not_disturb_each_other() {
    let folder = folder();
    let other = folder.path().join("beamtune-other");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = run(Command::new("escript")
        .arg(here.join("tests/safety/other_version.erl"))
        .arg(beamtune().get_program())
        .arg(here.join("../../agent/prebuilt"))
        .arg(&other));
    assert_eq!(made.status, Some(0), "{}{}", made.stdout, made.stderr);
    let this = PathBuf::from(beamtune().get_program());
    for otp in otps() {
        let mut node = Node::visited(&otp, &NodeOptions::default());
        let agents =
            "length([M || M <- erlang:loaded(), lists:prefix(\"beamtune_agent\", atom_to_list(M))]).";
        let before = node.settled_footprint();
        let turns = count(4, 1);
        for (what, second, loaded) in
            [("of the same version", &this, "1"), ("of another version", &other, "2")]
        {
            for turn in 0..2 * turns {
                let mut first = Recorder::start(&node);
                let second = Recorder::of_version(&node, second);
                assert_eq!(node.ask(agents), loaded, "OTP {}: two {what}", otp.release);
                first.expect_samples();
                let (leaving, mut staying) = if turn % 2 == 0 { (first, second) } else { (second, first) };
                if turn % 4 < 2 {
                    leaving.interrupt();
                } else {
                    drop(leaving);
                }
                staying.expect_samples();
                wait_until("one agent is left", || node.ask(agents) == "1");
                assert_eq!(node.ask("erlang:statistics(scheduler_wall_time) =/= undefined."), "true");
                staying.interrupt();
                node.clean_again(&before, Instant::now());
            }
            add_figure(
                "other tools on the node",
                &format!("a second beamtune {what}; either one leaves first, by Ctrl-C or SIGKILL"),
                otp.release,
                format!("{} times: the other continues, the node is as before", 2 * turns),
            );
        }
        node.assert_silent();
    }
}
