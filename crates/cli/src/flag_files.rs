//! Reads files with emulator flags. A file that cannot be read is reported with its position and does not stop the others.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use beamtune_flags::source::{self, Format, Fragment, MAX_BYTES, Position, SourceError, Template, detect};
use beamtune_report::lint::Unread;
use beamtune_report::text::{clean_path, clean_words};
use clap::ValueEnum;

use crate::files::Snapshot;

/// Maximum length of a line. No flag needs a longer one, and positions in longer lines cannot be shown.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Folders with generated or third-party files. They are skipped unless the user names them.
const SKIPPED_FOLDERS: [&str; 8] =
    [".git", ".hg", ".svn", "_build", "deps", "node_modules", "target", ".elixir_ls"];

/// A file format on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatName {
    /// Arguments file for erl -args_file
    #[value(name = "vm.args")]
    VmArgs,
    /// vm.args.eex of a Mix release
    Eex,
    /// vm.args.src of relx or rebar3
    Src,
    /// Ansible template (Jinja)
    Jinja,
    /// .env file
    Env,
    /// Dockerfile
    Dockerfile,
    /// Docker Compose file
    Compose,
    /// Kubernetes YAML
    K8s,
    /// systemd unit
    Systemd,
    /// rabbitmq-env.conf
    Rabbitmq,
    /// ejabberdctl.cfg
    Ejabberd,
    /// Shell script
    Shell,
}

impl FormatName {
    pub fn format(self) -> Format {
        match self {
            FormatName::VmArgs => Format::VmArgs,
            FormatName::Eex => Format::VmArgsTemplate(Template::Eex),
            FormatName::Src => Format::VmArgsTemplate(Template::Overlay),
            FormatName::Jinja => Format::VmArgsTemplate(Template::Jinja),
            FormatName::Env => Format::EnvFile,
            FormatName::Dockerfile => Format::Dockerfile,
            FormatName::Compose => Format::Compose,
            FormatName::K8s => Format::Kubernetes,
            FormatName::Systemd => Format::SystemdUnit,
            FormatName::Rabbitmq => Format::RabbitmqEnv,
            FormatName::Ejabberd => Format::EjabberdCtl,
            FormatName::Shell => Format::Shell,
        }
    }
}

/// A file with flags.
#[derive(Debug)]
pub struct FlagFile {
    /// The path as the user wrote it.
    pub name: String,
    /// The file as it was read; `None` for standard input.
    pub snapshot: Option<Snapshot>,
    pub format: Format,
    pub text: String,
    pub fragments: Vec<Fragment>,
}

impl FlagFile {
    /// True if both are the same file, under any name.
    pub fn is_same_file(&self, other: &FlagFile) -> bool {
        let both = self.snapshot.as_ref().zip(other.snapshot.as_ref());
        both.is_some_and(|(one, other)| one.is_same_file(other))
    }
}

/// How a file was selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SelectedBy {
    /// The user named the file: it must contain flags.
    User,
    /// The file was found in a folder: it may be of any type.
    Folder,
}

/// Reads a file that the user named. The error message mentions `option`, which sets the format.
///
/// # Errors
/// If the file cannot be read, or its format is unknown.
pub fn file(path: &Path, read_as: Option<FormatName>, option: &str) -> Result<FlagFile, Unread> {
    let name = path.display().to_string();
    match read(path, read_as, SelectedBy::User)? {
        Some(text) => Ok(text),
        None => Err(Unread {
            at: None,
            message: format!("unknown file format; set it with {option}, for example {option} vm.args"),
            name,
        }),
    }
}

/// Removes duplicates: files that were named more than once.
pub fn deduplicate(texts: Vec<FlagFile>) -> Vec<FlagFile> {
    let mut known: Vec<FlagFile> = Vec::new();
    for text in texts {
        if !known.iter().any(|known| known.is_same_file(&text)) {
            known.push(text);
        }
    }
    known
}

/// Reads standard input. The error message mentions `option`, which sets the format.
///
/// # Errors
/// If standard input cannot be read, or its format is unknown.
pub fn standard_input(read_as: Option<FormatName>, option: &str) -> Result<FlagFile, Unread> {
    let name = "stdin".to_owned();
    let unread = |message: String| Unread { name: "stdin".to_owned(), at: None, message };
    let Some(format) = read_as.map(FormatName::format) else {
        return Err(unread(format!(
            "unknown format of standard input; set it with {option}, for example {option} vm.args"
        )));
    };
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| unread(error.to_string()))?;
    let text = text_of(&name, &bytes)?;
    ensure_short_lines(&name, &text)?;
    let fragments = source::read(format, &text).map_err(|error| unread_source(&name, &error))?;
    Ok(FlagFile { name, snapshot: None, format, text, fragments })
}

