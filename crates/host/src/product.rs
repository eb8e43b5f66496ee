//! Identifies the product that a VM runs: RabbitMQ 3.10.8, an Elixir release, `iex -S mix`.
//!
//! The product is inferred from the command line, which start scripts create in a typical form, and from the environment, if readable.

use std::fmt;

use crate::command_line::{CommandLine, Environment};
use crate::distribution::{Distribution, NameSource, NodeName};
use crate::installation::{Files, version_in_path};
use crate::text;
use crate::tree::FileTree;

/// Applications that are recognized by the name of their release, with their display names.
const KNOWN: &[(&str, &str)] = &[
    ("couchdb", "CouchDB"),
    ("ejabberd", "ejabberd"),
    ("emqx", "EMQX"),
    ("livebook", "Livebook"),
    ("mongooseim", "MongooseIM"),
    ("riak", "Riak"),
    ("vernemq", "VerneMQ"),
    ("yaws", "Yaws"),
    ("zotonic", "Zotonic"),
];
/// Boot files of OTP itself; any other boot file belongs to a release.
const OTP_BOOTS: &[&str] = &["no_dot_erlang", "start_all_example", "start_clean", "start_sasl"];

/// The kind of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A well-known application.
    Application,
    /// A mix release.
    ElixirRelease,
    /// Any other release.
    Release,
    /// A mix task.
    Mix,
    /// An Elixir shell.
    Iex,
    /// `elixir`, with a script or expression.
    Elixir,
    /// rebar3.
    Rebar3,
    /// An escript.
    Escript,
    /// An Erlang shell.
    Shell,
    /// `erl`, without a shell.
    Erl,
}

/// A product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its version, if known.
    pub version: Option<String>,
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::ElixirRelease => write!(f, "Elixir release {}", self.name)?,
            Kind::Release => write!(f, "release {}", self.name)?,
            Kind::Escript => write!(f, "escript {}", self.name)?,
            _ => f.write_str(&self.name)?,
        }
        match &self.version {
            Some(version) => write!(f, " {version}"),
            None => Ok(()),
        }
    }
}

impl Product {
    /// Infers the product of a VM.
    pub(crate) fn of<T: FileTree>(
        line: &CommandLine,
        environment: &Environment,
        distribution: &Distribution,
        files: &Files<'_, T>,
    ) -> Self {
        let application =
            |name: &str, version| Product { kind: Kind::Application, name: name.to_owned(), version };
        if is_rabbitmq(line) {
            return application("RabbitMQ", rabbitmq_version(line, environment, files));
        }
        if starts(line, "ejabberd") {
            return application("ejabberd", version_in_libraries("ejabberd", line, environment, files));
        }
        if starts(line, "yaws") || line.values("yaws").is_some() {
            return application("Yaws", version_in_libraries("yaws", line, environment, files));
        }
        if let Some(release) = release(line, environment, distribution) {
            return release;
        }
        let name = |kind, name: String| Product { kind, name, version: None };
        let program = line.extra().first().map(|path| base_name(path));
        if is_iex(line) {
            let after = line.extra().iter().skip_while(|word| *word != "-S").nth(1);
            let script = after.map(|script| format!("iex -S {}", base_name(script)));
            return name(Kind::Iex, with_task(script.unwrap_or_else(|| "iex".to_owned()), after_mix(line)));
        }
        if is_elixir(line) {
            return match program {
                Some("mix") => name(Kind::Mix, with_task("mix".to_owned(), after_mix(line))),
                Some(script) if !script.starts_with(['-', '+']) && !script.is_empty() => {
                    name(Kind::Elixir, format!("elixir {}", text::printable(script)))
                }
                _ => name(Kind::Elixir, "elixir".to_owned()),
            };
        }
        if starts(line, "escript") || line.values("escript").is_some() {
            return match program {
                Some("rebar3") => name(Kind::Rebar3, with_task("rebar3".to_owned(), line.extra().get(1))),
                program => name(Kind::Escript, text::printable(program.unwrap_or("?"))),
            };
        }
        let module = line.value("s").or(line.value("run"));
        match module {
            Some(module) => name(Kind::Erl, format!("erl -s {}", text::printable(module))),
            None if line.values("noinput").is_none() && line.values("noshell").is_none() => {
                name(Kind::Shell, "erl shell".to_owned())
            }
            None => name(Kind::Erl, "erl".to_owned()),
        }
    }
}

/// Determines the node name of RabbitMQ, which is set at run time and thus not on the command line. Its source is `RABBITMQ_NODENAME`,
/// otherwise the file rabbitmq-env.conf, otherwise the default `rabbit` (deps/rabbit_common/src/rabbit_env.erl).
pub(crate) fn rabbitmq_name<T: FileTree>(
    line: &CommandLine,
    environment: &Environment,
    host_name: Option<&str>,
    files: &Files<'_, T>,
) -> Option<NodeName> {
    if !is_rabbitmq(line) {
        return None;
    }
    let path = environment.get("RABBITMQ_CONF_ENV_FILE").unwrap_or("/etc/rabbitmq/rabbitmq-env.conf");
    let content = String::from_utf8_lossy(&files.read(path).unwrap_or_default()).into_owned();
    // The file is a shell script; only plain assignments without expansions are recognized.
    let assigned = |name: &str| {
        let value = |line: &str| {
            let line = line.trim().trim_start_matches("export ").trim_start();
            let line = line.strip_prefix("RABBITMQ_").unwrap_or(line);
            let value = line.strip_prefix(name)?.strip_prefix('=')?.trim().trim_matches(['"', '\'']);
            (!value.is_empty() && !value.contains(['$', '`', ' '])).then(|| value.to_owned())
        };
        content.lines().filter_map(value).next_back()
    };
    let long =
        environment.get("RABBITMQ_USE_LONGNAME").map(str::to_owned).or_else(|| assigned("USE_LONGNAME"));
    let long = matches!(long.as_deref(), Some("true" | "1" | "yes"));
    let (given, source) = match (environment.get("RABBITMQ_NODENAME"), assigned("NODENAME")) {
        (Some(given), _) => (given.to_owned(), NameSource::Environment("RABBITMQ_NODENAME")),
        (None, Some(given)) => (given, NameSource::ConfigFile),
        (None, None) => ("rabbit".to_owned(), NameSource::Default),
    };
    Some(NodeName::new(&given, long, source, host_name))
}

