//! Generates the default scenario for a target, for a load without a scenario file.

use super::target::{Family, Target};
use super::{CONNECTIONS_PER_S, MAX_RATE_PER_S, Scenario};
use crate::LoadError;
use crate::program::seconds_ns;
use crate::schedule::Spacing;

/// Rate at which MQTT devices connect. RabbitMQ 3.10 on OTP 25 needs some 3 ms of CPU time per connection (`make bench`), and devices whose
/// connection times out connect again.
const MQTT_CONNECTIONS_PER_S: u64 = 200;

/// Parameters of a load without a scenario file.
#[derive(Debug, Clone, PartialEq)]
pub struct QuickLoad {
    /// Arrivals per second of an open load. `None`: a closed load, in which each device sends as soon as it has received an answer.
    pub per_second: Option<f64>,
    /// The time between arrivals.
    pub spacing: Spacing,
    /// Number of connections.
    pub devices: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for QuickLoad {
    fn default() -> Self {
        Self { per_second: None, spacing: Spacing::default(), devices: 100, seconds: 30.0, seed: 1 }
    }
}

impl Scenario {
    /// Creates the default load for a target:
    ///
    /// - `http`, `https`: GET of the URL's path.
    /// - `ws`, `wss`: sends a text and waits for a message, as from an echo server.
    /// - `mqtt`, `mqtts`: connects and stays connected; with a rate, publishes a number at QoS 1 to a topic per device.
    /// - `tcp`, `tls`: sends a line and waits for a line.
    pub fn quick(url: &str, quick: &QuickLoad) -> Result<Self, LoadError> {
        let text = Self::quick_text(url, quick)?;
        let no_files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
        Self::parse(url, &text, &no_files).map_err(|faults| {
            // The text is generated, so its lines and columns mean nothing to the user. Only a placeholder in the URL can be wrong.
            let why: Vec<&str> = faults.faults.iter().map(|fault| fault.message.as_str()).collect();
            refuse("target", url, why.join("; "))
        })
    }

    /// Returns the text of the default scenario for a target, which can be saved, changed and used as a file.
    pub fn quick_text(url: &str, quick: &QuickLoad) -> Result<String, LoadError> {
        let target = Target::parse(url).map_err(|why| refuse("target", url, why))?;
        let check = |what, given: String, is_right: bool, bounds: &str| match is_right {
            true => Ok(()),
            false => Err(refuse(what, &given, format!("must be {bounds}"))),
        };
        if let Some(rate) = quick.per_second {
            let is_right = rate > 0.0 && rate <= MAX_RATE_PER_S;
            check("rate", rate.to_string(), is_right, "above 0 and at most 10000000 per second")?;
        }
        let devices = quick.devices;
        check("devices", devices.to_string(), (1..=10_000_000).contains(&devices), "from 1 to 10000000")?;
        let seconds = quick.seconds;
        let is_right = seconds.is_finite() && seconds_ns(seconds) >= 1_000_000 && seconds <= 30.0 * 86_400.0;
        check("time", format!("{seconds}s"), is_right, "from a millisecond to 30 days")?;
        check("seed", quick.seed.to_string(), i64::try_from(quick.seed).is_ok(), "below 2^63")?;

        let family = target.scheme.family();
        let is_idle = family == Family::Mqtt && quick.per_second.is_none();
        let per_second = match family {
            Family::Mqtt => MQTT_CONNECTIONS_PER_S,
            _ => CONNECTIONS_PER_S,
        };
        let connecting_ms = devices * 1000 / per_second;
        let mut lines = vec!["[load]".to_owned()];
        match quick.per_second {
            // Whole rates are written without a decimal point.
            Some(rate) => {
                lines.push(format!("rate = {rate}"));
                if quick.spacing == Spacing::Fixed {
                    lines.push("spacing = \"fixed\"".to_owned());
                }
                if family == Family::Mqtt && devices > per_second / 2 {
                    lines.push(format!("connect_within = \"{connecting_ms}ms\""));
                }
            }
            None if devices > per_second / 10 => lines.push(format!("ramp = \"{connecting_ms}ms\"")),
            None => {}
        }
        lines.push(format!("for = \"{seconds}s\""));
        if is_idle {
            // The devices sleep until the end, so there is nothing to wait for.
            lines.push("rundown = \"0s\"".to_owned());
        }
        lines.push(format!("seed = {}\n", quick.seed));

        lines.push("[devices.quick]".to_owned());
        lines.push(format!("count = {devices}"));
        let base = match family {
            Family::Http => Target { path: String::new(), ..target.clone() }.to_string(),
            _ => target.to_string(),
        };
        lines.push(format!("target = {}", quoted(&base)));
        if family == Family::Raw {
            lines.push("framing = \"line\"".to_owned());
        }
        lines.push(match family {
            Family::Http => {
                let path = if target.path.is_empty() { "/" } else { &target.path };
                format!("steps = [{{ request = {} }}]", quoted(path))
            }
            Family::WebSocket | Family::Raw => {
                "steps = [{ send = \"${device} ${count}\" }, \"expect\"]".to_owned()
            }
            Family::Mqtt if is_idle => "steps = [\"connect\", { sleep = \"30d\" }]".to_owned(),
            Family::Mqtt => {
                "steps = [{ publish = \"beamtune/${device}\", payload = \"${count}\", qos = 1 }]".to_owned()
            }
        });
        lines.push(String::new());
        Ok(lines.join("\n"))
    }
}

fn refuse(what: &'static str, given: &str, why: impl Into<String>) -> LoadError {
    LoadError::Quick { what, given: given.to_owned(), why: why.into() }
}

/// Writes a TOML basic string.
fn quoted(text: &str) -> String {
    // TOML supports all escapes of JSON.
    serde_json::Value::from(text).to_string()
}
