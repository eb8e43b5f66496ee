//! A target that needs little CPU time: nginx in one process, which answers every path with 12 bytes.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::placement::{Cores, on_core};
use super::trial::Freezable;
use crate::bench::process::{Running, TIMEOUT, wait_for};

/// Path in Debian; its folder is not in every user's PATH.
const PROGRAM: &str = "/usr/sbin/nginx";
/// Maximum number of connections, more than any load here opens.
const MAX_CONNECTIONS: usize = 15_000;
/// If nginx has fewer open file descriptors than this, all connections are closed; without clients it has far fewer.
const MAX_IDLE_DESCRIPTORS: usize = 100;

/// A server that is killed when dropped.
pub struct Nginx {
    running: Running,
    address: SocketAddr,
    /// Name and version: `nginx 1.22.1`.
    pub version: String,
}

impl Nginx {
    /// Starts nginx with a configuration of our own.
    pub fn start(folder: &Path, cores: Cores) -> Result<Nginx> {
        ensure!(Path::new(PROGRAM).exists(), "{PROGRAM} is not installed (scripts/install.sh bench)");
        let folder = folder.join("nginx");
        fs::create_dir_all(&folder)?;
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr())?;
        fs::write(folder.join("nginx.conf"), configuration(&folder, address))?;
        let mut running = Running::start(
            on_core(cores.server, PROGRAM)?.arg("-p").arg(&folder).args(["-c", "nginx.conf"]),
        )?;
        running.wait_until_listening("nginx", address)?;
        Ok(Nginx { running, address, version: version()? })
    }

    /// Returns the URL for requests.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Waits until the connections of the last run are closed, so that they do not slow down the next one.
    pub fn wait_until_idle(&self) -> Result<()> {
        let descriptors = format!("/proc/{}/fd", self.running.pid());
        wait_for("nginx to close its connections", TIMEOUT, || {
            let open = fs::read_dir(&descriptors).context("nginx has ended")?.count();
            Ok((open < MAX_IDLE_DESCRIPTORS).then_some(()))
        })
    }
}

impl Freezable for Nginx {
    fn pid(&self) -> u32 {
        self.running.pid()
    }
}

/// nginx runs in one process, so that one signal stops all of it. With `multi_accept`, a busy nginx accepts more than one connection per
/// iteration of its event loop; otherwise 10,000 connections would not be established within a run.
fn configuration(folder: &Path, address: SocketAddr) -> String {
    let path = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {path}/{kind}; "))
        .concat();
    format!(
        "daemon off; master_process off; pid {path}/pid; error_log stderr;
         events {{ worker_connections {MAX_CONNECTIONS}; multi_accept on; }}
         http {{ access_log off; {temporary}
         keepalive_timeout 1h; keepalive_time 1h; keepalive_requests 1000000000;
         server {{ listen {address} backlog=4096; location / {{ return 200 \"Hello world\\n\"; }} }} }}"
    )
}

/// Parses the standard error of `nginx -v`: `nginx version: nginx/1.22.1`.
fn version() -> Result<String> {
    let output =
        Command::new(PROGRAM).arg("-v").stdin(Stdio::null()).output().context("cannot start nginx")?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(stderr.trim().rsplit(' ').next().unwrap_or_default().replace('/', " "))
}
