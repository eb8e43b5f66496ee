//! Finds the certificate and key files in the TLS options of a node on this host.
//!
//! The options are on the node's command line (`-ssl_dist_opt server_certfile FILE …`) and in the file that `-ssl_dist_optfile`
//! names, which contains `[{server, Options}, {client, Options}]`. A node is the TLS server for nodes that connect to it, and a
//! TLS client of those that it connects to. Source: "Erlang Distribution over TLS" in the SSL User's Guide;
//! lib/ssl/src/inet_tls_dist.erl, `get_ssl_options/1`; ssl_dist_sup.erl, `consult/1`.
//!
//! If both are given, OTP 27 and older use only the file, and later releases use both. Here, both are used, the file first.

use std::io;
use std::path::Path;

use super::term::Term;
use crate::error::printable;
use crate::process::Process;

/// Files named in the server's or the client's options. Paths are as the node sees them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Side {
    /// Files with trusted certificates.
    pub trusted: Vec<String>,
    /// Files with the server's or client's own certificate, each with the file of its key, if that is a separate file.
    pub own: Vec<(String, Option<String>)>,
}

/// Options that give certificates or keys.
const CERTIFICATE_OPTIONS: [&str; 7] =
    ["cacertfile", "cacerts", "certfile", "cert", "keyfile", "key", "certs_keys"];

/// The TLS options of a node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub server: Side,
    pub client: Side,
    /// Files and options that could not be used, and why. They are part of the error if the connection fails.
    pub remarks: Vec<String>,
}

impl Options {
    /// Reads the options of a node's process; `read` reads a file.
    pub fn of(process: &Process, mut read: impl FnMut(&Path) -> io::Result<Vec<u8>>) -> Options {
        let mut options = Options::default();
        // A node with more than one option file does not start.
        if let Some(file) = process.flag_values("ssl_dist_optfile").into_iter().flatten().next() {
            let path = process.path_from_here(Path::new(file));
            match read(&path) {
                Ok(content) => options.add_file(&text(&content), &path),
                Err(error) => options.remark(&path, &error.to_string()),
            }
        }
        let words: Vec<&str> = process.flag_values("ssl_dist_opt").into_iter().flatten().collect();
        options.server.add(&pairs(&words, "server_"));
        options.client.add(&pairs(&words, "client_"));
        options
    }

    fn add_file(&mut self, text: &str, path: &Path) {
        let term = Term::read(text);
        let (mut has_options, mut remarks) = (false, Vec::new());
        for (name, side) in [("server", &mut self.server), ("client", &mut self.client)] {
            for section in term.values(name) {
                has_options |= matches!(section, Term::List(_));
                side.add(section);
                for key in CERTIFICATE_OPTIONS {
                    if section.values(key).any(|value| !is_file(key, value)) {
                        remarks.push(format!("{key} of {name} is not a literal file name"));
                    }
                }
            }
        }
        for remark in remarks {
            self.remark(path, &remark);
        }
        if !has_options {
            self.remark(path, "it contains no list of server or client options");
        }
    }

    fn remark(&mut self, path: &Path, what: &str) {
        self.remarks.push(printable(&format!("{}: {what}", path.display())));
    }
}

impl Side {
    /// Adds the files in a list of options.
    fn add(&mut self, options: &Term) {
        self.trusted.extend(texts(options, "cacertfile"));
        self.own.extend(texts(options, "certfile").next().map(|own| (own, texts(options, "keyfile").next())));
        // Since OTP 25, a list of maps can replace the two options.
        for pairs in options.values("certs_keys") {
            let Term::List(pairs) = pairs else { continue };
            for pair in pairs {
                let Term::Map(pair) = pair else { continue };
                let file = |key: &str| {
                    let value = pair.iter().find(|(name, _)| matches!(name, Term::Atom(name) if name == key));
                    value.and_then(|(_, value)| file_name(value))
                };
                self.own.extend(file("certfile").map(|own| (own, file("keyfile"))));
            }
        }
    }
}

/// Returns whether an option's value is a file name, rather than an expression or the certificate itself.
fn is_file(key: &str, value: &Term) -> bool {
    !matches!(value, Term::Other) && (key.ends_with("file") || key == "certs_keys")
}

