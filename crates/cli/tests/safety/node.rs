//! A node that evaluates expressions from its standard input, since an additional connection would change the counts. Also the state
//! that must be the same before and after beamtune is attached.

use std::io::Write;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use beamtune_attach::agent::{Item, SessionOptions};
use beamtune_attach::cookie::{Cookie, FoundCookie};
use beamtune_attach::locate::Route;
use beamtune_attach::session::Session;
use beamtune_attach::source::Access;
use beamtune_attach::{AttachError, Network, Settings};

use crate::common::{Otp, Process, TIMEOUT, beamtune, unique};

/// Evaluates each input line and prints `= VALUE`. The node ends when its input closes, and so at the end of the test.
const ANSWER: &str = r#"
    spawn(fun() ->
        (fun Loop() ->
            case io:get_line('') of
                eof -> halt();
                Line ->
                    {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Line)),
                    {ok, Forms} = erl_parse:parse_exprs(Tokens),
                    Answer = try element(2, erl_eval:exprs(Forms, [])) catch C:R -> {failed, C, R} end,
                    io:format("= ~0p~n", [Answer]),
                    Loop()
            end
        end)()
    end), io:put_chars("ready\n")."#;

/// Expression for the counts of everything that may grow. Memory is `erlang:memory(total)` after a garbage collection of all processes.
const COUNTS: &str = "begin [erlang:garbage_collect(P) || P <- processes()], \
    {erlang:system_info(atom_count), erlang:system_info(process_count), erlang:system_info(port_count), \
     erlang:system_info(ets_count), length(registered()), length(erlang:loaded()), length(code:all_loaded()), \
     length([M || M <- erlang:loaded(), erlang:check_old_code(M)]), length(nodes(connected)), \
     erlang:memory(total)} end.";

/// Expression for the state of everything that can be switched on. Whether microstate accounting is on can be read only by switching it,
/// which would change it. But its counters grow only while it is on.
const SWITCHES: &str = "begin \
    Sum = fun() -> lists:sum([N || #{counters := C} <- erlang:statistics(microstate_accounting), N <- maps:values(C)]) end, \
    Before = Sum(), receive after 2 -> ok end, \
    Traced = [{P, F} || P <- [new | processes()], {flags, [_ | _] = F} <- [erlang:trace_info(P, flags)]], \
    Sessions = case erlang:function_exported(trace, session_info, 1) of \
        true -> apply(trace, session_info, [all]); false -> none end, \
    #{accounting => Sum() > Before, wall_time => erlang:statistics(scheduler_wall_time) =/= undefined, \
      monitor => erlang:system_monitor(), traced => Traced, sessions => Sessions} end.";

/// A state that does not change for this long is settled.
const SETTLE_TIME: Duration = Duration::from_millis(50);

/// A node under test.
pub struct Node {
    pub process: Process,
    input: ChildStdin,
    pub name: String,
    pub cookie: String,
    pub otp: Otp,
    pub epmd_port: u16,
}

/// Options of a node.
#[derive(Default, Clone)]
pub struct NodeOptions<'a> {
    /// Full name; if empty, a unique one on the loopback interface.
    pub name: String,
    /// Cookie; if empty, a unique one.
    pub cookie: String,
    /// Additional arguments of `erl`.
    pub args: &'a [&'a str],
    /// Prefix of the command: `ip netns exec NAME`.
    pub prefix: &'a [&'a str],
    /// Port of the EPMD to use instead of the default one.
    pub epmd_port: Option<u16>,
}

/// A node's counts of everything that may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub atoms: i64,
    pub processes: i64,
    pub ports: i64,
    pub tables: i64,
    pub registered: i64,
    /// Number of modules according to the VM, including those that the code server does not know.
    pub modules: i64,
    /// Number of modules according to `code:all_loaded/0`.
    pub known_modules: i64,
    pub old_code: i64,
    pub connections: i64,
    pub memory_bytes: i64,
}

impl Counts {
    /// Removes the counts that differ by design: atoms (beamtune's names) and memory.
    pub fn exact(self) -> Counts {
        Counts { atoms: 0, memory_bytes: 0, ..self }
    }
}

impl Node {
    pub fn start(otp: &Otp) -> Node {
        Node::start_with(otp, &NodeOptions::default())
    }

    pub fn start_with(otp: &Otp, options: &NodeOptions<'_>) -> Node {
        let or = |given: &String, other: String| if given.is_empty() { other } else { given.clone() };
        let name = or(&options.name, format!("{}@127.0.0.1", unique("safe")));
        let cookie = or(&options.cookie, unique("cookie"));
        let erl = otp.command("erl");
        // The VM's messages on standard error and its log go to the same pipe.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$@\" 2>&1", "sh"])
            .args(options.prefix)
            .arg(erl.get_program())
            .args(erl.get_args());
        command.args(options.args).args(["-name", &name, "-setcookie", &cookie, "-noshell", "-eval", ANSWER]);
        if let Some(port) = options.epmd_port {
            command.env("ERL_EPMD_PORT", port.to_string()).args(["-start_epmd", "false"]);
        }
        let mut process = Process::start_with_stdin(command.stdin(Stdio::piped()));
        let input = process.child.stdin.take().expect("a pipe");
        process.expect_line("ready");
        let epmd_port = options.epmd_port.unwrap_or(4369);
        let mut node = Node { process, input, name, cookie, otp: otp.clone(), epmd_port };
        // The first calls load modules and create atoms, which remain.
        node.ask("code:ensure_loaded(trace).");
        for _ in 0..2 {
            node.counts();
            node.switches();
        }
        node
    }

