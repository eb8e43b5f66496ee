//! Parses a group of devices: the target, and the options of its protocol.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use super::keys;
use super::reader::{Keys, Value};
use super::steps::{self, Context};
use super::target::{Family, Target};
use super::{Devices, Framing, Pem, ProtocolOptions, SharedTable, Tls, table};
use crate::clock::SECOND_NS;
use crate::protocol::mqtt::{MqttConnect, Qos, Version, Will, topic_fault};
use crate::template::{Table, Template};

/// Maximum number of devices in a group: a hundred times the ports of one host.
const MAX_DEVICES: u64 = 10_000_000;
/// Default timeout for connecting. If a SYN is lost, the next one is sent after a second (RFC 6298, 2.1).
const CONNECT_TIMEOUT_NS: u64 = 5 * SECOND_NS;
/// Default timeout for an answer.
const TIMEOUT_NS: u64 = 10 * SECOND_NS;
/// Default pause after an error.
const PAUSE_NS: u64 = SECOND_NS;
/// Default Keep Alive of MQTT.
const KEEP_ALIVE_S: u64 = 60;
/// Maximum size of messages of fixed size. Each device may buffer one.
const MAX_FIXED_BYTES: u64 = 1 << 20;

/// Parses a group of devices. `at` is the position of its name; `turns` is explained in [`Context`].
pub fn read(at: &Range<usize>, value: &Value<'_>, turns: Option<Option<u64>>) -> Option<Devices> {
    let name = value.key;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_name) {
        value
            .document()
            .fault(at.clone(), format!("`{name}`: a name has 1 to 64 letters, digits, `-` or `_`"));
    }
    let mut keys = value.keys(&keys::DEVICES)?;
    // Faults point at the name rather than at the table, which may have many lines.
    keys.at = at.clone();
    let count = keys.get("count").map_or(Some(1), |value| value.integer(1..=MAX_DEVICES));
    let table = read_table(&keys);
    let has_table = table.is_some();
    let table = table.flatten();
    let time = |key, default_ns| keys.get(key).map_or(Some(default_ns), |value| value.positive_duration_ns());
    let connect_timeout_ns = time("connect_timeout", CONNECT_TIMEOUT_NS);
    let timeout_ns = time("timeout", TIMEOUT_NS);
    let pause_ns = time("pause", PAUSE_NS);
    let sources = read_sources(&keys);

    let target = keys.require("target", "`target = \"http://127.0.0.1:8080\"`")?;
    let place = target.clone();
    let target = target.parsed(Target::parse)?;
    let protocol = read_protocol(&keys, &place, &target, &table);
    let tls = if target.scheme.is_secure() {
        read_tls(&keys, &target).map(Some)
    } else {
        let why = format!("requires https, wss, mqtts or tls; the target is {}", target.scheme.name());
        keys.refuse("tls", &why);
        Some(None)
    };
    // If the table is faulty, all texts that use it would add more faults.
    if has_table && table.is_none() {
        return None;
    }
    let (on_connect, steps) = steps::read_all(&keys, &Context::new(target.scheme, table, turns))?;
    Some(Devices {
        name: name.to_owned(),
        count: count?,
        target,
        protocol: protocol?,
        tls: tls?,
        sources: sources?,
        connect_timeout_ns: connect_timeout_ns?,
        timeout_ns: timeout_ns?,
        pause_ns: pause_ns?,
        on_connect,
        steps,
    })
}

/// Reads the table: `None` without a table, `Some(None)` if it has faults.
fn read_table(keys: &Keys<'_>) -> Option<SharedTable> {
    let value = keys.get("table")?;
    let Some((file, bytes)) = value.file() else { return Some(None) };
    match table::read(&bytes) {
        Ok(table) => Some(Some(Arc::new(table))),
        Err(why) => {
            value.fault(format!("`table = {file:?}`: {why}"));
            Some(None)
        }
    }
}

fn read_sources(keys: &Keys<'_>) -> Option<Vec<IpAddr>> {
    let Some(value) = keys.get("sources") else { return Some(Vec::new()) };
    let parse = |text: &str| {
        text.parse::<IpAddr>().map_err(|_| "expected an address of this host, as in \"127.0.0.2\"")
    };
    let sources: Vec<_> = value.list().iter().map(|value| value.parsed(parse)).collect();
    sources.into_iter().collect()
}

