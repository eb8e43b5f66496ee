//! Builds an emulator from a source and stores it in the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cache::{Cache, CachedEmulator, Manifest, Workplace};
use crate::check::{Check, results};
use crate::error::Error;
use crate::installation::{boot, find, search_path};
use crate::kind::{Identity, Variant};
use crate::needs::{self, SCTP};
use crate::program::{Elf, Program};
use crate::recipe::{Recipe, Stage};
use crate::source::{Source, Tree};
use crate::work::{BuildObserver, Work};

/// A request to build an emulator.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// Type, flavor and options.
    pub variant: Variant,
    /// The ERTS version that the source must have, if a target is known.
    pub erts: Option<String>,
    /// The OTP version that the source must have; ignored if `erts` is known.
    pub otp: Option<String>,
    /// Where the source comes from.
    pub source: Source,
    /// Number of files to compile in parallel.
    pub jobs: usize,
    /// The folder of an installation with the same version. The new emulator is also tested with its Erlang code. The folder must
    /// be trusted, since that code runs as our user.
    pub root: Option<PathBuf>,
}

/// The result of a build.
#[derive(Debug, Clone)]
pub struct Built {
    /// The emulator in the cache.
    pub kept: CachedEmulator,
    /// The total time.
    pub took: Duration,
    /// The time of each stage, in order.
    pub stages: Vec<(Stage, Duration)>,
}

/// Returns the architecture and C library of this host, for which emulators are built.
///
/// # Errors
/// If the shell, whose ELF headers name both, cannot be read.
pub fn host() -> Result<Elf, Error> {
    // Every system has a shell, which is linked like its other programs. beamtune itself may be linked differently.
    let shell = find("sh".as_ref(), search_path().as_deref()).unwrap_or_else(|| PathBuf::from("/bin/sh"));
    Elf::read(&shell)
}

/// Checks that an emulator built on this host runs where `target` does.
///
/// # Errors
/// If architecture or C library differ.
pub fn check_machine(what: &str, target: &Elf, host: &Elf) -> Result<(), Error> {
    if target == host {
        return Ok(());
    }
    let describe = |elf: &Elf| format!("{} with {}", elf.architecture, elf.libc.name());
    Err(Error::OtherMachine {
        what: what.to_owned(),
        found: describe(target),
        host: describe(host),
        next: "build it on such a system, or in its image: beamtune emulator install --dockerfile prints the lines for that",
    })
}

/// Builds an emulator and stores it in `cache`.
///
/// # Errors
/// If something is missing, the source has another version, a command fails, or the user cancels. Also if the new emulator does
/// not start or differs from the request. In all cases, only the log of a failed command remains.
pub fn build(order: &BuildRequest, cache: &Cache, watch: &mut dyn BuildObserver) -> Result<Built, Error> {
    check_folder(cache.root())?;
    let needs = needs::needs(order.variant.flavor, order.source.unpack());
    needs::check(&needs, needs::Requirement::is_installed)?;
    let workplace = cache.workplace()?;
    let log = workplace.path().join("log");
    let mut work = Work::new(watch, cache.root(), log.clone(), order.source.stage());
    let made = make(order, &workplace, &mut work);
    let Made { emulator, tree, description } = match made {
        Ok(made) => made,
        Err(Error::Step { what, how, last, .. }) => {
            return Err(Error::Step { what, how, last, log: cache.keep_log(&log) });
        }
        Err(other) => return Err(other),
    };
    let bytes = fs::metadata(&emulator).map_err(|source| Error::io(&emulator, source))?.len();
    let Program { elf, erts, flavor, glibc, .. } = Program::read(&emulator)?;
    let variant = Variant { flavor, ..order.variant };
    let identity = Identity { erts, variant, architecture: elf.architecture, libc: elf.libc };
    let (took, stages) = work.end();
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let about = Manifest { identity, otp: tree.otp, source: description, glibc, bytes, took_ms };
    Ok(Built { kept: cache.keep(&workplace, about, &emulator)?, took, stages })
}

