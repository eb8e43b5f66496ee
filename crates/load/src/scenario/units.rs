//! Parses numbers with units: `900ms`, `10%`.

/// Longest duration in a scenario: 30 days.
pub const MAX_DURATION_NS: u64 = 30 * 24 * 3600 * 1_000_000_000;

/// Parses a duration with its unit. Returns nanoseconds.
pub fn duration_ns(text: &str) -> Result<u64, String> {
    let example = "a time needs a unit: \"900ms\", \"1.5s\", \"2min\", \"1h\"";
    let (number, unit) = number_and_unit(text).ok_or_else(|| example.to_owned())?;
    let unit_ns = match unit {
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        "d" => 86_400e9,
        "m" => return Err("\"m\" may be minutes or milliseconds: write \"min\" or \"ms\"".to_owned()),
        "" => return Err(example.to_owned()),
        _ => return Err(format!("unknown unit {unit:?}; use us, ms, s, min, h or d")),
    };
    let nanoseconds = number * unit_ns;
    if nanoseconds > MAX_DURATION_NS as f64 {
        return Err("longer than 30 days".to_owned());
    }
    Ok(nanoseconds.round() as u64)
}

/// Parses a percentage. Returns a share: `10%` is 0.1.
pub fn share(text: &str) -> Result<f64, String> {
    match number_and_unit(text) {
        Some((number, "%")) if number <= 100.0 => Ok(number / 100.0),
        Some((_, "%")) => Err("more than 100%".to_owned()),
        _ => Err("a share is written in percent: \"10%\"".to_owned()),
    }
}

fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_in_every_unit() {
        for (text, nanoseconds) in [
            ("0s", 0),
            ("250us", 250_000),
            ("900ms", 900_000_000),
            ("1.5s", 1_500_000_000),
            ("2 min", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("30d", MAX_DURATION_NS),
        ] {
            assert_eq!(duration_ns(text), Ok(nanoseconds), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused_with_advice() {
        for (text, part) in [
            ("10", "needs a unit"),
            ("", "needs a unit"),
            ("-1s", "needs a unit"),
            ("1.2.3s", "needs a unit"),
            ("5m", "minutes or milliseconds"),
            ("3 weeks", "unknown unit \"weeks\""),
            ("31d", "longer than 30 days"),
            ("99999999999999999999999999d", "longer than 30 days"),
        ] {
            let error = duration_ns(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!(share("10%"), Ok(0.1));
        assert_eq!(share("0 %"), Ok(0.0));
        assert!(share("101%").unwrap_err().contains("more than"));
        assert!(share("0.1").unwrap_err().contains("percent"));
    }
}