/// Parses the options of the protocol; options of other protocols are refused.
fn read_protocol(
    keys: &Keys<'_>,
    place: &Value<'_>,
    target: &Target,
    table: &SharedTable,
) -> Option<ProtocolOptions> {
    let table = table.as_ref();
    let scheme = target.scheme.name();
    let family = target.scheme.family();
    for (key, meant) in [
        ("fields", &[Family::Http, Family::WebSocket][..]),
        ("subprotocols", &[Family::WebSocket]),
        ("mqtt", &[Family::Mqtt]),
        ("framing", &[Family::Raw]),
    ] {
        if !meant.contains(&family) {
            let meant: Vec<&str> = meant.iter().map(|family| family.schemes()).collect();
            keys.refuse(key, &format!("requires {}; the target is {scheme}", meant.join(" or ")));
        }
    }
    if family != Family::WebSocket && !matches!(target.path.as_str(), "" | "/") {
        let advice = if family == Family::Http { "; put it into the request" } else { "" };
        place.fault_within(&format!("`{}`: a target with scheme {scheme} has no path{advice}", target.path));
    }
    let fields = || keys.get("fields").map_or(Some(Vec::new()), |value| read_fields(&value, table));
    match family {
        Family::Http => Some(ProtocolOptions::Http { fields: fields()? }),
        Family::WebSocket => {
            // The upgrade request has its own `Connection` field, unlike other requests.
            if let Some(entries) = keys.get("fields").and_then(|value| value.entries())
                && let Some((at, entry)) =
                    entries.iter().find(|(_, e)| e.key.eq_ignore_ascii_case("Connection"))
            {
                let message = format!("`{}` is set automatically; remove it", entry.key);
                entry.document().fault(at.clone(), message);
            }
            let fields = fields();
            let subprotocols = read_subprotocols(keys);
            let path = if target.path.is_empty() { "/" } else { &target.path };
            let path = Template::parse(path, table).map_err(|why| place.fault_within(&why)).ok();
            Some(ProtocolOptions::WebSocket { path: path?, fields: fields?, subprotocols: subprotocols? })
        }
        Family::Mqtt => read_mqtt(keys, table).map(|options| ProtocolOptions::Mqtt(Box::new(options))),
        Family::Raw => keys
            .get("framing")
            .map_or(Some(Framing::None), |value| read_framing(&value))
            .map(ProtocolOptions::Raw),
    }
}

/// Parses header fields: their names and values.
pub fn read_fields(value: &Value<'_>, table: Option<&Arc<Table>>) -> Option<Vec<(String, Template)>> {
    let mut fields = Some(Vec::new());
    for (at, value) in value.entries()? {
        let text = value.line(table);
        let name = check_field_name(&at, &value, true);
        match (text, name, &mut fields) {
            (Some(text), Some(name), Some(fields)) => fields.push((name, text)),
            _ => fields = None,
        }
    }
    fields
}

/// Checks the name of a header field (RFC 9110, 5.1) that is sent or expected.
pub fn check_field_name(at: &Range<usize>, value: &Value<'_>, is_sent: bool) -> Option<String> {
    let name = value.key;
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_token) {
        value.document().fault(at.clone(), format!("{name:?} is not a valid header field name"));
        return None;
    }
    // Servers refuse a request with two lengths or a wrong length, because it could be request smuggling.
    let lower = name.to_ascii_lowercase();
    let is_own = matches!(lower.as_str(), "content-length" | "transfer-encoding" | "upgrade")
        || lower.starts_with("sec-websocket-");
    if is_sent && is_own {
        value.document().fault(at.clone(), format!("`{name}` is set automatically; remove it"));
        return None;
    }
    Some(name.to_owned())
}

fn read_subprotocols(keys: &Keys<'_>) -> Option<Vec<String>> {
    let Some(value) = keys.get("subprotocols") else { return Some(Vec::new()) };
    let parse = |text: &str| {
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        match !text.is_empty() && text.chars().all(is_token) {
            true => Ok(text.to_owned()),
            false => Err("expected a name of letters, digits and `-._`"),
        }
    };
    let names: Vec<_> = value.list().iter().map(|value| value.parsed(parse)).collect();
    names.into_iter().collect()
}

fn read_mqtt(devices: &Keys<'_>, table: Option<&Arc<Table>>) -> Option<MqttConnect> {
    let mqtt = devices.get("mqtt");
    let keys = match &mqtt {
        Some(value) => Some(value.keys(&keys::MQTT)?),
        None => None,
    };
    let get = |key| keys.as_ref().and_then(|keys| keys.get(key));
    let versions = [("3.1.1", Version::V311), ("5", Version::V5)];
    let version = get("version").map_or(Some(Version::V311), |value| value.choice(&versions));
    let client_id = get("client_id")
        .map_or_else(|| Template::parse("beamtune-${device}", None).ok(), |value| value.line(table));
    let text = |key| get(key).map_or(Some(None), |value| value.line(table).map(Some));
    let (user, password) = (text("user"), text("password"));
    let seconds = |key, default, max| get(key).map_or(Some(default), |value| whole_seconds(&value, max));
    let keep_alive_s = seconds("keep_alive", KEEP_ALIVE_S, u16::MAX.into());
    let session_expiry_s = seconds("session_expiry", 0, u32::MAX.into());
    let is_clean = get("clean").map_or(Some(true), |value| value.boolean());
    let will = get("will").map_or(Some(None), |value| read_will(&value, table).map(Some));

    if let (Some(keys), Some(Version::V311)) = (&keys, version) {
        keys.refuse(
            "session_expiry",
            "requires `version = \"5\"`; in 3.1.1, `clean = false` keeps a session",
        );
        // A password needs a user name (MQTT 3.1.1, 3.1.2.9).
        if user == Some(None) {
            keys.refuse("password", "needs `user` in MQTT 3.1.1");
        }
    }
    Some(MqttConnect {
        version: version?,
        client_id: client_id?,
        user: user?,
        password: password?,
        keep_alive_seconds: u16::try_from(keep_alive_s?).ok()?,
        is_clean: is_clean?,
        session_expiry_seconds: u32::try_from(session_expiry_s?).ok()?,
        will: will?,
    })
}

