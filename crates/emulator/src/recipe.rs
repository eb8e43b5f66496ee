//! The commands that build an emulator from an OTP source, with their folders and environment. This module does not run them.
//!
//! Only `make/` and `erts/` are configured, and only the emulator is built, without libraries. So neither `erl` nor `erlc` is
//! needed. The type is given as a make target: erts/emulator/Makefile overrides a variable TYPE, and `--enable-lock-counter`
//! would change the type `opt`.

use crate::kind::{Flavor, Type, Variant, has_flavors};

/// Arguments of every `configure`.
const ALWAYS: [&str; 6] = [
    "--prefix=/usr",
    // Older releases do not have all of these options.
    "--disable-option-checking",
    "--cache-file=/dev/null",
    "--enable-shared-zlib",
    "--disable-builtin-zlib",
    // As in Debian's packages; OTP's makefiles choose the frame pointer and the optimization level.
    "CFLAGS=-O2 -fno-strict-aliasing",
];

/// Variables of the user's environment that would change a build; they are unset.
pub const REMOVED: [&str; 21] = [
    "CONFIG_SITE",
    "CPP",
    "AR",
    "RANLIB",
    "CC",
    "CXX",
    "LD",
    "CFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "LIBS",
    "MAKEFLAGS",
    "MFLAGS",
    "MAKELEVEL",
    "TARGET",
    "TYPE",
    "FLAVOR",
    "ERL_FLAGS",
    "ERLC_FLAGS",
    "KERL_CONFIGURE_OPTIONS",
];

/// Properties of a source tree on which the commands depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Whether `make/` has its own configure script, as it has since OTP 24. Before, the script at the top of the source did its
    /// work.
    pub make_configure: bool,
}

/// A stage of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Downloading the source from Debian.
    Fetching,
    /// Unpacking or copying the source.
    Unpacking,
    /// Running `configure`.
    Configuring,
    /// Compiling and linking.
    Compiling,
    /// Starting the new emulator.
    Checking,
}

impl Stage {
    /// Returns the name of the stage in progress messages.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Fetching => "fetching the source",
            Stage::Unpacking => "unpacking the source",
            Stage::Configuring => "configuring",
            Stage::Compiling => "compiling",
            Stage::Checking => "starting the new emulator",
        }
    }
}

/// A command of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The stage that it belongs to.
    pub stage: Stage,
    /// Its working directory, relative to the source's folder.
    pub folder: &'static str,
    /// The program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// The commands of a build, in order. The result is `bin/*/FILE`, with FILE from [`Type::file`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Variables that are set for every command, in addition to our environment without [`REMOVED`].
    pub environment: Vec<(&'static str, String)>,
    /// The commands.
    pub steps: Vec<Step>,
}

impl Recipe {
    /// Creates the commands for a source of this ERTS version in the folder `top`. `jobs` is make's `-j`; `sctp` is whether the
    /// SCTP headers are installed.
    pub fn new(top: &str, erts: &str, variant: Variant, layout: Layout, sctp: bool, jobs: &str) -> Recipe {
        let Variant { kind, flavor, options } = variant;
        let switch = |on: bool, what: &str| format!("--{}-{what}", if on { "enable" } else { "disable" });
        let mut configured: Vec<String> = ALWAYS.map(str::to_owned).to_vec();
        configured.push(switch(options.kernel_poll, "kernel-poll"));
        configured.push(switch(sctp, "sctp"));
        if has_flavors(erts) {
            configured.push(switch(flavor == Flavor::Jit, "jit"));
        }
        if options.extra_msacc {
            configured.push("--with-microstate-accounting=extra".to_owned());
        }
        let configure = |folder: &'static str, more: &[String]| Step {
            stage: Stage::Configuring,
            folder,
            program: "./configure".to_owned(),
            arguments: configured.iter().chain(more).cloned().collect(),
        };
        let source = |folder: &str| format!("--srcdir={top}/{folder}");
        let first = match layout.make_configure {
            true => configure("make", &[source("make")]),
            false => configure(".", &["--no-recursion".to_owned(), format!("--srcdir={top}")]),
        };
        let mut make: Vec<String> = ["-C", "erts/emulator"].map(str::to_owned).to_vec();
        make.extend([format!("-j{jobs}"), kind.name().to_owned()]);
        if has_flavors(erts) {
            make.push(format!("FLAVOR={}", flavor.name()));
        }
        let compile =
            Step { stage: Stage::Compiling, folder: ".", program: "make".to_owned(), arguments: make };
        Recipe {
            environment: vec![
                ("ERL_TOP", top.to_owned()),
                ("LC_ALL", "C.UTF-8".to_owned()),
                // Dependencies are only needed to build incrementally.
                ("ERTS_SKIP_DEPEND", "true".to_owned()),
            ],
            steps: vec![first, configure("erts", &[source("erts")]), compile],
        }
    }

    /// Returns the same commands as lines for a shell in the source's folder. They write the stripped emulator to `to`.
    pub fn shell(&self, kind: Type, to: &str) -> Vec<String> {
        let words = |step: &Step| {
            let words = step.arguments.iter().map(|word| quoted(word));
            [step.program.clone()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
        };
        let line = |step: &Step| match step.folder {
            "." => words(step),
            folder => format!("(cd {folder} && {})", words(step)),
        };
        let strip = format!("strip -g -o {} bin/*/{}", quoted(to), kind.file());
        self.steps.iter().map(line).chain([strip]).collect()
    }
}

