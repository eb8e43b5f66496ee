//! `beamtune emulator`: what it says without a build, and what runs with an emulator that was built: by the user, or, if
//! `BEAMTUNE_BUILD_EMULATOR` is set, by the test.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use beamtune_emulator::Flavor;
use beamtune_emulator::needs::{self, Need, Unpack};
use common::{
    PATIENCE, Running, Said, TestNode, all_otps, beamtune, folder, is_root, otp, run, run_for, text,
    wait_until,
};
use serde_json::Value;

/// Set it to build for the Erlang of this machine, of Debian's source, and to run programs with it: some minutes, and 700 MB.
const BUILD: &str = "BEAMTUNE_BUILD_EMULATOR";
/// A build takes 2 to 4 minutes on two quiet cores.
const BUILD_PATIENCE: Duration = Duration::from_secs(1_800);
/// What a VM says of itself.
const ASK: &str = "io:put_chars(atom_to_list(erlang:system_info(build_type))), halt().";

/// The subcommand, with a cache of its own.
fn emulator(cache: &Path) -> Command {
    let mut command = beamtune();
    command.arg("emulator").env("XDG_CACHE_HOME", cache);
    command
}

/// What a command says, that must end well.
#[track_caller]
fn well(command: &mut Command) -> Said {
    let said = run_for(command, 3 * PATIENCE);
    assert_eq!(said.status, Some(0), "{}\n{}", said.stdout, said.stderr);
    said
}

/// The folder of this machine's own Erlang.
fn erlang() -> Option<PathBuf> {
    otp(25)?.root.is_none().then_some(())?;
    let root = run(Command::new("erl").args(["-noshell", "-eval", "io:put_chars(code:root_dir()), halt()."]));
    Some(PathBuf::from(root.stdout.trim()))
}

/// Its versions of ERTS and OTP.
fn versions(erlang: &Path) -> (String, String) {
    let names = fs::read_dir(erlang).expect("a folder").flatten().map(|entry| entry.file_name());
    let mut names = names.filter_map(|name| name.into_string().ok());
    let erts = names.find_map(|name| name.strip_prefix("erts-").map(str::to_owned)).expect("an ERTS");
    let otp = fs::read_to_string(erlang.join("releases/25/OTP_VERSION")).expect("a version");
    (erts, otp.trim().to_owned())
}

/// Whether what a build needs is there; what is not has been said.
fn can_build() -> bool {
    let checked = needs::check(&needs::needs(Flavor::Jit, Unpack::Nothing), Need::is_there);
    if let Err(error) = &checked {
        eprintln!("skipped, because no emulator can be built here: {error}");
    }
    checked.is_ok()
}

/// A folder that is like an installation or a release, with its emulator by another name of the same file.
fn like(installation: &Path, into: &Path) {
    let bin = format!("erts-{}/bin", versions(installation).0);
    fs::create_dir_all(into.join(&bin)).expect("folders");
    let beam = format!("{bin}/beam.smp");
    fs::copy(installation.join(&beam), into.join(&beam)).expect("copied");
    fs::create_dir_all(into.join("bin")).expect("folders");
    fs::write(into.join("bin/shop"), "#!/bin/sh\n").expect("written");
    fs::set_permissions(into.join("bin/shop"), fs::Permissions::from_mode(0o755)).expect("chmod");
}

#[test]
fn without_an_emulator_it_is_said_how_to_build_one() {
    let (Some(erlang), cache) = (erlang(), folder()) else { return };
    let said = well(emulator(cache.path()).arg("list"));
    assert!(said.stdout.contains("beamtune emulator build"), "{}", said.stdout);
    let said = run(emulator(cache.path()).args(["run", "--no-kernel-poll", "--", "erl"]));
    let words =
        ["no lcnt emulator of ERTS", "jit", "without kernel poll", &text(&erlang), "--no-kernel-poll"];
    said.assert_refused(&words);
    let release = folder();
    like(&erlang, release.path());
    run(emulator(cache.path()).args(["install", "--into", &text(release.path())]))
        .assert_refused(&["no lcnt emulator of ERTS", &format!("--for {}", text(release.path()))]);
    // Before somebody builds one in vain.
    run(emulator(cache.path()).args(["install", "--type", "opt", "--into", &text(release.path())]))
        .assert_refused(&["the name of the release's own", "emulator run --type opt"]);
}