/// Returns the distribution port of RabbitMQ, unless a file changes it: `RABBITMQ_DIST_PORT`, or its AMQP port plus 20,000
/// (deps/rabbit_common/src/rabbit_env.erl).
pub(crate) fn rabbitmq_ports(line: &CommandLine, environment: &Environment) -> Option<(u16, u16)> {
    let variable = |name| environment.get(name)?.parse::<u16>().ok();
    let port = variable("RABBITMQ_DIST_PORT").or_else(|| {
        let amqp = variable("RABBITMQ_NODE_PORT").unwrap_or(5_672);
        amqp.checked_add(20_000)
    })?;
    is_rabbitmq(line).then_some((port, port))
}

fn is_rabbitmq(line: &CommandLine) -> bool {
    starts(line, "rabbit") || line.value("boot").is_some_and(|boot| base_name(boot) == "rabbit")
}

/// Whether a module is started with `-s MODULE` or `-run MODULE`.
fn starts(line: &CommandLine, module: &str) -> bool {
    line.all("s").chain(line.all("run")).any(|values| values.first().is_some_and(|first| first == module))
}

fn is_elixir(line: &CommandLine) -> bool {
    starts(line, "elixir")
        || line.values("elixir").is_some()
        || line.values("elixir_root").is_some()
        || line.value("user").is_some_and(|user| user == "elixir" || user.starts_with("Elixir."))
}

fn is_iex(line: &CommandLine) -> bool {
    line.value("user") == Some("Elixir.IEx.CLI")
        || (is_elixir(line) && line.extra().iter().any(|word| word == "+iex"))
}

/// Returns the name of the mix task: the argument after `mix`.
fn after_mix(line: &CommandLine) -> Option<&String> {
    line.extra().iter().skip_while(|word| base_name(word) != "mix").nth(1)
}

/// Appends the name of a task. Further arguments are omitted, because they could contain anything.
fn with_task(program: String, task: Option<&String>) -> String {
    let is_name = |task: &&String| {
        task.starts_with(|c: char| c.is_ascii_alphabetic())
            && task.len() <= 40
            && task.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    match task.filter(is_name) {
        Some(task) => format!("{program} {task}"),
        None => program,
    }
}

/// Identifies a release by its boot file, which is in the folder of the release's version.
fn release(line: &CommandLine, environment: &Environment, distribution: &Distribution) -> Option<Product> {
    let (folder, boot) = line.value("boot")?.rsplit_once('/')?;
    let (root, version) = folder.rsplit_once('/')?;
    let root = root.strip_suffix("/releases")?;
    let named = environment.get("RELEASE_NAME").or(environment.get("REL_NAME"));
    if OTP_BOOTS.contains(&boot) && named.is_none() {
        return None;
    }
    let alive = distribution.name.as_ref().map(|name| name.alive.as_str());
    // `start` is the default boot file of mix and relx. Without the environment, the node name is usually that of the release; the
    // folder's name may be just `app`.
    let boot = (boot != "start" && !OTP_BOOTS.contains(&boot)).then_some(boot);
    let names = [named, boot, alive, Some(base_name(root))];
    let version = environment.get("RELEASE_VSN").or(environment.get("REL_VSN")).unwrap_or(version);
    let version = Some(text::printable(version)).filter(|version| !version.is_empty());
    let known = |name: &str| KNOWN.iter().find(|(release, _)| name.eq_ignore_ascii_case(release));
    if let Some((_, name)) = names.iter().flatten().find_map(|name| known(name)) {
        return Some(Product { kind: Kind::Application, name: (*name).to_owned(), version });
    }
    let kind = if is_elixir(line) { Kind::ElixirRelease } else { Kind::Release };
    Some(Product { kind, name: text::printable(names.iter().flatten().next()?), version })
}

fn rabbitmq_version<T: FileTree>(
    line: &CommandLine,
    environment: &Environment,
    files: &Files<'_, T>,
) -> Option<String> {
    let folders = line.all("pa").flatten().map(String::as_str);
    let mut folders = folders.chain(environment.get("ERL_LIBS")).chain(environment.get("RABBITMQ_HOME"));
    let in_path = |path: &str| version_in_path(path, "rabbitmq_server");
    let packaged = || files.list("/usr/lib/rabbitmq/lib").iter().find_map(|name| in_path(name));
    folders
        .find_map(in_path)
        .or_else(|| version_in_libraries("rabbit", line, environment, files))
        .or_else(packaged)
}

/// Finds the version of an application in the name of its folder, on the code path or in `ERL_LIBS`.
fn version_in_libraries<T: FileTree>(
    application: &str,
    line: &CommandLine,
    environment: &Environment,
    files: &Files<'_, T>,
) -> Option<String> {
    let in_path = |path: &str| version_in_path(path, application);
    let on_path = line.all("pa").chain(line.all("pz")).flatten().find_map(|path| in_path(path));
    let folders =
        environment.get("ERL_LIBS").unwrap_or_default().split(':').filter(|folder| !folder.is_empty());
    on_path.or_else(|| {
        folders.take(8).find_map(|folder| files.list(folder).iter().find_map(|name| in_path(name)))
    })
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests;
