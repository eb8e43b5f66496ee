//! Compares the words that the reader of scripts finds in commands with those that a shell and `elixir` pass to `erl`. Both are run with
//! an `erl` that only records its arguments. Also compares the commands of the corpus with hand-written expectations.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use beamtune_flags::source::{Format, Place, detect, position, read};
use proptest::collection::vec;
use proptest::sample::select;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde::Deserialize;

/// A directory with fake `erl` programs that write their arguments to a file, with a NUL after each argument and a byte 1 after each call.
struct FakeErl {
    folder: tempfile::TempDir,
}

impl FakeErl {
    fn new() -> FakeErl {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["erl", "erlexec"] {
            let path = folder.path().join("bin").join(name);
            fs::create_dir_all(folder.path().join("bin")).expect("a folder");
            let script = "#!/bin/sh\nprintf '%s\\0' \"$@\" >> \"$CALLS\"\nprintf '\\1' >> \"$CALLS\"\n";
            fs::write(&path, script).expect("a program");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
        }
        fs::create_dir(folder.path().join("empty")).expect("a folder");
        FakeErl { folder }
    }

    /// Runs a command in an empty directory, and returns the arguments of each call of `erl`.
    fn calls(&self, command: &mut Command) -> Vec<Vec<String>> {
        let calls = self.folder.path().join("calls");
        fs::write(&calls, "").expect("a file");
        let path = format!("{}:/usr/bin:/bin", self.folder.path().join("bin").display());
        let output = command
            .current_dir(self.folder.path().join("empty"))
            .env_clear()
            .envs([("PATH", path.as_str()), ("A", "alpha"), ("HOME", "/nowhere"), ("NO_COLOR", "1")])
            .env("CALLS", &calls)
            .env("BINDIR", self.folder.path().join("bin"))
            .output()
            .expect("the command runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let bytes = fs::read(&calls).expect("calls");
        let call = |call: &[u8]| {
            let words = call.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
            let mut words: Vec<String> = words.collect();
            words.pop();
            words
        };
        let mut calls: Vec<Vec<String>> = bytes.split(|byte| *byte == 1).map(call).collect();
        calls.pop();
        calls
    }

    fn shells(&self, script: &str) -> Vec<(&'static str, Vec<Vec<String>>)> {
        let path = self.folder.path().join("script");
        fs::write(&path, script).expect("a script");
        let installed = ["sh", "bash"].into_iter().filter(|shell| Path::new("/bin").join(shell).exists());
        installed.map(|shell| (shell, self.calls(Command::new(shell).arg(&path)))).collect()
    }
}

/// Returns the words that our reader finds in a script, one list per command. `$A` in a dynamic word is replaced by `alpha`.
fn calls_by_our_reader(script: &str) -> Vec<Vec<String>> {
    let fragments = read(Format::Shell, script).unwrap_or_else(|error| panic!("{error}\n{script}"));
    let commands = fragments.iter().filter(|fragment| matches!(fragment.place, Place::CommandLine { .. }));
    let text = |text: &str, dynamic: bool| match dynamic {
        true => text.replace("${A}", "alpha").replace("$A", "alpha"),
        false => text.to_owned(),
    };
    commands
        .map(|fragment| fragment.words.iter().map(|word| text(&word.text, word.dynamic)).collect())
        .collect()
}

fn agree(fake: &FakeErl, script: &str) {
    let (shells, found) = (fake.shells(script), calls_by_our_reader(script));
    assert!(!shells.is_empty());
    for (shell, calls) in shells {
        for (found, call) in found.iter().zip(&calls) {
            assert_eq!(found, call, "{shell}");
        }
        assert_eq!(found.len(), calls.len(), "{shell}");
    }
}

#[test]
fn scripts_pass_to_erl_the_words_that_the_reader_finds() {
    let fake = FakeErl::new();
    for script in [
        "erl +P 5000 -sname 'a b' \"c\"\\ d '' \"\"\n",
        "erl -pa ebin deps/*/ebin \\\n  -eval 'x \"y\" $z \\n' \\\n  +Q \"$A\" -y \"a\\$A \\\"q\\\" \\x\" # why\n",
        "X=1 nohup erl -x >/dev/null 2>&1 </dev/null\n",
        "erl -x > log 2>&1 +P 1 2> log; erl -y;erl -z\n",
        "(exec \"$BINDIR/erlexec\" -boot ${A} -- a)\n",
        "if true; then env A=b nice -n 1 erl +P 1 || true; fi\n",
        "f() { erl -x \"$A\"; }; f\n",
        "erl -a && erl -b | cat\nerl -c &\nwait\n",
        "erl a\\\nb \"c\\\nd\" 'e\\\nf'\n",
        "sh -c 'erl +P 1 \"a  b\" \"'$A'\"'\n",
        "sh -ec \"erl -x '\\$A' \\\"\\$A\\\"\"\n",
        "case x in erl) ;; x) erl -x ;; esac\n",
        "cat <<E >/dev/null\nerl -no\nE\nerl -x <<'E'\nerl -no\nE\nerl -y\n",
        "timeout -s KILL 60 erl -x; setsid erl -y\n",
        "erl -x {a} = a=b ! [ ] ? 1 é\n",
        "erl -name a@b#c '#d' \\#e # f\n",
    ] {
        assert!(!calls_by_our_reader(script).is_empty(), "{script}");
        agree(&fake, script);
    }
}

#[test]
fn scripts_with_random_quotes_pass_to_erl_the_words_that_the_reader_finds() {
    const PIECES: &[&str] = &[
        "a",
        "+P",
        "5",
        "-x",
        "é",
        "=",
        ":",
        "{",
        "}",
        "@",
        "%",
        "+",
        "#",
        "''",
        "'b c'",
        "'\"'",
        "'\\'",
        "'$B #'",
        "\"\"",
        "\"d e\"",
        "\"'\"",
        "\"\\\"\"",
        "\"\\$B\"",
        "\"\\\\\"",
        "\"\\f\"",
        "\"$A\"",
        "\"${A} g\"",
        "${A}",
        "\\ ",
        "\\'",
        "\\\"",
        "\\\\",
        "\\$",
        "\\#",
        "\\\n",
        "'h\ni'",
        "\"j\nk\"",
    ];
    const BEFORE: &[&str] = &["", "", "exec ", "X='y z' ", "nohup ", "env -u X Y=1 ", "nice -n 1 setsid "];
    const BETWEEN: &[&str] = &[" ", "  ", "\t", " \\\n  ", " 2>/dev/null ", " </dev/null "];
    const AFTER: &[&str] =
        &["", " ", " # it's \"why\"", " >/dev/null 2>&1", " || true", ";", "; true", " && true"];
    // A word that starts with # would be a comment.
    let word = vec(select(PIECES), 1..5)
        .prop_map(|pieces| pieces.concat())
        .prop_filter("a comment", |word| !word.replace("\\\n", "").starts_with('#'));
    let words = vec((select(BETWEEN), word), 0..6);
    let command = (select(BEFORE), words, select(AFTER)).prop_map(|(before, words, after)| {
        let words: String = words.iter().map(|(between, word)| format!("{between}{word}")).collect();
        // Every piece closes its quotes, and a comment ends at the end of its line.
        format!("(\n{before}erl -begin{words}{after}\n)\n")
    });
    let seed = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), seed);
    let fake = FakeErl::new();
    let mut script = String::new();
    for _ in 0..400 {
        let command = command.new_tree(&mut runner).expect("a command").current();
        script.push_str(&command);
    }
    agree(&fake, &script);
}