/// Quotes a word for a shell. `$(…)` is left for the shell to expand.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/.-_=+:,$()".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Options;

    const NEW: Layout = Layout { make_configure: true };
    const OLD: Layout = Layout { make_configure: false };

    fn lcnt(flavor: Flavor) -> Variant {
        Variant { kind: Type::Lcnt, flavor, options: Options::default() }
    }

    fn words(step: &Step) -> String {
        step.arguments.join(" ")
    }

    #[test]
    fn make_target_is_the_type_with_the_flavor_if_flavors_exist() {
        let check = |erts, variant, make: &str| {
            let recipe = Recipe::new("/src", erts, variant, NEW, true, "3");
            let last = recipe.steps.last().expect("a step");
            assert_eq!((last.program.as_str(), words(last).as_str()), ("make", make));
            assert_eq!(last.stage, Stage::Compiling);
        };
        check("13.1.5", lcnt(Flavor::Jit), "-C erts/emulator -j3 lcnt FLAVOR=jit");
        check("17.1.1", lcnt(Flavor::Emu), "-C erts/emulator -j3 lcnt FLAVOR=emu");
        check("11.1.8", lcnt(Flavor::Emu), "-C erts/emulator -j3 lcnt");
        let opt = Variant { kind: Type::Opt, ..lcnt(Flavor::Jit) };
        check("15.2.7", opt, "-C erts/emulator -j3 opt FLAVOR=jit");
    }

    #[test]
    fn options_become_configure_arguments() {
        let check = |erts, variant, sctp, with: &[&str], without: &[&str]| {
            let recipe = Recipe::new("/src", erts, variant, NEW, sctp, "1");
            let configures = recipe.steps.iter().filter(|step| step.stage == Stage::Configuring);
            for step in configures {
                for word in with {
                    assert!(step.arguments.iter().any(|it| it == word), "no {word} in {step:?}");
                }
                for word in without {
                    assert!(!words(step).contains(word), "{word} in {step:?}");
                }
            }
        };
        let usual = lcnt(Flavor::Jit);
        let with = ["--enable-kernel-poll", "--enable-sctp", "--enable-jit", "--disable-builtin-zlib"];
        check("13.1.5", usual, true, &with, &["microstate", "lock-counter"]);
        let options = Options { kernel_poll: false, extra_msacc: true };
        let with = ["--disable-kernel-poll", "--disable-sctp", "--with-microstate-accounting=extra"];
        check("13.1.5", Variant { options, ..usual }, false, &with, &["enable-kernel-poll"]);
        check("13.1.5", lcnt(Flavor::Emu), true, &["--disable-jit"], &["enable-jit"]);
        check("11.1.8", lcnt(Flavor::Emu), true, &[], &["jit"]);
    }

    #[test]
    fn old_sources_are_configured_at_the_top() {
        let folders = |layout| {
            let recipe = Recipe::new("/src", "11.1.8", lcnt(Flavor::Emu), layout, true, "1");
            let folders: Vec<&str> = recipe.steps.iter().map(|step| step.folder).collect();
            (folders, words(&recipe.steps[0]).contains("--no-recursion"))
        };
        assert_eq!(folders(NEW), (vec!["make", "erts", "."], false));
        assert_eq!(folders(OLD), (vec![".", "erts", "."], true));
    }

    #[test]
    fn shell_lines_run_the_same_commands() {
        let recipe = Recipe::new("/src", "13.1.5", lcnt(Flavor::Jit), NEW, true, "$(nproc)");
        let lines = recipe.shell(Type::Lcnt, "/out/beam.lcnt.smp");
        assert_eq!(lines.len(), 4);
        assert!(lines[0].starts_with("(cd make && ./configure --prefix=/usr "), "{}", lines[0]);
        assert!(lines[0].contains(" 'CFLAGS=-O2 -fno-strict-aliasing' "), "{}", lines[0]);
        assert!(lines[1].ends_with(" --srcdir=/src/erts)"), "{}", lines[1]);
        assert_eq!(lines[2], "make -C erts/emulator -j$(nproc) lcnt FLAVOR=jit");
        assert_eq!(lines[3], "strip -g -o /out/beam.lcnt.smp bin/*/beam.lcnt.smp");
    }
}
