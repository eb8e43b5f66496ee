//! A VM's command line and environment: flags, programs and paths.
//!
//! `/proc/PID/cmdline` contains all arguments, since erlexec has already expanded `-args_file` and inserted `ERL_FLAGS` and similar
//! variables. Emulator flags come first, with `+` replaced by `-`. The arguments of init follow after the first `--`. Sources:
//! erts/etc/common/erlexec.c, and `parse_boot_args/4` in erts/preloaded/src/init.erl.
//!
//! Command line and environment may contain secrets: the cookie, or passwords in application parameters. Secrets are stored, because the
//! cookie is needed to connect, but they are never displayed: `Debug` and [`CommandLine::shown`] redact them.

use std::collections::BTreeMap;
use std::fmt;

use crate::text;

/// Flags of init with values that are not secret.
const HARMLESS: &[&str] = &[
    "args_file",
    "bindir",
    "boot",
    "boot_var",
    "config",
    "detached",
    "dist_listen",
    "emu_flavor",
    "emu_type",
    "epmd_module",
    "erl_epmd_port",
    "heart",
    "hidden",
    "home",
    "mode",
    "name",
    "noinput",
    "noshell",
    "pa",
    "path",
    "progname",
    "proto_dist",
    "pz",
    "root",
    "sname",
    "start_epmd",
    "user",
];
/// Parameters of the kernel application with values that are not secret.
const HARMLESS_OF_KERNEL: &[&str] = &[
    "dist_auto_connect",
    "erl_epmd_node_listen_port",
    "inet_dist_listen_max",
    "inet_dist_listen_min",
    "inet_dist_use_interface",
    "net_setuptime",
    "net_tickintensity",
    "net_ticktime",
    "prevent_overlapping_partitions",
    "start_pg",
    "start_timer",
];
/// Replaces a value that may be secret.
const HIDDEN: &str = "*";

/// A VM's command line.
#[derive(Clone, PartialEq, Eq)]
pub struct CommandLine {
    arguments: Vec<String>,
    emulator: usize,
    flags: Vec<(String, Vec<String>)>,
    extra: Vec<String>,
}

impl fmt::Debug for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.redacted()).finish()
    }
}

impl CommandLine {
    /// Parses the content of `/proc/PID/cmdline`.
    pub fn parse(content: &[u8]) -> Self {
        let arguments: Vec<String> = text::strings(content).collect();
        // Without the separator, no argument is assumed to be an emulator flag.
        let emulator =
            arguments.iter().position(|argument| argument == "--").unwrap_or(1.min(arguments.len()));
        let mut flags: Vec<(String, Vec<String>)> = Vec::new();
        let mut extra = Vec::new();
        let mut open = false;
        let mut rest = arguments.iter().skip(emulator);
        while let Some(argument) = rest.next() {
            match argument.strip_prefix('-') {
                Some("extra") => extra.extend(rest.by_ref().cloned()),
                Some("-") => open = false,
                Some(flag) => {
                    flags.push((flag.to_owned(), Vec::new()));
                    open = true;
                }
                None => {
                    if let Some((_, values)) = flags.last_mut().filter(|_| open) {
                        values.push(argument.clone());
                    }
                }
            }
        }
        CommandLine { arguments, emulator, flags, extra }
    }

    /// Returns all arguments, including the cookie, which is needed to connect. Never display or store them.
    pub fn secret_arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Returns the first argument: the program, as it was called.
    pub fn program(&self) -> Option<&str> {
        self.arguments.first().map(String::as_str)
    }

    /// Returns the values of the last flag with this name, which takes effect for most flags.
    pub fn values(&self, flag: &str) -> Option<&[String]> {
        self.flags.iter().rev().find(|(name, _)| name == flag).map(|(_, values)| values.as_slice())
    }

    /// Returns the first value of the last flag with this name.
    pub fn value(&self, flag: &str) -> Option<&str> {
        self.values(flag)?.first().map(String::as_str)
    }