/// Returns the directories with the scripts of all installed Elixir versions: that of the host, and those in the chroots of OTP releases.
fn elixirs() -> Vec<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let chroots = match std::env::var_os("BEAMTUNE_OTP_DIR") {
        Some(folder) => Some(PathBuf::from(folder)),
        None => cache.map(|cache| cache.join("beamtune/otp")),
    };
    let chroots = chroots.iter().flat_map(|root| ["23", "27", "29"].map(|release| root.join(release)));
    let folders =
        std::iter::once(PathBuf::from("/")).chain(chroots).map(|root| root.join("usr/lib/elixir/bin"));
    folders.filter(|folder| folder.join("elixir").exists()).collect()
}

/// Commands, each with an option that some versions of Elixir lack; empty if all versions have all options.
const OF_ELIXIR: &[(&str, &str)] = &[
    (
        "elixir --erl \"+P 5 -x '\\\"a b\\\"'\" --name \"$A@b\" --erl '+Q 1' --cookie 'c d' --hidden -pa x --no-halt -S mix run --erl +K",
        "",
    ),
    (
        "iex --sname a --vm-args 'v w' --boot x --boot-var LIB /lib --erl-config sys --dot-iex '' --erl +K -S mix --name z",
        "",
    ),
    ("elixir --logger-otp-reports x --erl -y x.exs", ""),
    ("elixir --app logger -r '*.ex' -pr x --werl --no-halt -e a --sname b --erl +K", "--werl"),
    ("elixir --color --erl +K x.exs", "--color"),
    ("iex --erl -x -v +iex --erl '' --erl '-y z'", ""),
    ("elixir x.exs --erl +K", ""),
    ("elixir --erl +K --unknown --erl +L", ""),
];

