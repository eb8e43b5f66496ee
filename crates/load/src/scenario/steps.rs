//! Parses steps, and checks whether they can follow each other.

mod flow;
mod json;

use std::cell::OnceCell;
use std::sync::Arc;

use super::devices::{check_field_name, read_fields, read_qos, read_topic};
use super::keys;
use super::reader::{Keys, Value, unknown};
use super::target::{Family, Scheme};
use super::{Action, Request, SharedTable, Step, table, units};
use crate::program::Delay;
use crate::protocol::Checks;
use crate::protocol::mqtt::{MqttMessage, filter_fault};
use crate::template::{Table, Template};
use flow::Flow;

/// Maximum length of a step's name in characters; names are shown in tables.
const MAX_NAME_CHARS: usize = 80;
/// Maximum number of iterations of a loop.
const MAX_REPETITIONS: u64 = 1_000_000_000;

/// The context in which steps are parsed.
pub struct Context {
    scheme: Scheme,
    table: SharedTable,
    /// The table with its cells escaped for JSON; created on first use.
    json_table: OnceCell<SharedTable>,
    /// Maximum number of turns per device (`Some(None)`: unlimited); `None` if unknown, because `load` has faults.
    turns: Option<Option<u64>>,
}

impl Context {
    pub fn new(scheme: Scheme, table: SharedTable, turns: Option<Option<u64>>) -> Self {
        Self { scheme, table, json_table: OnceCell::new(), turns }
    }

    fn table(&self) -> Option<&Arc<Table>> {
        self.table.as_ref()
    }

    fn json_table(&self) -> Option<&Arc<Table>> {
        let escaped = || self.table.as_deref().map(|table| Arc::new(table::escaped_for_json(table)));
        self.json_table.get_or_init(escaped).as_ref()
    }
}

/// Parses `on_connect` and `steps` of a group of devices.
pub fn read_all(keys: &Keys<'_>, context: &Context) -> Option<(Vec<Step>, Vec<Step>)> {
    let mut setup = Flow::of_on_connect();
    let on_connect = match keys.get("on_connect") {
        Some(value) => read_steps(&value, context, &mut setup),
        None => Some(Vec::new()),
    };
    let steps = keys.require("steps", "`steps = [{ request = \"/\" }]`")?;
    let mut turn = Flow::of_turn(setup.max_depth());
    let read = read_steps(&steps, context, &mut turn);
    let busy_loop = turn.check_busy_loop().filter(|_| context.turns.is_some_and(|turns| turns != Some(1)));
    if let (Some(_), Some(why)) = (&read, turn.check_next_turn().or(busy_loop)) {
        steps.fault(why);
    }
    Some((on_connect?, read?))
}

fn read_steps(value: &Value<'_>, context: &Context, flow: &mut Flow) -> Option<Vec<Step>> {
    if !value.raw().is_array() {
        value.fault(format!("`{}` must be a list of steps: [{{ request = \"/\" }}, …]", value.key));
        return None;
    }
    let values = value.list();
    if values.is_empty() {
        value.fault(format!("`{}` is empty", value.key));
        return None;
    }
    let steps: Vec<_> = values.iter().map(|value| read_step(value, context, flow)).collect();
    steps.into_iter().collect()
}