#[test]
fn what_is_no_installation_is_refused() {
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
    run(emulator(cache.path()).args(["build", "--otp", "25/../3"])).assert_refused(&["no version of OTP"]);
}

#[test]
fn a_source_of_another_version_is_refused_before_anything_is_built() {
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
    // Nothing is left.
    let left = fs::read_dir(cache.path().join("beamtune/emulators")).expect("the cache").count();
    assert_eq!(left, 0);
}

#[test]
fn what_a_build_lacks_is_told_with_its_packages() {
    let (Some(erlang), cache, bin) = (erlang(), folder(), folder()) else { return };
    for program in ["sh", "env"] {
        let found = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(program));
        let found = found.into_iter().find(|file| file.exists()).expect("a shell");
        symlink(found, bin.path().join(program)).expect("a link");
    }
    let mut build = emulator(cache.path());
    build.args(["build", "--source", "debian", "--for", &text(&erlang)]).env("PATH", bin.path());
    run(&mut build).assert_refused(&[
        "this is missing: a C compiler, ",
        "apt-get install gcc libc6-dev make perl libncurses-dev zlib1g-dev linux-libc-dev g++",
        "dpkg-dev",
        "dnf install gcc glibc-devel",
        "apk add gcc musl-dev",
    ]);
}

#[test]
fn an_image_gets_the_emulator_of_a_node_that_runs_here() {
    for otp in all_otps() {
        let node = TestNode::start(&otp, &[], "ok");
        let cache = folder();
        let mut lines = emulator(cache.path());
        lines.args(["install", "--dockerfile", "--for", &node.pid().to_string()]);
        let said = well(&mut lines);
        let (release, base) = match otp.release {
            23 => ("23.", "debian:bullseye"),
            25 => ("25.", "debian:bookworm"),
            27 => ("27.", "debian:trixie"),
            // Of unstable there is no number.
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
            assert!(said.stdout.contains(part), "OTP {}: no {part:?} in\n{}", otp.release, said.stdout);
        }
    }
    let cache = folder();
    let mut lines = emulator(cache.path());
    lines.args(["install", "--dockerfile", "--otp", "27.3.4.1", "--base", "alpine:3.22", "--into", "/app"]);
    let said = well(&mut lines);
    assert!(said.stdout.contains("apk add --no-cache gcc musl-dev "), "{}", said.stdout);
    let mut lines = emulator(cache.path());
    lines.args(["install", "--dockerfile", "--for", "/", "--base", "alpine:3.22"]);
    run(&mut lines).assert_refused(&["no folder erts-VERSION"]);
    let mut lines = emulator(cache.path());
    run(lines.args(["install", "--dockerfile"])).assert_refused(&["--otp VERSION or --for TARGET"]);
}

/// One test, since it may have to build first.
#[test]
fn everything_runs_with_an_emulator_that_was_built() {
    let (Some(erlang), cache) = (erlang(), folder()) else { return };
    if std::env::var_os(BUILD).is_some_and(|value| !value.is_empty()) {
        built(cache.path());
    } else if !found(cache.path(), &erlang) {
        eprintln!(
            "skipped, because no emulator that counts locks was built for {}: beamtune emulator build makes one in some minutes, and so does \
             this test with {BUILD}=1",
            text(&erlang)
        );
        return;
    }
    let again = well(emulator(cache.path()).arg("build"));
    assert!(again.stdout.contains("is there already"), "{}", again.stdout);
    // Also where nothing but the version of OTP is known.
    let mut alone = emulator(cache.path());
    let again = well(alone.args(["build", "--otp", &versions(&erlang).1]).env("PATH", "/none"));
    assert!(again.stdout.contains("is there already"), "{}", again.stdout);
    an_ordinary_user_runs_it(cache.path());
    commands_run_with_it(cache.path(), &erlang);
    a_release_runs_with_it(cache.path(), &erlang);
    it_is_installed_beside_the_releases_own(cache.path(), &erlang);
}

/// Builds it.
fn built(cache: &Path) {
    let said = run_for(emulator(cache).arg("build"), BUILD_PATIENCE);
    assert_eq!(said.status, Some(0), "{}\n{}", said.stdout, said.stderr);
    eprintln!("{}", said.stdout);
    let list = well(emulator(cache).args(["list", "--json"])).json();
    let about = &list[0]["about"];
    assert_eq!((&about["type"], &about["flavor"]), (&Value::from("lcnt"), &Value::from("jit")), "{list:#}");
    // Only that is left.
    assert_eq!(fs::read_dir(cache.join("beamtune/emulators")).expect("the cache").count(), 1);
}

