//! `beamtune emulator`: its messages without a built emulator, and programs that run with one. The emulator is one that the user has
//! built, or is built by the test if `BEAMTUNE_BUILD_EMULATOR` is set.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use beamtune_emulator::Flavor;
use beamtune_emulator::needs::{self, Requirement, Unpack};
use common::{
    Output, Process, TIMEOUT, TestNode, all_otps, beamtune, folder, is_root, otp, run, run_for, text,
    wait_until,
};
use serde_json::Value;

/// If this variable is set, the tests build an emulator for this host's Erlang from Debian's source, and run programs with it. This takes
/// a few minutes and 700 MB.
const BUILD: &str = "BEAMTUNE_BUILD_EMULATOR";
/// Time limit of a build, which takes 2 to 4 minutes on two idle cores.
const BUILD_TIMEOUT: Duration = Duration::from_secs(1_800);
/// Prints the VM's build type.
const PRINT_BUILD_TYPE: &str = "io:put_chars(atom_to_list(erlang:system_info(build_type))), halt().";

/// Returns a `beamtune emulator` command with its own cache.
fn emulator(cache: &Path) -> Command {
    let mut command = beamtune();
    command.arg("emulator").env("XDG_CACHE_HOME", cache);
    command
}

/// Runs a command that must succeed.
#[track_caller]
fn succeed(command: &mut Command) -> Output {
    let output = run_for(command, 3 * TIMEOUT);
    assert_eq!(output.status, Some(0), "{}\n{}", output.stdout, output.stderr);
    output
}

/// Returns the folder of this host's own Erlang, if it is OTP 25.
fn erlang() -> Option<PathBuf> {
    otp(25)?.root.is_none().then_some(())?;
    let root = run(Command::new("erl").args(["-noshell", "-eval", "io:put_chars(code:root_dir()), halt()."]));
    Some(PathBuf::from(root.stdout.trim()))
}

/// Returns the versions of ERTS and OTP in this folder.
fn versions(erlang: &Path) -> (String, String) {
    let names = fs::read_dir(erlang).expect("a folder").flatten().map(|entry| entry.file_name());
    let mut names = names.filter_map(|name| name.into_string().ok());
    let erts = names.find_map(|name| name.strip_prefix("erts-").map(str::to_owned)).expect("an ERTS");
    let otp = fs::read_to_string(erlang.join("releases/25/OTP_VERSION")).expect("a version");
    (erts, otp.trim().to_owned())
}

/// True if everything that a build needs is installed. Otherwise prints what is missing.
fn can_build() -> bool {
    let checked = needs::check(&needs::needs(Flavor::Jit, Unpack::Nothing), Requirement::is_installed);
    if let Err(error) = &checked {
        eprintln!("skipped, because no emulator can be built on this host: {error}");
    }
    checked.is_ok()
}

/// Creates a folder that looks like an installation or a release, with a copy of an installation's emulator.
fn copy_emulator(installation: &Path, into: &Path) {
    let bin = format!("erts-{}/bin", versions(installation).0);
    fs::create_dir_all(into.join(&bin)).expect("folders");
    let beam = format!("{bin}/beam.smp");
    fs::copy(installation.join(&beam), into.join(&beam)).expect("copied");
    fs::create_dir_all(into.join("bin")).expect("folders");
    fs::write(into.join("bin/shop"), "#!/bin/sh\n").expect("written");
    fs::set_permissions(into.join("bin/shop"), fs::Permissions::from_mode(0o755)).expect("chmod");
}

#[test]
fn missing_emulator_is_reported_with_the_command_that_builds_it() {
    let (Some(erlang), cache) = (erlang(), folder()) else { return };
    let output = succeed(emulator(cache.path()).arg("list"));
    assert!(output.stdout.contains("beamtune emulator build"), "{}", output.stdout);
    let output = run(emulator(cache.path()).args(["run", "--no-kernel-poll", "--", "erl"]));
    let words =
        ["no lcnt emulator of ERTS", "jit", "without kernel poll", &text(&erlang), "--no-kernel-poll"];
    output.assert_refused(&words);
    let release = folder();
    copy_emulator(&erlang, release.path());
    run(emulator(cache.path()).args(["install", "--into", &text(release.path())]))
        .assert_refused(&["no lcnt emulator of ERTS", &format!("--for {}", text(release.path()))]);
    // An emulator of the same type would replace the release's own. This is refused even before an emulator is built.
    run(emulator(cache.path()).args(["install", "--type", "opt", "--into", &text(release.path())]))
        .assert_refused(&["the name of the release's own", "emulator run --type opt"]);
}

