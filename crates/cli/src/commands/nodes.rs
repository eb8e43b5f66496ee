//! `beamtune nodes`: lists the Erlang VMs on this host.

use std::process::ExitCode;

use anyhow::Result;
use beamtune_attach::Network;
use beamtune_host::discovery::{Access, Vm};
use beamtune_node::access::AccessError;
use beamtune_node::local_vms::{LocalVms, network, place};
use beamtune_report::table::{Align, Table};
use beamtune_report::{Style, json, text};
use serde::Serialize;

use crate::access::AccessArgs;
use crate::terminal;

/// List the Erlang VMs on this host, and whether they can be attached to
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: AccessArgs,
}

/// A VM in the output.
#[derive(Serialize)]
struct Row {
    pid: u32,
    node: Option<String>,
    otp: Option<String>,
    runs: String,
    /// Its container or network namespace, if it differs from that of the host.
    place: Option<String>,
    /// Full id of its container, if known from its control groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    container_id: Option<String>,
    /// Inode number of its network namespace, if it differs from that of beamtune.
    #[serde(skip_serializing_if = "Option::is_none")]
    network_namespace: Option<u64>,
    user: Option<String>,
    /// Mean CPU use since the VM started.
    cores: Option<f64>,
    rss_bytes: Option<i64>,
    uptime_seconds: Option<f64>,
    /// True if nothing that is known before connecting prevents attaching.
    attachable: bool,
    /// Why the VM cannot be attached to, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let local = LocalVms::discover(&args.access.options())?;
    let rows: Vec<_> = local.discovery.vms.iter().map(|vm| row(&local, vm)).collect();
    if args.json {
        terminal::print(&json::pretty(&rows));
        return Ok(ExitCode::SUCCESS);
    }
    terminal::print(&render(&rows, terminal::style()));
    if local.discovery.may_be_incomplete {
        terminal::complain("Processes of other users are hidden; run beamtune as root to see all VMs.\n");
    }
    Ok(ExitCode::SUCCESS)
}

fn row(local: &LocalVms, vm: &Vm) -> Row {
    let why_not = local.access(vm).err().map(|error| match (error, &vm.access) {
        // An unreadable process explains why no cookie or port was found.
        (AccessError::CannotAttach(_), Access::Refused(reason)) => reason.clone(),
        (error, _) => error.reason(),
    });
    let installation = &vm.installation;
    Row {
        pid: vm.identity.pid,
        node: local.name(vm),
        otp: installation
            .otp_version
            .clone()
            .or_else(|| installation.otp_release.map(|release| release.to_string())),
        runs: vm.product.to_string(),
        place: place(vm),
        container_id: vm.container.as_ref().map(|container| container.id.clone()),
        network_namespace: match network(vm) {
            Network::Own => None,
            Network::Other(namespace) => Some(namespace.inode),
        },
        user: vm.user.clone(),
        cores: vm.cores(),
        rss_bytes: vm.rss_bytes,
        uptime_seconds: vm.uptime_ns.map(|uptime| uptime as f64 / 1e9),
        attachable: why_not.is_none(),
        why_not,
    }
}

fn render(rows: &[Row], style: Style) -> String {
    if rows.is_empty() {
        return "No Erlang VM runs on this host.\n".to_owned();
    }
    use Align::{Left, Right};
    // The column appears only if it distinguishes VMs.
    let with_places = rows.iter().any(|row| row.place.is_some());
    let mut columns = vec![
        ("pid", Right),
        ("node", Left),
        ("where", Left),
        ("OTP", Left),
        ("product", Left),
        ("user", Left),
    ];
    columns.extend([("CPU (mean)", Right), ("RSS", Right), ("uptime", Right), ("attach", Left)]);
    columns.retain(|(title, _)| with_places || *title != "where");
    let mut table = Table::new(&columns);
    let mut reasons = String::new();
    for row in rows {
        let place = with_places.then(|| text::clean(row.place.as_deref().unwrap_or("host")));
        let cells = [row.pid.to_string(), text::clean(row.node.as_deref().unwrap_or("–"))];
        let cells = cells.into_iter().chain(place).chain([
            text::clean(row.otp.as_deref().unwrap_or("?")),
            text::clean(&row.runs),
            text::clean(row.user.as_deref().unwrap_or("?")),
            row.cores.map_or("?".to_owned(), |cores| format!("{:.0} %", cores * 100.0)),
            row.rss_bytes.map_or("?".to_owned(), |bytes| text::bytes(bytes as f64)),
            row.uptime_seconds.map_or("?".to_owned(), text::seconds),
            if row.attachable { "yes" } else { "no" }.to_owned(),
        ]);
        table.row(cells);
        if let Some(reason) = &row.why_not {
            let line = format!("{}: {}", row.pid, text::sentence(reason));
            reasons.push_str(&format!("{}\n", text::wrap(&line, style.width, "    ")));
        }
    }
    let mut out = table.render(style);
    if !reasons.is_empty() {
        out.push_str(&format!("\nCannot attach to:\n{reasons}"));
    }
    out
}
