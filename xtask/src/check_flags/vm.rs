//! Starts VMs of the installed releases, and classifies the outcome.

use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use beamtune_flags::{HostCpus, OtpVersion};
use tempfile::TempDir;

use super::cases::Given;
use crate::repository;

/// Time limit for a start, which takes tenths of a second, or a few seconds with a thousand threads.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for a case that should not start; then the VM is considered to hang.
const FATAL_TIMEOUT: Duration = Duration::from_secs(8);
/// Limit on the address space for cases that should not start. A VM without flags needs 3 GB; unlimited growth would exhaust the host.
const FATAL_BYTES: u64 = 8 << 30;
/// Interval at which the VM's exit is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(3);

/// Prefix of a line with a value in effect.
const VALUE: &str = "beamtune-value ";
/// Prefix of the value of an expression that failed.
pub const NO_VALUE: &str = "no value: ";
/// Prefix of a line with one of the emulator's arguments.
const ARG: &str = "beamtune-arg ";
/// The last line of a VM that has started.
const BOOTED: &str = "beamtune-booted";

/// Output of VMs that exited for reasons other than rejected arguments.
const DEATHS: [&str; 5] = [
    "init terminating",
    "Runtime terminating",
    "Kernel pid terminated",
    "Cannot allocate",
    "no more index entries",
];
/// Output of launcher and emulator that reject an argument.
const REFUSALS: [&str; 5] =
    ["Usage:", "Invalid emulator type", "not supported", "No function", "does not export"];

/// An OTP installation.
pub struct Vm {
    /// OTP release: 25.
    pub release: u32,
    /// OTP version, with its patch level.
    pub version: OtpVersion,
    /// The CPUs that the VM detects, which determine the number of schedulers.
    pub machine: HostCpus,
    /// Root of its chroot; `None` for the host.
    root: Option<PathBuf>,
    /// Working directory of the VMs, which is removed with its files.
    scratch: TempDir,
}

/// Result of a start.
#[derive(Debug)]
pub enum Outcome {
    /// The VM started and evaluated the expressions.
    Booted {
        /// The values of the expressions.
        values: Vec<String>,
        /// The emulator's arguments.
        args: Vec<String>,
    },
    /// The VM printed its usage and exited.
    Refused {
        /// The first line of output.
        message: String,
    },
    /// The VM exited in another way.
    Died {
        /// Exit status, and the first line of output.
        reason: String,
    },
    /// The VM neither started nor exited.
    Hung,
}

impl Outcome {
    /// Returns one line for messages, such as `rejected: Usage: …`.
    pub fn describe(&self) -> String {
        match self {
            Outcome::Booted { values, .. } if values.is_empty() => "it starts".to_owned(),
            Outcome::Booted { values, .. } => format!("it starts, with {}", values.join(", ")),
            Outcome::Refused { message } => format!("rejected: {message}"),
            Outcome::Died { reason } => format!("it died: {reason}"),
            Outcome::Hung => "it hangs".to_owned(),
        }
    }
}

/// Returns the OTP installations of this host: its own, and those in chroots (scripts/otp.sh).
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
        // Placeholders until the VM has returned the values.
        let mut vm = Vm {
            release: 0,
            version: OtpVersion::from(0),
            machine: HostCpus { processors: 1, online: 1 },
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
            anyhow::bail!("unexpected output of erl: {values:?}");
        };
        vm.release = release.parse().with_context(|| format!("release {release}"))?;
        let version = version.trim_matches('\'');
        vm.version = OtpVersion::parse(version).with_context(|| format!("version {version}"))?;
        vm.machine = HostCpus { processors: processors.parse()?, online: online.parse()? };
        Ok(vm)
    }

    /// Starts a VM with arguments and variables, which evaluates expressions. `fatal` means that the VM is not expected to start, so time
    /// and memory are limited.
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
                // Without /sys the VM does not know the CPU topology, and cannot bind schedulers.
                let enter = r#"mount --rbind /sys "$0/sys" && exec chroot "$0" "$@""#;
                command.args(["unshare", "-m", "sh", "-c", enter]).arg(root);
                Path::new("/").join(self.scratch.path().strip_prefix(root)?)
            }
            None => self.scratch.path().to_owned(),
        };
        // chroot changes the working directory to the root; env changes it to the scratch folder.
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
        let deadline = Instant::now() + if fatal { FATAL_TIMEOUT } else { TIMEOUT };
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if Instant::now() >= deadline {
                child.kill()?;
                child.wait()?;
                break None;
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        self.remove_perf_files(child.id());
        let mut outputs = [String::new(), String::new()];
        for (file, text) in [&mut stdout, &mut stderr].into_iter().zip(&mut outputs) {
            file.rewind()?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            *text = String::from_utf8_lossy(&bytes).into_owned();
        }
        outcome(status, &outputs, expressions.len())
    }

    /// Removes the files that `+JPperf` writes to /tmp.
    fn remove_perf_files(&self, pid: u32) {
        let tmp = self.root.as_ref().map_or_else(|| PathBuf::from("/tmp"), |root| root.join("tmp"));
        for name in [format!("perf-{pid}.map"), format!("jit-{pid}.dump")] {
            // Most VMs run without +JPperf.
            let _ = std::fs::remove_file(tmp.join(name));
        }
    }
}

/// Returns an expression that prints the values of other expressions, and the emulator's arguments. Each expression is parsed and evaluated
/// in its own process, so that an error does not affect the rest. Some flags break the I/O system or flushing. So the output bypasses the
/// I/O system, and the VM halts without flushing.
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

/// Formats a text as an Erlang string literal.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn outcome(status: Option<ExitStatus>, outputs: &[String; 2], expressions: usize) -> Result<Outcome> {
    let lines = || outputs.iter().flat_map(|text| text.lines());
    if lines().any(|line| line == BOOTED) {
        let all = |beginning: &str| -> Vec<String> {
            lines().filter_map(|line| line.strip_prefix(beginning)).map(str::to_owned).collect()
        };
        let values = all(VALUE);
        ensure!(values.len() == expressions, "{expressions} expressions gave the values {values:?}");
        return Ok(Outcome::Booted { values, args: all(ARG) });
    }
    let first = lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no output").to_owned();
    let has = |texts: &[&str]| texts.iter().any(|text| outputs.iter().any(|output| output.contains(text)));
    Ok(match status {
        None => Outcome::Hung,
        Some(status) if status.signal().is_none() && has(&REFUSALS) && !has(&DEATHS) => {
            Outcome::Refused { message: first }
        }
        Some(status) => Outcome::Died { reason: format!("{status}: {first}") },
    })
}
