//! `beamtune emulator`: emulators that match an installation, and how a command is started with one.

mod which;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_emulator::build::{self, Order, check_machine};
use beamtune_emulator::cache::{Cache, Kept};
use beamtune_emulator::install::{self, Image, USUAL_ROOT, base_of, manager_of, usual_flavor};
use beamtune_emulator::installation::search_path;
use beamtune_emulator::kind::{Libc, is_version};
use beamtune_emulator::mount::{Mounted, put_over};
use beamtune_emulator::needs::Packages;
use beamtune_emulator::program::{Elf, Program};
use beamtune_emulator::recipe::Stage;
use beamtune_emulator::source::{Source, tarball_url};
use beamtune_emulator::{Error, Flavor, Identity, Installation, Options, Type, Variant, Watch, overlay};
use beamtune_report::table::{Align, Table};
use beamtune_report::{json, text};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::terminal::{self, Progress};
use which::Wanted;

/// Emulators that match an installation of Erlang: build one that counts locks, and start any command with it.
#[derive(clap::Subcommand)]
pub enum Args {
    /// Build an emulator from a source of the very version of the target, and keep it: 2 to 4 minutes, 700 MB meanwhile.
    Build(BuildArgs),
    /// Start a command whose VMs run with an emulator that was built. Nothing of the installation is changed.
    Run(RunArgs),
    /// Put an emulator beside that of a release, or print the lines that put one into an image.
    Install(InstallArgs),
    /// List the emulators that were built.
    List(ListArgs),
}

/// What is built of a source.
#[derive(clap::Args)]
struct VariantArgs {
    /// lcnt: one that counts locks. opt: the usual one, to be configured in another way.
    #[arg(long = "type", value_name = "TYPE", value_parser = Type::parse, default_value = "lcnt")]
    kind: Type,
    /// One that waits for sockets by poll rather than epoll.
    #[arg(long)]
    no_kernel_poll: bool,
    /// One whose microstate accounting has the extra states (ets, bif, send, alloc, busy_wait …).
    #[arg(long)]
    msacc_extra: bool,
}

/// What to build, and of what.
#[derive(clap::Args)]
pub struct BuildArgs {
    #[command(flatten)]
    variant: VariantArgs,
    /// What it must match: a running node (by name or process id), or the folder of an installation or a release. Without it: the erl
    /// on the PATH.
    #[arg(long = "for", value_name = "TARGET")]
    target: Option<String>,
    /// The version of OTP that it must match: 25.2.3.
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    otp: Option<String>,
    /// OTP's source of that version: a folder, a tarball, or debian (by apt-get source). Without it: Debian's, for Debian's Erlang.
    #[arg(long, value_name = "FOLDER|FILE|debian")]
    source: Option<String>,
    /// How many files are compiled at once. [default: as many as there are CPUs; all of it yields to whatever else runs]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Build it also if it was built before.
    #[arg(long)]
    again: bool,
}

/// What to start, and with which emulator.
#[derive(clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    variant: VariantArgs,
    /// The version of OTP that the command must be using: 25.2.3.
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    otp: Option<String>,
    /// The folder of the installation or release that the command uses, if that is neither its own nor that of the erl on the PATH.
    #[arg(long, value_name = "FOLDER")]
    installation: Option<PathBuf>,
    /// Use a folder of links in place of the installation's, even where a mount would be allowed.
    #[arg(long)]
    overlay: bool,
    /// The command, with its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Where to put it.
#[derive(clap::Args)]
pub struct InstallArgs {
    #[command(flatten)]
    variant: VariantArgs,
    /// WRITES THERE: the folder of a release with an ERTS of its own. With --dockerfile, the folder in the image, which holds erts-VERSION.
    #[arg(long, value_name = "FOLDER", required_unless_present = "dockerfile")]
    into: Option<PathBuf>,
    /// Print the lines of a Dockerfile that build one and put it into an image.
    #[arg(long)]
    dockerfile: bool,
    /// A running node or a folder whose versions, C library and system the image has.
    #[arg(long = "for", value_name = "TARGET", requires = "dockerfile")]
    target: Option<String>,
    /// The image's version of OTP: 27.3.4.1.
    #[arg(long, value_name = "VERSION", requires = "dockerfile", value_parser = parse_version)]
    otp: Option<String>,
    /// What the image is based on: debian:bookworm, alpine:3.22. Without it: what the target's system is like.
    #[arg(long, value_name = "IMAGE", requires = "dockerfile")]
    base: Option<String>,
}

