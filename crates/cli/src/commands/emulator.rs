//! `beamtune emulator`: builds emulators that match an Erlang installation, and starts commands with them.

mod target_erlang;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_emulator::build::{self, BuildRequest, check_machine};
use beamtune_emulator::cache::{Cache, CachedEmulator};
use beamtune_emulator::install::{self, DEFAULT_ROOT, Image, base_image, default_flavor, package_manager};
use beamtune_emulator::installation::search_path;
use beamtune_emulator::kind::{Libc, is_version};
use beamtune_emulator::mount::{MountOutcome, mount_over};
use beamtune_emulator::needs::PackageManager;
use beamtune_emulator::program::{Elf, Program};
use beamtune_emulator::recipe::Stage;
use beamtune_emulator::source::{Source, tarball_url};
use beamtune_emulator::{
    BuildObserver, Error, Flavor, Identity, Installation, Options, Type, Variant, overlay,
};
use beamtune_report::table::{Align, Table};
use beamtune_report::{json, text};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::signals::stop_flag;
use crate::terminal::{self, Progress};
use target_erlang::TargetErlang;

/// Build and use emulators that match an Erlang installation
///
/// For example, an emulator that counts locks.
#[derive(clap::Subcommand)]
pub enum Args {
    /// Build an emulator for an installed OTP version
    ///
    /// Takes 2 to 4 minutes, and temporarily 700 MB of disk space. The emulator is kept for later commands.
    Build(BuildArgs),
    /// Run a command with a built emulator instead of the installed one
    ///
    /// The installation is not changed.
    Run(RunArgs),
    /// Install an emulator into a release, or print Dockerfile lines for it
    Install(InstallArgs),
    /// List the built emulators
    List(ListArgs),
}

/// The variant of an emulator.
#[derive(clap::Args)]
struct VariantArgs {
    /// Emulator type: lcnt (counts locks) or opt (OTP's default type)
    #[arg(long = "type", value_name = "TYPE", value_parser = Type::parse, default_value = "lcnt")]
    kind: Type,
    /// Wait for sockets with poll instead of epoll
    #[arg(long)]
    no_kernel_poll: bool,
    /// Enable the extra msacc states (ets, bif, send, alloc, busy_wait …)
    #[arg(long)]
    msacc_extra: bool,
}

/// What to build, and from which source.
#[derive(clap::Args)]
pub struct BuildArgs {
    #[command(flatten)]
    variant: VariantArgs,
    /// Node or folder of Erlang to match [default: the erl on the PATH]
    ///
    /// A running node by name or process id, or the folder of an installation or release.
    #[arg(long = "for", value_name = "TARGET")]
    target: Option<String>,
    /// OTP version to match, such as 25.2.3
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    otp: Option<String>,
    /// OTP source: a folder, a tarball, or debian
    ///
    /// "debian" uses apt-get source. It is the default for Erlang from a Debian package.
    #[arg(long, value_name = "FOLDER|FILE|debian")]
    source: Option<String>,
    /// Parallel compilations [default: number of CPUs]
    ///
    /// The build runs with low priority.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Build the emulator even if it exists
    #[arg(long)]
    again: bool,
}

/// The command to run, and its emulator.
#[derive(clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    variant: VariantArgs,
    /// Fail unless the command uses this OTP version
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    otp: Option<String>,
    /// Folder of the installation or release that the command uses
    ///
    /// Needed if the installation is neither the command's own nor that of the erl on the PATH.
    #[arg(long, value_name = "FOLDER")]
    installation: Option<PathBuf>,
    /// Use a folder of symbolic links, even if a mount is possible
    #[arg(long)]
    overlay: bool,
    /// Command to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Where to install.