    /// Returns the values of every flag with this name.
    pub fn all<'a>(&'a self, flag: &'a str) -> impl Iterator<Item = &'a [String]> {
        self.flags.iter().filter(move |(name, _)| name == flag).map(|(_, values)| values.as_slice())
    }

    /// Returns the last flag with one of these names, and its first value.
    pub fn last_of(&self, names: [&str; 2]) -> Option<(&str, Option<&str>)> {
        let (name, values) = self.flags.iter().rev().find(|(name, _)| names.contains(&name.as_str()))?;
        Some((name, values.first().map(String::as_str)))
    }

    /// Returns the value of an application parameter, as in `-kernel inet_dist_listen_min 9100`.
    pub fn parameter(&self, application: &str, key: &str) -> Option<&str> {
        let flags = self.flags.iter().filter(|(name, _)| name == application);
        let pairs = flags.flat_map(|(_, values)| values.chunks_exact(2));
        let mut wanted = pairs.filter_map(|pair| if pair.first()? == key { pair.get(1) } else { None });
        wanted.next_back().map(String::as_str)
    }

    /// Returns the arguments after `-extra`: for Elixir and escripts, these are the program and its arguments.
    pub fn extra(&self) -> &[String] {
        &self.extra
    }

    /// Whether the command line has the form that erlexec creates.
    pub fn is_from_erlexec(&self) -> bool {
        self.values("root").is_some() && self.values("progname").is_some()
    }

    /// Returns the arguments for display, with `*` for possible secrets.
    pub fn redacted(&self) -> Vec<String> {
        let (emulator, rest) = self.arguments.split_at(self.emulator);
        let mut shown: Vec<String> = emulator.to_vec();
        hide(rest, &mut shown);
        shown
    }
}

/// Appends init's arguments, with possible secrets redacted.
fn hide(arguments: &[String], shown: &mut Vec<String>) {
    let mut flag = "";
    let mut key_is_harmless = false;
    let mut position = 0;
    for argument in arguments {
        if flag == "extra" {
            shown.push(HIDDEN.to_owned());
            continue;
        }
        if let Some(name) = argument.strip_prefix('-') {
            flag = name;
            position = 0;
            shown.push(argument.clone());
            continue;
        }
        let is_key = position % 2 == 0;
        let harmless = match flag {
            "kernel" if is_key => {
                key_is_harmless = HARMLESS_OF_KERNEL.contains(&argument.as_str());
                key_is_harmless
            }
            "kernel" => key_is_harmless,
            // The first two values are module and function; the others may contain secrets.
            "run" | "s" => position < 2,
            _ => HARMLESS.contains(&flag),
        };
        shown.push(if harmless { argument.clone() } else { HIDDEN.to_owned() });
        position += 1;
    }
}

/// The variables that are stored; all others are ignored.
const KEPT: &[&str] = &[
    "BINDIR",
    "ERL_AFLAGS",
    "ERL_EPMD_PORT",
    "ERL_FLAGS",
    "ERL_FULLSWEEP_AFTER",
    "ERL_LIBS",
    "ERL_MAX_ETS_TABLES",
    "ERL_MAX_PORTS",
    "ERL_THREAD_POOL_SIZE",
    "ERL_ZFLAGS",
    "HOME",
    "HOSTNAME",
    "RABBITMQ_CONF_ENV_FILE",
    "RABBITMQ_DIST_PORT",
    "RABBITMQ_HOME",
    "RABBITMQ_NODENAME",
    "RABBITMQ_NODE_PORT",
    "RABBITMQ_USE_LONGNAME",
    "RELEASE_COOKIE",
    "RELEASE_NAME",
    "RELEASE_ROOT",
    "RELEASE_VSN",
    "REL_NAME",
    "REL_VSN",
    "ROOTDIR",
    "XDG_CONFIG_HOME",
];
/// The variables that contain emulator flags.
const FLAGS: &[&str] = &["ERL_AFLAGS", "ERL_FLAGS", "ERL_ZFLAGS"];
/// The variables that set limits of the emulator.
const LIMITS: &[&str] =
    &["ERL_FULLSWEEP_AFTER", "ERL_MAX_ETS_TABLES", "ERL_MAX_PORTS", "ERL_THREAD_POOL_SIZE"];

