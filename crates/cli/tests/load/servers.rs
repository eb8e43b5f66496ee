//! Servers that are the targets of loads. Each ends with the test that started it.

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

use crate::common::{Process, folder, free_port, run, wait_until};

/// Creates a self-signed certificate: `cert.pem` and `key.pem`.
pub fn certificate(folder: &Path) {
    let mut command = Command::new("openssl");
    command.current_dir(folder).args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"]);
    command.args(["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=localhost"]);
    command.args(["-addext", "subjectAltName=DNS:localhost,DNS:broker"]);
    let output = run(command.args(["-keyout", "key.pem", "-out", "cert.pem"]));
    assert_eq!(output.status, Some(0), "{}", output.stderr);
}

/// Creates a certificate that expired in 2020 (`cert.pem` and `key.pem`), and that of its issuer (`ca.pem`).
pub fn expired_certificate(folder: &Path) {
    let configuration = "[ca]\ndefault_ca = own\n[own]\ndatabase = index\nnew_certs_dir = .\nrand_serial = yes\n\
        default_md = sha256\npolicy = any\nx509_extensions = names\n[any]\ncommonName = supplied\n\
        [names]\nsubjectAltName = DNS:localhost\n";
    std::fs::write(folder.join("configuration"), configuration).expect("written");
    std::fs::write(folder.join("index"), "").expect("written");
    let openssl = |arguments: &str| {
        let output = run(Command::new("openssl").current_dir(folder).args(arguments.split(' ')));
        assert_eq!(output.status, Some(0), "{}", output.stderr);
    };
    let key = "-nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256";
    openssl(&format!("req -x509 {key} -subj /CN=authority -keyout ca-key.pem -out ca.pem"));
    openssl(&format!("req -new {key} -subj /CN=localhost -keyout key.pem -out request"));
    let times = "-startdate 200101000000Z -enddate 200201000000Z";
    openssl(&format!(
        "ca -batch -notext -config configuration -cert ca.pem -keyfile ca-key.pem -in request -out cert.pem {times}"
    ));
}

/// A server from a package.
pub struct Daemon {
    pub process: Process,
    /// The port without TLS.
    pub port: u16,
    /// The port with TLS.
    pub tls_port: u16,
    /// A folder that contains the server's certificate.
    pub folder: TempDir,
}

/// Returns the program if it is installed. If not, prints that the test is skipped.
fn installed(program: &str) -> Option<&str> {
    let is_installed = Path::new(program).exists();
    if !is_installed {
        eprintln!("skipped, because {program} is not installed (scripts/install.sh test)");
    }
    is_installed.then_some(program)
}

impl Daemon {
    fn start(program: &str, configure: impl FnOnce(&Path, u16, u16) -> Command) -> Option<Self> {
        installed(program)?;
        let folder = folder();
        certificate(folder.path());
        let (port, tls_port) = (free_port(), free_port());
        let mut command = configure(folder.path(), port, tls_port);
        let process = Process::start(command.stderr(Stdio::null()));
        wait_until("a server listens", || TcpStream::connect(("127.0.0.1", tls_port)).is_ok());
        Some(Self { process, port, tls_port, folder })
    }
}

/// Starts nginx in one process, so that one signal stops it completely. Every path returns JSON with an `id`, except that `/large` returns
/// 100 kB, and `/socket` is forwarded to `socket_port`. Each request is logged to the file `served`.
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

/// Starts mosquitto without authentication.
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

/// A server with a thread for each connection.
pub struct Server {
    pub address: SocketAddr,
    /// Number of received messages.
    pub received: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Server {
    pub fn start(serve: impl Fn(TcpStream, &AtomicU64) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let (received, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (serve, counter, over) = (Arc::new(serve), Arc::clone(&received), Arc::clone(&is_over));
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
        Self { address, received, is_over }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// Starts a server that answers lines: `GET 7` with `OK 7`, other lines unchanged.
pub fn lines() -> Server {
    Server::start(answer_lines)
}

/// Like [`lines`], but over TLS, with the certificate in this folder.
pub fn tls_lines(folder: &Path) -> Server {
    let chain = vec![CertificateDer::from_pem_file(folder.join("cert.pem")).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_no_client_auth().with_single_cert(chain, key);
    let config = Arc::new(config.expect("a certificate with its key"));
    Server::start(move |stream, received| {
        let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
        answer_lines(StreamOwned::new(connection, stream), received);
    })
}

fn answer_lines<S: Read + Write>(stream: S, received: &AtomicU64) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        received.fetch_add(1, Ordering::Relaxed);
        if stream.get_mut().write_all(line.replace("GET", "OK").as_bytes()).is_err() {
            return;
        }
        line.clear();
    }
}

/// Starts a server that answers HTTP requests without a body, each as soon as `pause` returns.
pub fn http(pause: impl Fn() + Send + Sync + 'static) -> Server {
    Server::start(move |mut stream, received| {
        let Ok(input) = stream.try_clone() else { return };
        for line in BufReader::new(input).lines().map_while(Result::ok) {
            if line.is_empty() {
                received.fetch_add(1, Ordering::Relaxed);
                pause();
                if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                    return;
                }
            }
        }
    })
}

/// Starts a chat room, which answers `join` with `joined` and `say` with `said`, and echoes other messages.
pub fn chat() -> Server {
    Server::start(|stream, received| {
        // The library requires this signature.
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
            received.fetch_add(1, Ordering::Relaxed);
            let Message::Text(text) = message else { continue };
            let answer =
                text.as_str().replace("\"join\"", "\"joined\"").replace("\"say\"", "\"by\": 1, \"said\"");
            if socket.send(Message::text(answer)).is_err() {
                return;
            }
        }
    })
}
