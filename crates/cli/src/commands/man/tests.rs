use std::process::Command as Program;

use clap::CommandFactory;
use tempfile::TempDir;

use super::*;
use crate::Cli;

/// If this variable is set, the tests write the generated pages and tables instead of comparing them.
const REGENERATE: &str = "BEAMTUNE_REGENERATE_DOCS";

/// Width of the help texts in docs/reference/commands.md, in columns.
const HELP_COLUMNS: usize = 100;

/// Writes the files of `beamtune man` to a new folder.
fn written() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    run(&Args { folder: folder.path().to_owned() }, &Cli::command()).expect("written");
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

/// Adds the names of all visible commands to `found`, such as `study show`.
fn visible_commands(command: &Command, words: &str, found: &mut Vec<String>) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let name = format!("{words}{}", below.get_name());
        visible_commands(below, &format!("{name} "), found);
        found.push(name);
    }
}

#[test]
fn exactly_the_visible_commands_have_a_page() {
    let folder = written();
    let mut commands = Vec::new();
    visible_commands(&Cli::command(), "", &mut commands);
    assert!(commands.contains(&"doctor".to_owned()) && commands.contains(&"study show".to_owned()));
    let mut pages: Vec<String> =
        commands.iter().map(|name| format!("beamtune-{}.1", name.replace(' ', "-"))).collect();
    pages.push("beamtune.1".to_owned());
    pages.sort();
    assert_eq!(names(&folder.path().join("man")), pages);
    assert_eq!(names(&folder.path().join("completions")), ["_beamtune", "beamtune.bash", "beamtune.fish"]);
}

/// Runs a program on a file, and returns what it printed to standard error; `None` if it is not installed.
fn complaints(program: &str, args: &[&str], file: &Path) -> Option<String> {
    let output = Program::new(program).args(args).arg(file).env("LC_ALL", "C.UTF-8").output();
    let Ok(output) = output else {
        eprintln!("skipped, because {program} is not installed");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Some(if output.status.success() { text } else { format!("{text}{}", output.status) })
}

#[test]
fn pages_are_formatted_without_a_warning() {
    let folder = written();
    let pages = folder.path().join("man");
    for name in names(&pages) {
        let page = pages.join(&name);
        // These are the options that Debian's lintian uses.
        let man = ["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"];
        assert_eq!(complaints("man", &man, &page).unwrap_or_default(), "", "man, {name}");
        let mandoc = ["-T", "lint", "-W", "error"];
        assert_eq!(complaints("mandoc", &mandoc, &page).unwrap_or_default(), "", "mandoc, {name}");
    }
}

#[test]
fn completions_are_valid_and_complete_a_command() {
    let folder = written();
    let completions = folder.path().join("completions");
    let file = |name: &str| completions.join(name);
    for (shell, name) in [("bash", "beamtune.bash"), ("zsh", "_beamtune"), ("fish", "beamtune.fish")] {
        assert_eq!(complaints(shell, &["-n"], &file(name)).unwrap_or_default(), "", "{name}");
    }
    let complete = "source \"$1\"; COMP_WORDS=(beamtune \"$2\"); COMP_CWORD=1; _beamtune beamtune \"$2\" beamtune; \
                    echo \"${COMPREPLY[*]}\"";
    let completed = |word: &str| {
        let output =
            Program::new("bash").args(["-c", complete, "bash"]).arg(file("beamtune.bash")).arg(word).output();
        String::from_utf8(output.expect("bash").stdout).expect("text")
    };
    assert_eq!(completed("doc").trim(), "doctor");
    // `man` and `guard` are hidden.
    assert_eq!(completed("m").trim(), "memory");
    assert_eq!(completed("g").trim(), "");
}

#[test]
fn commands_with_an_exit_status_exist() {
    let mut commands = Vec::new();
    visible_commands(&Cli::command(), "", &mut commands);
    for name in STATUS.iter().flat_map(|row| row.commands) {
        assert!(commands.iter().any(|command| command == name), "{name}");
    }
    assert!(STATUS.last().is_some_and(|row| row.commands.is_empty()));
}

/// Renders docs/reference/commands.md: the help texts of all commands.
fn commands_page() -> String {
    let root = visible(&Cli::command());
    let commands: Vec<&Command> = commands(&root).into_iter().skip(1).collect();
    let name = |command: &Command| {
        let name = command.get_bin_name().unwrap_or_default();
        name.trim_start_matches("beamtune ").to_owned()
    };
    let links: Vec<String> = commands
        .iter()
        .map(|command| format!("[{}](#{})", name(command), name(command).replace(' ', "-")))
        .collect();
    let mut page = format!(
        "# Options of all commands\n\n\
         What `beamtune COMMAND -h` prints; `--help` explains more. Generated: change the help texts, and then run\n\
         `{REGENERATE}=1 cargo test -p beamtune man::`.\n\n{}\n",
        links.join(" · ")
    );
    for command in commands {
        let help = command.clone().term_width(HELP_COLUMNS).render_help().to_string();
        let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
        page.push_str(&format!("\n## {}\n\n```\n{}\n```\n", name(command), help.join("\n")));
    }
    page
}

fn exit_status_table() -> String {
    let mut table = "| command | 0 | 1 | 2 |\n|---|---|---|---|\n".to_owned();
    for row in STATUS {
        let commands: Vec<String> = row.commands.iter().map(|name| format!("`{name}`")).collect();
        let commands = if commands.is_empty() { "all others".to_owned() } else { commands.join(", ") };
        table.push_str(&format!("| {commands} | {} |\n", row.meanings.join(" | ")));
    }
    table
}

fn environment_table() -> String {
    let mut table = "| variable | effect |\n|---|---|\n".to_owned();
    for (name, effect) in ENVIRONMENT {
        table.push_str(&format!("| `{name}` | {effect} |\n"));
    }
    table
}

/// Compares a page with its generated text, or writes it.
fn check(path: &Path, expected: &str) {
    if std::env::var_os(REGENERATE).is_some() {
        fs::write(path, expected).expect("written");
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == expected,
        "{} differs from the commands; regenerate it with {REGENERATE}=1 cargo test -p beamtune man::",
        path.display()
    );
}

#[test]
fn reference_pages_match_the_commands() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    check(&folder.join("commands.md"), &commands_page());

    let readme = folder.join("README.md");
    let mut text = fs::read_to_string(&readme).expect("docs/reference/README.md");
    for (name, table) in [("exit status", exit_status_table()), ("environment", environment_table())] {
        let (begin, end) = (format!("<!-- {name}: generated -->\n"), format!("<!-- end of {name} -->"));
        let (before, rest) = text.split_once(&begin).expect("a begin marker");
        let (_, after) = rest.split_once(&end).expect("an end marker");
        text = format!("{before}{begin}{table}{end}{after}");
    }
    check(&readme, &text);

    let mut commands = Vec::new();
    visible_commands(&Cli::command(), "", &mut commands);
    for command in commands.iter().filter(|name| !name.contains(' ')) {
        assert!(text.contains(&format!("| `{command}")), "{command} is not in the list of commands");
    }
}
