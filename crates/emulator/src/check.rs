//! Starts a new emulator and queries its version, type, flavor and options.
//!
//! The emulator is started without `erlexec`, which belongs to the installation and may be for another system. It gets a separate
//! folder with its helper programs; only compiled Erlang code is taken from the installation. Without a usable installation, the
//! bootstrap code in OTP's source (`bootstrap/`) is sufficient.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::installation::{boot, search_path};
use crate::kind::{Type, Variant, has_flavors};

/// Time limit for the check. An emulator starts in 0.1 s, or in seconds on a busy host.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum size of the output, which is one line, or a few lines with an error.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;
/// Prefix of the line with the answer.
const PREFIX: &str = "{beamtune,";
/// `erlang:display/1` writes synchronously, without an I/O server. Microstate accounting lists its states only while it is on.
const QUERY: &str = "Info = fun(Item) -> try erlang:system_info(Item) catch _:_ -> none end end, \
                   erlang:system_flag(microstate_accounting, true), \
                   Extra = case erlang:statistics(microstate_accounting) of [#{counters := Counters} | _] -> maps:is_key(ets, Counters); \
                   _ -> none end, \
                   erlang:display({beamtune, Info(version), Info(build_type), Info(emu_flavor), Info(kernel_poll), Extra}), halt().";

/// Replaces `inet_gethost`, which is not built. A starting VM resolves its host name, for which "not found" is a sufficient
/// answer. It is a packet of 14 bytes: the answer to request 1, an error (erts/etc/common/inet_gethost.c).
const NO_HOST: &str = "#!/bin/sh\nprintf '\\0\\0\\0\\016\\0\\0\\0\\001\\0notfound\\0'\n";

/// An emulator to test, and what it is started with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Check<'p> {
    /// The emulator.
    pub(crate) emulator: &'p Path,
    /// Its `erl_child_setup`, which it starts first.
    pub(crate) child_setup: &'p Path,
    /// The folder with `lib` and boot files.
    pub(crate) root: &'p Path,
    /// An empty folder for the check's files.
    pub(crate) scratch: &'p Path,
}

impl Check<'_> {
    /// Checks that the emulator starts and reports these properties.
    pub(crate) fn run(self, erts: &str, variant: Variant) -> Result<(), Error> {
        let unfit = |why: String| Error::Unusable { why };
        let boot =
            boot(self.root).ok_or_else(|| unfit(format!("{} has no boot file", self.root.display())))?;
        let (text, status) = self.start(&boot)?;
        let line = text.lines().find_map(|line| line.trim().strip_prefix(PREFIX)?.strip_suffix('}'));
        let Some(line) = line else {
            let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no output");
            return Err(unfit(format!("does not start ({status}): {}", last.trim())));
        };
        let wanted = expected(erts, variant);
        if line == wanted {
            Ok(())
        } else {
            Err(unfit(format!("is not the one requested: it reports {line}, not {wanted}")))
        }
    }

    fn start(self, boot: &Path) -> Result<(String, String), Error> {
        let bin = self.scratch.join("bin");
        let made = || {
            fs::create_dir(&bin)?;
            symlink(self.child_setup, bin.join("erl_child_setup"))?;
            fs::write(bin.join("inet_gethost"), NO_HOST)?;
            fs::set_permissions(bin.join("inet_gethost"), Permissions::from_mode(0o755))
        };
        made().map_err(|source| Error::io(&bin, source))?;
        let mut command = Command::new(self.emulator);
        // As erlexec does (erts/etc/common/erlexec.c): emulator flags, then two groups of init flags, then the user's.
        command.args(["-S", "1:1", "--", "-root"]).arg(self.root).arg("-bindir").arg(&bin);
        command.args(["-progname", "erl", "--", "-home"]);
        command.arg(self.scratch).args(["--", "-boot"]).arg(boot);
        // Boot files of mix releases find libraries by this variable.
        command.args(["-boot_var", "RELEASE_LIB"]).arg(self.root.join("lib"));
        command.args(["-noshell", "-noinput", "-eval", QUERY]);
        command.env("ROOTDIR", self.root).env("BINDIR", &bin).env("EMU", "beam").env("PROGNAME", "erl");
        // As erlexec does; older releases find their programs through the PATH.
        let search = search_path().unwrap_or_default();
        let paths = [bin.clone()].into_iter().chain(std::env::split_paths(&search));
        command.env("PATH", std::env::join_paths(paths).unwrap_or(search));
        command
            .env("HOME", self.scratch)
            .env("ERL_CRASH_DUMP_BYTES", "0")
            .env_remove("ERL_LIBS")
            .env_remove("ERL_INETRC");
        command.current_dir(self.scratch).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = |why| Error::Start { program: self.emulator.display().to_string(), why };
        let mut child = command.spawn().map_err(start)?;
        let pipes: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|pipe| Box::new(pipe) as _),
            child.stderr.take().map(|pipe| Box::new(pipe) as _),
        ];
        let readers = pipes.map(|pipe| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                // What was read before an error is still used.
                let _ = pipe.map(|pipe| pipe.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes));
                String::from_utf8_lossy(&bytes).into_owned()
            })
        });
        let until = Instant::now() + START_TIMEOUT;
        let status = loop {
            match child.try_wait().map_err(start)? {
                Some(status) => break status.to_string(),
                None if Instant::now() > until => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break format!("it did not end within {} s", START_TIMEOUT.as_secs());
                }
                None => thread::sleep(POLL_INTERVAL),
            }
        };
        let text: Vec<String> = readers.map(|reader| reader.join().unwrap_or_default()).into();
        Ok((text.join("\n"), status))
    }
}

