//! When a target that was started can take its load.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_host::discovery::Vm;
use beamtune_host::distribution::Distribution;
use serde::{Deserialize, Serialize};

/// How long one look may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The first line of an answer is shorter.
const ANSWER_BYTES: usize = 64;

/// What shows that a target is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    /// Somebody accepts connections at `HOST:PORT`.
    Tcp(String),
    /// A GET of `http://HOST:PORT/PATH` is answered with a status below 400.
    Http {
        /// `HOST:PORT`.
        address: String,
        /// The path, beginning with `/`.
        path: String,
    },
    /// A node listens for others. VMs that come before it, as those that compile or read a configuration, are none.
    Node,
    /// Its VM is there, which is all that can be asked of a job.
    Vm,
}

impl Ready {
    /// What the user wrote: `http://…`, `tcp:PORT`, `tcp:HOST:PORT` or `node`.
    pub fn parse(text: &str) -> Result<Ready, String> {
        let with_port = |address: &str, usual: Option<&str>| match (address.rsplit_once(':'), usual) {
            (Some((_, port)), _) if port.parse::<u16>().is_ok() => Ok(address.to_owned()),
            (_, Some(usual)) => Ok(format!("{address}:{usual}")),
            _ => Err(format!("{text:?} names no port")),
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
        Err(format!("{text:?} is none of http://HOST:PORT/PATH, tcp:PORT, tcp:HOST:PORT and node"))
    }

    /// The address that must be free before the target is started, if there is one.
    pub fn address(&self) -> Option<&str> {
        match self {
            Ready::Tcp(address) | Ready::Http { address, .. } => Some(address),
            Ready::Node | Ready::Vm => None,
        }
    }

    /// Its port.
    pub fn port(&self) -> Option<u16> {
        self.address()?.rsplit_once(':')?.1.parse().ok()
    }

    /// An error says why it is not ready yet. That there is a VM is looked for by who asks.
    pub fn look(&self) -> Result<()> {
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
    /// Whether a VM may be what is waited for.
    pub fn may_be(&self, vm: &Vm) -> bool {
        let Distribution { name, listeners, .. } = &vm.distribution;
        match self {
            Ready::Node => name.is_some() && listeners.as_ref().is_none_or(|ports| !ports.is_empty()),
            Ready::Tcp(_) | Ready::Http { .. } | Ready::Vm => true,
        }
    }
}

/// Connects to the first of its addresses that accepts.
pub fn connect(address: &str) -> Result<TcpStream> {
    let addresses: Vec<SocketAddr> =
        address.to_socket_addrs().with_context(|| format!("{address} cannot be resolved"))?.collect();
    let mut last = None;
    for one in addresses {
        match TcpStream::connect_timeout(&one, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) => Err(error).with_context(|| format!("nothing accepts connections at {address}")),
        None => bail!("{address} has no address"),
    }
}

/// The status of the answer to one GET. No more is wanted than whether there is one.
fn get(address: &str, path: &str) -> Result<u16> {
    let mut stream = connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // In one piece: who answers to the first one and closes would break the others.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).with_context(|| format!("{address} takes no request"))?;
    let mut answer = Vec::new();
    stream
        .take(ANSWER_BYTES as u64)
        .read_to_end(&mut answer)
        .with_context(|| format!("http://{address}{path} is not answered"))?;
    let text = String::from_utf8_lossy(&answer);
    let status = text.strip_prefix("HTTP/").and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
    status.with_context(|| format!("what listens at {address} does not speak HTTP"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn what_shows_that_a_target_is_ready_is_read() {
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

    /// Answers one connection with a text.
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
    fn a_target_is_ready_when_it_gives_a_good_answer() {
        let check = |answer, expect: &str| {
            let address = server(answer);
            let told = Ready::Http { address, path: "/".to_owned() }.look();
            let told = told.map_or_else(|error| format!("{error:#}"), |()| "ready".to_owned());
            assert!(told.contains(expect), "{told:?}, not {expect:?}");
        };
        check("HTTP/1.1 200 OK\r\n\r\n", "ready");
        check("HTTP/1.1 302 Found\r\n\r\n", "ready");
        check("HTTP/1.1 503 Service Unavailable\r\n\r\n", "status 503");
        check("SSH-2.0-OpenSSH\r\n", "does not speak HTTP");
        check("", "does not speak HTTP");
        assert!(Ready::Tcp("127.0.0.1:1".to_owned()).look().is_err());
    }
}