#[test]
fn folder_that_is_not_an_installation_is_refused() {
    let (cache, empty) = (folder(), folder());
    for args in [
        vec!["build".to_owned(), "--for".to_owned(), text(empty.path())],
        vec!["install".to_owned(), "--into".to_owned(), text(empty.path())],
    ] {
        run(emulator(cache.path()).args(&args)).assert_refused(&["no folder erts-VERSION with bin/beam.smp"]);
    }
    let mut alone = emulator(cache.path());
    alone.env("PATH", empty.path()).args(["run", "--", "mix"]);
    run(&mut alone).assert_refused(&["no erl is on the PATH", "--installation"]);
    run(emulator(cache.path()).args(["build", "--otp", "25/../3"])).assert_refused(&["not an OTP version"]);
}

#[test]
fn source_of_another_version_is_refused_before_the_build() {
    let (Some(erlang), cache, source) = (erlang(), folder(), folder()) else { return };
    if !can_build() {
        return;
    }
    fs::create_dir(source.path().join("erts")).expect("a folder");
    fs::write(source.path().join("OTP_VERSION"), "27.3.4.1\n").expect("written");
    fs::write(source.path().join("erts/vsn.mk"), "VSN = 15.2.7\n").expect("written");
    let build = || {
        let mut build = emulator(cache.path());
        build.args(["build", "--source", &text(source.path())]);
        run(&mut build)
    };
    build().assert_refused(&["no erts/configure", "otp_build autoconf"]);
    fs::write(source.path().join("erts/configure"), "#!/bin/sh\nexit 1\n").expect("written");
    let (erts, otp) = versions(&erlang);
    let own = format!("ERTS {erts} (OTP {otp})");
    let tarball = format!("otp_src_{otp}.tar.gz");
    build().assert_refused(&["ERTS 15.2.7 (OTP 27.3.4.1)", &own, &tarball, "--for or --otp"]);
    // No files remain in the cache.
    let entries = fs::read_dir(cache.path().join("beamtune/emulators")).expect("the cache").count();
    assert_eq!(entries, 0);
}

#[test]
fn missing_build_tools_are_reported_with_their_packages() {
    let (Some(erlang), cache, bin) = (erlang(), folder(), folder()) else { return };
    for program in ["sh", "env"] {
        let found = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(program));
        let found = found.into_iter().find(|file| file.exists()).expect("a shell");
        symlink(found, bin.path().join(program)).expect("a link");
    }
    let mut build = emulator(cache.path());
    build.args(["build", "--source", "debian", "--for", &text(&erlang)]).env("PATH", bin.path());
    run(&mut build).assert_refused(&[
        "without a C compiler, ",
        "apt-get install gcc libc6-dev make perl libncurses-dev zlib1g-dev linux-libc-dev g++",
        "dpkg-dev",
        "dnf install gcc glibc-devel",
        "apk add gcc musl-dev",
    ]);
}

#[test]
fn dockerfile_builds_the_emulator_of_a_running_node() {
    for otp in all_otps() {
        let node = TestNode::start(&otp, &[], "ok");
        let cache = folder();
        let mut lines = emulator(cache.path());
        lines.args(["install", "--dockerfile", "--for", &node.pid().to_string()]);
        let output = succeed(&mut lines);
        let (release, base) = match otp.release {
            23 => ("23.", "debian:bullseye"),
            25 => ("25.", "debian:bookworm"),
            27 => ("27.", "debian:trixie"),
            // Debian unstable has no version number.
            _ => ("", "debian:"),
        };
        for part in [
            format!("FROM {base}").as_str(),
            format!("OTP-{release}").as_str(),
            "COPY --from=beamtune-emulator /out/ /usr/lib/erlang/\n",
            "ENV ERL_AFLAGS=\"-emu_type lcnt\"\n",
            if otp.release == 23 { "-j$(nproc) lcnt && " } else { "-j$(nproc) lcnt FLAVOR=jit && " },
            "test \"$erts\" = ",
        ] {
            assert!(output.stdout.contains(part), "OTP {}: no {part:?} in\n{}", otp.release, output.stdout);
        }
    }
    let cache = folder();
    let mut lines = emulator(cache.path());
    lines.args(["install", "--dockerfile", "--otp", "27.3.4.1", "--base", "alpine:3.22", "--into", "/app"]);
    let output = succeed(&mut lines);
    assert!(output.stdout.contains("apk add --no-cache gcc musl-dev "), "{}", output.stdout);
    let mut lines = emulator(cache.path());
    lines.args(["install", "--dockerfile", "--for", "/", "--base", "alpine:3.22"]);
    run(&mut lines).assert_refused(&["no folder erts-VERSION"]);
    let mut lines = emulator(cache.path());
    run(lines.args(["install", "--dockerfile"])).assert_refused(&["--otp VERSION or --for TARGET"]);
}

