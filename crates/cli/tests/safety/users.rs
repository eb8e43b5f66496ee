//! Others on the same node: other beamtunes, of the same and of another version, and other tools. Whoever comes or leaves
//! first, what the others use stays, and nothing stays that nobody uses.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::common::{Otp, Running, all_otps, beamtune, folder, otp, run, text, unique, wait_until};
use crate::figures::{count, tell};
use crate::node::{How, Node};
use crate::recordings::vm_samples;

/// A process of the node's own that calls the same function again and again.
const TRACED: &str = "register(safety_traced, spawn(fun() -> (fun Loop() -> lists:seq(1, 3), timer:sleep(10), Loop() end)() end))";

/// One who counts what is traced.
const TRACER: &str = "register(safety_tracer, spawn(fun() -> (fun Loop(N) -> receive {count, From} -> From ! {counted, N}, \
    Loop(N); _ -> Loop(N + 1) end end)(0) end))";
const TRACE_COMES: &str = "begin Count = fun() -> safety_tracer ! {count, self()}, receive {counted, N} -> N end end, \
    Before = Count(), \
    Grows = fun Grows(0) -> false; Grows(Left) -> timer:sleep(20), Count() > Before orelse Grows(Left - 1) end, Grows(500) end.";

/// Somebody on the node who does the same again and again, and counts.
fn busy(what: &str) -> String {
    format!(
        "begin ets:new(safety_rounds, [named_table, public]), ets:insert(safety_rounds, {{n, 0}}), \
         register(safety_busy, spawn(fun() -> (fun Loop() -> {what}, ets:update_counter(safety_rounds, n, 1), Loop() end)() end)) \
         end."
    )
}
const BUSY_GOES_ON: &str = "begin Count = fun() -> [{n, N}] = ets:lookup(safety_rounds, n), N end, Before = Count(), \
    Grows = fun Grows(0) -> false; Grows(Left) -> timer:sleep(20), Count() > Before orelse Grows(Left - 1) end, Grows(500) end.";
const BUSY_ENDS: &str = "begin R = monitor(process, safety_busy), exit(whereis(safety_busy), kill), \
    receive {'DOWN', R, _, _, _} -> ets:delete(safety_rounds) end end.";

/// Somebody else: how he comes, whether he has what he wants, and how he leaves.
struct Foreigner<'a> {
    name: &'a str,
    comes: Box<dyn FnMut(&mut Node) + 'a>,
    is_well: Box<dyn FnMut(&mut Node) -> bool + 'a>,
    leaves: Box<dyn FnMut(&mut Node) + 'a>,
    /// He may come after beamtune, too.
    may_come_later: bool,
}