/// How to list them.
#[derive(clap::Args)]
pub struct ListArgs {
    /// Print JSON.
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
        false => Err(format!("{text:?} is no version of OTP: write it as 25.2.3")),
    }
}

fn cache() -> Result<Cache> {
    Ok(Cache::usual(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))?)
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

    /// The options by which it is built or run, each with a blank before.
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

    /// The emulator that takes the place of this one, if it was built; else how to build it.
    fn built(&self, cache: &Cache, program: &Program, target: &str) -> Result<Kept> {
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
    let wanted = match &args.target {
        Some(target) => Some(Wanted::find(target)?),
        // One of another version is not meant.
        None => Wanted::on_path()?.filter(|wanted| wanted.check_otp(args.otp.as_deref()).is_ok()),
    };
    let cache = cache()?;
    if let Some(wanted) = &wanted {
        wanted.check_otp(args.otp.as_deref())?;
        check_machine(&wanted.label, &wanted.program.elf, &host)?;
    }
    if let Some(kept) = there_already(args, wanted.as_ref(), &host, &cache)?.filter(|_| !args.again) {
        terminal::print(&format!(
            "{} is there already, built of {}; --again builds it anew\n{}\n",
            kept.about.identity,
            kept.about.source,
            kept.file.display()
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let otp = args.otp.clone().or_else(|| wanted.as_ref()?.otp.clone());
    if wanted.is_none() && otp.is_none() && args.source.is_none() {
        bail!(
            "say what it is for: --for a node or the folder of a release, or --otp VERSION; there is no erl on the PATH"
        );
    }
    let source = source(args, wanted.as_ref(), otp.as_deref())?;
    let usual = usual_flavor(otp.as_deref().unwrap_or("25"), &host.architecture);
    let flavor = wanted.as_ref().map_or(usual, |wanted| wanted.program.flavor);
    let order = Order {
        variant: args.variant.variant(flavor),
        erts: wanted.as_ref().map(|wanted| wanted.program.erts.clone()),
        otp,
        source,
        jobs: args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
        root: wanted.as_ref().and_then(|wanted| wanted.trusted.clone()),
    };
    let mut watcher = Watcher::new()?;
    let built = build::build(&order, &cache, &mut watcher);
    watcher.progress.clear();
    let built = built?;
    let seconds = |took: Duration| format!("{} s", took.as_secs_f64().round());
    // What took no time is not worth a word.
    let stages = built.stages.iter().filter(|(_, took)| took.as_secs() > 0);
    let stages: Vec<String> =
        stages.map(|(stage, took)| format!("{} {}", stage.name(), seconds(*took))).collect();
    let about = &built.kept.about;
    let words = args.variant.words();
    let start = match (&args.target, wanted.as_ref().map(|wanted| &wanted.folder)) {
        (Some(_), Some(Some(folder))) => {
            format!("beamtune emulator run{words} --installation {} -- COMMAND", folder.display())
        }
        (Some(target), Some(None)) => {
            format!(
                "beamtune emulator install{words} --dockerfile --for {target}   (its files are those of another system)"
            )
        }
        _ if wanted.is_none() => {
            format!(
                "beamtune emulator run{words} --installation FOLDER -- COMMAND   (an installation of that version)"
            )
        }
        _ => format!("beamtune emulator run{words} -- erl"),
    };
    terminal::print(&format!(
        "{} was built in {} ({}), and starts\n{}, {}\n\nStart something with it:\n  {start}\n",
        about.identity,
        seconds(built.took),
        stages.join(", "),
        built.kept.file.display(),
        text::bytes(about.bytes as f64),
    ));
    if args.target.is_some() {
        warn_of_glibc(about.glibc, wanted.as_ref().and_then(|wanted| wanted.program.glibc));
    }
    Ok(ExitCode::SUCCESS)
}

/// What would be built, if it was before. Without a target its ERTS is not known, and its OTP tells.
fn there_already(
    args: &BuildArgs,
    wanted: Option<&Wanted>,
    host: &Elf,
    cache: &Cache,
) -> Result<Option<Kept>> {
    if let Some(wanted) = wanted {
        return Ok(cache.find(&args.variant.identity(&wanted.program))?);
    }
    let Some(otp) = &args.otp else { return Ok(None) };
    let variant = args.variant.variant(usual_flavor(otp, &host.architecture));
    let is_it = |Identity { variant: found, architecture, libc, .. }: &Identity| {
        (found, architecture, libc) == (&variant, &host.architecture, &host.libc)
    };
    let kept = cache.list()?.into_iter().map(|kept| kept.about);
    let found = kept.filter(|about| about.otp.as_ref() == Some(otp)).find(|about| is_it(&about.identity));
    Ok(match found {
        Some(about) => cache.find(&about.identity)?,
        None => None,
    })
}

/// Where the source comes from: what was named, or Debian's, for what Debian has built.
fn source(args: &BuildArgs, wanted: Option<&Wanted>, otp: Option<&str>) -> Result<Source> {
    let debian = wanted.and_then(|wanted| wanted.debian.clone());
    match (args.source.as_deref(), debian) {
        (Some("debian"), version) => Ok(Source::Debian { version }),
        (Some(text), _) => Ok(Source::parse(text)?),
        (None, Some(version)) => Ok(Source::Debian { version: Some(version) }),
        (None, None) => {
            let what = match wanted {
                Some(wanted) => {
                    format!("{}, {}, which is no package of this system,", wanted.label, wanted.version())
                }
                None => format!("OTP {}", otp.unwrap_or_default()),
            };
            let how = match otp {
                Some(otp) => {
                    format!("fetch {} and name it with --source, or try --source debian", tarball_url(otp))
                }
                None => "name with --source the source of the very OTP that it was built of".to_owned(),
            };
            bail!("nothing tells where the source of {what} is: {how}")
        }
    }
}

/// Says where it may not start: `own` is what the target's own emulator needs, and its system may have no more.
fn warn_of_glibc(needed: Option<u32>, own: Option<u32>) {
    if let (Some(needed), Some(own)) = (needed, own)
        && needed > own
    {
        terminal::complain(&format!(
            "note: it needs glibc 2.{needed}, and the target's own emulator only 2.{own}: on a system that is older than this one it does not \
             start. Build it there, or in its image (beamtune emulator install --dockerfile)\n"
        ));
    }
}

/// Shows how far a build is, and ends it by Ctrl-C.
struct Watcher {
    progress: Progress,
    told: Option<Stage>,
    stop: Arc<AtomicBool>,
}

impl Watcher {
    fn new() -> Result<Watcher> {
        let stop = terminal::stop_flag(&[SIGINT, SIGTERM, SIGHUP])?;
        Ok(Watcher { progress: Progress::new("emulator:", None), told: None, stop })
    }
}

impl Watch for Watcher {
    fn at(&mut self, stage: Stage, elapsed: Duration) {
        let seconds = elapsed.as_secs();
        if self.told != Some(stage) && !std::io::stderr().is_terminal() {
            terminal::complain(&format!("emulator: {} ({seconds} s)\n", stage.name()));
        }
        self.told = Some(stage);
        self.progress.say(elapsed, &format!("{}, {seconds} s, Ctrl-C ends", stage.name()));
    }

    fn is_cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Becomes the command.
fn start(args: &RunArgs) -> Result<ExitCode> {
    let [program, arguments @ ..] = args.command.as_slice() else { bail!("no command is given") };
    let search = search_path();
    let installation = match &args.installation {
        Some(folder) => Installation::at(folder)?,
        None => Installation::of_command(program, search.as_deref())?,
    };
    if let (Some(wanted), Some(found)) = (&args.otp, &installation.otp)
        && wanted != found
    {
        bail!(
            "the command uses OTP {found} in {}, but --otp asks for {wanted}: leave it out, or name the other installation with --installation",
            installation.root.display()
        );
    }
    let cache = cache()?;
    let over = installation.emulator();
    let own = Program::read(&over)?;
    let kept = args.variant.built(&cache, &own, &installation.root.display().to_string())?;
    let identity = &kept.about.identity;
    if args.installation.is_some() {
        warn_of_glibc(kept.about.glibc, own.glibc);
    }
    let mut command = Command::new(program);
    command.args(arguments);
    let mounted = if args.overlay { Mounted::NotAllowed } else { put_over(&kept.file, &over)? };
    match mounted {
        Mounted::InPlace => {
            let over = over.display();
            terminal::complain(&format!(
                "emulator: {identity} in the place of {over}, for this command only\n"
            ));
        }
        Mounted::InUserNamespace => terminal::complain(&format!(
            "emulator: {identity} in the place of {}, for this command only; in a user namespace, so that it cannot become another user\n",
            over.display()
        )),
        Mounted::NotAllowed => {
            let flags = std::env::var_os("ERL_AFLAGS");
            let started = overlay::start(
                &cache,
                &kept,
                &installation,
                &args.command,
                search.as_deref(),
                flags.as_deref(),
            )?;
            terminal::complain(&format!("emulator: {identity} by the folder {}\n", started.root.display()));
            // Nobody else can start something as another user that keeps our PATH.
            if which::own_uid() == Some(0)
                && let Some(closed) = overlay::closed_above(&started.root)
            {
                terminal::complain(&format!(
                    "note: only some users may enter {}: what the command starts as another user (su, gosu) does not find the emulator there, \
                     and silently uses the installed one. Let XDG_CACHE_HOME name a folder that all may enter, and build there\n",
                    closed.display()
                ));
            }
            let [program, arguments @ ..] = started.command.as_slice() else { bail!("no command is given") };
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
    let Some(folder) = &args.into else { bail!("name the release's folder with --into") };
    install::check_type(args.variant.kind)?;
    let installation = Installation::at(folder)?;
    let own = Program::read(&installation.emulator())?;
    let kept = args.variant.built(&cache()?, &own, &folder.display().to_string())?;
    let installed = install::install(&kept, &installation)?;
    let file = installed.file.display();
    let done = if installed.was_there { "was there already" } else { "was put there" };
    let kind = kept.about.identity.variant.kind.name();
    let root = installation.root.display();
    let start = match installation.is_release {
        true => format!("  ERL_AFLAGS=\"-emu_type {kind}\" {root}/bin/NAME …   (its own start script)"),
        false => format!(
            "  {root}/bin/erl -emu_type {kind} …   or ERL_AFLAGS=\"-emu_type {kind}\" before any command"
        ),
    };
    terminal::print(&format!(
        "{} {done}:\n  {file}\nNothing starts it by itself. Start with it:\n{start}\nRemove it:\n  rm {file}\n",
        kept.about.identity
    ));
    warn_of_glibc(kept.about.glibc, own.glibc);
    Ok(ExitCode::SUCCESS)
}

/// Prints the lines.
fn dockerfile(args: &InstallArgs) -> Result<ExitCode> {
    let wanted = args.target.as_deref().map(Wanted::find).transpose()?;
    if let Some(wanted) = &wanted {
        wanted.check_otp(args.otp.as_deref())?;
    }
    let otp = args.otp.clone().or_else(|| wanted.as_ref()?.otp.clone());
    let otp = otp.with_context(|| match &wanted {
        Some(wanted) => {
            format!(
                "{}, {}, does not tell its OTP: name it with --otp, as 27.3.4.1",
                wanted.label,
                wanted.version()
            )
        }
        None => "say which version the image has, with --otp VERSION or --for TARGET".to_owned(),
    })?;
    let system = wanted.as_ref().and_then(|wanted| wanted.os_release.clone());
    let base = args.base.clone().or_else(|| base_of(&system?));
    let base =
        base.context("say what the image is based on: --base debian:bookworm, --base alpine:3.22 …")?;
    if let Some(wanted) = &wanted {
        let is_musl = wanted.program.elf.libc == Libc::Musl;
        if is_musl != (manager_of(&base) == Packages::Apk) {
            bail!(
                "{} has the C library {}, and {base} another one: name an image with the same, with --base",
                wanted.label,
                wanted.program.elf.libc.name()
            );
        }
    }
    let flavor = wanted.as_ref().map(|wanted| wanted.program.flavor);
    let root = match &args.into {
        Some(folder) => folder.to_str().context("the folder's name is no UTF-8")?.to_owned(),
        None => {
            wanted.as_ref().and_then(|wanted| wanted.root.clone()).unwrap_or_else(|| USUAL_ROOT.to_owned())
        }
    };
    let image = Image {
        variant: args.variant.variant(flavor.unwrap_or_else(|| usual_flavor(&otp, std::env::consts::ARCH))),
        erts: wanted.map(|wanted| wanted.program.erts),
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
        let told: Vec<_> =
            kept.iter().map(|kept| serde_json::json!({ "file": kept.file, "about": kept.about })).collect();
        terminal::print(&json::pretty(&told));
        return Ok(ExitCode::SUCCESS);
    }
    if kept.is_empty() {
        terminal::print("No emulator was built yet: beamtune emulator build makes one.\n");
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
        ("built of", Left),
    ]);
    for Kept { about, .. } in &kept {
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
