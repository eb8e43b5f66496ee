//! A target that costs little: nginx in one process, which answers every path by twelve bytes.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::place::{Cores, on_core};
use super::trial::Freezable;
use crate::bench::process::{PATIENCE, Running, wait_for};

/// Debian's place, which is not in everybody's PATH.
const PROGRAM: &str = "/usr/sbin/nginx";
/// Connections that it takes; more than any load here has.
const CONNECTIONS: usize = 15_000;
/// What it has open without a client is far less.
const FEW_DESCRIPTORS: usize = 100;

/// It is ended, by its process id, when this goes out of scope.
pub struct Nginx {
    running: Running,
    address: SocketAddr,
    /// `nginx 1.22.1`.
    pub version: String,
}

impl Nginx {
    /// Starts it with a configuration of our own.
    pub fn start(folder: &Path, cores: Cores) -> Result<Nginx> {
        ensure!(Path::new(PROGRAM).exists(), "{PROGRAM} is not installed (scripts/install.sh bench)");
        let folder = folder.join("nginx");
        fs::create_dir_all(&folder)?;
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr())?;
        fs::write(folder.join("nginx.conf"), configuration(&folder, address))?;
        let mut running = Running::start(
            on_core(cores.server, PROGRAM)?.arg("-p").arg(&folder).args(["-c", "nginx.conf"]),
        )?;
        running.wait_until_it_listens("nginx", address)?;
        Ok(Nginx { running, address, version: version()? })
    }

    /// What is asked for.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Waits until the connections of the last run are closed, so that the next one does not pay for it.
    pub fn calm_down(&self) -> Result<()> {
        let descriptors = format!("/proc/{}/fd", self.running.pid());
        wait_for("nginx to close its connections", PATIENCE, || {
            let open = fs::read_dir(&descriptors).context("nginx has ended")?.count();
            Ok((open < FEW_DESCRIPTORS).then_some(()))
        })
    }
}

impl Freezable for Nginx {
    fn pid(&self) -> u32 {
        self.running.pid()
    }
}

/// One process, so that one signal stops all of it. It accepts all that wait at once: else a busy nginx takes a new connection
/// only once for each round of its others, and 10,000 would not stand within a run.
fn configuration(folder: &Path, address: SocketAddr) -> String {
    let path = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {path}/{kind}; "))
        .concat();
    format!(
        "daemon off; master_process off; pid {path}/pid; error_log stderr;
         events {{ worker_connections {CONNECTIONS}; multi_accept on; }}
         http {{ access_log off; {temporary}
         keepalive_timeout 1h; keepalive_time 1h; keepalive_requests 1000000000;
         server {{ listen {address} backlog=4096; location / {{ return 200 \"Hello world\\n\"; }} }} }}"
    )
}

/// It says so on its standard error, as `nginx version: nginx/1.22.1`.
fn version() -> Result<String> {
    let said =
        Command::new(PROGRAM).arg("-v").stdin(Stdio::null()).output().context("nginx does not start")?;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    Ok(said.trim().rsplit(' ').next().unwrap_or_default().replace('/', " "))
}
