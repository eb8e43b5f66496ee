//! Renders a systemd unit that runs `record` with the options of this command.

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use beamtune_node::target::LiveTarget;

use super::Args;

/// Renders the unit. It runs as the user of the nodes, if they are running on this host and share one user; otherwise as root.
pub(super) fn unit(args: &Args) -> Result<String> {
    let exe = std::env::current_exe().context("cannot find the path of this program")?;
    let mut command = vec![exe.display().to_string(), "record".to_owned()];
    let mut option = |name: &str, value: String| command.extend([name.to_owned(), value]);
    if let Some(keep) = args.keep {
        option("--keep", format!("{}s", keep.as_secs_f64()));
    }
    option("--max-size", args.max_size.to_string());
    option("--every", format!("{}s", args.every.as_secs_f64()));
    if let Some(limit) = args.profile_when {
        option("--profile-when", limit.to_string());
    }
    command.extend(args.access.words()?);
    // Our own specifiers, such as %S, must not be quoted; words from the user must.
    let folder = match &args.output {
        Some(output) => quoted(&std::path::absolute(output).context("-o")?.display().to_string())?,
        None => "%S/beamtune/".to_owned(),
    };
    if args.host_only {
        command.push("--host-only".to_owned());
    }
    command.push("--".to_owned());
    command.extend(args.targets.iter().cloned());
    let words = command.iter().map(|word| quoted(word)).collect::<Result<Vec<_>>>()?;
    let (options, targets) = words.split_at(words.len() - args.targets.len() - 1);
    let writable = match &args.output {
        Some(output) => {
            let absolute = std::path::absolute(output).context("-o")?;
            let is_folder = super::ring::is_folder(output, args.targets.len() > 1);
            let folder = if is_folder { absolute.as_path() } else { absolute.parent().unwrap_or(&absolute) };
            format!("ReadWritePaths={}\n", quoted(&folder.display().to_string())?)
        }
        None => String::new(),
    };
    let user = user(args);
    let mut unit = String::new();
    let names = args.targets.join(", ");
    write!(
        unit,
        "# Keeps the last few hours of {names}, so that incidents can be analysed later.\n\
         # To install it, as root:\n\
         #   beamtune record --systemd … > /etc/systemd/system/beamtune.service\n\
         #   systemctl daemon-reload && systemctl enable --now beamtune.service\n\
         # To analyse the last night:\n\
         #   beamtune diagnose /var/lib/beamtune/NODE.btr --from 02:50 --to 03:10\n\
         [Unit]\n\
         Description=beamtune: the last few hours of {names}\n\
         After=network.target epmd.service\n\
         # Restart without a limit.\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         ExecStart={} -o {folder} {}\n\
         Restart=always\n\
         RestartSec=30\n\
         # Finishes the recording properly, as a single file.\n\
         KillSignal=SIGTERM\n\
         TimeoutStopSec=30\n\
         StateDirectory=beamtune\n\
         StateDirectoryMode=0700\n\
         UMask=0077\n",
        options.join(" "),
        targets.join(" "),
    )?;
    unit.push_str(&writable);
    let perfmon = if args.profile_when.is_some() { "CAP_PERFMON" } else { "" };
    match &user {
        Some(user) => write!(
            unit,
            "\n# The user of the nodes may read their /proc files and their cookie.\n\
             User={user}\n\
             CapabilityBoundingSet={perfmon}\n"
        )?,
        None => write!(
            unit,
            "\n# With the first two capabilities, the service can read /proc and the cookies of other users' processes.\n\
             # Better: set User= to the nodes' user, and CapabilityBoundingSet= to nothing{}.\n\
             User=root\n\
             CapabilityBoundingSet={}\n",
            if perfmon.is_empty() { String::new() } else { format!(" but {perfmon}") },
            format!("CAP_SYS_PTRACE CAP_DAC_READ_SEARCH {perfmon}").trim_end()
        )?,
    }
    if !perfmon.is_empty() {
        write!(
            unit,
            "\n# For CPU profiles.\nAmbientCapabilities={perfmon}\nSystemCallFilter=perf_event_open\n"
        )?;
    }
    unit.push_str(HARDENING);
    Ok(unit)
}

/// Sandbox settings. ProtectProc, ProcSubset, PrivateUsers, PrivateNetwork and PrivatePIDs are not set, since they would hide the
/// nodes. ProtectHome is only `read-only`, because of the cookie.
const HARDENING: &str = "\
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
PrivateDevices=yes
PrivateTmp=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service

[Install]
WantedBy=multi-user.target
";

/// Returns the user of the targets, if all are running on this host as the same user other than root.
fn user(args: &Args) -> Option<String> {
    let mut users = args.targets.iter().map(|target| {
        LiveTarget::find(Some(target), &args.access.options()).ok().and_then(|live| live.vm?.user)
    });
    let first = users.next()??;
    users.all(|user| user.as_ref() == Some(&first)).then_some(first).filter(|user| user != "root")
}

/// Quotes a word for a command line in a unit (systemd.service(5), "Command lines").
fn quoted(word: &str) -> Result<String> {
    if word.chars().any(char::is_control) {
        bail!("{word:?} contains a character that a systemd unit cannot contain");
    }
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    let is_plain = !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "@._-/:=+".contains(c));
    Ok(if is_plain { escaped } else { format!("\"{escaped}\"") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_systemd() {
        let check = |word: &str, expect: &str| assert_eq!(quoted(word).ok().as_deref(), Some(expect));
        check("rabbit@web1", "rabbit@web1");
        check("/a b/c", "\"/a b/c\"");
        check("100%", "\"100%%\"");
        check("a\"b$c\\", "\"a\\\"b$$c\\\\\"");
        check("", "\"\"");
        assert!(quoted("a\nExecStartPre=/bin/evil").is_err());
    }
}