/// Brings the one into the cache that the user has built, if there is one.
fn found(cache: &Path, erlang: &Path) -> bool {
    let list = well(beamtune().args(["emulator", "list", "--json"])).json();
    let erts = versions(erlang).0;
    let is_usual = |about: &Value| {
        about["type"] == "lcnt"
            && about["erts"] == *erts
            && about["options"]["kernel_poll"] == true
            && about["options"]["extra_msacc"] == false
    };
    let mut kept = list.as_array().expect("a list").iter().filter(|kept| is_usual(&kept["about"]));
    let Some(file) = kept.next().and_then(|kept| kept["file"].as_str()) else { return false };
    let folder = Path::new(file).parent().expect("its folder");
    let emulators = cache.join("beamtune/emulators");
    fs::create_dir_all(&emulators).expect("folders");
    symlink(folder, emulators.join(folder.file_name().expect("a name"))).expect("a link");
    true
}

fn commands_run_with_it(cache: &Path, erlang: &Path) {
    let before = stamp(erlang);
    let ways: &[&[&str]] = if is_root() { &[&[], &["--overlay"]] } else { &[&["--overlay"]] };
    for way in ways {
        let run = |command: &[&str]| {
            let mut run = emulator(cache);
            run.arg("run").args(*way).arg("--").args(command);
            well(&mut run)
        };
        let said = run(&["erl", "-noshell", "-eval", ASK]);
        assert_eq!(said.stdout.trim(), "lcnt", "{way:?}: {}", said.stderr);
        let said = run(&["sh", "-c", &format!("erl -noshell -eval '{ASK}'")]);
        assert_eq!(said.stdout.trim(), "lcnt", "{way:?}: {}", said.stderr);
        // A node that a node starts, and a script of Erlang's own kind.
        let mut starter = emulator(cache);
        starter.arg("run").args(*way).args(["--", "erl", "-noshell", "-eval"]);
        starter.arg("io:put_chars(os:cmd(os:getenv(\"INNER\"))), halt().");
        let said = well(starter.env("INNER", format!("erl -noshell -eval '{ASK}'")));
        assert_eq!(said.stdout.trim(), "lcnt", "{way:?}: {}", said.stderr);
        let script = folder();
        let file = script.path().join("ask");
        fs::write(&file, format!("#!/usr/bin/env escript\nmain(_) -> {ASK}\n")).expect("written");
        let said = run(&["escript", &text(&file)]);
        assert_eq!(said.stdout.trim(), "lcnt", "{way:?}: {}", said.stderr);
        let elixir = Command::new("elixir").arg("--version").output().is_ok_and(|it| it.status.success());
        if elixir {
            let said = run(&["elixir", "-e", "IO.write(:erlang.system_info(:build_type))"]);
            assert_eq!(said.stdout.trim(), "lcnt", "{way:?}: {}", said.stderr);
        }
        // Its exit status is that of the command.
        let mut failing = emulator(cache);
        failing.arg("run").args(*way).args(["--", "erl", "-noshell", "-eval", "halt(7)."]);
        assert_eq!(common::run(&mut failing).status, Some(7), "{way:?}");
    }
    assert_eq!(stamp(erlang), before, "the installation was changed");
    let outside = run(Command::new("erl").args(["-noshell", "-eval", ASK]));
    assert_eq!(outside.stdout.trim(), "opt");
}

/// Who is not root, and has a cache of his own: by a mount in a user namespace where that is allowed, and by a folder of links.
fn an_ordinary_user_runs_it(cache: &Path) {
    // Who is none of root's runs all else of this file so.
    if !is_root() {
        return;
    }
    let home = folder();
    let emulators = home.path().join("beamtune/emulators");
    fs::create_dir_all(&emulators).expect("folders");
    let mut copy = Command::new("cp");
    copy.args(["-rL", &text(&cache.join("beamtune/emulators/.")), &text(&emulators)]);
    well(&mut copy);
    well(Command::new("chown").args(["-R", "65534:65534", &text(home.path())]));
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
        erl.arg(&binary).arg("emulator").args(way).args(["--", "erl", "-noshell", "-eval", ASK]);
        let said = well(&mut erl);
        assert_eq!(said.stdout.trim(), "lcnt", "{way:?}: {}", said.stderr);
    }
}