fn texts<'t>(options: &'t Term, key: &'t str) -> impl Iterator<Item = String> + 't {
    options.values(key).filter_map(file_name)
}

fn file_name(term: &Term) -> Option<String> {
    match term {
        Term::Text(name) if !name.is_empty() => Some(name.clone()),
        _ => None,
    }
}

/// Converts `server_certfile FILE …` to a list of options.
fn pairs(words: &[&str], side: &str) -> Term {
    let pair = |words: &[&str]| match words {
        [name, value] => {
            let name = Term::Atom(name.strip_prefix(side)?.to_owned());
            Some(Term::Tuple(vec![name, Term::Text((*value).to_owned())]))
        }
        _ => None,
    };
    Term::List(words.chunks(2).filter_map(pair).collect())
}

/// Decodes the content of an option file. The VM reads a file without an encoding comment as Latin-1, but content that is valid
/// UTF-8 was probably meant as UTF-8.
fn text(content: &[u8]) -> String {
    match std::str::from_utf8(content) {
        Ok(text) => text.to_owned(),
        Err(_) => content.iter().map(|&byte| char::from(byte)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn options(line: &str, file: Option<&str>) -> Options {
        let process = Process {
            arguments: line.split_whitespace().map(str::to_owned).collect(),
            directory: PathBuf::from("/home/node"),
            root: PathBuf::from("/proc/7/root"),
            ..Process::default()
        };
        Options::of(&process, |path| match file {
            Some(text) => {
                assert_eq!(path, Path::new("/proc/7/root/home/node/tls.conf"));
                Ok(text.as_bytes().to_vec())
            }
            None => Err(io::ErrorKind::PermissionDenied.into()),
        })
    }

    fn side(trusted: &[&str], own: &[(&str, Option<&str>)]) -> Side {
        Side {
            trusted: trusted.iter().map(|&name| name.to_owned()).collect(),
            own: own.iter().map(|(own, key)| ((*own).to_owned(), key.map(str::to_owned))).collect(),
        }
    }

    #[test]
    fn files_in_the_option_file_are_found() {
        let found = options(
            "beam -ssl_dist_optfile tls.conf -proto_dist inet_tls",
            Some(
                "%% options of all nodes\n[{server, [{certfile, \"/s.pem\"}, {keyfile, \"/s.key\"},\n\
                 {verify_fun, {fun a:b/3, \"}]\"}}, {cacertfile, \"/ca.pem\"}]},\n\
                 {client, [{certs_keys, [#{certfile => \"/c.pem\"}, #{keyfile => <<\"/d.key\">>, certfile => \"/d.pem\"}]}]}].",
            ),
        );
        let expect = Options {
            server: side(&["/ca.pem"], &[("/s.pem", Some("/s.key"))]),
            client: side(&[], &[("/c.pem", None), ("/d.pem", Some("/d.key"))]),
            remarks: vec![],
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn files_on_the_command_line_are_found() {
        let line = "-ssl_dist_opt server_certfile /s.pem server_secure_renegotiate true \
                    -ssl_dist_opt client_cacertfile ca.pem server_keyfile /s.key";
        let found = options(line, None);
        assert_eq!(found.server, side(&[], &[("/s.pem", Some("/s.key"))]));
        assert_eq!(found.client, side(&["ca.pem"], &[]));
        assert_eq!(found.remarks, Vec::<String>::new());
        assert_eq!(options("-name a@b", None), Options::default());
        assert_eq!(options("-ssl_dist_opt server_certfile", None), Options::default());
    }

    #[test]
    fn unusable_options_become_remarks() {
        let check = |file: Option<&str>, expect: &[&str]| {
            let remarks = options("-ssl_dist_optfile tls.conf", file).remarks;
            let expect: Vec<_> =
                expect.iter().map(|what| format!("/proc/7/root/home/node/tls.conf: {what}")).collect();
            assert_eq!(remarks, expect, "{file:?}");
        };
        let nothing = "it contains no list of server or client options";
        check(None, &["permission denied"]);
        check(Some(""), &[nothing]);
        check(Some("maps:to_list(x)."), &[nothing]);
        check(
            Some("[{server, [{certfile, f(x)}, {cacerts, [<<1>>]}]}, {client, []}]."),
            &[
                "cacerts of server is not a literal file name",
                "certfile of server is not a literal file name",
            ],
        );
    }
}