fn read_step(value: &Value<'_>, context: &Context, flow: &mut Flow) -> Option<Step> {
    if value.raw().is_str() {
        let (action, name) =
            match value.choice(&[("connect", 0), ("expect", 1), ("ping", 2), ("close", 3)])? {
                0 => (Action::Connect, "connect"),
                1 => (Action::Expect { checks: Checks::default() }, "expect"),
                2 => (Action::Ping, "ping"),
                _ => (Action::Close, "close"),
            };
        let misplaced = misplaced(name, context.scheme).or_else(|| flow.add(&action));
        if let Some(why) = misplaced {
            value.fault(format!("`{name}` {why}"));
            return None;
        }
        return Some(Step { name: name.to_owned(), action });
    }
    let Some(table) = value.raw().as_table() else {
        value.fault("a step is a table, as in { request = \"/\" }, or one of \"connect\", \"expect\", \"ping\", \"close\"");
        return None;
    };
    let names: Vec<&str> = keys::STEPS.iter().map(|place| place.keys[0]).collect();
    let mut actions = keys::STEPS.iter().filter(|place| table.contains_key(place.keys[0]));
    let Some(place) = actions.next() else {
        let given = table.keys().map(|key| key.get_ref().as_ref());
        let close = given
            .filter(|key| super::reader::closest(key, &names).is_some())
            .min_by_key(|key| names.iter().map(|name| strsim::damerau_levenshtein(key, name)).min());
        match close {
            Some(key) => value.fault_within(&unknown(&format!("unknown step `{key}`"), key, &names)),
            None => value.fault(format!("a step needs one of {}", names.join(", "))),
        }
        return None;
    };
    if let Some(other) = actions.next() {
        let (one, other) = (place.keys[0], other.keys[0]);
        value.fault(format!("a step has one action; this one has `{one}` and `{other}`"));
        return None;
    }
    let action = place.keys[0];
    let keys = value.keys(place)?;
    if let Some(why) = misplaced(action, context.scheme) {
        keys.refuse(action, &why);
        return None;
    }
    let step = read_action(action, &keys, context, flow)?;
    if let Some(why) = flow.add(&step.action) {
        keys.refuse(action, &why);
        return None;
    }
    Some(step)
}

/// Returns why a step is not possible with a protocol; `None` if it is possible.
fn misplaced(action: &str, scheme: Scheme) -> Option<String> {
    let meant: &[Family] = match action {
        "request" => &[Family::Http],
        "send" => &[Family::WebSocket, Family::Raw],
        "expect" => &[Family::WebSocket, Family::Mqtt, Family::Raw],
        "publish" | "subscribe" | "unsubscribe" => &[Family::Mqtt],
        "ping" => &[Family::WebSocket, Family::Mqtt],
        _ => return None,
    };
    let is_meant = meant.contains(&scheme.family());
    let meant: Vec<&str> = meant.iter().map(|family| family.schemes()).collect();
    (!is_meant).then(|| format!("requires {}; the target is {}", meant.join(" or "), scheme.name()))
}

fn read_action(name: &'static str, keys: &Keys<'_>, context: &Context, flow: &mut Flow) -> Option<Step> {
    let value = keys.get(name)?;
    let table = context.table();
    let own_name = if name == "sleep" || name == "repeat" || name == "close" {
        None
    } else {
        keys.get("name").map(|value| value.parsed(step_name))
    };
    let mut default_name = name.to_owned();
    let action = match name {
        "connect" => require_true(&value).map(|()| Action::Connect),
        "ping" => require_true(&value).map(|()| Action::Ping),
        "close" => require_true(&value).map(|()| Action::Close),
        "request" => {
            let request = read_request(&value, keys, context);
            if let Some(text) = value.raw().as_str() {
                default_name = if text.starts_with('/') { format!("GET {text}") } else { text.to_owned() };
            }
            request.map(|request| Action::Request(Box::new(request)))
        }
        "send" => read_send(&value, keys, context),
        // `expect = true` exists for a table that only sets a name.
        "expect" if value.raw().is_bool() => {
            require_true(&value).map(|()| Action::Expect { checks: Checks::default() })
        }
        "expect" => {
            read_parts(&value).map(|body| Action::Expect { checks: Checks { body, ..Checks::default() } })
        }
        "publish" => {
            default_name = format!("publish {}", value.raw().as_str().unwrap_or_default());
            let topic = read_topic(&value, table);
            let payload = read_payload(keys, "payload", context);
            let (qos, is_retained) =
                (read_qos(keys), keys.get("retain").map_or(Some(false), |value| value.boolean()));
            let payload = payload?.unwrap_or_default();
            let (topic, qos, is_retained) = (topic?, qos?, is_retained?);
            Some(Action::Mqtt(Box::new(MqttMessage::Publish { topic, payload, qos, is_retained })))
        }
        "subscribe" | "unsubscribe" => {
            let filters: Vec<_> = value.list().iter().map(|value| read_filter(value, table)).collect();
            if filters.is_empty() {
                value.fault(format!("`{name}` is empty"));
            }
            let texts: Vec<&str> = value.list().iter().filter_map(|value| value.raw().as_str()).collect();
            default_name = format!("{name} {}", texts.join(" "));
            let filters: Option<Vec<_>> = filters.into_iter().collect();
            let message = if name == "subscribe" {
                let qos = read_qos(keys);
                let filters = filters.zip(qos);
                filters
                    .map(|(filters, qos)| filters.into_iter().map(|filter| (filter, qos)).collect())
                    .map(MqttMessage::Subscribe)
            } else {
                filters.map(MqttMessage::Unsubscribe)
            };
            message.map(|message| Action::Mqtt(Box::new(message)))
        }
        "sleep" => read_sleep(&value, keys).map(Action::Sleep),
        _ => read_repeat(&value, keys, context, flow),
    };
    let name = match own_name {
        Some(name) => name?,
        None => default_name.chars().take(MAX_NAME_CHARS).collect(),
    };
    Some(Step { name, action: action? })
}

