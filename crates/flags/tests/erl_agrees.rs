//! Compares the reader of args files and variables with the launcher of each OTP release: a real `erl` parses the same texts, and must
//! find the same words.
//!
//! Words after `-extra` are passed to the program unchanged, and `init:get_plain_arguments/0` returns them. A single VM can therefore
//! report how it parses hundreds of files. A few whole files are compared flag by flag.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

use beamtune_flags::source::{Format, SourceError, read};
use proptest::collection::vec;
use proptest::sample::select;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const RELEASES: [u32; 4] = [23, 25, 27, 29];

/// Texts with known or likely pitfalls.
const PICKED: &[&str] = &[
    "",
    " ",
    "\n\n",
    "a",
    "a b",
    "a\tb\nc\rd\u{b}e\u{c}f",
    "a\r\nb\r\n",
    "# comment",
    "# comment\n",
    "a # comment\nb",
    "a# comment\nb",
    "pa#ss",
    "'pa#ss'",
    "\"pa#ss\"",
    "pa\\#ss",
    "# it's a \"comment\nb",
    "#\n#\na#\n#b",
    "'a b'",
    "\"a b\"",
    "'a \"b\" c'",
    "\"a 'b' c\"",
    "a' 'b\" \"c",
    "''",
    "\"\"",
    "'' \"\" x",
    "a '' b",
    "\"\\\"x\\\"\"",
    "'\\'",
    "\"\\\\\"",
    "\"\\n\"",
    "\\\"x\\\"",
    "\\'",
    "\\\\",
    "\\ ",
    "a\\ b",
    "a\\",
    "\\",
    "a \\",
    "a\\\nb",
    "-x \\\n+P 100 \\\n+Q 200",
    "a \\\r\nb",
    "'a\nb'",
    "\"a\n# b\nc\"",
    "-eval \"io:format(\\\"x~n\\\")\"",
    "-eval 'io:format(\"x~n\")'",
    "-kernel inet_dist_use_interface {127,0,0,1}",
    "-couch_dist no_tls '\"clouseau@127.0.0.1\"'",
    "-couch_dist no_tls \\\"*@127.0.0.1\\\"",
    "-mnesia dir '\"/var/lib/x y\"'",
    "-setcookie \"a#b c'd\"",
    "--",
    "a -- b",
    "-args_file nowhere",
    "-extra b",
    "+P 1 -extra",
    "é \u{a0} \u{85} 日本",
    "a\u{a0}b",
    "\u{feff}+P 1",
    "$HOME ${HOME} $(x) `y` %x% ~ * ?",
    "<%= x %> {{ y }}",
    "unclosed 'a b\n# c \" d",
    "unclosed \"a b\n# c ' d",
    "unclosed \"",
    "'unclosed",
    "a'b\"c'd\"e f",
    ";|&<>()!",
];

/// The parts of generated texts.
const PIECES: &[&str] = &[
    "a",
    "+P",
    "-x",
    "5000",
    " ",
    " ",
    "  ",
    "\t",
    "\n",
    "\n",
    "\r\n",
    "\u{b}",
    "\u{c}",
    "#",
    "# ",
    "'",
    "'",
    "\"",
    "\"",
    "\\",
    "\\\n",
    "\\\"",
    "\\'",
    "\\\\",
    "\\ ",
    "\\#",
    "''",
    "\"\"",
    "'a b'",
    "\"c # d\"",
    "é",
    "\u{a0}",
    "\u{85}",
    "--",
    "{a,\"b\"}",
    "[\"x y\"]",
    "x#y",
    "$y",
    "-extra",
];

fn generated(count: usize) -> Vec<String> {
    let seed = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), seed);
    let texts = vec(select(PIECES), 1..14).prop_map(|pieces| pieces.concat());
    (0..count).map(|_| texts.new_tree(&mut runner).expect("no filter").current()).collect()
}

/// An installed release.
struct Erl {
    release: u32,
    /// The directory of the chroot; `None` for the installation of the host.
    root: Option<PathBuf>,
}