/// The part of a process's environment that concerns its VM, at the start of the process; later changes by the VM are not visible.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Environment {
    /// Parses the content of `/proc/PID/environ`.
    pub fn parse(content: &[u8]) -> Self {
        let pair = |string: String| {
            let (name, value) = string.split_once('=')?;
            (KEPT.contains(&name) || is_release_flags(name)).then(|| (name.to_owned(), value.to_owned()))
        };
        Environment(text::strings(content).filter_map(pair).collect())
    }

    /// Returns the value of a variable. An empty variable is treated as unset, as by the start scripts of VMs.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns all stored variables, including the cookie, which is needed to connect. Never display or record them.
    pub fn secret_variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the variables with emulator flags and limits for display, with `*` for possible secrets.
    pub fn shown(&self) -> BTreeMap<String, String> {
        let shown = |(name, value): (&String, &String)| {
            if LIMITS.contains(&name.as_str()) {
                return Some((name.clone(), text::printable(value)));
            }
            if !FLAGS.contains(&name.as_str()) && !is_release_flags(name) {
                return None;
            }
            // Emulator flags begin with `+`; `hide` would treat them as values of init's flags and redact them.
            let words: Vec<String> = value.split_whitespace().map(str::to_owned).collect();
            let mut parts = Vec::new();
            for group in words.chunk_by(|_, next| !next.starts_with(['+', '-'])) {
                match group.first() {
                    Some(flag) if flag.starts_with('+') => parts.extend_from_slice(group),
                    _ => hide(group, &mut parts),
                }
            }
            Some((name.clone(), parts.join(" ")))
        };
        self.0.iter().filter_map(shown).collect()
    }
}