fn read_repeat(value: &Value<'_>, keys: &Keys<'_>, context: &Context, flow: &mut Flow) -> Option<Action> {
    let times = value.integer(1..=MAX_REPETITIONS);
    if let Some(why) = flow.begin_repeat() {
        keys.refuse("repeat", &why);
        return None;
    }
    let steps =
        keys.require("steps", "the steps to repeat").and_then(|steps| read_steps(&steps, context, flow));
    let why = flow.end_repeat(times.unwrap_or(1));
    if let (Some(_), Some(why)) = (&steps, why) {
        keys.refuse("repeat", &why);
        return None;
    }
    Some(Action::Repeat { times: u32::try_from(times?).ok()?, steps: steps? })
}

fn step_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.chars().count() > MAX_NAME_CHARS || text.chars().any(char::is_control) {
        return Err(format!("a name has 1 to {MAX_NAME_CHARS} characters on one line"));
    }
    Ok(text.to_owned())
}

fn require_true(value: &Value<'_>) -> Option<()> {
    if value.boolean()? {
        return Some(());
    }
    value.fault(format!("`{} = false`: remove the step instead", value.key));
    None
}

fn read_request(value: &Value<'_>, keys: &Keys<'_>, context: &Context) -> Option<Request> {
    let table = context.table();
    let line = read_request_line(value, table);
    let fields = keys.get("fields").map_or(Some(Vec::new()), |value| read_fields(&value, table));
    let body = read_payload(keys, "body", context);
    let checks = keys.get("check").map_or(Some(Checks::default()), |value| read_checks(&value));
    let (method, path) = line?;
    let mut fields = fields?;
    let has_type = fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("Content-Type"));
    if keys.get("json").is_some() && !has_type {
        fields.push(("Content-Type".to_owned(), Template::literal("application/json")));
    }
    Some(Request { method, path, fields, body: body?, checks: checks? })
}

/// Parses `GET /path`, or only `/path`.
fn read_request_line(value: &Value<'_>, table: Option<&Arc<Table>>) -> Option<(String, Template)> {
    let text = value.text()?;
    let (method, path) =
        if text.starts_with('/') { ("GET", text) } else { text.split_once(' ').unwrap_or((text, "")) };
    let is_method = !method.is_empty() && method.chars().all(|c| c.is_ascii_uppercase() || c == '-');
    // CONNECT would turn the connection into a tunnel.
    if !is_method || method == "CONNECT" || !path.starts_with('/') {
        value.fault(format!(
            "`request = {text:?}`: expected a method in capitals and a path, as in \"POST /orders\", or a path"
        ));
        return None;
    }
    if path.chars().any(char::is_whitespace) {
        value.fault(format!("`request = {text:?}`: a path cannot contain white space; write %20"));
        return None;
    }
    // The whole line is parsed first, so that faults have the correct position.
    let line = value.line(table)?;
    let path = if path.len() == text.len() { line } else { Template::parse(path, table).ok()? };
    Some((method.to_owned(), path))
}

fn read_send(value: &Value<'_>, keys: &Keys<'_>, context: &Context) -> Option<Action> {
    let encoding = keys.get("as").map_or(Some(Encoding::Text), |value| {
        value.choice(&[("text", Encoding::Text), ("binary", Encoding::Binary), ("hex", Encoding::Hex)])
    });
    let payload = match encoding? {
        Encoding::Hex => Template::literal(value.parsed(hex)?),
        Encoding::Text | Encoding::Binary => value.template(context.table())?,
    };
    Some(Action::Send { payload, is_text: encoding? == Encoding::Text })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Text,
    Binary,
    Hex,
}

