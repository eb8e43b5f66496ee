//! All keys of a scenario, by table. The parser accepts no other keys; tests compare the schema and the reference with this list.

/// A table of a scenario.
#[derive(Debug)]
pub struct Place {
    /// Title, which is the heading of the table's section in the reference.
    pub title: &'static str,
    /// Keys of the table.
    pub keys: &'static [&'static str],
}

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident = $title:literal: [$($key:literal),*];)*) => {
        $($(#[$doc])* pub const $name: Place = Place { title: $title, keys: &[$($key),*] };)*

        /// All tables, in the order of the reference.
        pub const PLACES: &[Place] = &[$($name),*];
    };
}

places! {
    /// The root of the file.
    FILE = "the file": ["load", "devices"];
    /// The schedule.
    LOAD = "load": ["rate", "spacing", "ramp", "for", "turns", "connect_within", "rundown", "seed"];
    /// A kind of devices.
    DEVICES = "devices.NAME": [
        "target", "count", "steps", "on_connect", "table", "sources", "connect_timeout", "timeout", "pause", "fields",
        "subprotocols", "mqtt", "framing", "tls"
    ];
    /// MQTT options.
    MQTT = "mqtt": [
        "version", "client_id", "user", "password", "keep_alive", "clean", "session_expiry", "will"
    ];
    /// The MQTT will message.
    WILL = "will": ["topic", "payload", "qos", "retain"];
    /// The framing of a stream of bytes.
    FRAMING = "framing": ["prefix_bytes", "byte_order", "fixed_bytes"];
    /// TLS options.
    TLS = "tls": ["verify", "ca", "certificate", "key", "server_name"];
    /// Conditions for a reply.
    CHECK = "check": ["status", "fields", "body"];
    /// A step.
    CONNECT = "step connect": ["connect", "name"];
    /// A step.
    REQUEST = "step request": ["request", "fields", "body", "json", "check", "name"];
    /// A step.
    SEND = "step send": ["send", "as", "name"];
    /// A step.
    EXPECT = "step expect": ["expect", "name"];
    /// A step.
    PUBLISH = "step publish": ["publish", "payload", "json", "qos", "retain", "name"];
    /// A step.
    SUBSCRIBE = "step subscribe": ["subscribe", "qos", "name"];
    /// A step.
    UNSUBSCRIBE = "step unsubscribe": ["unsubscribe", "name"];
    /// A step.
    PING = "step ping": ["ping", "name"];
    /// A step.
    SLEEP = "step sleep": ["sleep", "give_or_take", "exponential"];
    /// A step.
    REPEAT = "step repeat": ["repeat", "steps"];
    /// A step.
    CLOSE = "step close": ["close"];
}

/// The tables of steps; the first key of each names its action.
pub const STEPS: &[Place] =
    &[CONNECT, REQUEST, SEND, EXPECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, PING, SLEEP, REPEAT, CLOSE];