/// Whether a variable has a name such as `ERL_OTP25_FLAGS`, which only that OTP release reads.
fn is_release_flags(name: &str) -> bool {
    let release = name.strip_prefix("ERL_OTP").and_then(|rest| rest.strip_suffix("_FLAGS"));
    release.is_some_and(|release| text::number(release.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn command_line(words: &str) -> CommandLine {
        CommandLine::parse(words.split(' ').map(|word| format!("{word}\0")).collect::<String>().as_bytes())
    }

    const RELEASE: &str = "/srv/demo/erts-13.1.5/bin/beam.smp -sbwt none -- -root /srv/demo -bindir /srv/demo/erts-13.1.5/bin \
        -progname erl -- -home /root -- -noshell -s elixir start_cli -mode embedded -setcookie SECRET -sname demo \
        -config /srv/demo/releases/0.1.0/sys -boot /srv/demo/releases/0.1.0/start -boot_var RELEASE_LIB /srv/demo/lib \
        -kernel inet_dist_listen_min 9100 inet_dist_listen_max 9105 -db password SECRET -- plain -extra --token SECRET";

    #[test]
    fn flags_are_parsed_as_by_init() {
        let line = command_line(RELEASE);
        assert_eq!(line.program(), Some("/srv/demo/erts-13.1.5/bin/beam.smp"));
        assert_eq!(line.value("root"), Some("/srv/demo"));
        assert_eq!(line.value("sname"), Some("demo"));
        assert_eq!(line.values("noshell"), Some(&[][..]));
        assert_eq!(line.values("s"), Some(&["elixir".to_owned(), "start_cli".to_owned()][..]));
        assert_eq!(line.values("boot_var").map(<[_]>::len), Some(2));
        assert_eq!(line.parameter("kernel", "inet_dist_listen_max"), Some("9105"));
        assert_eq!(line.parameter("kernel", "inet_dist_listen"), None);
        assert_eq!(line.extra(), ["--token", "SECRET"]);
        assert!(line.is_from_erlexec());
        // Emulator flags are not init flags.
        assert_eq!(line.values("sbwt"), None);
        // An argument after `--` does not belong to the flag before it.
        assert_eq!(line.values("db").map(<[_]>::len), Some(2));
    }

    #[test]
    fn the_later_of_two_names_takes_effect() {
        let line = command_line("beam.smp -- -root / -progname erl -- -home / -- -name a@h -sname b -x");
        assert_eq!(line.last_of(["name", "sname"]), Some(("sname", Some("b"))));
        assert_eq!(command_line("beam.smp -- -name").last_of(["name", "sname"]), Some(("name", None)));
    }

    #[test]
    fn secrets_are_never_displayed() {
        let check = |words: &str, expect: &str| {
            let shown = command_line(words).redacted().join(" ");
            assert_eq!(shown, expect);
            assert!(!format!("{:?}", command_line(words)).contains("SECRET"), "{words}");
        };
        check(
            RELEASE,
            &RELEASE
                .replace("-setcookie SECRET", "-setcookie *")
                .replace("password SECRET", "* *")
                .replace(" plain -extra --token SECRET", " * -extra * *"),
        );
        check(
            "beam.smp -- -eval f(SECRET) -kernel x SECRET net_ticktime 5 y SECRET",
            "beam.smp -- -eval * -kernel * * net_ticktime 5 * *",
        );
        // Without the separator, no argument is assumed to be an emulator flag.
        check("beam.smp -W w -setcookie SECRET", "beam.smp -W * -setcookie *");
        check("beam.smp -- -s m f SECRET -run m", "beam.smp -- -s m f * -run m");
    }

    fn environment(lines: &[&str]) -> Environment {
        Environment::parse(lines.iter().map(|line| format!("{line}\0")).collect::<String>().as_bytes())
    }

    #[test]
    fn only_variables_that_concern_the_vm_are_stored() {
        let environment = environment(&[
            "PATH=/bin",
            "HOME=/root",
            "DATABASE_URL=SECRET",
            "RELEASE_NAME=",
            "x",
            "ERL_OTP25_FLAGS=+S 2",
        ]);
        assert_eq!(environment.get("HOME"), Some("/root"));
        assert_eq!(environment.get("RELEASE_NAME"), None);
        assert_eq!(environment.get("DATABASE_URL"), None);
        assert_eq!(environment.secret_variables().count(), 3);
    }

    #[test]
    fn flags_in_variables_are_displayed_without_secrets() {
        let environment = environment(&[
            "ERL_AFLAGS=+sbwt none -setcookie SECRET +S 2:2 -noshell",
            "ERL_OTP25_FLAGS=-db pw SECRET",
            "ERL_MAX_PORTS=65536",
            "RELEASE_COOKIE=SECRET",
        ]);
        let expect = [
            ("ERL_AFLAGS", "+sbwt none -setcookie * +S 2:2 -noshell"),
            ("ERL_MAX_PORTS", "65536"),
            ("ERL_OTP25_FLAGS", "-db * *"),
        ];
        let shown = environment.shown();
        assert!(shown.iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(expect), "{shown:?}");
        assert!(!format!("{environment:?}").contains("SECRET"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let line = CommandLine::parse(&content);
            let _ = (line.redacted(), line.is_from_erlexec(), line.last_of(["name", "sname"]));
            Environment::parse(&content).shown();
        }

        #[test]
        fn a_cookie_is_redacted_at_any_position(before in "[-+ a-z]{0,20}", after in "[-+ a-z]{0,20}") {
            let line = command_line(&format!("beam.smp -- {before} -setcookie SECRET {after}"));
            let shown = format!("{line:?}");
            prop_assert!(!shown.contains("SECRET"), "{}", shown);
        }
    }
}