impl<'a> Foreigner<'a> {
    /// One who is nothing but expressions on the node.
    fn of(name: &'a str, comes: String, is_well: &'a str, leaves: &'a str) -> Foreigner<'a> {
        let line = |text: &str| if text.ends_with('.') { text.to_owned() } else { format!("{text}.") };
        let (comes, leaves) = (line(&comes), line(leaves));
        let ask = |line: String| {
            move |node: &mut Node| {
                let answer = node.ask(&line);
                assert!(!answer.starts_with("{failed,"), "{line}: {answer}");
            }
        };
        Foreigner {
            name,
            comes: Box::new(ask(comes)),
            is_well: Box::new(move |node| node.ask(is_well) == "true"),
            leaves: Box::new(ask(leaves)),
            may_come_later: true,
        }
    }
}

/// A beamtune at work.
struct Recorder {
    running: Running,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Recorder {
    fn start(node: &Node) -> Recorder {
        Recorder::of_version(node, Path::new(beamtune().get_program()))
    }

    fn of_version(node: &Node, binary: &Path) -> Recorder {
        let folder = folder();
        let file = folder.path().join("beside.btr");
        let mut command = Command::new(binary);
        command.args(["record", &node.name, "--every", "200ms", "-o"]).arg(&file);
        let command = command.env("BEAMTUNE_COOKIE", &node.cookie).stderr(Stdio::null());
        let mut recorder = Recorder { running: Running::start(command), file, _folder: folder };
        recorder.goes_on();
        recorder
    }

    fn goes_on(&mut self) {
        let before = vm_samples(&self.file);
        wait_until("samples", || vm_samples(&self.file) >= before + 3);
    }

    fn leave(mut self) {
        self.running.signal("INT");
        assert_eq!(self.running.wait().code(), Some(0));
    }
}

fn beside(node: &mut Node, who: &mut Foreigner<'_>) {
    let of = node.otp.release;
    // What he loads and makes for the first time is not ours.
    (who.comes)(node);
    wait_until(who.name, || (who.is_well)(node));
    (who.leaves)(node);
    let before = node.settled_footprint();

    // beamtune leaves first.
    (who.comes)(node);
    let with_him = node.switches();
    let mut recorder = Recorder::start(node);
    assert!((who.is_well)(node), "OTP {of}: {} beside beamtune", who.name);
    recorder.goes_on();
    recorder.leave();
    assert_eq!(node.switches(), with_him, "OTP {of}: {} has what he had", who.name);
    assert!((who.is_well)(node), "OTP {of}: {} after beamtune", who.name);
    (who.leaves)(node);
    node.clean_again(&before, Instant::now());

    // He leaves first.
    (who.comes)(node);
    let mut recorder = Recorder::start(node);
    (who.leaves)(node);
    recorder.goes_on();
    recorder.leave();
    node.clean_again(&before, Instant::now());

    // He comes while beamtune is there.
    if who.may_come_later {
        let mut recorder = Recorder::start(node);
        (who.comes)(node);
        assert!((who.is_well)(node), "OTP {of}: {} comes beside beamtune", who.name);
        recorder.goes_on();
        recorder.leave();
        assert!((who.is_well)(node), "OTP {of}: {} stays", who.name);
        (who.leaves)(node);
        node.clean_again(&before, Instant::now());
    }
    node.assert_silent();
    tell("others on the node", who.name, of, "keeps what he has, and the node is as before");
}

/// In short runs on one release only, where the others would take long.
fn otps() -> Vec<Otp> {
    all_otps().into_iter().filter(|otp| count(true, [25, 29].contains(&otp.release))).collect()
}

#[test]
fn who_measures_or_watches_or_traces_keeps_what_he_has() {
    for otp in otps() {
        let mut node = Node::visited(&otp, &How::default());
        let mut foreigners = vec![
            Foreigner::of(
                "a user of scheduler_wall_time",
                "register(safety_swt, spawn(fun() -> erlang:system_flag(scheduler_wall_time, true), receive stop -> ok end end))".into(),
                "erlang:statistics(scheduler_wall_time) =/= undefined.",
                "begin R = monitor(process, safety_swt), safety_swt ! stop, receive {'DOWN', R, _, _, _} -> ok end end",
            ),
            Foreigner {
                // Known limit: who switches it on in one of our windows finds it off afterwards.
                may_come_later: false,
                ..Foreigner::of(
                    "a user of microstate_accounting",
                    "erlang:system_flag(microstate_accounting, true)".into(),
                    "begin Sum = fun() -> lists:sum([N || #{counters := C} <- erlang:statistics(microstate_accounting), \
                     N <- maps:values(C)]) end, B = Sum(), timer:sleep(100), Sum() > B end.",
                    "erlang:system_flag(microstate_accounting, false)",
                )
            },
            Foreigner::of(
                "an owner of the system_monitor",
                "begin register(safety_owner, spawn(fun() -> receive stop -> ok end end)), \
                 erlang:system_monitor(whereis(safety_owner), [{long_gc, 500}, busy_port]) end".into(),
                "erlang:system_monitor() =:= {whereis(safety_owner), [{long_gc, 500}, busy_port]} \
                 orelse erlang:system_monitor() =:= {whereis(safety_owner), [busy_port, {long_gc, 500}]}.",
                "begin R = monitor(process, safety_owner), safety_owner ! stop, receive {'DOWN', R, _, _, _} -> ok end end",
            ),
            Foreigner::of(
                "a tracer (dbg)",
                format!(
                    "begin {TRACED}, {TRACER}, \
                     dbg:tracer(process, {{fun(M, S) -> (catch safety_tracer ! M), S end, ok}}), \
                     dbg:p(whereis(safety_traced), [call]), dbg:tp(lists, seq, 2, []) end"
                ),
                TRACE_COMES,
                "begin case erlang:function_exported(dbg, stop_clear, 0) of true -> apply(dbg, stop_clear, []); \
                 false -> dbg:stop() end, \
                 [begin R = monitor(process, P), exit(whereis(P), kill), receive {'DOWN', R, _, _, _} -> ok end end \
                  || P <- [safety_traced, safety_tracer]] end",
            ),
        ];
        if otp.release >= 27 {
            foreigners.push(Foreigner::of(
                "a trace session",
                format!(
                    "begin {TRACED}, {TRACER}, S = trace:session_create(safety, whereis(safety_tracer), []), put(session, S), \
                     trace:process(S, whereis(safety_traced), true, [call]), trace:function(S, {{lists, seq, 2}}, true, [local]) end"
                ),
                TRACE_COMES,
                "begin trace:session_destroy(get(session)), erase(session), \
                 [begin R = monitor(process, P), exit(whereis(P), kill), receive {'DOWN', R, _, _, _} -> ok end end \
                  || P <- [safety_traced, safety_tracer]] end",
            ));
        }
        for foreigner in &mut foreigners {
            beside(&mut node, foreigner);
        }
    }
}

/// A folder of compiled modules, copied to where a release's own system sees it.
fn modules_for(otp: &Otp, ebin: &Path) -> (tempfile::TempDir, String) {
    let root = otp.root.clone().unwrap_or_else(|| PathBuf::from("/"));
    let folder = tempfile::tempdir_in(root.join("tmp")).expect("a folder");
    for file in std::fs::read_dir(ebin).expect("modules").flatten() {
        std::fs::copy(file.path(), folder.path().join(file.file_name())).expect("copied");
    }
    let seen = Path::new("/").join(folder.path().strip_prefix(&root).expect("below"));
    (folder, text(&seen))
}

/// The first folder that a pattern of the shell names.
fn found(pattern: &str) -> Option<PathBuf> {
    let listed = run(Command::new("sh").args(["-c", &format!("ls -d {pattern} | head -1")])).stdout;
    Some(PathBuf::from(listed.trim())).filter(|path| path.is_dir())
}

#[test]
fn recon_works_beside_beamtune() {
    let Some(ebin) = found("/usr/lib/rabbitmq/lib/*/plugins/recon-*/ebin") else {
        eprintln!("skipped, because there is no recon (RabbitMQ brings it: scripts/install.sh test)");
        return;
    };
    for otp in otps() {
        // Debian has compiled it with OTP 25: 23 does not load that, and 29 only a part of it.
        if ![25, 27].contains(&otp.release) {
            eprintln!("skipped, because OTP {} does not load this recon", otp.release);
            continue;
        }
        let mut node = Node::visited(&otp, &How::default());
        let (_folder, path) = modules_for(&otp, &ebin);
        node.ask(&format!("code:add_patha({path:?})."));
        let calls = "recon:scheduler_usage(100), recon:proc_count(memory, 5), recon:proc_window(reductions, 5, 50), \
            recon_alloc:memory(used), recon:bin_leak(3)";
        let mut foreigner = Foreigner::of("recon", busy(calls), BUSY_GOES_ON, BUSY_ENDS);
        beside(&mut node, &mut foreigner);
    }
}

#[test]
fn the_dashboard_of_phoenix_works_beside_beamtune() {
    let Some(source) = std::env::var_os("LIVE_DASHBOARD") else {
        eprintln!("skipped, because LIVE_DASHBOARD names no system_info.ex of phoenix_live_dashboard");
        return;
    };
    for otp in otps() {
        let root = otp.root.clone().unwrap_or_else(|| PathBuf::from("/"));
        let folder = tempfile::tempdir_in(root.join("tmp")).expect("a folder");
        let seen = text(&Path::new("/").join(folder.path().strip_prefix(&root).expect("below")));
        std::fs::copy(&source, folder.path().join("system_info.ex")).expect("copied");
        let said = run(otp.command("elixirc").args(["-o", &seen, &format!("{seen}/system_info.ex")]));
        if said.status != Some(0) {
            eprintln!(
                "skipped, because the Elixir of OTP {} does not compile it: {}",
                otp.release, said.stderr
            );
            tell("others on the node", "Phoenix LiveDashboard", otp.release, "not tried: does not compile");
            continue;
        }
        let elixir = run(otp.command("elixir").args(["-e", "IO.puts(:code.lib_dir(:elixir))"])).stdout;
        let mut node = Node::visited(&otp, &How::default());
        node.ask(&format!("code:add_pathsa([{seen:?}, {:?}]).", format!("{}/ebin", elixir.trim())));
        node.ask("application:ensure_all_started(elixir).");
        let module = "'Elixir.Phoenix.LiveDashboard.SystemInfo'";
        let calls = format!(
            "{module}:usage_callback(), {module}:processes_callback(<<>>, memory, desc, 50, #{{}}), \
             {module}:ets_callback(<<>>, memory, desc, 50), {module}:ports_callback(<<>>, input, desc, 50), \
             {module}:memory_allocators_callback(#{{}}), timer:sleep(50)"
        );
        let mut foreigner = Foreigner::of("Phoenix LiveDashboard", busy(&calls), BUSY_GOES_ON, BUSY_ENDS);
        beside(&mut node, &mut foreigner);
    }
}

/// Where etop's modules are: `None` if it cannot be had. Debian's package is unpacked rather than installed: it wants 270 MB
/// of a graphical system that etop does not use.
fn observer(folder: &Path) -> Option<PathBuf> {
    let eval = "io:format(\"~s\", [code:which(etop)]), halt().";
    let which = run(Command::new("erl").args(["-noshell", "-eval", eval])).stdout;
    if which != "non_existing" {
        return Path::new(&which).parent().map(Path::to_owned);
    }
    // `make test` fetches nothing while it runs.
    if !count(true, false) {
        return None;
    }
    let get = "apt-get download -q erlang-observer && dpkg-deb -x erlang-observer_*.deb .";
    run(Command::new("sh").args(["-c", get]).current_dir(folder));
    found(&format!("{}/usr/lib/erlang/lib/observer-*/ebin", folder.display()))
}

#[test]
fn etop_works_beside_beamtune() {
    let folder = folder();
    let (Some(_), Some(observer)) = (otp(25), observer(folder.path())) else {
        eprintln!("skipped, because there is no etop here (make safety fetches it)");
        return;
    };
    for otp in otps() {
        let mut node = Node::visited(&otp, &How::default());
        let watching = std::cell::RefCell::new(None::<Running>);
        let comes = |node: &mut Node| {
            let name = format!("{}@127.0.0.1", unique("etop"));
            let options = "{output, text}, {interval, 1}, {lines, 5}, {tracing, off}";
            let eval = format!("spawn(fun() -> etop:start([{{node, '{}'}}, {options}]) end).", node.name);
            let mut command = Command::new("erl");
            command.args(["-noinput", "-hidden", "-name", &name, "-setcookie", &node.cookie, "-pa"]);
            command.arg(&observer).args(["-eval", &eval]);
            let mut etop = Running::start(&mut command);
            etop.expect_line(" Load:");
            watching.replace(Some(etop));
        };
        let is_well = |_: &mut Node| {
            watching.borrow_mut().as_mut().expect("etop runs").expect_line(" Load:");
            true
        };
        let leaves = |node: &mut Node| {
            watching.replace(None);
            wait_until("etop is gone", || node.counts().connections == 0 || node.has_agent());
        };
        let mut foreigner = Foreigner {
            name: "etop (observer_backend)",
            comes: Box::new(comes),
            is_well: Box::new(is_well),
            leaves: Box::new(leaves),
            may_come_later: true,
        };
        beside(&mut node, &mut foreigner);
    }
}

#[test]
fn two_beamtunes_do_not_disturb_each_other_whichever_leaves_first() {
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
        let mut node = Node::visited(&otp, &How::default());
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
                first.goes_on();
                let (leaves, mut stays) = if turn % 2 == 0 { (first, second) } else { (second, first) };
                if turn % 4 < 2 {
                    leaves.leave();
                } else {
                    drop(leaves);
                }
                stays.goes_on();
                wait_until("one agent is left", || node.ask(agents) == "1");
                assert_eq!(node.ask("erlang:statistics(scheduler_wall_time) =/= undefined."), "true");
                stays.leave();
                node.clean_again(&before, Instant::now());
            }
            tell(
                "others on the node",
                &format!("a second beamtune {what}, first or second leaving first, by Ctrl-C or killed"),
                otp.release,
                format!("{} times, the other goes on, the node is as before", 2 * turns),
            );
        }
        node.assert_silent();
    }
}
