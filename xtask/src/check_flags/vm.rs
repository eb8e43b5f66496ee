//! VMs of the releases that are installed, started for one answer each.

use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use beamtune_flags::{Machine, OtpVersion};
use tempfile::TempDir;

use super::cases::Given;
use crate::repository;

/// A start takes tenths of a second, with a thousand threads some seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// What has not started by then, of cases that should not, hangs.
const FATAL_PATIENCE: Duration = Duration::from_secs(8);
/// Address space of cases that should not start, in bytes: a VM without flags needs 3 GB, and what grows without
/// end must not take the machine along.
const FATAL_BYTES: u64 = 8 << 30;
/// Between two looks at a VM.
const LOOK_PAUSE: Duration = Duration::from_millis(3);

/// Begins a line with a value in effect.
const VALUE: &str = "beamtune-value ";
/// Begins the value of an expression that failed.
pub const NO_VALUE: &str = "no value: ";
/// Begins a line with one of the emulator's arguments.
const ARG: &str = "beamtune-arg ";
/// The last line of a VM that has started.
const BOOTED: &str = "beamtune-booted";

/// What VMs print that ended otherwise than by refusing their arguments.
const DEATHS: [&str; 5] = [
    "init terminating",
    "Runtime terminating",
    "Kernel pid terminated",
    "Cannot allocate",
    "no more index entries",
];
/// What launcher and emulator print when they refuse an argument.
const REFUSALS: [&str; 5] =
    ["Usage:", "Invalid emulator type", "not supported", "No function", "does not export"];

/// An Erlang, and the machine as it sees it.
pub struct Vm {
    /// 25.
    pub release: u32,
    /// With its patch level.
    pub version: OtpVersion,
    /// What decides on numbers of schedulers.
    pub machine: Machine,
    /// Folder with a whole system in it; `None` for this one.
    root: Option<PathBuf>,
    /// Where the VMs run, so that what they write goes with it.
    scratch: TempDir,
}

/// What became of a start.
#[derive(Debug)]
pub enum Outcome {
    /// It evaluated what it was given.
    Booted {
        /// The values of the expressions.
        values: Vec<String>,
        /// The emulator's arguments.
        args: Vec<String>,
    },
    /// It printed its usage and ended.
    Refused {
        /// The first line of what it said.
        said: String,
    },
    /// It ended in another way.
    Died {
        /// How, and the first line of what it said.
        how: String,
    },
    /// It did neither start nor end.
    Hung,
}

impl Outcome {
    /// For a person.
    pub fn describe(&self) -> String {
        match self {
            Outcome::Booted { values, .. } if values.is_empty() => "that it starts".to_owned(),
            Outcome::Booted { values, .. } => format!("that it starts, with {}", values.join(", ")),
            Outcome::Refused { said } => format!("that it is refused: {said}"),
            Outcome::Died { how } => format!("its death: {how}"),
            Outcome::Hung => "that it hangs".to_owned(),
        }
    }
}

/// The VMs of this machine: its own OTP, and those in chroots that scripts/otp.sh lists.
pub fn installed() -> Result<Vec<Vm>> {
    let chroots = repository::chroots()?.into_iter().map(|(_, root)| Some(root));
    let mut vms = std::iter::once(None).chain(chroots).map(Vm::new).collect::<Result<Vec<_>>>()?;
    vms.sort_by_key(|vm| vm.release);
    Ok(vms)
}

impl Vm {
    fn new(root: Option<PathBuf>) -> Result<Vm> {
        let parent = root.as_ref().map_or_else(std::env::temp_dir, |root| root.join("tmp"));
        let scratch = tempfile::Builder::new().prefix("beamtune-check-").tempdir_in(parent)?;
        // What is not known yet is asked for.
        let mut vm = Vm {
            release: 0,
            version: OtpVersion::from(0),
            machine: Machine { processors: 1, online: 1 },
            root,
            scratch,
        };
        let expressions = [
            "list_to_integer(erlang:system_info(otp_release))",
            "begin {ok, V} = file:read_file(filename:join([code:root_dir(), \"releases\", \
             erlang:system_info(otp_release), \"OTP_VERSION\"])), list_to_atom(string:trim(binary_to_list(V))) end",
            "erlang:system_info(schedulers)",
            "erlang:system_info(schedulers_online)",
        ];
        let outcome = vm.start(&Given::default(), &expressions.map(str::to_owned), false)?;
        let Outcome::Booted { values, .. } = outcome else {
            anyhow::bail!("erl does not start: {}", outcome.describe());
        };
        let [release, version, processors, online] = values.as_slice() else {
            anyhow::bail!("erl told {values:?}");
        };
        vm.release = release.parse().with_context(|| format!("release {release}"))?;
        let version = version.trim_matches('\'');
        vm.version = OtpVersion::parse(version).with_context(|| format!("version {version}"))?;
        vm.machine = Machine { processors: processors.parse()?, online: online.parse()? };
        Ok(vm)
    }

