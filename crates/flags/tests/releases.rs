//! Compares the data with each installed release: the VM must accept every flag that exists according to the data, report it unchanged,
//! and reject every other flag.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::path::PathBuf;
use std::process::Command;

use beamtune_flags::{
    Argument, Entry, Kind, Origin, OtpVersion, effective_value, entries, parse_emu_args,
    parse_with_environment,
};

const RELEASES: [u32; 4] = [23, 25, 27, 29];

/// An Erlang expression that prints the arguments of the emulator, one per line.
const PRINT: &str = "[io:format(\"~ts~n\", [Word]) || Word <- erlang:system_info(emu_args)], halt().";

/// Returns the `erl` of a release: OTP 25 is installed on the host, the other releases in chroots.
fn erl(release: u32) -> Option<Command> {
    if release == 25 {
        let found = Command::new("erl")
            .args(["-noshell", "-eval", "io:put_chars(erlang:system_info(otp_release)), halt()."])
            .output()
            .is_ok_and(|output| output.stdout == b"25");
        return found.then(|| Command::new("erl"));
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let root = match std::env::var_os("BEAMTUNE_OTP_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => cache?.join("beamtune/otp"),
    }
    .join(release.to_string());
    root.join(".complete").exists().then(|| {
        let mut command = Command::new("chroot");
        command.arg(root).arg("erl");
        command
    })
}

/// Returns the version with its patch level, as stored in the installation.
fn version(erl: &dyn Fn() -> Command) -> OtpVersion {
    let expression = "{ok, V} = file:read_file(filename:join([code:root_dir(), \"releases\", \
        erlang:system_info(otp_release), \"OTP_VERSION\"])), io:put_chars(V), halt().";
    let output = erl().args(["-noshell", "-eval", expression]).output().expect("erl runs");
    let text = String::from_utf8_lossy(&output.stdout);
    OtpVersion::parse(text.trim()).unwrap_or_else(|| panic!("{text:?}"))
}

/// Calls `test` with an `erl` of each installed release.
fn on_each_release(test: impl Fn(u32, &dyn Fn() -> Command)) {
    for release in RELEASES {
        if erl(release).is_none() {
            println!("skipped, because OTP {release} is not installed (make otp)");
            continue;
        }
        test(release, &|| {
            let mut command = erl(release).expect("an installed release");
            // The VM must not read the flags in the environment of the test.
            for name in ["ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"] {
                command.env_remove(name);
            }
            command
        });
    }
}

/// Returns a flag as words, with its example as the value.
fn written(entry: &Entry) -> Option<Vec<String>> {
    let flag = entry.spelling().replace("<S>", "B");
    match (entry.argument?, &entry.example) {
        (Argument::None, _) => Some(vec![flag]),
        (Argument::Glued | Argument::GluedOptional, Some(value)) => Some(vec![format!("{flag}{value}")]),
        (_, Some(value)) => Some(vec![flag, value.clone()]),
        (_, None) => None,
    }
}

/// Whether a flag cannot be tested by starting a VM, or conflicts with other flags.
fn apart(entry: &Entry) -> bool {
    // +V makes the emulator exit; a topology must match the host; the launcher itself processes flags with a minus.
    matches!(entry.id.as_str(), "+V" | "+sct" | "+ssrct") || entry.id.starts_with('-')
}

#[test]
fn release_accepts_its_flags_and_reports_them_unchanged() {
    on_each_release(|release, erl| {
        let version = version(erl);
        let flags: Vec<_> = entries()
            .iter()
            .filter(|entry| {
                entry.kind == Kind::EmulatorFlag && entry.exists_in(version.clone()) && !apart(entry)
            })
            .filter_map(|entry| Some((entry, written(entry)?)))
            .collect();
        assert!(flags.len() > 85, "OTP {release}: only {} flags", flags.len());
        let output = erl()
            .args(flags.iter().flat_map(|(_, words)| words))
            .args(["-noshell", "-eval", PRINT])
            .output()
            .expect("erl runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "OTP {release} rejects a flag that it has according to the data:\n{error}"
        );
        let args: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
        for (entry, words) in flags {
            let flag = entry.spelling().replace("<S>", "B");
            assert_eq!(
                effective_value(&args, &flag).as_deref(),
                Some(entry.example.as_deref().unwrap_or("")),
                "OTP {release}: {words:?} in {args:?}"
            );
        }
        assert!(
            parse_emu_args(&args).iter().all(|setting| setting.entry.is_some()),
            "OTP {release}: {args:?}"
        );
    });
}

#[test]
fn release_rejects_flags_that_it_does_not_have() {
    on_each_release(|release, erl| {
        let version = version(erl);
        let absent = entries().iter().filter(|entry| {
            // Versions before 26.0 parse `+hmaxib` as another flag, and the launcher of OTP 23 skips `-emu_flavor`.
            let passes = matches!(entry.id.as_str(), "+hmaxib" | "-emu_flavor");
            entry.kind == Kind::EmulatorFlag && !entry.exists_in(version.clone()) && !passes
        });
        let mut refused = 0;
        for (entry, words) in absent.filter_map(|entry| Some((entry, written(entry)?))) {
            let output =
                erl().args(&words).args(["-noshell", "-eval", "halt()."]).output().expect("erl runs");
            assert!(!output.status.success(), "OTP {release} accepts {} ({words:?})", entry.id);
            refused += 1;
        }
        assert!(release == 29 || refused > 3, "OTP {release}: only {refused} flags were tested");
    });
}

#[test]
fn origin_of_flags_agrees_with_the_launcher_of_each_release() {
    on_each_release(|release, erl| {
        let environment: Vec<(String, String)> = [
            (format!("ERL_OTP{release}_FLAGS"), "+swt low"),
            ("ERL_AFLAGS".to_owned(), "+sbwtdcpu none -lab 'a b' \"+S 9\""),
            ("ERL_FLAGS".to_owned(), "+A 3 -lab x\\ y +hms 400"),
            ("ERL_ZFLAGS".to_owned(), "+MBas aobf +zdbbl4096 -extra +P 5000"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .into();
        let output = erl()
            .envs(environment.clone())
            .args(["+sbwt", "none", "+hms", "300", "+SDio4", "-noshell", "-eval", PRINT])
            .output()
            .expect("erl runs");
        assert!(output.status.success(), "OTP {release}: {}", String::from_utf8_lossy(&output.stderr));
        let args: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
        let settings = parse_with_environment(&args, &environment, release);
        let from = |name: &str| Origin::Environment(name.to_owned());
        let check = |flag: &str, value: &str, origin: Origin| {
            let setting = settings.iter().find(|setting| setting.flag == flag);
            let found = setting.map(|setting| (setting.value.as_deref(), setting.origin.clone()));
            assert_eq!(found, Some((Some(value), origin)), "OTP {release}: {flag} in {args:?}");
        };
        check("+swt", "low", from(&format!("ERL_OTP{release}_FLAGS")));
        check("+sbwtdcpu", "none", from("ERL_AFLAGS"));
        check("+sbwt", "none", Origin::CommandLine);
        check("+SDio", "4", Origin::CommandLine);
        check("+A", "3", from("ERL_FLAGS"));
        check("+hms", "400", from("ERL_FLAGS"));
        check("+MBas", "aobf", from("ERL_ZFLAGS"));
        check("+zdbbl", "4096", from("ERL_ZFLAGS"));
        let heap = settings.iter().find(|setting| setting.flag == "+hms").expect("+hms");
        assert_eq!(heap.overridden.len(), 1, "OTP {release}");
    });
}