/// Returns the expected answer of an emulator of this version and variant.
fn expected(erts: &str, variant: Variant) -> String {
    let Variant { kind, flavor, options } = variant;
    // `emu_flavor` exists only in versions that have flavors.
    let flavor = if has_flavors(erts) { flavor.name() } else { "none" };
    format!("\"{erts}\",{},{flavor},{},{}", kind.name(), options.kernel_poll, options.extra_msacc)
}

/// Returns the emulator and its `erl_child_setup`, which are in the `bin` folder of a build.
pub(crate) fn results(bin: &Path, kind: Type) -> Option<(PathBuf, PathBuf)> {
    let folders = fs::read_dir(bin).into_iter().flatten().flatten().map(|entry| entry.path());
    // The file of a type other than opt has the type as its suffix.
    let setup = |folder: &Path| {
        let names = [format!("erl_child_setup.{}", kind.name()), "erl_child_setup".to_owned()];
        names.map(|name| folder.join(name)).into_iter().find(|file| file.is_file())
    };
    folders
        .map(|folder| (folder.join(kind.file()), setup(&folder)))
        .find_map(|(emulator, setup)| emulator.is_file().then_some((emulator, setup?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::installation::tests::{erlang, file, script};
    use crate::kind::{Flavor, Options};

    fn lcnt() -> Variant {
        Variant { kind: Type::Lcnt, flavor: Flavor::Jit, options: Options::default() }
    }

    /// Returns the error for an emulator that is replaced by this script.
    fn check(text: &str) -> Option<String> {
        let (erlang, scratch) = (erlang(), tempfile::tempdir().expect("a folder"));
        let emulator = erlang.path().join("beam.lcnt.smp");
        script(&emulator, text);
        let child_setup = emulator.clone();
        let check = Check {
            emulator: &emulator,
            child_setup: &child_setup,
            root: erlang.path(),
            scratch: scratch.path(),
        };
        check.run("13.1.5", lcnt()).err().map(|error| error.to_string())
    }

    #[test]
    fn a_reported_difference_or_failed_start_is_an_error() {
        assert_eq!(check("echo '{beamtune,\"13.1.5\",lcnt,jit,true,false}'"), None);
        // Older emulators end the line with CR LF.
        assert_eq!(check("printf '%s\\r\\n' '{beamtune,\"13.1.5\",lcnt,jit,true,false}'"), None);
        let error = check("echo '{beamtune,\"13.1.5\",opt,jit,true,false}'").expect("another type");
        assert!(error.contains("not \"13.1.5\",lcnt,jit,true,false"), "{error}");
        let error =
            check("echo 'libtinfo.so.6: cannot open shared object file' >&2; exit 127").expect("no start");
        assert!(error.contains("does not start (exit status: 127): libtinfo.so.6"), "{error}");
    }

    #[test]
    fn emulator_is_started_with_the_installations_code_and_separate_helper_programs() {
        let text = "[ -e \"$BINDIR/erl_child_setup\" ] && [ -d \"$ROOTDIR/erts-13.1.5\" ] || exit 1\n\
                      case \"$*\" in *\" -boot $ROOTDIR/bin/start_clean \"*) ;; *) exit 2 ;; esac\n\
                      echo '{beamtune,\"13.1.5\",lcnt,jit,true,false}'";
        assert_eq!(check(text), None);
    }

    #[test]
    fn expected_answer_names_the_variant() {
        let check = |erts, variant, expect: &str| assert_eq!(expected(erts, variant), expect);
        check("13.1.5", lcnt(), "\"13.1.5\",lcnt,jit,true,false");
        check("11.1.8", Variant { flavor: Flavor::Emu, ..lcnt() }, "\"11.1.8\",lcnt,none,true,false");
        let options = Options { kernel_poll: false, extra_msacc: true };
        let opt = Variant { kind: Type::Opt, flavor: Flavor::Emu, options };
        check("17.1.1", opt, "\"17.1.1\",opt,emu,false,true");
    }

    #[test]
    fn results_of_a_build_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join("x86_64-pc-linux-gnu").join(name);
        assert_eq!(results(folder.path(), Type::Lcnt), None);
        file(&at("beam.lcnt.smp"), b"");
        assert_eq!(results(folder.path(), Type::Lcnt), None);
        file(&at("erl_child_setup.lcnt"), b"");
        let expect = Some((at("beam.lcnt.smp"), at("erl_child_setup.lcnt")));
        assert_eq!(results(folder.path(), Type::Lcnt), expect);
    }
}
