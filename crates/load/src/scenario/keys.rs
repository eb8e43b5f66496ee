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
    /// A group of devices.
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
    /// The step `connect`.
    CONNECT = "step connect": ["connect", "name"];
    /// The step `request`.
    REQUEST = "step request": ["request", "fields", "body", "json", "check", "name"];
    /// The step `send`.
    SEND = "step send": ["send", "as", "name"];
    /// The step `expect`.
    EXPECT = "step expect": ["expect", "name"];
    /// The step `publish`.
    PUBLISH = "step publish": ["publish", "payload", "json", "qos", "retain", "name"];
    /// The step `subscribe`.
    SUBSCRIBE = "step subscribe": ["subscribe", "qos", "name"];
    /// The step `unsubscribe`.
    UNSUBSCRIBE = "step unsubscribe": ["unsubscribe", "name"];
    /// The step `ping`.
    PING = "step ping": ["ping", "name"];
    /// The step `sleep`.
    SLEEP = "step sleep": ["sleep", "give_or_take", "exponential"];
    /// The step `repeat`.
    REPEAT = "step repeat": ["repeat", "steps"];
    /// The step `close`.
    CLOSE = "step close": ["close"];
}

/// The tables of steps; the first key of each names its action.
pub const STEPS: &[Place] =
    &[CONNECT, REQUEST, SEND, EXPECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, PING, SLEEP, REPEAT, CLOSE];