/// This is a single test, since it may have to build the emulator first.
#[test]
fn programs_and_releases_run_with_a_built_emulator() {
    let (Some(erlang), cache) = (erlang(), folder()) else { return };
    if std::env::var_os(BUILD).is_some_and(|value| !value.is_empty()) {
        build(cache.path());
    } else if !link_users_build(cache.path(), &erlang) {
        eprintln!(
            "skipped, because no lcnt emulator was built for {}: `beamtune emulator build` builds one in a few minutes, and so does \
             this test with {BUILD}=1",
            text(&erlang)
        );
        return;
    }
    let second = succeed(emulator(cache.path()).arg("build"));
    assert!(second.stdout.contains("exists, built from"), "{}", second.stdout);
    // The emulator is also found if only the OTP version is known.
    let mut alone = emulator(cache.path());
    let second = succeed(alone.args(["build", "--otp", &versions(&erlang).1]).env("PATH", "/none"));
    assert!(second.stdout.contains("exists, built from"), "{}", second.stdout);
    run_as_ordinary_user(cache.path());
    run_commands(cache.path(), &erlang);
    run_release(cache.path(), &erlang);
    install_into_release(cache.path(), &erlang);
}

/// Builds an emulator into the cache.
fn build(cache: &Path) {
    let output = run_for(emulator(cache).arg("build"), BUILD_TIMEOUT);
    assert_eq!(output.status, Some(0), "{}\n{}", output.stdout, output.stderr);
    eprintln!("{}", output.stdout);
    let list = succeed(emulator(cache).args(["list", "--json"])).json();
    let about = &list[0]["about"];
    assert_eq!((&about["type"], &about["flavor"]), (&Value::from("lcnt"), &Value::from("jit")), "{list:#}");
    // The build leaves no other files.
    assert_eq!(fs::read_dir(cache.join("beamtune/emulators")).expect("the cache").count(), 1);
}

/// Links an emulator that the user has built into the cache. Returns false if absent.
fn link_users_build(cache: &Path, erlang: &Path) -> bool {
    let list = succeed(beamtune().args(["emulator", "list", "--json"])).json();
    let erts = versions(erlang).0;
    let is_default = |about: &Value| {
        about["type"] == "lcnt"
            && about["erts"] == *erts
            && about["options"]["kernel_poll"] == true
            && about["options"]["extra_msacc"] == false
    };
    let mut builds = list.as_array().expect("a list").iter().filter(|build| is_default(&build["about"]));
    let Some(file) = builds.next().and_then(|build| build["file"].as_str()) else { return false };
    let folder = Path::new(file).parent().expect("its folder");
    let emulators = cache.join("beamtune/emulators");
    fs::create_dir_all(&emulators).expect("folders");
    symlink(folder, emulators.join(folder.file_name().expect("a name"))).expect("a link");
    true
}