    /// Starts a VM with arguments and variables, and has it evaluate expressions. `fatal`: it should not survive, so it
    /// is bounded in time and memory.
    pub fn start(&self, given: &Given, expressions: &[String], fatal: bool) -> Result<Outcome> {
        let mut stdout = tempfile::tempfile()?;
        let mut stderr = tempfile::tempfile()?;
        let mut command = Command::new("prlimit");
        command.arg("--core=0:0");
        if fatal {
            command.arg(format!("--as={FATAL_BYTES}:{FATAL_BYTES}"));
        }
        let inside = match &self.root {
            Some(root) => {
                // Without /sys the VM knows no topology of the processors, and refuses to bind schedulers to them.
                let enter = r#"mount --rbind /sys "$0/sys" && exec chroot "$0" "$@""#;
                command.args(["unshare", "-m", "sh", "-c", enter]).arg(root);
                Path::new("/").join(self.scratch.path().strip_prefix(root)?)
            }
            None => self.scratch.path().to_owned(),
        };
        // chroot changes to the root; env leads back to where files may be left.
        command.args(["env", "-C"]).arg(inside).arg("erl");
        for name in std::env::vars_os().map(|(name, _)| name) {
            let name = name.to_string_lossy();
            if name.starts_with("ERL_") || name.starts_with("HEART_") {
                command.env_remove(&*name);
            }
        }
        command.env("ERL_CRASH_DUMP_SECONDS", "0").envs(given.environment.iter().cloned());
        command.args(&given.args).args(["-noshell", "-noinput", "-eval", &question(expressions)]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::from(stdout.try_clone()?))
            .stderr(Stdio::from(stderr.try_clone()?))
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let deadline = Instant::now() + if fatal { FATAL_PATIENCE } else { PATIENCE };
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if Instant::now() >= deadline {
                child.kill()?;
                child.wait()?;
                break None;
            }
            std::thread::sleep(LOOK_PAUSE);
        };
        self.remove_files_for_perf(child.id());
        let mut said = [String::new(), String::new()];
        for (file, text) in [&mut stdout, &mut stderr].into_iter().zip(&mut said) {
            file.rewind()?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            *text = String::from_utf8_lossy(&bytes).into_owned();
        }
        outcome(status, &said, expressions.len())
    }

    /// `+JPperf` writes them into /tmp, named by the process, which is the one that was started.
    fn remove_files_for_perf(&self, pid: u32) {
        let tmp = self.root.as_ref().map_or_else(|| PathBuf::from("/tmp"), |root| root.join("tmp"));
        for name in [format!("perf-{pid}.map"), format!("jit-{pid}.dump")] {
            // Nearly always there is none.
            let _ = std::fs::remove_file(tmp.join(name));
        }
    }
}

/// An expression that prints the values of others and the arguments. Each is evaluated in a process of its own, so that
/// none disturbs the next, and read only there, so that one that cannot be read fails alone. All is written past the io
/// system, which some flags change, and the VM ends without flushing, which others let fail.
fn question(expressions: &[String]) -> String {
    let texts: Vec<_> = expressions.iter().map(|expression| quoted(expression)).collect();
    format!(
        "Evaluate = fun(Text) -> \
           {{ok, Tokens, _}} = erl_scan:string(Text ++ \".\"), \
           {{ok, Parsed}} = erl_parse:parse_exprs(Tokens), \
           {{value, Value, _}} = erl_eval:exprs(Parsed, []), \
           io_lib:format(\"~w\", [Value]) \
         end, \
         Show = fun(Text) -> \
           {{Pid, Monitor}} = spawn_monitor(fun() -> \
             exit(try {{value, Evaluate(Text)}} catch C:R -> {{C, R}} end) end), \
           receive \
             {{'DOWN', Monitor, process, Pid, {{value, Shown}}}} -> Shown; \
             {{'DOWN', Monitor, process, Pid, Why}} -> io_lib:format(\"{NO_VALUE}~w\", [Why]) \
           end \
         end, \
         erlang:display_string(lists:flatten([ \
           [[\"{VALUE}\", Show(Text), 10] || Text <- [{}]], \
           [[\"{ARG}\", A, 10] || A <- erlang:system_info(emu_args)], \"{BOOTED}\\n\"])), \
         halt(0, [{{flush, false}}]).",
        texts.join(", ")
    )
}

/// As a string of Erlang.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn outcome(status: Option<ExitStatus>, said: &[String; 2], expressions: usize) -> Result<Outcome> {
    let lines = || said.iter().flat_map(|text| text.lines());
    if lines().any(|line| line == BOOTED) {
        let all = |beginning: &str| -> Vec<String> {
            lines().filter_map(|line| line.strip_prefix(beginning)).map(str::to_owned).collect()
        };
        let values = all(VALUE);
        ensure!(values.len() == expressions, "{expressions} expressions, values {values:?}");
        return Ok(Outcome::Booted { values, args: all(ARG) });
    }
    let first = lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("nothing").to_owned();
    let has = |texts: &[&str]| texts.iter().any(|text| said.iter().any(|said| said.contains(text)));
    Ok(match status {
        None => Outcome::Hung,
        Some(status) if status.signal().is_none() && has(&REFUSALS) && !has(&DEATHS) => {
            Outcome::Refused { said: first }
        }
        Some(status) => Outcome::Died { how: format!("{status}: {first}") },
    })
}