/// Parses hexadecimal digits, with optional white space between them.
fn hex(text: &str) -> Result<Vec<u8>, &'static str> {
    let wrong = "expected an even number of hexadecimal digits, as in \"01 ff\"";
    let digits: Option<Vec<u32>> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0).ok_or(wrong)?;
    Ok(digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

/// Reads a payload, from its own key or from `json`. Returns `Some(None)` if the step has neither.
fn read_payload(keys: &Keys<'_>, key: &'static str, context: &Context) -> Option<Option<Template>> {
    match (keys.get(key), keys.get("json")) {
        (Some(_), Some(_)) => {
            keys.refuse("json", &format!("cannot be combined with `{key}`"));
            None
        }
        (Some(value), None) => value.template(context.table()).map(Some),
        (None, Some(value)) => {
            let text = json::text(&value)?;
            let template = Template::parse(&text, context.json_table());
            template.map_err(|why| value.fault_within(&why)).ok().map(Some)
        }
        (None, None) => Some(None),
    }
}

fn read_parts(value: &Value<'_>) -> Option<Vec<String>> {
    let parts: Vec<_> = value.list().iter().map(|value| value.text().map(str::to_owned)).collect();
    parts.into_iter().collect()
}

fn read_checks(value: &Value<'_>) -> Option<Checks> {
    let keys = value.keys(&keys::CHECK)?;
    let statuses = keys.get("status").map_or(Some(Vec::new()), |value| {
        let statuses: Vec<_> = value.list().iter().map(read_status).collect();
        statuses.into_iter().collect()
    });
    let fields = keys.get("fields").map_or(Some(Vec::new()), |value| {
        let entries = value.entries()?;
        let fields: Vec<_> = entries
            .iter()
            .map(|(at, value)| {
                let part = value.text().map(str::to_owned);
                Some((check_field_name(at, value, false)?, part?))
            })
            .collect();
        fields.into_iter().collect()
    });
    let body = keys.get("body").map_or(Some(Vec::new()), |value| read_parts(&value));
    Some(Checks { statuses: statuses?, fields: fields?, body: body? })
}

/// Parses a status, or a range of statuses.
fn read_status(value: &Value<'_>) -> Option<(u16, u16)> {
    if value.raw().is_integer() {
        let status = value.integer(100..=599)? as u16;
        return Some((status, status));
    }
    let bound = |text: &str| text.parse::<u16>().ok().filter(|status| (100..=599).contains(status));
    value.parsed(|text| {
        let bounds = text.split_once('-').and_then(|(low, high)| Some((bound(low)?, bound(high)?)));
        bounds.filter(|(low, high)| low <= high).ok_or("a status is a number, or a range as in \"200-299\"")
    })
}

/// Parses a topic filter.
fn read_filter(value: &Value<'_>, table: Option<&Arc<Table>>) -> Option<Template> {
    let text = value.text()?;
    if let Some(why) = filter_fault(text.as_bytes()) {
        value.fault(format!("`{} = {text:?}`: {why}", value.key));
        return None;
    }
    value.line(table)
}

fn read_sleep(value: &Value<'_>, keys: &Keys<'_>) -> Option<Delay> {
    let nanoseconds = value.positive_duration_ns();
    let jitter = keys.get("give_or_take").map(|value| value.parsed(units::share));
    let exponential = keys.get("exponential").map_or(Some(false), |value| value.boolean());
    if exponential? {
        keys.refuse("give_or_take", "has no effect with `exponential`");
        return Some(Delay::Exponential { nanoseconds: nanoseconds? });
    }
    Some(Delay::Uniform { nanoseconds: nanoseconds?, jitter: jitter.unwrap_or(Some(0.0))? })
}

/// Whether a device always has to wait in this step.
fn waits(action: &Action) -> bool {
    match action {
        Action::Request(_) | Action::Expect { .. } | Action::Ping | Action::Sleep(_) => true,
        Action::Mqtt(message) => message.is_answered(),
        // A device may be connected already; the steps of a loop have been considered separately.
        Action::Connect | Action::Send { .. } | Action::Repeat { .. } | Action::Close => false,
    }
}
