//! Checks whether a started target is ready for its load.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_host::discovery::Vm;
use beamtune_host::distribution::Distribution;
use serde::{Deserialize, Serialize};

/// Time limit for one check.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Number of bytes to read from a response; the status line is shorter.
const ANSWER_BYTES: usize = 64;

/// The condition under which a target counts as ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    /// `HOST:PORT` accepts connections.
    Tcp(String),
    /// A GET request for `http://HOST:PORT/PATH` returns a status below 400.
    Http {
        /// `HOST:PORT`.
        address: String,
        /// The path, beginning with `/`.
        path: String,
    },
    /// A node accepts distribution connections. Earlier VMs of the command, such as compilers, are ignored.
    Node,
    /// The VM runs. A job has no other condition.
    Vm,
}

impl Ready {
    /// Parses `http://…`, `tcp:PORT`, `tcp:HOST:PORT` or `node`.
    pub fn parse(text: &str) -> Result<Ready, String> {
        let with_port = |address: &str, usual: Option<&str>| match (address.rsplit_once(':'), usual) {
            (Some((_, port)), _) if port.parse::<u16>().is_ok() => Ok(address.to_owned()),
            (_, Some(usual)) => Ok(format!("{address}:{usual}")),
            _ => Err(format!("{text:?} has no port")),
        };
        if text == "node" {
            return Ok(Ready::Node);
        }
        if let Some(rest) = text.strip_prefix("tcp:") {
            let address = if rest.contains(':') { rest.to_owned() } else { format!("127.0.0.1:{rest}") };
            return with_port(&address, None).map(Ready::Tcp);
        }
        if let Some(rest) = text.strip_prefix("http://") {
            let (address, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
            return Ok(Ready::Http { address: with_port(address, Some("80"))?, path: path.to_owned() });
        }
        Err(format!("{text:?} is not http://HOST:PORT/PATH, tcp:PORT, tcp:HOST:PORT or node"))
    }

    /// Returns the address that must be free before the target is started.
    pub fn address(&self) -> Option<&str> {
        match self {
            Ready::Tcp(address) | Ready::Http { address, .. } => Some(address),
            Ready::Node | Ready::Vm => None,
        }
    }

    /// Returns the port of the address.
    pub fn port(&self) -> Option<u16> {
        self.address()?.rsplit_once(':')?.1.parse().ok()
    }

    /// Checks the target; the error says why it is not ready. The caller checks that a VM runs.
    pub fn check(&self) -> Result<()> {
        match self {
            Ready::Tcp(address) => connect(address).map(drop),
            Ready::Http { address, path } => {
                let status = get(address, path)?;
                if status >= 400 {
                    bail!("http://{address}{path} answers with status {status}");
                }
                Ok(())
            }
            Ready::Node | Ready::Vm => Ok(()),
        }
    }
}

impl Ready {
    /// True if a VM may be the one that the condition refers to.
    pub fn accepts(&self, vm: &Vm) -> bool {
        let Distribution { name, listeners, .. } = &vm.distribution;
        match self {
            Ready::Node => name.is_some() && listeners.as_ref().is_none_or(|ports| !ports.is_empty()),
            Ready::Tcp(_) | Ready::Http { .. } | Ready::Vm => true,
        }
    }
}

/// Connects to the first resolved address that accepts the connection.
pub fn connect(address: &str) -> Result<TcpStream> {
    let addresses: Vec<SocketAddr> =
        address.to_socket_addrs().with_context(|| format!("cannot resolve {address}"))?.collect();
    let mut last = None;
    for one in addresses {
        match TcpStream::connect_timeout(&one, TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) => Err(error).with_context(|| format!("nothing accepts connections at {address}")),
        None => bail!("cannot resolve {address}: no address"),
    }
}

/// Sends a GET request, and returns the status of the response.
fn get(address: &str, path: &str) -> Result<u16> {
    let mut stream = connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // A single write: a server may respond to the first segment and close the connection, so that a later write would fail.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).with_context(|| format!("cannot send a request to {address}"))?;
    let mut answer = Vec::new();
    stream
        .take(ANSWER_BYTES as u64)
        .read_to_end(&mut answer)
        .with_context(|| format!("no answer from http://{address}{path}"))?;
    let text = String::from_utf8_lossy(&answer);
    let status = text.strip_prefix("HTTP/").and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
    status.with_context(|| format!("the server at {address} does not speak HTTP"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn conditions_are_parsed() {
        let http =
            |address: &str, path: &str| Ready::Http { address: address.to_owned(), path: path.to_owned() };
        let check = |text: &str, expect: Option<Ready>| assert_eq!(Ready::parse(text).ok(), expect, "{text}");
        check("tcp:8080", Some(Ready::Tcp("127.0.0.1:8080".to_owned())));
        check("tcp:db:8080", Some(Ready::Tcp("db:8080".to_owned())));
        check("http://127.0.0.1:8080/health?x=1", Some(http("127.0.0.1:8080", "/health?x=1")));
        check("http://localhost", Some(http("localhost:80", "/")));
        check("node", Some(Ready::Node));
        check("tcp:x", None);
        check("8080", None);
        check("https://localhost", None);
    }

    /// Starts a server that sends this response to one connection, and returns its address.
    fn server(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accepted");
            let _ = stream.read(&mut [0; 512]);
            stream.write_all(answer.as_bytes()).expect("written");
        });
        address
    }

    #[test]
    fn a_target_is_ready_if_it_returns_a_status_below_400() {
        let check = |answer, expect: &str| {
            let address = server(answer);
            let result = Ready::Http { address, path: "/".to_owned() }.check();
            let text = result.map_or_else(|error| format!("{error:#}"), |()| "ready".to_owned());
            assert!(text.contains(expect), "{text:?}, not {expect:?}");
        };
        check("HTTP/1.1 200 OK\r\n\r\n", "ready");
        check("HTTP/1.1 302 Found\r\n\r\n", "ready");
        check("HTTP/1.1 503 Service Unavailable\r\n\r\n", "status 503");
        check("SSH-2.0-OpenSSH\r\n", "does not speak HTTP");
        check("", "does not speak HTTP");
        assert!(Ready::Tcp("127.0.0.1:1".to_owned()).check().is_err());
    }
}