#[derive(clap::Args)]
pub struct InstallArgs {
    #[command(flatten)]
    variant: VariantArgs,
    /// CHANGES THIS FOLDER: a release that contains its own ERTS
    ///
    /// With --dockerfile: the folder in the image that contains erts-VERSION.
    #[arg(long, value_name = "FOLDER", required_unless_present = "dockerfile")]
    into: Option<PathBuf>,
    /// Print Dockerfile lines that build and install the emulator
    #[arg(long)]
    dockerfile: bool,
    /// Node or folder with the same versions and C library as the image
    #[arg(long = "for", value_name = "TARGET", requires = "dockerfile")]
    target: Option<String>,
    /// OTP version of the image, such as 27.3.4.1
    #[arg(long, value_name = "VERSION", requires = "dockerfile", value_parser = parse_version)]
    otp: Option<String>,
    /// Base image: debian:bookworm, alpine:3.22 [default: the target's]
    #[arg(long, value_name = "IMAGE", requires = "dockerfile")]
    base: Option<String>,
}

/// Output of the list.
#[derive(clap::Args)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    match args {
        Args::Build(args) => build(args),
        Args::Run(args) => start(args),
        Args::Install(args) => install(args),
        Args::List(args) => list(args),
    }
}

fn parse_version(text: &str) -> Result<String, String> {
    match is_version(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is not an OTP version; write 25.2.3")),
    }
}

fn cache() -> Result<Cache> {
    Ok(Cache::from_environment(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))?)
}

impl VariantArgs {
    fn variant(&self, flavor: Flavor) -> Variant {
        let options = Options { kernel_poll: !self.no_kernel_poll, extra_msacc: self.msacc_extra };
        Variant { kind: self.kind, flavor, options }
    }

    fn identity(&self, program: &Program) -> Identity {
        Identity {
            erts: program.erts.clone(),
            variant: self.variant(program.flavor),
            architecture: program.elf.architecture.clone(),
            libc: program.elf.libc,
        }
    }

    /// Returns the options of this variant, each preceded by a blank.
    fn words(&self) -> String {
        let mut words = String::new();
        if self.kind != Type::Lcnt {
            words.push_str(&format!(" --type {}", self.kind.name()));
        }
        for (on, word) in [(self.no_kernel_poll, " --no-kernel-poll"), (self.msacc_extra, " --msacc-extra")] {
            words.push_str(if on { word } else { "" });
        }
        words
    }

    /// Finds the built emulator that matches `program`. The error says how to build it.
    fn built(&self, cache: &Cache, program: &Program, target: &str) -> Result<CachedEmulator> {
        let identity = self.identity(program);
        let found = cache.find(&identity)?;
        Ok(found.ok_or_else(|| Error::NotBuilt {
            wanted: identity.to_string(),
            arguments: format!("--for {target}{}", self.words()),
        })?)
    }
}

