//! Compiles the native library of a lab with the C compiler of this host.
//!
//! `erl_nif.h` is searched for in the Erlang that will load the library, then in those on this host. An older release can load the
//! library if it does not need a newer NIF interface.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::erlang::Erlang;
use crate::host::Conditions;

/// Compilers to try after the one in `CC`.
const COMPILERS: [&str; 2] = ["cc", "gcc"];

/// Folders in which Linux distributions install Erlang.
const USUAL_ROOTS: [&str; 3] = ["/usr/lib/erlang", "/usr/local/lib/erlang", "/usr/lib64/erlang"];

/// The folder of the header, below the root of an Erlang installation.
const HEADER_FOLDER: &str = "usr/include";

/// Compiles `source` into a library next to it.
pub fn compile(source: &Path, erlang: &Erlang) -> Result<()> {
    let compilers = compilers();
    let folders: Vec<PathBuf> = roots(erlang).into_iter().map(|root| root.join(HEADER_FOLDER)).collect();
    compile_with(source, &compilers, &folders)
}

/// True if a C compiler works.
pub fn has_compiler() -> bool {
    let works = |name: &String| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    compilers().iter().any(works)
}

fn compilers() -> Vec<String> {
    std::env::var("CC").ok().into_iter().chain(COMPILERS.map(str::to_owned)).collect()
}

fn compile_with(source: &Path, compilers: &[String], folders: &[PathBuf]) -> Result<()> {
    let Some(folder) = folders.iter().find(|folder| folder.join("erl_nif.h").is_file()) else {
        let places: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        bail!(
            "the lab needs erl_nif.h, which is not in {}: install the headers of Erlang (on Debian: apt-get install erlang-dev)",
            places.join(" or ")
        );
    };
    for compiler in compilers {
        let mut command = Command::new(compiler);
        command.args(["-shared", "-fPIC", "-O2", "-Wall", "-o"]).arg(source.with_extension("so"));
        command.arg("-I").arg(folder).arg(source);
        match command.output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => bail!(
                "the lab's native library does not compile with {compiler}:\n{}",
                String::from_utf8_lossy(&output.stderr)
            ),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot run {compiler}")),
        }
    }
    bail!(
        "the lab needs a C compiler, and none of {} works: install one (on Debian: apt-get install gcc libc6-dev)",
        compilers.join(", ")
    )
}

/// Returns the root folders of Erlang installations; that of the lab's Erlang is first.
fn roots(erlang: &Erlang) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = root_of(erlang).into_iter().collect();
    if erlang.root.is_some() || erlang.erl.is_some() {
        roots.extend(root_of(&Erlang::default()));
    }
    roots.extend(USUAL_ROOTS.map(PathBuf::from));
    let mut seen = Vec::new();
    roots.retain(|root| {
        !seen.contains(root) && {
            seen.push(root.clone());
            true
        }
    });
    roots
}

/// Returns the root folder of an Erlang installation, as seen from this host; `None` if its VM does not start.
fn root_of(erlang: &Erlang) -> Option<PathBuf> {
    let mut command = erlang.command(&erlang.erl(), &Conditions::default());
    command.args(["-noshell", "-boot", "start_clean", "-eval", "io:put_chars(code:root_dir()), halt()."]);
    let output = command.output().ok().filter(|output| output.status.success())?;
    let root = PathBuf::from(String::from_utf8(output.stdout).ok()?);
    Some(match &erlang.root {
        Some(outside) => outside.join(root.strip_prefix("/").unwrap_or(&root)),
        None => root,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a folder with a header and this source.
    fn folder(source: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("erl_nif.h"), "").expect("a header");
        let path = folder.path().join("x.c");
        std::fs::write(&path, source).expect("a source");
        (folder, path)
    }

    fn message(result: Result<()>) -> String {
        format!("{:#}", result.expect_err("compilation must fail"))
    }

    #[test]
    fn the_error_without_a_header_names_its_package() {
        let (_folder, source) = folder("");
        let error = message(compile_with(&source, &["cc".to_owned()], &["/nowhere/usr/include".into()]));
        assert!(error.contains("erlang-dev") && error.contains("/nowhere/usr/include"), "{error}");
    }

    #[test]
    fn the_error_without_a_compiler_names_its_package() {
        let (folder, source) = folder("");
        let error = message(compile_with(&source, &["no-such-compiler".to_owned()], &[folder.path().into()]));
        assert!(error.contains("no-such-compiler") && error.contains("apt-get install gcc"), "{error}");
    }

    #[test]
    fn the_output_of_the_compiler_is_part_of_the_error() {
        let (folder, source) = folder("");
        // `false` takes the place of a compiler that fails.
        let error = message(compile_with(&source, &["false".to_owned()], &[folder.path().into()]));
        assert!(error.contains("does not compile with false"), "{error}");
    }

    #[test]
    fn compilers_are_tried_in_order() {
        let (folder, source) = folder("");
        let compilers = ["no-such-compiler".to_owned(), "true".to_owned()];
        assert!(compile_with(&source, &compilers, &[folder.path().into()]).is_ok());
    }
}