    /// Starts a node, and attaches to it once, which loads OTP modules.
    pub fn visited(otp: &Otp, options: &NodeOptions<'_>) -> Node {
        let mut node = Node::start_with(otp, options);
        visit(&node.access()).expect("attached");
        node.settled_footprint();
        node
    }

    pub fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{}", line.replace('\n', " ")).expect("the node reads");
        self.process.expect_line("= ")
    }

    pub fn counts(&mut self) -> Counts {
        let answer = self.ask(COUNTS);
        let mut numbers =
            answer.trim_matches(['{', '}']).split(',').map(|number| number.parse().expect("a number"));
        let mut next = || numbers.next().unwrap_or_else(|| panic!("{answer}"));
        // The fields are evaluated in the order in which they are written, which is that of COUNTS.
        Counts {
            atoms: next(),
            processes: next(),
            ports: next(),
            tables: next(),
            registered: next(),
            modules: next(),
            known_modules: next(),
            old_code: next(),
            connections: next(),
            memory_bytes: next(),
        }
    }

    /// Returns the atoms created since the node had `count` of them, by their index in the atom table (external tag 75). The expression
    /// avoids bit syntax, since the node would load a module with additional atoms to evaluate it.
    pub fn atoms_since(&mut self, count: i64) -> Vec<String> {
        let answer = self.ask(&format!(
            "[binary_to_term(list_to_binary([131, 75, N bsr 16, (N bsr 8) band 255, N band 255])) \
              || N <- lists:seq({count}, erlang:system_info(atom_count) - 1)]."
        ));
        let words = answer.trim_matches(['[', ']']).split(',').filter(|word| !word.is_empty());
        words.map(|word| word.trim_matches('\'').to_owned()).collect()
    }

    pub fn switches(&mut self) -> String {
        self.ask(SWITCHES)
    }

    /// True if an agent of any version is loaded.
    pub fn has_agent(&mut self) -> bool {
        let ours = "[M || M <- erlang:loaded() ++ registered(), lists:prefix(\"beamtune_agent\", atom_to_list(M))] =/= [].";
        self.ask(ours) == "true"
    }

    /// Returns the state that must be the same before and after.
    pub fn footprint(&mut self) -> (Counts, String) {
        (self.counts().exact(), self.switches())
    }

    /// Returns the footprint after the last client has disconnected. The process of a connection ends slightly after the connection.
    #[track_caller]
    pub fn settled_footprint(&mut self) -> (Counts, String) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let before = self.footprint();
            std::thread::sleep(SETTLE_TIME);
            if before.0.connections == 0 && before == self.footprint() {
                return before;
            }
            assert!(Instant::now() < deadline, "{}: {before:#?} does not settle", self.name);
        }
    }

    /// Waits until the footprint is as before, and the agent is gone. Returns the time elapsed since `since`.
    #[track_caller]
    pub fn clean_again(&mut self, before: &(Counts, String), since: Instant) -> Duration {
        loop {
            let now = self.footprint();
            if now == *before && !self.has_agent() {
                return since.elapsed();
            }
            assert!(since.elapsed() < 2 * TIMEOUT, "{}: {now:#?}, not {before:#?}", self.name);
        }
    }

    /// Returns the lines that the node has printed on its own.
    pub fn log(&mut self) -> Vec<String> {
        self.ask("ok.");
        self.process.seen.iter().filter(|line| !line.starts_with("= ") && *line != "ready").cloned().collect()
    }

    #[track_caller]
    pub fn assert_silent(&mut self) {
        assert_eq!(self.log(), [""; 0], "OTP {}", self.otp.release);
    }

    /// Returns the connection parameters of a client.
    pub fn access(&self) -> Access {
        Access {
            route: Route {
                target: self.name.parse().expect("a target"),
                epmd_port: self.epmd_port,
                network: Network::Own,
            },
            finder: None,
            cookie: FoundCookie {
                cookie: Cookie::new(&self.cookie, "the test").expect("a cookie"),
                origin: "the test".to_owned(),
            },
            tls: None,
            settings: Settings::default(),
            session_options: SessionOptions::default(),
        }
    }

    /// Returns a beamtune command with this subcommand and this node as target.
    pub fn beamtune(&self, subcommand: &str) -> Command {
        let mut command = beamtune();
        command.args([subcommand, &self.name]).env("BEAMTUNE_COOKIE", &self.cookie);
        if self.epmd_port != 4369 {
            command.env("ERL_EPMD_PORT", self.epmd_port.to_string());
        }
        command
    }
}

pub fn attach(access: &Access) -> Result<Session, AttachError> {
    Session::start(access.connect()?, access.session_options)
}

/// Attaches, takes one sample, and detaches.
pub fn visit(access: &Access) -> Result<(), AttachError> {
    let mut session = attach(access)?;
    let deadline = Instant::now() + TIMEOUT;
    let items = ["facts", "procs", "events"].map(|name| Item::named(name).expect("an item"));
    session.request(1, &items, &[])?;
    session.collect(1, deadline)?;
    session.leave(deadline)
}

/// Returns the name of an error's variant.
pub fn kind(error: &AttachError) -> String {
    let text = format!("{error:?}");
    text.split([' ', '{', '(']).next().unwrap_or_default().to_owned()
}