/// Names, contents and times of the programs of an installation.
fn stamp(erlang: &Path) -> Vec<String> {
    let folders = [erlang.join("bin"), erlang.to_owned()];
    let erts = fs::read_dir(erlang).expect("a folder").flatten().map(|entry| entry.path().join("bin"));
    let mut stamps = Vec::new();
    for folder in folders.into_iter().chain(erts).filter(|folder| folder.is_dir()) {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let metadata = entry.metadata().expect("metadata");
            let mut content = DefaultHasher::new();
            fs::read(entry.path()).ok().hash(&mut content);
            stamps.push(format!("{:?} {:x} {:?}", entry.path(), content.finish(), metadata.modified().ok()));
        }
    }
    stamps.sort();
    stamps
}

/// A release as mix makes one, as far as starting it goes: links to libraries, its own ERTS, a script that looks where it stands.
fn release(erlang: &Path, into: &Path) {
    let copied = Command::new("cp").args(["-a", "--", &format!("{}/.", text(erlang)), &text(into)]).status();
    assert!(copied.expect("cp").success());
    fs::remove_file(into.join("bin/erl")).expect("removed");
    let script = "#!/bin/sh\nROOTDIR=$(dirname \"$(dirname \"$(readlink -f \"$0\")\")\")\nBINDIR=$(echo \"$ROOTDIR\"/erts-*/bin)\n\
                  export ROOTDIR BINDIR EMU=beam PROGNAME=shop\nexec \"$BINDIR/erlexec\" -boot \"$ROOTDIR/bin/start_clean\" -noshell \"$@\"\n";
    fs::write(into.join("bin/shop"), script).expect("written");
    fs::set_permissions(into.join("bin/shop"), fs::Permissions::from_mode(0o755)).expect("chmod");
}

fn a_release_runs_with_it(cache: &Path, erlang: &Path) {
    let folder = folder();
    release(erlang, folder.path());
    let shop = text(&folder.path().join("bin/shop"));
    let ways: &[&[&str]] = if is_root() { &[&[], &["--overlay"]] } else { &[&["--overlay"]] };
    for way in ways {
        let mut run = emulator(cache);
        run.arg("run").args(*way).args(["--", &shop, "-eval", ASK]);
        let said = well(&mut run);
        assert_eq!(said.stdout.trim(), "lcnt", "{way:?}: {}", said.stderr);
    }
    let mut plain = Command::new(&shop);
    assert_eq!(well(plain.args(["-eval", ASK])).stdout.trim(), "opt");
}

fn it_is_installed_beside_the_releases_own(cache: &Path, erlang: &Path) {
    let folder = folder();
    release(erlang, folder.path());
    let into = text(folder.path());
    let said = well(emulator(cache).args(["install", "--into", &into]));
    assert!(
        said.stdout.contains("ERL_AFLAGS=\"-emu_type lcnt\"") && said.stdout.contains("  rm "),
        "{}",
        said.stdout
    );
    let shop = text(&folder.path().join("bin/shop"));
    let with = well(Command::new(&shop).args(["-eval", ASK]).env("ERL_AFLAGS", "-emu_type lcnt"));
    assert_eq!(with.stdout.trim(), "lcnt");
    assert_eq!(well(Command::new(&shop).args(["-eval", ASK])).stdout.trim(), "opt");
    let again = well(emulator(cache).args(["install", "--into", &into]));
    assert!(again.stdout.contains("was there already"), "{}", again.stdout);
}

#[test]
fn ctrl_c_ends_a_build_and_leaves_nothing() {
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
    let mut running = Running::start(&mut build);
    let kept = cache.path().join("beamtune/emulators");
    let mut configure = None;
    wait_until("the first command runs", || {
        let builds = fs::read_dir(&kept).into_iter().flatten().flatten();
        let mut pids = builds.filter_map(|entry| {
            fs::read_to_string(entry.path().join("source/otp/make/pid")).ok()?.trim().parse::<u32>().ok()
        });
        configure = pids.next();
        assert!(running.child.try_wait().expect("wait").is_none(), "it ended before");
        configure.is_some()
    });
    running.signal("INT");
    assert_eq!(running.wait().code(), Some(2));
    assert_eq!(fs::read_dir(&kept).expect("the cache").count(), 0);
    let configure = configure.expect("its number");
    wait_until("the command is gone", || !Path::new(&format!("/proc/{configure}")).exists());
}
