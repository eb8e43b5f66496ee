//! Targets of loads. They end with the test that started them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;
use tungstenite::Message;
use tungstenite::handshake::server::{ErrorResponse, Request, Response};

use crate::common::{Running, folder, free_port, run, wait_until};

/// A certificate that vouches for itself, as `openssl req -x509` makes it: `cert.pem` and `key.pem`.
pub fn certificate(folder: &Path) {
    let mut command = Command::new("openssl");
    command.current_dir(folder).args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"]);
    command.args(["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=localhost"]);
    command.args(["-addext", "subjectAltName=DNS:localhost,DNS:broker"]);
    let said = run(command.args(["-keyout", "key.pem", "-out", "cert.pem"]));
    assert_eq!(said.status, Some(0), "{}", said.stderr);
}

/// A certificate of 2020 in `cert.pem` and `key.pem`, and in `ca.pem` who vouches for it.
pub fn expired_certificate(folder: &Path) {
    let configuration = "[ca]\ndefault_ca = own\n[own]\ndatabase = index\nnew_certs_dir = .\nrand_serial = yes\n\
        default_md = sha256\npolicy = any\nx509_extensions = names\n[any]\ncommonName = supplied\n\
        [names]\nsubjectAltName = DNS:localhost\n";
    std::fs::write(folder.join("configuration"), configuration).expect("written");
    std::fs::write(folder.join("index"), "").expect("written");
    let openssl = |arguments: &str| {
        let said = run(Command::new("openssl").current_dir(folder).args(arguments.split(' ')));
        assert_eq!(said.status, Some(0), "{}", said.stderr);
    };
    let key = "-nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256";
    openssl(&format!("req -x509 {key} -subj /CN=authority -keyout ca-key.pem -out ca.pem"));
    openssl(&format!("req -new {key} -subj /CN=localhost -keyout key.pem -out request"));
    let times = "-startdate 200101000000Z -enddate 200201000000Z";
    openssl(&format!(
        "ca -batch -notext -config configuration -cert ca.pem -keyfile ca-key.pem -in request -out cert.pem {times}"
    ));
}

/// A server that was installed with a package.
pub struct Daemon {
    pub running: Running,
    /// Where it listens, and where it does with TLS.
    pub port: u16,
    pub tls_port: u16,
    /// With its certificate.
    pub folder: TempDir,
}

/// The program, or `None`, and then it has been said that the test is skipped.
fn installed(program: &str) -> Option<&str> {
    let is_there = Path::new(program).exists();
    if !is_there {
        eprintln!("skipped, because {program} is not installed (scripts/install.sh test)");
    }
    is_there.then_some(program)
}

impl Daemon {
    fn start(program: &str, configure: impl FnOnce(&Path, u16, u16) -> Command) -> Option<Self> {
        installed(program)?;
        let folder = folder();
        certificate(folder.path());
        let (port, tls_port) = (free_port(), free_port());
        let mut command = configure(folder.path(), port, tls_port);
        let running = Running::start(command.stderr(Stdio::null()));
        wait_until("a server listens", || TcpStream::connect(("127.0.0.1", tls_port)).is_ok());
        Some(Self { running, port, tls_port, folder })
    }
}

/// nginx in one process, so that one signal stops all of it: every path is answered by JSON with an `id`, `/large` by 100 kB; `/socket` is
/// handed on to that port. It tells of each request in the file `served`.
pub fn nginx(socket_port: u16) -> Option<Daemon> {
    Daemon::start("/usr/sbin/nginx", |folder, port, tls_port| {
        let path = folder.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {path}/{kind}; "))
            .concat();
        let configuration = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/errors; events {{ worker_connections 1000; }}
             http {{ access_log {path}/served; {temporary} keepalive_requests 1000000; default_type application/json;
             server {{ listen 127.0.0.1:{port}; listen 127.0.0.1:{tls_port} ssl;
             ssl_certificate {path}/cert.pem; ssl_certificate_key {path}/key.pem;
             location / {{ return 200 '{{\"id\": 7}}'; }}
             location /large {{ root {path}; }}
             location /socket {{ proxy_pass http://127.0.0.1:{socket_port}; proxy_http_version 1.1;
             proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }} }} }}"
        );
        std::fs::write(folder.join("nginx.conf"), configuration).expect("written");
        std::fs::write(folder.join("large"), vec![b'x'; 100_000]).expect("written");
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf"));
        command
    })
}