/// Parses a duration of whole seconds.
fn whole_seconds(value: &Value<'_>, max: u64) -> Option<u64> {
    let nanoseconds = value.duration_ns()?;
    let seconds = nanoseconds / SECOND_NS;
    if nanoseconds % SECOND_NS != 0 || seconds > max {
        value.fault(format!("`{}` must be whole seconds, at most {max}", value.key));
        return None;
    }
    Some(seconds)
}

fn read_will(value: &Value<'_>, table: Option<&Arc<Table>>) -> Option<Will> {
    let keys = value.keys(&keys::WILL)?;
    let topic =
        keys.require("topic", "`topic = \"gone/${device}\"`").and_then(|value| read_topic(&value, table));
    let payload = keys.get("payload").map_or(Some(Template::default()), |value| value.template(table));
    let qos = read_qos(&keys);
    let is_retained = keys.get("retain").map_or(Some(false), |value| value.boolean());
    Some(Will { topic: topic?, payload: payload?, qos: qos?, is_retained: is_retained? })
}

/// Parses a topic to publish to.
pub fn read_topic(value: &Value<'_>, table: Option<&Arc<Table>>) -> Option<Template> {
    let text = value.text()?;
    if let Some(why) = topic_fault(text.as_bytes()) {
        value.fault_within(why);
        return None;
    }
    value.line(table)
}

/// Parses the quality of service, which is 0 by default.
pub fn read_qos(keys: &Keys<'_>) -> Option<Qos> {
    keys.get("qos").map_or(Some(0), |value| value.integer(0..=2)).map(|qos| match qos {
        0 => Qos::AtMostOnce,
        1 => Qos::AtLeastOnce,
        _ => Qos::ExactlyOnce,
    })
}

fn read_framing(value: &Value<'_>) -> Option<Framing> {
    if value.raw().is_str() {
        return value.choice(&[("none", Framing::None), ("line", Framing::Line)]);
    }
    let keys = value.keys(&keys::FRAMING)?;
    let order = keys.get("byte_order").map(|value| value.choice(&[("big", false), ("little", true)]));
    match (keys.get("prefix_bytes"), keys.get("fixed_bytes")) {
        (Some(prefix), None) => {
            let bytes = prefix.integer(1..=4)?;
            if !bytes.is_power_of_two() {
                prefix.fault(format!("`prefix_bytes = {bytes}`: use 1, 2 or 4"));
                return None;
            }
            Some(Framing::Prefix { bytes: bytes as u8, is_little_endian: order.unwrap_or(Some(false))? })
        }
        (None, Some(fixed)) => {
            keys.refuse("byte_order", "requires `prefix_bytes`");
            Some(Framing::Fixed { bytes: fixed.integer(1..=MAX_FIXED_BYTES)? as u32 })
        }
        _ => {
            value.fault("`framing` must be \"none\", \"line\", { prefix_bytes = 4 } or { fixed_bytes = 16 }");
            None
        }
    }
}

fn read_tls(devices: &Keys<'_>, target: &Target) -> Option<Tls> {
    let Some(value) = devices.get("tls") else {
        return Some(Tls { verify: true, ca: None, identity: None, server_name: target.host.clone() });
    };
    let keys = value.keys(&keys::TLS)?;
    let pem = |key| keys.get(key).map_or(Some(None), |value| read_pem(&value).map(Some));
    let verify = keys.get("verify").map_or(Some(true), |value| value.boolean());
    let (ca, certificate, key) = (pem("ca"), pem("certificate"), pem("key"));
    let server_name = keys.get("server_name").map_or(Some(target.host.as_str()), |value| value.text());
    if verify == Some(false) {
        keys.refuse("ca", "has no effect with `verify = false`");
    }
    let identity = match (certificate?, key?) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (Some(_), None) => {
            keys.refuse("certificate", "needs `key`");
            None
        }
        (None, Some(_)) => {
            keys.refuse("key", "needs `certificate`");
            None
        }
        (None, None) => None,
    };
    Some(Tls { verify: verify?, ca: ca?, identity, server_name: server_name?.to_owned() })
}

fn read_pem(value: &Value<'_>) -> Option<Pem> {
    let (file, bytes) = value.file()?;
    // The content is parsed when the scenario is compiled; other file formats are reported here, with their position.
    if !bytes.windows(11).any(|window| window == b"-----BEGIN ") {
        value.fault(format!("`{} = {file:?}` is not a PEM file: it contains no -----BEGIN", value.key));
        return None;
    }
    Some(Pem { file, bytes })
}