impl Erl {
    fn find(release: u32) -> Option<Erl> {
        if release == 25 {
            let print = "io:put_chars(erlang:system_info(otp_release)), halt().";
            let own = Command::new("erl").args(["-noshell", "-eval", print]).output();
            return own.is_ok_and(|output| output.stdout == b"25").then_some(Erl { release, root: None });
        }
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        let all = match std::env::var_os("BEAMTUNE_OTP_DIR") {
            Some(folder) => PathBuf::from(folder),
            None => cache?.join("beamtune/otp"),
        };
        let root = all.join(release.to_string());
        root.join(".complete").exists().then_some(Erl { release, root: Some(root) })
    }

    fn command(&self) -> Command {
        let mut command = match &self.root {
            None => Command::new("erl"),
            Some(root) => {
                let mut command = Command::new("chroot");
                command.arg(root).arg("erl");
                command
            }
        };
        // Arguments are UTF-8, and the VM must not read the flags in the environment of the test.
        command.env("LC_ALL", "C.UTF-8");
        for name in ["ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"] {
            command.env_remove(name);
        }
        command
    }

    /// Creates a directory that this release can access, and returns it with its path within the chroot.
    fn folder(&self) -> (tempfile::TempDir, PathBuf) {
        let root = self.root.clone().unwrap_or_else(|| PathBuf::from("/"));
        let folder = tempfile::tempdir_in(root.join("tmp")).expect("a folder");
        let inside = Path::new("/").join(folder.path().strip_prefix(&root).expect("below the root"));
        (folder, inside)
    }

    /// Whether the launcher adds `--` after a text that contains `-extra`. OTP 27 and later do not.
    fn ends_with_dashes(&self) -> bool {
        self.release < 27
    }
}

fn on_each_release(test: impl Fn(&Erl)) {
    for release in RELEASES {
        match Erl::find(release) {
            Some(erl) => test(&erl),
            None => println!("skipped, because OTP {release} is not installed (make otp)"),
        }
    }
}

/// Words as lists of code points, as the VM prints them.
type Words = Vec<Vec<u32>>;

fn numbers(words: &[String]) -> Words {
    words.iter().map(|word| word.chars().map(u32::from).collect()).collect()
}

/// Parses the `~w` output of a list of strings.
fn printed(text: &str) -> Words {
    let inside = text.trim().strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let inside = inside.unwrap_or_else(|| panic!("{text:?} is not a list"));
    let words = inside.split_inclusive(']').map(|word| {
        let word = word.trim_start_matches(',').trim_start_matches('[').trim_end_matches(']');
        word.split(',')
            .filter(|number| !number.is_empty())
            .map(|number| number.parse().expect(text))
            .collect()
    });
    words.collect()
}

/// Returns the words that our reader finds in a text. For an unclosed quote, the launcher ends the quote at the end of the text, but our
/// reader reports an error. In this case, the quote is closed and the text is parsed again.
fn ours(format: Format, text: &str) -> Vec<String> {
    let file = match read(format, text) {
        Ok(_) => text.to_owned(),
        Err(SourceError::UnclosedQuote { quote, .. }) => format!("{text}{quote}"),
        Err(error) => panic!("{error}: {text:?}"),
    };
    let fragments = read(format, &file).unwrap_or_else(|error| panic!("{error}: {file:?}"));
    let [fragment] = fragments.as_slice() else { panic!("{fragments:?}") };
    fragment.words.iter().map(|word| word.text.clone()).collect()
}

/// Returns the words that our reader finds in the value of a variable. The value is written to an `.env` file, in double quotes.
fn ours_of_variable(value: &str) -> Vec<String> {
    let line =
        format!("ERL_FLAGS=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$"));
    match read(Format::EnvFile, &line) {
        Err(SourceError::UnclosedQuote { quote, .. }) => ours_of_variable(&format!("{value}{quote}")),
        _ => ours(Format::EnvFile, &line),
    }
}