#[test]
fn every_elixir_passes_to_erl_the_words_that_the_reader_finds() {
    let elixirs = elixirs();
    if elixirs.is_empty() {
        println!("skipped, because elixir is not installed");
    }
    for folder in elixirs {
        let program = fs::read_to_string(folder.join("elixir")).expect("a script");
        let fake = FakeErl::new();
        for name in ["elixir", "iex"] {
            std::os::unix::fs::symlink(folder.join(name), fake.folder.path().join("bin").join(name))
                .expect("a link");
        }
        for (script, _) in OF_ELIXIR.iter().filter(|(_, option)| program.contains(option)) {
            let calls = fake.calls(Command::new("sh").args(["-c", script]));
            let [call] = calls.as_slice() else { panic!("{calls:?}\n{script}") };
            let flags = call.split(|word| word == "-extra").next().expect("flags");
            // Elixir first adds its own words, and `-hidden` if requested; the words of `--erl` and of other options follow.
            let is_own = |word: &str| {
                let fixed = "-noshell -s elixir start_cli -user Elixir.IEx.CLI -pa -elixir ansi_enabled true -elixir_root -hidden";
                fixed.split(' ').any(|own| own == word) || word.contains("/../lib")
            };
            let flags: Vec<&str> = flags.iter().map(String::as_str).skip_while(|word| is_own(word)).collect();
            let flags: Vec<&str> = flags.into_iter().filter(|word| *word != "-hidden").collect();
            let mut fragments = read(Format::Shell, script).expect(script);
            fragments.sort_by_key(|fragment| fragment.place.order());
            let words = fragments.iter().flat_map(|fragment| &fragment.words);
            let words = words.map(|word| word.text.replace("$A", "alpha")).filter(|word| word != "-hidden");
            assert_eq!(words.collect::<Vec<_>>(), flags, "{}\n{script}", folder.display());
        }
    }
}

/// The hand-written expectations of the words that a file of the corpus passes to `erl`.
#[derive(Deserialize)]
struct Expect {
    #[serde(default)]
    gets: Vec<Gets>,
}

#[derive(Deserialize)]
struct Gets {
    place: String,
    line: usize,
    words: Vec<String>,
}

/// Files whose expectations include words that the readers do not find, with the reason.
const NOT_READ: &[(&str, &str)] = &[("shell/probe/check.sh", "the VM is a helper, in a substitution")];

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "expect") {
            found.push(path.with_extension(""));
        }
    }
}

#[test]
fn commands_of_the_corpus_match_their_expectations() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/args");
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    let (mut wrong, mut commands) = (Vec::new(), 0);
    for path in paths {
        let name = path.strip_prefix(&root).expect("below").display().to_string();
        let expect = fs::read_to_string(format!("{}.expect", path.display())).expect("an expectation");
        let expect: Expect = toml::from_str(&expect).unwrap_or_else(|error| panic!("{name}: {error}"));
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let Some(format) = detect(&name, &text) else { continue };
        let fragments = read(format, &text).unwrap_or_default();
        let mut found: Vec<(usize, Vec<&str>)> = Vec::new();
        let mut expects_rest = false;
        for fragment in &fragments {
            if !matches!(fragment.place, Place::CommandLine { .. }) {
                continue;
            }
            let words: Vec<&str> = fragment.words.iter().map(|word| word.text.as_str()).collect();
            let is_cut = words.iter().rev().nth(1) == Some(&"-args_file");
            match found.last_mut() {
                // The words after an args file are a separate fragment.
                Some((_, before)) if expects_rest => before.extend(words),
                _ => found.push((position(&text, fragment.span().start).line, words)),
            }
            expects_rest = is_cut;
        }
        let is_command = |gets: &&Gets| gets.place == "command line";
        let expected: Vec<(usize, Vec<&str>)> = expect
            .gets
            .iter()
            .filter(is_command)
            .map(|gets| (gets.line, gets.words.iter().map(String::as_str).collect()))
            .collect();
        commands += found.len();
        if (found == expected) == NOT_READ.iter().any(|(file, _)| *file == name) {
            wrong.push(format!("{name}:\n  found {found:#?}\n  expected {expected:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(commands > 10, "{commands}");
}
