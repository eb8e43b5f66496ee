//! Targets that beamtune can start without a command from the user, next to an installed service. Their data go to the trial's folder,
//! and they use a free port if the port can be configured.
//!
//! Each is a command line that a user could also write, with the trial's `$BEAMTUNE_FOLDER` and `$BEAMTUNE_PORT`.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// How a target is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preset {
    /// The command line.
    pub start: String,
    /// The port that it listens on, if known.
    pub port: Option<u16>,
    /// True if the port was chosen by beamtune.
    pub is_own_port: bool,
    /// A note for the user, printed before the start.
    pub remark: Option<String>,
}

impl Preset {
    /// Returns a preset that consists of a command line only.
    pub fn of_command(start: String) -> Preset {
        Preset { start, port: None, is_own_port: false, remark: None }
    }
}

/// Start scripts of RabbitMQ. On Debian, the script below `/usr/lib` is used, since the one on the PATH switches to another user.
const RABBITMQ: [&str; 3] = [
    "/usr/lib/rabbitmq/bin/rabbitmq-server",
    "/opt/rabbitmq/sbin/rabbitmq-server",
    "/usr/local/sbin/rabbitmq-server",
];
/// Ports to try. They and RabbitMQ's distribution port, 4,000 above, are below the kernel's ephemeral ports (32,768 and up).
const PORTS: std::ops::Range<u16> = 21_000..22_000;
const DISTRIBUTION_PORT_OFFSET: u16 = 4_000;
/// The port for XMPP clients.
const EJABBERD_PORT: u16 = 5222;

/// Preset for a RabbitMQ node next to the installed one, with the same configuration and plugins.
pub fn rabbitmq() -> Result<Preset> {
    let script = RABBITMQ.iter().find(|script| Path::new(script).exists());
    let script = script.with_context(|| {
        format!("RabbitMQ is not installed at {}: start it with --start", RABBITMQ.join(" or "))
    })?;
    let port = free_port()?;
    let start = format!(
        "exec env HOME=\"$BEAMTUNE_FOLDER\" RABBITMQ_NODENAME=beamtune_rabbit@localhost \
         RABBITMQ_NODE_PORT=\"$BEAMTUNE_PORT\" RABBITMQ_DIST_PORT=$((BEAMTUNE_PORT + {DISTRIBUTION_PORT_OFFSET})) \
         RABBITMQ_MNESIA_BASE=\"$BEAMTUNE_FOLDER/mnesia\" RABBITMQ_LOG_BASE=\"$BEAMTUNE_FOLDER/log\" RABBITMQ_LOGS=- \
         RABBITMQ_GENERATED_CONFIG_DIR=\"$BEAMTUNE_FOLDER/config\" RABBITMQ_PID_FILE=\"$BEAMTUNE_FOLDER/pid\" {script}"
    );
    Ok(Preset { port: Some(port), is_own_port: true, ..Preset::of_command(start) })
}

/// Finds a free port whose distribution port is also free.
pub fn free_port() -> Result<u16> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let found = PORTS.into_iter().find(|port| is_free(*port) && is_free(port + DISTRIBUTION_PORT_OFFSET));
    found.context("no port between 21000 and 22000 is free")
}