#[test]
fn args_files_are_split_as_by_each_release() {
    let mut texts: Vec<String> = PICKED.iter().map(|text| (*text).to_owned()).collect();
    texts.extend(generated(400));
    on_each_release(|erl| {
        let (folder, inside) = erl.folder();
        let mut command = erl.command();
        let mut expected = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            let name = format!("{index}.args");
            let file = format!("-extra case {text}");
            std::fs::write(folder.path().join(&name), &file).expect("a file");
            command.arg("-args_file").arg(inside.join(&name));
            let mut words = ours(Format::VmArgs, &file).split_off(1);
            words.extend(erl.ends_with_dashes().then(|| "--".to_owned()));
            expected.push(words);
        }
        let print = "io:format(\"~w~n\", [init:get_plain_arguments()]), halt().";
        let output = command.args(["-noshell", "-eval", print]).output().expect("erl runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "OTP {}: {error}", erl.release);
        let mut rest = printed(&String::from_utf8_lossy(&output.stdout));
        for (text, words) in texts.iter().zip(&expected) {
            let theirs: Words = rest.drain(..words.len().min(rest.len())).collect();
            assert_eq!(theirs, numbers(words), "OTP {}: {text:?}, ours {words:?}", erl.release);
        }
        assert!(rest.is_empty(), "OTP {}: {rest:?} is left", erl.release);
    });
}

#[test]
fn variables_are_split_as_by_each_release() {
    // In an `.env` file, texts with `<%` would be templates.
    let picked = PICKED.iter().filter(|text| !text.contains("<%"));
    let mut texts: Vec<String> = picked.map(|text| (*text).to_owned()).collect();
    texts.extend(generated(260));
    on_each_release(|erl| {
        let of_release = format!("ERL_OTP{}_FLAGS", erl.release);
        // This is the order in which the launcher joins the variables.
        let names = [of_release.as_str(), "ERL_AFLAGS", "ERL_FLAGS", "ERL_ZFLAGS"];
        for four in texts.chunks(4) {
            let mut command = erl.command();
            let mut expected: Vec<String> = Vec::new();
            for (name, text) in names.iter().zip(four) {
                let value = format!("-extra case {text}");
                expected.extend(ours_of_variable(&value).split_off(1));
                expected.extend(erl.ends_with_dashes().then(|| "--".to_owned()));
                command.env(name, value);
            }
            // The launcher prints the arguments for the emulator, one per line, without starting the emulator.
            let output = command.arg("-emu_args_exit").output().expect("erl runs");
            let printed = String::from_utf8(output.stdout).expect("UTF-8");
            let (_, theirs) = printed.split_once("\n-extra\n").unwrap_or_else(|| panic!("{printed}"));
            let lines: String = expected.iter().flat_map(|word| [word.as_str(), "\n"]).collect();
            assert_eq!(theirs, lines, "OTP {}: {four:?}", erl.release);
        }
    });
}

/// Whole files. Every flag takes one value, in the next word or in the same one.
const FILES: &[&str] = &[
    "## Name\n-setcookie monster\n\n+P 65536 # processes\n+sbwt none\r\n+sbwtdcpu none\r\n+SDio2\n-kernel net_ticktime 30 inet_dist_listen_min 9100\n",
    "-env ERL_CRASH_DUMP /dev/null +A 4\n'+hms' \"400\"\n-x \"a b\" 'c \"d\"' e\\ f\n+MBas aobf +zdbbl4096\n-extra +P 5000 -y z\n",
    "+Q 4096\n+pa#ss\n",
    "+t 100000 -boot_var A 'b c'\n-a\n-b '' x\n+SP 100:100",
    "-pa /a/b -pa '/c d'\n+C multi_time_warp\n+swt 'low' -hidden\n",
];