fn build(args: &BuildArgs) -> Result<ExitCode> {
    let host = build::host()?;
    let target = match &args.target {
        Some(target) => Some(TargetErlang::find(target)?),
        // An erl of a different version is not the target.
        None => TargetErlang::on_path()?.filter(|target| target.check_otp(args.otp.as_deref()).is_ok()),
    };
    let cache = cache()?;
    if let Some(target) = &target {
        target.check_otp(args.otp.as_deref())?;
        check_machine(&target.label, &target.program.elf, &host)?;
    }
    if let Some(kept) = find_built(args, target.as_ref(), &host, &cache)?.filter(|_| !args.again) {
        terminal::print(&format!(
            "{} exists, built from {}; rebuild it with --again\n{}\n",
            kept.manifest.identity,
            kept.manifest.source,
            kept.file.display()
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let otp = args.otp.clone().or_else(|| target.as_ref()?.otp.clone());
    if target.is_none() && otp.is_none() && args.source.is_none() {
        bail!(
            "no erl on the PATH: name a node or a release folder with --for, or a version with --otp VERSION"
        );
    }
    let source = source(args, target.as_ref(), otp.as_deref())?;
    let usual = default_flavor(otp.as_deref().unwrap_or("25"), &host.architecture);
    let flavor = target.as_ref().map_or(usual, |target| target.program.flavor);
    let order = BuildRequest {
        variant: args.variant.variant(flavor),
        erts: target.as_ref().map(|target| target.program.erts.clone()),
        otp,
        source,
        jobs: args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
        root: target.as_ref().and_then(|target| target.trusted.clone()),
    };
    let mut watcher = Watcher::new()?;
    let built = build::build(&order, &cache, &mut watcher);
    watcher.progress.clear();
    let built = built?;
    let seconds = |took: Duration| format!("{} s", took.as_secs_f64().round());
    // Stages shorter than a second are not printed.
    let stages = built.stages.iter().filter(|(_, took)| took.as_secs() > 0);
    let stages: Vec<String> =
        stages.map(|(stage, took)| format!("{} {}", stage.name(), seconds(*took))).collect();
    let about = &built.kept.manifest;
    let words = args.variant.words();
    let start = match (&args.target, target.as_ref().map(|target| &target.folder)) {
        (Some(_), Some(Some(folder))) => {
            format!("beamtune emulator run{words} --installation {} -- COMMAND", folder.display())
        }
        (Some(target), Some(None)) => {
            format!(
                "beamtune emulator install{words} --dockerfile --for {target}   (the target is in another root file system)"
            )
        }
        _ if target.is_none() => {
            format!(
                "beamtune emulator run{words} --installation FOLDER -- COMMAND   (for an installation of that version)"
            )
        }
        _ => format!("beamtune emulator run{words} -- erl"),
    };
    terminal::print(&format!(
        "built {} in {} ({}), and it starts\n{}, {}\n\nUse it:\n  {start}\n",
        about.identity,
        seconds(built.took),
        stages.join(", "),
        built.kept.file.display(),
        text::bytes(about.bytes as f64),
    ));
    if args.target.is_some() {
        warn_of_glibc(about.glibc, target.as_ref().and_then(|target| target.program.glibc));
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds the emulator that would be built, if it already exists. Without a target, it is identified by its OTP version.
fn find_built(
    args: &BuildArgs,
    target: Option<&TargetErlang>,
    host: &Elf,
    cache: &Cache,
) -> Result<Option<CachedEmulator>> {
    if let Some(target) = target {
        return Ok(cache.find(&args.variant.identity(&target.program))?);
    }
    let Some(otp) = &args.otp else { return Ok(None) };
    let variant = args.variant.variant(default_flavor(otp, &host.architecture));
    let is_it = |Identity { variant: found, architecture, libc, .. }: &Identity| {
        (found, architecture, libc) == (&variant, &host.architecture, &host.libc)
    };
    let kept = cache.list()?.into_iter().map(|kept| kept.manifest);
    let found = kept.filter(|about| about.otp.as_ref() == Some(otp)).find(|about| is_it(&about.identity));
    Ok(match found {
        Some(about) => cache.find(&about.identity)?,
        None => None,
    })
}

/// Returns the source: the given one, or Debian's for Erlang from a Debian package.
fn source(args: &BuildArgs, target: Option<&TargetErlang>, otp: Option<&str>) -> Result<Source> {
    let debian = target.and_then(|target| target.debian.clone());
    match (args.source.as_deref(), debian) {
        (Some("debian"), version) => Ok(Source::Debian { version }),
        (Some(text), _) => Ok(Source::parse(text)?),
        (None, Some(version)) => Ok(Source::Debian { version: Some(version) }),
        (None, None) => {
            let what = match target {
                Some(target) => {
                    format!("{}, {}, which is not from a Debian package", target.label, target.version())
                }
                None => format!("OTP {}", otp.unwrap_or_default()),
            };
            let how = match otp {
                Some(otp) => {
                    format!("fetch {} and name it with --source, or try --source debian", tarball_url(otp))
                }
                None => "name the source of its exact OTP version with --source".to_owned(),
            };
            bail!("no source for {what}: {how}")
        }
    }
}

/// Warns if the emulator needs a newer glibc than the target's own emulator: the target's system may not have it.
fn warn_of_glibc(needed: Option<u32>, own: Option<u32>) {
    if let (Some(needed), Some(own)) = (needed, own)
        && needed > own
    {
        terminal::complain(&format!(
            "note: this emulator needs glibc 2.{needed}, the target's own only 2.{own}: it does not start on a system with an older \
             glibc. Build it there, or in its image (beamtune emulator install --dockerfile)\n"
        ));
    }
}

/// Shows the progress of a build, and cancels it on Ctrl-C.
struct Watcher {
    progress: Progress,
    last_stage: Option<Stage>,
    stop: Arc<AtomicBool>,
}

impl Watcher {
    fn new() -> Result<Watcher> {
        let stop = stop_flag(&[SIGINT, SIGTERM, SIGHUP])?;
        Ok(Watcher { progress: Progress::new("emulator:", None), last_stage: None, stop })
    }
}

impl BuildObserver for Watcher {
    fn on_progress(&mut self, stage: Stage, elapsed: Duration) {
        let seconds = elapsed.as_secs();
        if self.last_stage != Some(stage) && !std::io::stderr().is_terminal() {
            terminal::complain(&format!("emulator: {} ({seconds} s)\n", stage.name()));
        }
        self.last_stage = Some(stage);
        self.progress.say(elapsed, &format!("{}, {seconds} s, press Ctrl-C to stop", stage.name()));
    }

    fn is_cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Replaces this process with the command.
fn start(args: &RunArgs) -> Result<ExitCode> {
    let [program, arguments @ ..] = args.command.as_slice() else { bail!("no command given") };
    let search = search_path();
    let installation = match &args.installation {
        Some(folder) => Installation::at(folder)?,
        None => Installation::for_command(program, search.as_deref())?,
    };
    if let (Some(wanted), Some(found)) = (&args.otp, &installation.otp)
        && wanted != found
    {
        bail!(
            "the command uses OTP {found} in {}, but --otp is {wanted}: omit --otp, or name the other installation with --installation",
            installation.root.display()
        );
    }
    let cache = cache()?;
    let over = installation.emulator();
    let own = Program::read(&over)?;
    let kept = args.variant.built(&cache, &own, &installation.root.display().to_string())?;
    let identity = &kept.manifest.identity;
    if args.installation.is_some() {
        warn_of_glibc(kept.manifest.glibc, own.glibc);
    }
    let mut command = Command::new(program);
    command.args(arguments);
    let mounted = if args.overlay { MountOutcome::NotAllowed } else { mount_over(&kept.file, &over)? };
    match mounted {
        MountOutcome::InPlace => {
            let over = over.display();
            terminal::complain(&format!("emulator: {identity} instead of {over}, for this command only\n"));
        }
        MountOutcome::InUserNamespace => terminal::complain(&format!(
            "emulator: {identity} instead of {}, for this command only; in a user namespace, so the command cannot switch users\n",
            over.display()
        )),
        MountOutcome::NotAllowed => {
            let flags = std::env::var_os("ERL_AFLAGS");
            let started = overlay::start(
                &cache,
                &kept,
                &installation,
                &args.command,
                search.as_deref(),
                flags.as_deref(),
            )?;
            terminal::complain(&format!("emulator: {identity} from the folder {}\n", started.root.display()));
            // Only root can start programs as another user with the same PATH.
            if target_erlang::own_uid() == Some(0)
                && let Some(closed) = overlay::inaccessible_parent(&started.root)
            {
                terminal::complain(&format!(
                    "note: not all users may enter {}: programs that the command starts as another user (su, gosu) use the installed \
                     emulator. Set XDG_CACHE_HOME to a folder that all users may enter, and build there\n",
                    closed.display()
                ));
            }
            let [program, arguments @ ..] = started.command.as_slice() else { bail!("no command given") };
            command = Command::new(program);
            command.args(arguments).envs(started.environment);
        }
    }
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

fn install(args: &InstallArgs) -> Result<ExitCode> {
    if args.dockerfile {
        return dockerfile(args);
    }
    let Some(folder) = &args.into else { bail!("name the release folder with --into") };
    install::check_type(args.variant.kind)?;
    let installation = Installation::at(folder)?;
    let own = Program::read(&installation.emulator())?;
    let kept = args.variant.built(&cache()?, &own, &folder.display().to_string())?;
    let installed = install::install(&kept, &installation)?;
    let file = installed.file.display();
    let done = if installed.was_installed { "is already installed" } else { "is installed" };
    let kind = kept.manifest.identity.variant.kind.name();
    let root = installation.root.display();
    let start = match installation.is_release {
        true => format!("  ERL_AFLAGS=\"-emu_type {kind}\" {root}/bin/NAME …   (the release's start script)"),
        false => format!(
            "  {root}/bin/erl -emu_type {kind} …   or ERL_AFLAGS=\"-emu_type {kind}\" before any command"
        ),
    };
    terminal::print(&format!(
        "{} {done}:\n  {file}\nIt is used only on request:\n{start}\nRemove it:\n  rm {file}\n",
        kept.manifest.identity
    ));
    warn_of_glibc(kept.manifest.glibc, own.glibc);
    Ok(ExitCode::SUCCESS)
}

/// Prints the lines for a Dockerfile.
fn dockerfile(args: &InstallArgs) -> Result<ExitCode> {
    let target = args.target.as_deref().map(TargetErlang::find).transpose()?;
    if let Some(target) = &target {
        target.check_otp(args.otp.as_deref())?;
    }
    let otp = args.otp.clone().or_else(|| target.as_ref()?.otp.clone());
    let otp = otp.with_context(|| match &target {
        Some(target) => {
            format!(
                "the OTP version of {} ({}) is unknown: give it with --otp, such as 27.3.4.1",
                target.label,
                target.version()
            )
        }
        None => "no OTP version: give it with --otp VERSION or --for TARGET".to_owned(),
    })?;
    let system = target.as_ref().and_then(|target| target.os_release.clone());
    let base = args.base.clone().or_else(|| base_image(&system?));
    let base = base.context("no base image: give it with --base, such as debian:bookworm or alpine:3.22")?;
    if let Some(target) = &target {
        let is_musl = target.program.elf.libc == Libc::Musl;
        if is_musl != (package_manager(&base) == PackageManager::Apk) {
            bail!(
                "{base} does not use the C library of {} ({}): choose another image with --base",
                target.label,
                target.program.elf.libc.name()
            );
        }
    }
    let flavor = target.as_ref().map(|target| target.program.flavor);
    let root = match &args.into {
        Some(folder) => folder.to_str().context("the folder's name is not UTF-8")?.to_owned(),
        None => {
            target.as_ref().and_then(|target| target.root.clone()).unwrap_or_else(|| DEFAULT_ROOT.to_owned())
        }
    };
    let image = Image {
        variant: args.variant.variant(flavor.unwrap_or_else(|| default_flavor(&otp, std::env::consts::ARCH))),
        erts: target.map(|target| target.program.erts),
        otp,
        base,
        root,
    };
    terminal::print(&image.dockerfile()?);
    Ok(ExitCode::SUCCESS)
}

fn list(args: &ListArgs) -> Result<ExitCode> {
    let cache = cache()?;
    let kept = cache.list()?;
    if args.json {
        let rows: Vec<_> = kept
            .iter()
            .map(|kept| serde_json::json!({ "file": kept.file, "about": kept.manifest }))
            .collect();
        terminal::print(&json::pretty(&rows));
        return Ok(ExitCode::SUCCESS);
    }
    if kept.is_empty() {
        terminal::print("No emulator has been built. Build one with: beamtune emulator build\n");
        return Ok(ExitCode::SUCCESS);
    }
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("type", Left),
        ("ERTS", Left),
        ("OTP", Left),
        ("flavor", Left),
        ("for", Left),
        ("options", Left),
        ("size", Right),
        ("source", Left),
    ]);
    for CachedEmulator { manifest: about, .. } in &kept {
        let Identity { erts, variant, architecture, libc } = &about.identity;
        let options = [
            (!variant.options.kernel_poll).then_some("poll"),
            variant.options.extra_msacc.then_some("extra msacc"),
        ];
        table.row([
            variant.kind.name().to_owned(),
            erts.clone(),
            about.otp.clone().unwrap_or_else(|| "?".to_owned()),
            variant.flavor.name().to_owned(),
            format!("{architecture} {}", libc.name()),
            options.into_iter().flatten().collect::<Vec<_>>().join(", "),
            text::bytes(about.bytes as f64),
            text::clean_path(&about.source),
        ]);
    }
    terminal::print(&table.render(terminal::style()));
    terminal::print(&format!("in {}\n", cache.root().display()));
    Ok(ExitCode::SUCCESS)
}
