//! Parses the target of devices: a URL such as `https://example.org:8443`.

use std::fmt;

use super::reader::closest;

/// The scheme of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP/1.1.
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// WebSocket.
    Ws,
    /// WebSocket over TLS.
    Wss,
    /// MQTT.
    Mqtt,
    /// MQTT over TLS.
    Mqtts,
    /// Frames directly on TCP.
    Tcp,
    /// Frames directly on TLS.
    Tls,
}

/// All schemes.
pub const SCHEMES: [Scheme; 8] = [
    Scheme::Http,
    Scheme::Https,
    Scheme::Ws,
    Scheme::Wss,
    Scheme::Mqtt,
    Scheme::Mqtts,
    Scheme::Tcp,
    Scheme::Tls,
];

impl Scheme {
    /// Returns the scheme's name in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Mqtt => "mqtt",
            Self::Mqtts => "mqtts",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
        }
    }

    /// Returns the protocol, regardless of TLS.
    pub fn family(self) -> Family {
        match self {
            Self::Http | Self::Https => Family::Http,
            Self::Ws | Self::Wss => Family::WebSocket,
            Self::Mqtt | Self::Mqtts => Family::Mqtt,
            Self::Tcp | Self::Tls => Family::Raw,
        }
    }

    /// Whether the connection uses TLS.
    pub fn is_secure(self) -> bool {
        matches!(self, Self::Https | Self::Wss | Self::Mqtts | Self::Tls)
    }

    /// Returns the default port (IANA's registry of service names); tcp and tls have none.
    pub fn default_port(self) -> Option<u16> {
        match self {
            Self::Http | Self::Ws => Some(80),
            Self::Https | Self::Wss => Some(443),
            Self::Mqtt => Some(1883),
            Self::Mqtts => Some(8883),
            Self::Tcp | Self::Tls => None,
        }
    }
}

/// A protocol, regardless of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// HTTP/1.1.
    Http,
    /// WebSocket.
    WebSocket,
    /// MQTT.
    Mqtt,
    /// Frames directly on TCP or TLS.
    Raw,
}

impl Family {
    /// Returns the schemes of the protocol, as text.
    pub fn schemes(self) -> &'static str {
        match self {
            Self::Http => "http(s)",
            Self::WebSocket => "ws(s)",
            Self::Mqtt => "mqtt(s)",
            Self::Raw => "tcp or tls",
        }
    }
}

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Scheme.
    pub scheme: Scheme,
    /// Host name or address; an IPv6 address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path with query, unparsed: empty, or beginning with `/`. May contain placeholders.
    pub path: String,
}

impl Target {
    /// Parses a URL. The error says what would be correct.
    pub fn parse(url: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err("a target is a URL: \"http://127.0.0.1:8080\"".to_owned());
        };
        let names = SCHEMES.map(Scheme::name);
        let Some(scheme) = SCHEMES.into_iter().find(|known| known.name().eq_ignore_ascii_case(scheme)) else {
            let known = names.join(", ");
            return Err(match closest(scheme, &names) {
                Some(close) => format!("unknown protocol `{scheme}`; did you mean `{close}`?"),
                None => format!("unknown protocol `{scheme}`; use one of {known}"),
            });
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if path.contains('#') {
            return Err("a fragment (`#…`) is never sent; remove it".to_owned());
        }
        if path.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("a path cannot contain white space; write %20".to_owned());
        }
        if authority.contains('@') {
            return Err(
                "a target cannot contain user and password; set them in `fields` or `mqtt`".to_owned()
            );
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or("the address has no closing `]`")?;
                let address = host.parse::<std::net::Ipv6Addr>();
                address.map_err(|_| format!("`{host}` is not an IPv6 address"))?;
                match rest.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if rest.is_empty() => (host, None),
                    None => return Err(format!("unexpected `{rest}` after the address")),
                }
            }
            None => match authority.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err("an IPv6 address needs brackets: \"http://[::1]:8080\"".to_owned());
                }
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err("the host is missing: \"http://127.0.0.1:8080\"".to_owned());
        }
        if !host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':')) {
            return Err(format!("`{host}` is not a host name"));
        }
        let port = match port {
            Some(port) => match port.parse() {
                Ok(port @ 1..) => port,
                _ => return Err(format!("`{port}` is not a port (1 to 65535)")),
            },
            None => scheme.default_port().ok_or_else(|| {
                format!("{} has no default port: add one, as in ://{host}:9000", scheme.name())
            })?,
        };
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
        Ok(Self { scheme, host: host.to_owned(), port, path })
    }

    /// Returns host and port as in the `Host` field (RFC 9110, 7.2), without the default port.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.scheme.default_port() == Some(self.port) { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme.name(), self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_formatted() {
        for (url, host, port, path, shown) in [
            ("http://127.0.0.1:8080", "127.0.0.1", 8080, "", "http://127.0.0.1:8080"),
            ("HTTP://a.b/", "a.b", 80, "/", "http://a.b/"),
            ("https://a.b:443/x?y=1", "a.b", 443, "/x?y=1", "https://a.b/x?y=1"),
            ("ws://[::1]:90/s", "::1", 90, "/s", "ws://[::1]:90/s"),
            ("wss://[fe80::1]", "fe80::1", 443, "", "wss://[fe80::1]"),
            ("mqtt://broker", "broker", 1883, "", "mqtt://broker"),
            ("mqtts://broker", "broker", 8883, "", "mqtts://broker"),
            ("tls://h:1", "h", 1, "", "tls://h:1"),
            ("http://h?q", "h", 80, "/?q", "http://h/?q"),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(
                (target.host.as_str(), target.port, target.path.as_str()),
                (host, port, path),
                "{url}"
            );
            assert_eq!(target.to_string(), shown);
        }
    }

    #[test]
    fn invalid_targets_are_refused_with_advice() {
        for (url, part) in [
            ("127.0.0.1:8080", "a target is a URL"),
            ("htpp://h", "did you mean `http`?"),
            ("gopher://h", "use one of http, https"),
            ("http://", "the host is missing"),
            ("http://:80", "the host is missing"),
            ("http://h:0", "`0` is not a port"),
            ("http://h:70000", "`70000` is not a port"),
            ("http://h:", "`` is not a port"),
            ("http://::1/", "needs brackets"),
            ("http://[::1", "no closing `]`"),
            ("http://[::g]", "not an IPv6 address"),
            ("http://[::1]80", "unexpected `80`"),
            ("http://u:p@h", "cannot contain user and password"),
            ("http://h/a b", "%20"),
            ("http://h/a#b", "never sent"),
            ("http://a b/", "not a host name"),
            ("tcp://h", "no default port"),
        ] {
            let error = Target::parse(url).unwrap_err();
            assert!(error.contains(part), "{url}: {error}");
        }
    }
}