#[test]
fn flags_and_arguments_of_whole_files_agree_with_each_release() {
    on_each_release(|erl| {
        let (folder, inside) = erl.folder();
        for (index, text) in FILES.iter().enumerate() {
            // A VM does not start with an unknown flag, but erlexec can print the parsed words.
            let refused = text.contains("+pa#");
            let name = format!("{index}.args");
            std::fs::write(folder.path().join(&name), text).expect("a file");
            let words = ours(Format::VmArgs, text);
            let mut command = erl.command();
            command.arg("-args_file").arg(inside.join(&name));
            if refused {
                let output = command.arg("-emu_args_exit").output().expect("erl runs");
                let printed = String::from_utf8_lossy(&output.stdout);
                assert!(printed.contains("-Q\n4096\n-pa\n"), "OTP {}: {printed}", erl.release);
                assert_eq!(words, ["+Q", "4096", "+pa"]);
                continue;
            }
            let print = "io:format(\"~w~n~w~n~w~n\", [erlang:system_info(emu_args), \
                [[atom_to_list(F) | V] || {F, V} <- init:get_arguments()], init:get_plain_arguments()]), halt().";
            let output = command.args(["-noshell", "-eval", print]).output().expect("erl runs");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "OTP {}: {text:?}: {error}", erl.release);
            let printed_text = String::from_utf8_lossy(&output.stdout).into_owned();
            let lines: Vec<&str> = printed_text.lines().collect();
            let [emulator, arguments, plain] = lines.as_slice() else { panic!("{printed_text}") };
            let ours = Sorted::from_words(&words);
            // The first word is the name of the emulator; words after `--` are for init.
            let dashes = numbers(&["--".to_owned()]);
            let mut emulator = printed(emulator).split_off(1);
            emulator.truncate(emulator.iter().position(|word| *word == dashes[0]).unwrap_or(emulator.len()));
            assert_eq!(emulator, numbers(&ours.emulator), "OTP {}: {text:?}", erl.release);
            let all = nested(arguments);
            for argument in &ours.arguments {
                assert!(all.contains(&numbers(argument)), "OTP {}: {argument:?} of {text:?}", erl.release);
            }
            let mut theirs = printed(plain);
            theirs.retain(|word| *word != dashes[0]);
            assert_eq!(theirs, numbers(&ours.plain), "OTP {}: {text:?}", erl.release);
        }
    });
}

/// Words, grouped by the program that receives them.
struct Sorted {
    emulator: Vec<String>,
    arguments: Vec<Vec<String>>,
    plain: Vec<String>,
}

impl Sorted {
    fn from_words(words: &[String]) -> Sorted {
        let mut sorted = Sorted { emulator: Vec::new(), arguments: Vec::new(), plain: Vec::new() };
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            if word == "-extra" {
                sorted.plain.extend(words.by_ref().cloned());
            } else if word == "-env" {
                // The launcher itself processes `-env` and its two words.
                words.nth(1);
            } else if let Some(flag) = word.strip_prefix('+') {
                sorted.emulator.push(format!("-{flag}"));
                let glued = flag.ends_with(|c: char| c.is_ascii_digit());
                if !glued {
                    sorted.emulator.extend(words.next().cloned());
                }
            } else if let Some(flag) = word.strip_prefix('-') {
                let mut argument = vec![flag.to_owned()];
                while let Some(value) = words.next_if(|next| !next.starts_with(['-', '+'])) {
                    argument.push(value.clone());
                }
                sorted.arguments.push(argument);
            }
        }
        sorted
    }
}

/// Parses the `~w` output of a list of lists of strings.
fn nested(text: &str) -> Vec<Words> {
    let mut lists = Vec::new();
    let mut depth = 0;
    let mut begin = 0;
    for (at, c) in text.char_indices() {
        match c {
            '[' => {
                depth += 1;
                if depth == 2 {
                    begin = at;
                }
            }
            ']' => {
                if depth == 2 {
                    lists.push(printed(&text[begin..=at]));
                }
                depth -= 1;
            }
            _ => {}
        }
    }
    lists
}