/// Checks that make and OTP's scripts can build in a folder: they use its name unquoted in rules and commands.
fn check_folder(folder: &Path) -> Result<&str, Error> {
    let is_special = |c: char| c.is_whitespace() || c.is_control() || "#$%&'\"()*:;<=>?[\\]`|".contains(c);
    folder.to_str().filter(|name| !name.contains(is_special)).ok_or_else(|| {
        Error::Usage(format!(
            "make cannot build in {}: its name has blanks or characters that are special to make or a shell; set XDG_CACHE_HOME to another \
             folder",
            folder.display()
        ))
    })
}

/// A new emulator, not yet in the cache.
struct Made {
    emulator: PathBuf,
    tree: Tree,
    /// Description of the source, for the manifest.
    description: String,
}

fn make(order: &BuildRequest, workplace: &Workplace, work: &mut Work<'_>) -> Result<Made, Error> {
    let (tree, description) = order.source.fetch(work, order.otp.as_deref(), &workplace.folder("source")?)?;
    work.stage(Stage::Configuring);
    tree.verify(&description, order.erts.as_deref(), order.otp.as_deref())?;
    let top = check_folder(&tree.root)?;
    let recipe = Recipe::new(
        top,
        &tree.erts,
        order.variant,
        tree.layout,
        SCTP.is_installed(),
        &order.jobs.max(1).to_string(),
    );
    let temporary = workplace.folder("tmp")?;
    for step in &recipe.steps {
        work.stage(step.stage);
        let mut command = Command::new(&step.program);
        command.args(&step.arguments).current_dir(tree.root.join(step.folder));
        command.envs(recipe.environment.iter().map(|(name, value)| (*name, value)));
        // Temporary files of compilers go to the disk whose free space was checked.
        command.env("TMPDIR", &temporary);
        let what = format!("{} {}", step.stage.name(), step.folder);
        work.run(what.trim_end_matches([' ', '.']), &mut command)?;
    }
    let kind = order.variant.kind;
    let (built, child_setup) = results(&tree.root.join("bin"), kind).ok_or_else(|| Error::Unusable {
        why: format!("make left no {} with its erl_child_setup", kind.file()),
    })?;
    let emulator = workplace.path().join(kind.file());
    // Symbols are kept: profilers need them for call stacks.
    work.run("strip", Command::new("strip").arg("-g").arg("-o").arg(&emulator).arg(&built))?;
    work.stage(Stage::Checking);
    let bootstrap = tree.root.join("bootstrap");
    check(order, workplace, &emulator, &child_setup, &tree.erts, &bootstrap)?;
    Ok(Made { emulator, tree, description })
}