fn run_commands(cache: &Path, erlang: &Path) {
    let before = fingerprint(erlang);
    let ways: &[&[&str]] = if is_root() { &[&[], &["--overlay"]] } else { &[&["--overlay"]] };
    for way in ways {
        let run = |command: &[&str]| {
            let mut run = emulator(cache);
            run.arg("run").args(*way).arg("--").args(command);
            succeed(&mut run)
        };
        let output = run(&["erl", "-noshell", "-eval", PRINT_BUILD_TYPE]);
        assert_eq!(output.stdout.trim(), "lcnt", "{way:?}: {}", output.stderr);
        let output = run(&["sh", "-c", &format!("erl -noshell -eval '{PRINT_BUILD_TYPE}'")]);
        assert_eq!(output.stdout.trim(), "lcnt", "{way:?}: {}", output.stderr);
        // Also a node that is started by another node, and an escript.
        let mut starter = emulator(cache);
        starter.arg("run").args(*way).args(["--", "erl", "-noshell", "-eval"]);
        starter.arg("io:put_chars(os:cmd(os:getenv(\"INNER\"))), halt().");
        let output = succeed(starter.env("INNER", format!("erl -noshell -eval '{PRINT_BUILD_TYPE}'")));
        assert_eq!(output.stdout.trim(), "lcnt", "{way:?}: {}", output.stderr);
        let script = folder();
        let file = script.path().join("ask");
        fs::write(&file, format!("#!/usr/bin/env escript\nmain(_) -> {PRINT_BUILD_TYPE}\n"))
            .expect("written");
        let output = run(&["escript", &text(&file)]);
        assert_eq!(output.stdout.trim(), "lcnt", "{way:?}: {}", output.stderr);
        let elixir = Command::new("elixir").arg("--version").output().is_ok_and(|it| it.status.success());
        if elixir {
            let output = run(&["elixir", "-e", "IO.write(:erlang.system_info(:build_type))"]);
            assert_eq!(output.stdout.trim(), "lcnt", "{way:?}: {}", output.stderr);
        }
        // The exit status is that of the command.
        let mut failing = emulator(cache);
        failing.arg("run").args(*way).args(["--", "erl", "-noshell", "-eval", "halt(7)."]);
        assert_eq!(common::run(&mut failing).status, Some(7), "{way:?}");
    }
    assert_eq!(fingerprint(erlang), before, "the installation was changed");
    let outside = run(Command::new("erl").args(["-noshell", "-eval", PRINT_BUILD_TYPE]));
    assert_eq!(outside.stdout.trim(), "opt");
}

/// Runs commands as a user other than root, with a separate cache. The emulator is used by a mount in a user namespace, where that is
/// allowed, and by a folder of symbolic links.
fn run_as_ordinary_user(cache: &Path) {
    // If the user is not root, the other tests in this file already do this.
    if !is_root() {
        return;
    }
    let home = folder();
    let emulators = home.path().join("beamtune/emulators");
    fs::create_dir_all(&emulators).expect("folders");
    let mut copy = Command::new("cp");
    copy.args(["-rL", &text(&cache.join("beamtune/emulators/.")), &text(&emulators)]);
    succeed(&mut copy);
    succeed(Command::new("chown").args(["-R", "65534:65534", &text(home.path())]));
    let binary = beamtune().get_program().to_owned();
    let user = || {
        let mut user = Command::new("setpriv");
        user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        user.env("HOME", home.path()).env("XDG_CACHE_HOME", home.path()).env_remove("ERL_AFLAGS");
        user
    };
    if run(user().args(["test", "-x"]).arg(&binary)).status != Some(0) {
        eprintln!("skipped, because {} cannot be run by an ordinary user", text(Path::new(&binary)));
        return;
    }
    for way in [&["run"] as &[&str], &["run", "--overlay"]] {
        let mut erl = user();
        erl.arg(&binary).arg("emulator").args(way).args(["--", "erl", "-noshell", "-eval", PRINT_BUILD_TYPE]);
        let output = succeed(&mut erl);
        assert_eq!(output.stdout.trim(), "lcnt", "{way:?}: {}", output.stderr);
    }
}

/// Returns names, contents and modification times of an installation's programs.
fn fingerprint(erlang: &Path) -> Vec<String> {
    let folders = [erlang.join("bin"), erlang.to_owned()];
    let erts = fs::read_dir(erlang).expect("a folder").flatten().map(|entry| entry.path().join("bin"));
    let mut programs = Vec::new();
    for folder in folders.into_iter().chain(erts).filter(|folder| folder.is_dir()) {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let metadata = entry.metadata().expect("metadata");
            let mut content = DefaultHasher::new();
            fs::read(entry.path()).ok().hash(&mut content);
            programs.push(format!(
                "{:?} {:x} {:?}",
                entry.path(),
                content.finish(),
                metadata.modified().ok()
            ));
        }
    }
    programs.sort();
    programs
}