/// Preset for the installed ejabberd, with the configuration in this folder, its usual ports, and an empty database.
pub fn ejabberd(configuration: &Path) -> Result<Preset> {
    if on_path("ejabberdctl").is_none() {
        bail!("ejabberdctl is not on the PATH: start ejabberd with --start");
    }
    let file = configuration.join("ejabberd.yml");
    if !file.is_file() {
        bail!("{} does not exist", file.display());
    }
    let configuration = std::path::absolute(configuration).context("cannot read the working directory")?;
    let configuration = quoted(configuration.to_str().context("the path of the configuration is not UTF-8")?);
    // As root, ejabberdctl switches to the user of its installation.
    let start = format!(
        "mkdir -p \"$BEAMTUNE_FOLDER/spool\" \"$BEAMTUNE_FOLDER/logs\" && \
         if [ \"$(id -u)\" = 0 ] && id ejabberd >/dev/null 2>&1; then chown ejabberd \"$BEAMTUNE_FOLDER\"/*; fi && \
         exec ejabberdctl --config-dir {configuration} --spool \"$BEAMTUNE_FOLDER/spool\" --logs \"$BEAMTUNE_FOLDER/logs\" \
         --node beamtune_ejabberd@localhost foreground"
    );
    Ok(Preset { port: Some(EJABBERD_PORT), ..Preset::of_command(start) })
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Preset for the Mix or relx (rebar3) release in this folder.
pub fn release(folder: &Path) -> Result<Preset> {
    let folder = std::path::absolute(folder).context("cannot read the working directory")?;
    let entries = std::fs::read_dir(folder.join("bin"))
        .with_context(|| format!("{} is not a release: it has no folder bin", folder.display()))?;
    let mut found: Vec<(PathBuf, Kind)> = Vec::new();
    for entry in entries {
        let file = entry?.path();
        // A binary file is not a start script.
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        found.extend(kind_of(&text).map(|kind| (file, kind)));
    }
    // relx also writes a script with the version in its name.
    found.sort_by_key(|(file, _)| file.as_os_str().len());
    let Some((script, kind)) = found.into_iter().next() else {
        bail!("{}/bin contains no start script of a Mix or relx release: use --start", folder.display());
    };
    let script = quoted(script.to_str().context("the path of the release is not UTF-8")?);
    Ok(Preset::of_command(match kind {
        Kind::Mix => format!("RELEASE_TMP=\"$BEAMTUNE_FOLDER\" exec {script} start"),
        Kind::Relx => format!("RELX_OUT_FILE_PATH=\"$BEAMTUNE_FOLDER\" exec {script} foreground"),
    }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mix,
    Relx,
}

/// Returns the tool that generated a start script; `None` if it is another script.
fn kind_of(text: &str) -> Option<Kind> {
    if !text.starts_with("#!") {
        None
    } else if text.contains("RELEASE_COOKIE") && text.contains("RELEASE_TMP") {
        Some(Kind::Mix)
    } else if text.contains("RELX_") && text.contains("foreground") {
        Some(Kind::Relx)
    } else {
        None
    }
}

/// Preset for `erl` with these arguments.
pub fn erl(arguments: &str) -> Preset {
    Preset::of_command(format!("exec erl -noinput {arguments}"))
}

/// Preset for a systemd service, which beamtune starts as specified in its unit file.
pub fn unit(name: &str) -> Result<Preset> {
    let file = match Path::new(name) {
        path if name.contains('/') => path.to_owned(),
        _ => {
            let with_suffix = if name.contains('.') { name.to_owned() } else { format!("{name}.service") };
            let folders = [
                "/etc/systemd/system",
                "/run/systemd/system",
                "/usr/lib/systemd/system",
                "/lib/systemd/system",
            ];
            let files = folders.map(|folder| Path::new(folder).join(&with_suffix));
            let found = files.into_iter().find(|file| file.is_file());
            found.with_context(|| format!("no unit {with_suffix}: name its file, or use --start"))?
        }
    };
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    of_unit(&text).with_context(|| file.display().to_string())
}

/// Shell code that reads NAME=VALUE lines as systemd does, not as a shell would.
const READ_ENVIRONMENT: &str = "while IFS='=' read -r name value || [ -n \"$name\" ]; do case $name in ''|\\#*|\\;*) continue ;; esac; \
                                value=${value#[\\'\\\"]}; value=${value%[\\'\\\"]}; export \"$name=$value\"; done <";

fn of_unit(text: &str) -> Result<Preset> {
    let service = Service::read(text);
    let Some(start) = service.one("ExecStart") else { bail!("the unit has no ExecStart") };
    // Only systemd interprets the prefixes of the path.
    let start = start.trim_start_matches(['-', ':', '+', '!']);
    let folder = service.one("WorkingDirectory").map(|folder| folder.trim_start_matches('-'));
    if start.starts_with('@') || start.contains('%') || folder.is_some_and(|folder| !folder.starts_with('/'))
    {
        bail!("the form of its ExecStart or WorkingDirectory is not supported: start it with --start");
    }
    let mut words = Vec::new();
    words.extend(folder.map(|folder| format!("cd {} &&", quoted(folder))));
    for pairs in service.all("Environment") {
        for pair in items(pairs) {
            let (name, value) = pair.split_once('=').with_context(|| format!("Environment={pairs:?}"))?;
            words.push(format!("export {name}={} &&", quoted(value)));
        }
    }
    // Variables in files take precedence (systemd.exec(5)).
    for file in service.all("EnvironmentFile") {
        words.push(match file.strip_prefix('-') {
            Some(file) => format!("if [ -f {0} ]; then {READ_ENVIRONMENT}{0}; fi &&", quoted(file)),
            None => format!("{READ_ENVIRONMENT}{} &&", quoted(file)),
        });
    }
    words.push("exec".to_owned());
    if let Some(user) = service.one("User").map(quoted) {
        let group = service.one("Group").map_or_else(|| format!("$(id -g {user})"), quoted);
        words.push(format!("setpriv --reuid={user} --regid={group} --init-groups"));
    }
    words.push(start.to_owned());
    let remark = "started from its unit file, but not by systemd: drop-ins, sandbox and limits of the service do not apply. It uses the \
                  data of the service, so stop the service first";
    Ok(Preset { remark: Some(remark.to_owned()), ..Preset::of_command(words.join(" ")) })
}

/// The section [Service] of a unit file.
struct Service(BTreeMap<String, Vec<String>>);

impl Service {
    fn read(text: &str) -> Service {
        let joined = text.replace("\\\n", " ");
        let mut is_service = false;
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in joined.lines().map(str::trim) {
            if line.starts_with('[') {
                is_service = line == "[Service]";
            } else if is_service
                && !line.starts_with(['#', ';'])
                && let Some((name, value)) = line.split_once('=')
            {
                let values = found.entry(name.trim().to_owned()).or_default();
                // An empty value resets the list.
                match value.trim() {
                    "" => values.clear(),
                    value => values.push(value.to_owned()),
                }
            }
        }
        Service(found)
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.get(name).into_iter().flatten().map(String::as_str)
    }

    fn one(&self, name: &str) -> Option<&str> {
        self.all(name).last()
    }
}

/// Splits a value at blanks outside of quotes (systemd.syntax(7)).
fn items(value: &str) -> Vec<String> {
    let mut items = Vec::new();
    let mut item = String::new();
    let mut quote = None;
    for char in value.chars() {
        match (quote, char) {
            (None, '"' | '\'') => quote = Some(char),
            (Some(open), char) if open == char => quote = None,
            (None, char) if char.is_whitespace() => items.push(std::mem::take(&mut item)),
            _ => item.push(char),
        }
    }
    items.push(item);
    items.retain(|item| !item.is_empty());
    items
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tool_of_a_release_is_recognised_by_its_start_script() {
        let folder = tempfile::tempdir().expect("a folder");
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).expect("made");
        release(folder.path()).expect_err("no start script");
        std::fs::write(bin.join("other"), "#!/bin/sh\necho\n").expect("written");
        std::fs::write(bin.join("shop"), "#!/bin/sh\nRELEASE_COOKIE=x RELEASE_TMP=y\n").expect("written");
        let mix = release(folder.path()).expect("a release").start;
        assert!(mix.starts_with("RELEASE_TMP=") && mix.ends_with("/bin/shop' start"), "{mix}");
        std::fs::write(bin.join("shop"), "#!/bin/sh\n# RELX_REPLACE_OS_VARS\nforeground)\n")
            .expect("written");
        std::fs::write(bin.join("shop-1.0"), "#!/bin/sh\n# RELX_REPLACE_OS_VARS\nforeground)\n")
            .expect("written");
        let relx = release(folder.path()).expect("a release").start;
        assert!(relx.ends_with("/bin/shop' foreground"), "{relx}");
        release(&folder.path().join("none")).expect_err("no folder");
    }

    #[test]
    fn a_unit_becomes_a_command_line() {
        let text = "[Unit]\nDescription=A shop\nExecStart=/no\n[Service]\n# A comment\nUser=shop\nWorkingDirectory=/srv/shop\n\
                    Environment=\"NAME=a b\" LANG=C\nEnvironmentFile=-/etc/default/shop\nExecStart=/old\nExecStart=\n\
                    ExecStart=-/srv/shop/bin/shop \\\n foreground\nExecStop=/srv/shop/bin/shop stop\n[Install]\nUser=x\n";
        let start = of_unit(text).expect("a service").start;
        let begin = "cd '/srv/shop' && export NAME='a b' && export LANG='C' && if [ -f '/etc/default/shop' ]; then while ";
        assert!(start.starts_with(begin), "{start}");
        let end = "exec setpriv --reuid='shop' --regid=$(id -g 'shop') --init-groups /srv/shop/bin/shop   foreground";
        assert!(start.ends_with(end), "{start}");
        of_unit("[Service]\nExecStart=/srv/%n\n").expect_err("a specifier");
        of_unit("[Service]\nType=oneshot\n").expect_err("nothing to start");
    }

    #[test]
    fn environment_files_are_read_as_by_systemd() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("shop");
        std::fs::write(&file, "# A comment\nPOOL=64\nOPTS=-a -b\n\nNAME=\"a b\"\nURL=x=y").expect("written");
        let text = format!(
            "[Service]\nEnvironment=POOL=4\nEnvironmentFile={}\nExecStart=/usr/bin/env\n",
            file.display()
        );
        let start = of_unit(&text).expect("a service").start;
        let output = std::process::Command::new("sh").args(["-c", &start]).env_clear().output().expect("sh");
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        for expect in ["POOL=64", "OPTS=-a -b", "NAME=a b", "URL=x=y"] {
            assert!(output.lines().any(|line| line == expect), "no {expect:?} in {output:?}");
        }
    }

    #[test]
    fn quotes_are_escaped() {
        assert_eq!(quoted("it's here"), "'it'\\''s here'");
    }
}