/// Starts the new emulator with the bootstrap code of the source, and with the code of the installation, if one is given. A
/// cleaned checkout has no bootstrap code. Without an installation, there is then nothing to start the emulator with.
fn check(
    order: &BuildRequest,
    workplace: &Workplace,
    emulator: &Path,
    child_setup: &Path,
    erts: &str,
    bootstrap: &Path,
) -> Result<(), Error> {
    let roots = [bootstrap].into_iter().chain(order.root.as_deref());
    let roots: Vec<&Path> = roots.filter(|root| boot(root).is_some()).collect();
    if roots.is_empty() {
        let why = "there is no Erlang code to test it with: specify the folder of an installation with --for";
        return Err(Error::Unusable { why: why.to_owned() });
    }
    for (root, name) in roots.into_iter().zip(["check", "check-installed"]) {
        let scratch = workplace.folder(name)?;
        Check { emulator, child_setup, root, scratch: &scratch }.run(erts, order.variant)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::installation::tests::file;
    use crate::kind::{Flavor, Libc, Options, Type};
    use crate::program::tests::emulator;
    use crate::source::tests::source;
    use crate::work::tests::CancelAfter;

    fn order(source: &Path) -> BuildRequest {
        let variant = Variant { kind: Type::Lcnt, flavor: Flavor::Jit, options: Options::default() };
        BuildRequest {
            variant,
            erts: Some("13.1.5".to_owned()),
            otp: Some("25.2.3".to_owned()),
            source: Source::Folder(source.to_owned()),
            jobs: 1,
            root: None,
        }
    }

    /// Returns whether everything that a build needs is installed.
    fn can_build() -> bool {
        let needs = needs::needs(Flavor::Jit, needs::Unpack::Nothing);
        let checked = needs::check(&needs, needs::Requirement::is_installed);
        if let Err(error) = &checked {
            eprintln!("skipped, because no emulator can be built here: {error}");
        }
        checked.is_ok()
    }

    #[test]
    fn a_cancelled_build_leaves_nothing() {
        if !can_build() {
            return;
        }
        let (source, folder) = (source(), tempfile::tempdir().expect("a folder"));
        file(&source.path().join("make/configure"), b"#!/bin/sh\nexec sleep 1000\n");
        let cache = Cache::at(folder.path());
        let error = build(&order(source.path()), &cache, &mut CancelAfter(60)).expect_err("it was ended");
        assert!(matches!(error, Error::Cancelled), "{error}");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn a_failed_build_leaves_only_its_log() {
        if !can_build() {
            return;
        }
        let (source, folder) = (source(), tempfile::tempdir().expect("a folder"));
        file(&source.path().join("erts/configure"), b"#!/bin/sh\necho 'error: no curses'; exit 1\n");
        let cache = Cache::at(folder.path());
        let error =
            build(&order(source.path()), &cache, &mut CancelAfter(10_000)).expect_err("it fails").to_string();
        assert!(error.contains("configuring erts failed (exit status: 1): error: no curses"), "{error}");
        let log = folder.path().join("failed.log");
        assert!(error.ends_with(&log.display().to_string()), "{error}");
        let left: Vec<_> = fs::read_dir(folder.path()).expect("a folder").flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn a_folder_that_make_cannot_use_is_refused_first() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a b", "a:b", "a$b", "it's", "a#b"] {
            let cache = Cache::at(folder.path().join(name));
            let error =
                build(&order(folder.path()), &cache, &mut CancelAfter(1)).expect_err("refused").to_string();
            assert!(error.contains("XDG_CACHE_HOME"), "{error}");
            assert!(!cache.root().exists());
        }
        check_folder(Path::new("/home/jörg/.cache/x_y-z+1,2@3")).expect("nothing special");
    }

    #[test]
    fn a_source_of_another_version_is_not_built() {
        if !can_build() {
            return;
        }
        let (source, folder) = (source(), tempfile::tempdir().expect("a folder"));
        let order = BuildRequest { erts: Some("15.2.7".to_owned()), ..order(source.path()) };
        let error =
            build(&order, &Cache::at(folder.path()), &mut CancelAfter(10_000)).expect_err("another version");
        assert!(matches!(error, Error::WrongVersion { .. }), "{error}");
    }

    #[test]
    fn an_emulator_for_another_machine_or_c_library_is_refused() {
        let elf = |architecture: &str, libc| Elf { architecture: architecture.to_owned(), libc };
        let host = elf("x86_64", Libc::Glibc);
        check_machine("x", &elf("x86_64", Libc::Glibc), &host).expect("the same");
        let error = check_machine("/app/beam.smp", &elf("x86_64", Libc::Musl), &host).expect_err("musl");
        let error = error.to_string();
        assert!(error.contains("x86_64 with musl, this host is x86_64 with glibc"), "{error}");
        check_machine("x", &elf("aarch64", Libc::Glibc), &host).expect_err("another machine");
    }

    #[test]
    fn host_is_identified_by_its_shell() {
        let host = host().expect("a shell");
        assert!(!host.architecture.is_empty());
        // The fake emulator of the tests can be read like a real one.
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("beam.smp");
        file(&path, &emulator("Erlang/OTP 25%s [erts-13.1.5] [64-bit] [jit:ns%s]"));
        assert_eq!(Program::read(&path).expect("an emulator").erts, "13.1.5");
    }
}