/// Creates a release like that of `mix release`: with its own ERTS, and a script that finds its own folder.
fn release(erlang: &Path, into: &Path) {
    let copied = Command::new("cp").args(["-a", "--", &format!("{}/.", text(erlang)), &text(into)]).status();
    assert!(copied.expect("cp").success());
    fs::remove_file(into.join("bin/erl")).expect("removed");
    let script = "#!/bin/sh\nROOTDIR=$(dirname \"$(dirname \"$(readlink -f \"$0\")\")\")\nBINDIR=$(echo \"$ROOTDIR\"/erts-*/bin)\n\
                  export ROOTDIR BINDIR EMU=beam PROGNAME=shop\nexec \"$BINDIR/erlexec\" -boot \"$ROOTDIR/bin/start_clean\" -noshell \"$@\"\n";
    fs::write(into.join("bin/shop"), script).expect("written");
    fs::set_permissions(into.join("bin/shop"), fs::Permissions::from_mode(0o755)).expect("chmod");
}

fn run_release(cache: &Path, erlang: &Path) {
    let folder = folder();
    release(erlang, folder.path());
    let shop = text(&folder.path().join("bin/shop"));
    let ways: &[&[&str]] = if is_root() { &[&[], &["--overlay"]] } else { &[&["--overlay"]] };
    for way in ways {
        let mut run = emulator(cache);
        run.arg("run").args(*way).args(["--", &shop, "-eval", PRINT_BUILD_TYPE]);
        let output = succeed(&mut run);
        assert_eq!(output.stdout.trim(), "lcnt", "{way:?}: {}", output.stderr);
    }
    let mut plain = Command::new(&shop);
    assert_eq!(succeed(plain.args(["-eval", PRINT_BUILD_TYPE])).stdout.trim(), "opt");
}

fn install_into_release(cache: &Path, erlang: &Path) {
    let folder = folder();
    release(erlang, folder.path());
    let into = text(folder.path());
    let output = succeed(emulator(cache).args(["install", "--into", &into]));
    assert!(
        output.stdout.contains("ERL_AFLAGS=\"-emu_type lcnt\"") && output.stdout.contains("  rm "),
        "{}",
        output.stdout
    );
    let shop = text(&folder.path().join("bin/shop"));
    let with =
        succeed(Command::new(&shop).args(["-eval", PRINT_BUILD_TYPE]).env("ERL_AFLAGS", "-emu_type lcnt"));
    assert_eq!(with.stdout.trim(), "lcnt");
    assert_eq!(succeed(Command::new(&shop).args(["-eval", PRINT_BUILD_TYPE])).stdout.trim(), "opt");
    let second = succeed(emulator(cache).args(["install", "--into", &into]));
    assert!(second.stdout.contains("is already installed"), "{}", second.stdout);
}

#[test]
fn ctrl_c_ends_a_build_and_leaves_no_files() {
    let (Some(erlang), cache, source) = (erlang(), folder(), folder()) else { return };
    if !can_build() {
        return;
    }
    for name in ["erts", "make"] {
        fs::create_dir(source.path().join(name)).expect("a folder");
        let configure = source.path().join(name).join("configure");
        fs::write(&configure, "#!/bin/sh\necho $$ > pid\nsleep 1000\n").expect("written");
        fs::set_permissions(&configure, fs::Permissions::from_mode(0o755)).expect("chmod");
    }
    fs::write(source.path().join("erts/vsn.mk"), format!("VSN = {}\n", versions(&erlang).0))
        .expect("written");
    let mut build = emulator(cache.path());
    build.args(["build", "--source", &text(source.path())]).stderr(std::process::Stdio::null());
    let mut process = Process::start(&mut build);
    let emulators = cache.path().join("beamtune/emulators");
    let mut configure = None;
    wait_until("the first command runs", || {
        let builds = fs::read_dir(&emulators).into_iter().flatten().flatten();
        let mut pids = builds.filter_map(|entry| {
            fs::read_to_string(entry.path().join("source/otp/make/pid")).ok()?.trim().parse::<u32>().ok()
        });
        configure = pids.next();
        assert!(process.child.try_wait().expect("wait").is_none(), "the build ended too early");
        configure.is_some()
    });
    process.signal("INT");
    assert_eq!(process.wait().code(), Some(2));
    assert_eq!(fs::read_dir(&emulators).expect("the cache").count(), 0);
    let configure = configure.expect("a process id");
    wait_until("the command has ended", || !Path::new(&format!("/proc/{configure}")).exists());
}