/// Reads all files with flags in a folder and its subfolders, sorted by name.
pub fn folder(path: &Path, texts: &mut Vec<FlagFile>, unread: &mut Vec<Unread>) {
    let mut files = Vec::new();
    walk(path, &mut files, unread);
    for path in files {
        match read(&path, None, SelectedBy::Folder) {
            // A file without flags is ignored.
            Ok(Some(text)) if text.fragments.is_empty() => {}
            Ok(text) => texts.extend(text),
            Err(error) => unread.push(error),
        }
    }
}

/// Collects all files that may contain flags. Symbolic links to folders are not followed, since they may form cycles.
fn walk(root: &Path, files: &mut Vec<PathBuf>, unread: &mut Vec<Unread>) {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let listed = fs::read_dir(&folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let mut entries = match listed {
            Ok(entries) => entries,
            Err(error) => {
                unread.push(Unread {
                    name: folder.display().to_string(),
                    at: None,
                    message: error.to_string(),
                });
                continue;
            }
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        let mut below = Vec::new();
        for entry in entries {
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() {
                let is_skipped = SKIPPED_FOLDERS.iter().any(|name| entry.file_name() == *name);
                if !is_skipped {
                    below.push(path);
                }
            } else if (kind.is_file() || (kind.is_symlink() && path.is_file())) && may_hold_flags(&path) {
                files.push(path);
            }
        }
        folders.extend(below.into_iter().rev());
    }
    files.sort();
}

/// True if a file may contain flags. Scripts often have no extension and are recognised by their first bytes.
fn may_hold_flags(path: &Path) -> bool {
    let text = path.to_string_lossy();
    if detect(&text, "").is_some() {
        return true;
    }
    let has_ending = path.file_name().is_some_and(|name| name.to_string_lossy().contains('.'));
    let mut first = [0; 64];
    let read =
        if has_ending { None } else { fs::File::open(path).and_then(|mut file| file.read(&mut first)).ok() };
    let first = first.get(..read.unwrap_or(0)).unwrap_or_default();
    first.starts_with(b"#!") && detect(&text, &String::from_utf8_lossy(first)).is_some()
}

/// Reads a file; `None` if its type cannot contain flags.
fn read(
    path: &Path,
    read_as: Option<FormatName>,
    selected_by: SelectedBy,
) -> Result<Option<FlagFile>, Unread> {
    let name = path.display().to_string();
    let unread = |message: String| Unread { name: name.clone(), at: None, message };
    let snapshot = Snapshot::read(path, MAX_BYTES).map_err(|error| unread(format!("{error:#}")))?;
    let format =
        |text: &str| read_as.map(FormatName::format).or_else(|| detect(&path.to_string_lossy(), text));
    let text = match text_of(&name, &snapshot.bytes) {
        Ok(text) => text,
        // Scripts in a folder named `default` have no extension, so any other file there looks like a script.
        Err(_)
            if selected_by == SelectedBy::Folder
                && format("") == Some(Format::Shell)
                && !name.ends_with("sh") =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let Some(format) = format(&text) else { return Ok(None) };
    if selected_by == SelectedBy::User {
        ensure_short_lines(&name, &text)?;
    }
    let fragments = source::read(format, &text).map_err(|error| unread_source(&name, &error))?;
    if !fragments.is_empty() {
        ensure_short_lines(&name, &text)?;
    }
    Ok(Some(FlagFile { name, snapshot: Some(snapshot), format, text, fragments }))
}

fn text_of(name: &str, bytes: &[u8]) -> Result<String, Unread> {
    if bytes.len() > MAX_BYTES {
        let error = SourceError::TooLarge { bytes: bytes.len(), limit: MAX_BYTES };
        return Err(Unread {
            name: name.to_owned(),
            at: None,
            message: error.to_string().replacen(
                &format!("{} bytes", bytes.len()),
                &format!("more than {MAX_BYTES} bytes"),
                1,
            ),
        });
    }
    source::text(bytes).map(str::to_owned).map_err(|error| unread_source(name, &error))
}

fn ensure_short_lines(name: &str, text: &str) -> Result<(), Unread> {
    let mut offset = 0;
    for (index, line) in text.split('\n').enumerate() {
        if line.len() > MAX_LINE_BYTES {
            return Err(Unread {
                name: name.to_owned(),
                at: Some(Position { offset, line: index + 1, column: 1 }),
                message: format!(
                    "the line has {} bytes, but the limit is {MAX_LINE_BYTES}; check that it is the right file",
                    line.len()
                ),
            });
        }
        offset += line.len() + 1;
    }
    Ok(())
}

/// Converts a reader's error, and separates its position from its message.
pub fn unread_source(name: &str, error: &SourceError) -> Unread {
    let at = error.position();
    let message = error.to_string();
    let prefix = at.map(|at| format!("{at}: ")).unwrap_or_default();
    let message = message.strip_prefix(&prefix).unwrap_or(&message).to_owned();
    Unread { name: name.to_owned(), at, message }
}

/// Formats the error as a line for the terminal: `rel/vm.args:3:1: …`.
pub fn render(unread: &Unread) -> String {
    let place = unread.at.map(|at| format!(":{at}")).unwrap_or_default();
    format!("{}{place}: {}\n", clean_path(&unread.name), clean_words(&unread.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[FlagFile], root: &Path) -> Vec<String> {
        let root = format!("{}/", root.display());
        texts.iter().map(|text| text.name.trim_start_matches(&root).to_owned()).collect()
    }

    #[test]
    fn files_of_a_folder_are_sorted_by_name() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &[u8]| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, text).expect("write");
        };
        write("rel/vm.args", b"+P 5000\n");
        write("a/.env", b"ERL_FLAGS=+P 5000\n");
        write("a/no-flags.env", b"A=b\n");
        write("bin/start", b"#!/bin/sh\nERL_FLAGS=+P exec x\n");
        write("bin/tool", b"\x7fELF\0");
        write("default/picture", b"\x89PNG\0");
        write("default/app", b"ERL_FLAGS=+Q\n");
        write("readme.md", b"+P 5000");
        for folder in SKIPPED_FOLDERS {
            write(&format!("{folder}/vm.args"), b"+P 5000\n");
        }
        std::os::unix::fs::symlink(root.path(), root.path().join("a/loop")).expect("link");
        let (mut texts, mut unread) = (Vec::new(), Vec::new());
        folder(root.path(), &mut texts, &mut unread);
        assert_eq!(unread, []);
        assert_eq!(names(&texts, root.path()), ["a/.env", "bin/start", "default/app", "rel/vm.args"]);
    }

    #[test]
    fn unreadable_files_are_reported_with_their_position() {
        let root = tempfile::tempdir().expect("a folder");
        let check = |name: &str, bytes: &[u8], expect: &str| {
            let path = root.path().join(name);
            fs::write(&path, bytes).expect("write");
            let line = render(&file(&path, None, "--as").expect_err(name));
            let line = line.trim_start_matches(&format!("{}/", root.path().display())).to_owned();
            assert!(line.starts_with(expect), "{line}");
            assert!(line.ends_with('\n') && line.lines().count() == 1, "{line}");
        };
        check("vm.args", b"+P 1\n-x 'a", "vm.args:2:4: this ' is never closed");
        check("vm.args", b"\x7fELF\0", "vm.args:1:5: a NUL byte");
        check("vm.args", b"a\xff", "vm.args:1:2: invalid UTF-8");
        check("vm.args.src", b"+P <%= x %>", "vm.args.src:1:4: `<%` belongs to another kind of template");
        check("vm.args.eex", b"+P <%= x", "vm.args.eex:1:4: `<%` is never closed");
        check("notes.txt", b"+P 1", "notes.txt: unknown file format");
        let long = [b"+P 1\n".as_slice(), &vec![b'x'; 10 << 20], b"\n"].concat();
        check("vm.args", &long, "vm.args:2:1: the line has 10485760 bytes");
        check("vm.args", &vec![b'\n'; MAX_BYTES + 1], "vm.args: the file has more than 33554432 bytes");
        let line = render(&file(&root.path().join("absent.args"), None, "--as").expect_err("absent"));
        assert!(line.contains("No such file"), "{line}");
    }

    #[test]
    fn a_file_that_is_named_twice_is_read_once() {
        let root = tempfile::tempdir().expect("a folder");
        let paths = ["vm.args", "link.args", "other.args"].map(|name| root.path().join(name));
        fs::write(&paths[0], "+P 5000\n").expect("write");
        std::os::unix::fs::symlink("vm.args", &paths[1]).expect("link");
        fs::write(&paths[2], "+P 5000\n").expect("write");
        let texts = paths.iter().chain(&paths).map(|path| file(path, None, "--from").expect("flags"));
        let once = deduplicate(texts.collect());
        assert_eq!(names(&once, root.path()), ["vm.args", "other.args"]);
    }

    #[test]
    fn the_user_can_set_the_format() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("notes.txt");
        fs::write(&path, "+P 5000\n").expect("write");
        let text = file(&path, Some(FormatName::VmArgs), "--as").expect("an args file");
        assert_eq!(text.fragments.len(), 1);
    }
}