/// mosquitto that lets everybody in.
pub fn mosquitto() -> Option<Daemon> {
    Daemon::start("/usr/sbin/mosquitto", |folder, port, tls_port| {
        let path = folder.display();
        let configuration = format!(
            "allow_anonymous true\nlog_dest none\nuser root\nlistener {port} 127.0.0.1\nlistener {tls_port} 127.0.0.1\n\
             certfile {path}/cert.pem\nkeyfile {path}/key.pem\n"
        );
        std::fs::write(folder.join("mosquitto.conf"), configuration).expect("written");
        let mut command = Command::new("/usr/sbin/mosquitto");
        command.arg("-c").arg(folder.join("mosquitto.conf"));
        command
    })
}

/// A server of the test's own with a thread for each connection.
pub struct Server {
    pub address: SocketAddr,
    /// Messages that came.
    pub heard: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Server {
    pub fn start(serve: impl Fn(TcpStream, &AtomicU64) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let (heard, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (serve, counter, over) = (Arc::new(serve), Arc::clone(&heard), Arc::clone(&is_over));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let (serve, counter) = (Arc::clone(&serve), Arc::clone(&counter));
                if let Ok(stream) = stream {
                    let _ = stream.set_nodelay(true);
                    thread::spawn(move || serve(stream, &counter));
                }
            }
        });
        Self { address, heard, is_over }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers lines: `GET 7` by `OK 7`, others by themselves.
pub fn lines() -> Server {
    Server::start(answer_lines)
}

/// The same over TLS, with the certificate of that folder.
pub fn tls_lines(folder: &Path) -> Server {
    let chain = vec![CertificateDer::from_pem_file(folder.join("cert.pem")).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_no_client_auth().with_single_cert(chain, key);
    let config = Arc::new(config.expect("a certificate with its key"));
    Server::start(move |stream, heard| {
        let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
        answer_lines(StreamOwned::new(connection, stream), heard);
    })
}

fn answer_lines<S: Read + Write>(stream: S, heard: &AtomicU64) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        heard.fetch_add(1, Ordering::Relaxed);
        if stream.get_mut().write_all(line.replace("GET", "OK").as_bytes()).is_err() {
            return;
        }
        line.clear();
    }
}

/// Answers requests of HTTP without bodies, each when `pause` returns.
pub fn http(pause: impl Fn() + Send + Sync + 'static) -> Server {
    Server::start(move |mut stream, heard| {
        let Ok(input) = stream.try_clone() else { return };
        for line in BufReader::new(input).lines().map_while(Result::ok) {
            if line.is_empty() {
                heard.fetch_add(1, Ordering::Relaxed);
                pause();
                if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                    return;
                }
            }
        }
    })
}

/// A room: says that one has joined, and to each what they said; what is in no such words comes back as it is.
pub fn chat() -> Server {
    Server::start(|stream, heard| {
        // The signature is the library's.
        #[allow(clippy::result_large_err)]
        let choose = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
            if request.headers().contains_key("Sec-WebSocket-Protocol") {
                let chosen = "chat.v2".parse().expect("a value");
                response.headers_mut().insert("Sec-WebSocket-Protocol", chosen);
            }
            Ok(response)
        };
        let Ok(mut socket) = tungstenite::accept_hdr(stream, choose) else { return };
        while let Ok(message) = socket.read() {
            heard.fetch_add(1, Ordering::Relaxed);
            let Message::Text(said) = message else { continue };
            let said =
                said.as_str().replace("\"join\"", "\"joined\"").replace("\"say\"", "\"by\": 1, \"said\"");
            if socket.send(Message::text(said)).is_err() {
                return;
            }
        }
    })
}
