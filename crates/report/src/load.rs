//! The result of a load as text: reasons for doubt, the work done, and the response times.

use std::fmt::Write;

use beamtune_model::load::{Latency, LoadModel, LoadResult, LoadStep};

use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Percentiles in the table.
const SHOWN: [&str; 4] = ["p50", "p90", "p99", "p99.9"];
/// Maximum number of generator-bound seconds that are listed with their reasons.
const REASONS: usize = 3;

/// Renders the result of a load.
pub fn render(result: &LoadResult, style: Style) -> String {
    let mut out = String::new();
    out.push_str(&trust(result, style));
    out.push_str(&style.bold(&title(result)));
    out.push('\n');
    out.push_str(&sums(result));
    out.push_str(&traffic(result));
    out.push('\n');
    out.push_str(&times(result, style));
    let errors = errors(result, style);
    if !errors.is_empty() {
        let _ = write!(out, "\n{errors}");
    }
    let _ = write!(out, "\n{}", generator(result));
    for remark in &result.remarks {
        out.push_str(&text::wrap(&text::clean_words(remark), style.width, ""));
        out.push('\n');
    }
    out
}

/// Renders the reasons for which the numbers are doubtful, if any.
fn trust(result: &LoadResult, style: Style) -> String {
    let mut out = String::new();
    let generator = &result.generator;
    if generator.bound_seconds > 0 {
        let (bound, judged) = (generator.bound_seconds, generator.judged_seconds);
        let head = format!(
            "Generator-bound in {bound} of {judged} seconds: beamtune or this host was the bottleneck, not the target."
        );
        let _ = writeln!(out, "{}", style.bold(&head));
        let seconds =
            result.seconds.iter().filter_map(|second| Some((second.second, second.bound.as_ref()?)));
        for (second, reason) in seconds.take(REASONS) {
            let _ = writeln!(out, "  second {second}: {reason}");
        }
        if bound as usize > REASONS {
            let _ = writeln!(out, "  and {} more", bound as usize - REASONS);
        }
        let advice = "Lower --rate, raise --threads, or run beamtune on a different host than the target.";
        let _ = writeln!(out, "  {advice}");
    }
    if result.is_interrupted {
        let _ = writeln!(out, "Interrupted: results up to this point.");
    }
    out
}

fn title(result: &LoadResult) -> String {
    let targets = result.targets.iter().map(|target| text::clean(target)).collect::<Vec<_>>().join(", ");
    let length = text::seconds(result.length_s);
    let what = match result.model {
        LoadModel::Open { per_second, devices } => {
            format!("{}/s for {length}, {} devices", text::decimal(per_second), count(devices))
        }
        LoadModel::Closed { devices } => format!("{} devices for {length}", count(devices)),
        LoadModel::Unknown => length,
    };
    if targets.is_empty() { what } else { format!("{targets}: {what}") }
}

/// Renders how much was done, and how much was requested.
fn sums(result: &LoadResult) -> String {
    let (done, errors) = (result.done(), result.errors());
    let mut out = format!("{} done, {} errors", count(done), count(errors));
    // Only whole seconds of the schedule: connections are made before it, and the last responses arrive after it.
    let within: Vec<_> = result
        .seconds
        .iter()
        .filter(|second| second.second >= 0 && (second.second as f64) < result.length_s)
        .collect();
    // Results of other tools begin and end within a second of the clock, so their rate is calculated from the totals.
    let has_schedule = within.iter().any(|second| second.due.is_some());
    if has_schedule {
        let per_second = |sum: u64| text::decimal(sum as f64 / within.len() as f64);
        let _ = write!(out, "; {} a second", per_second(within.iter().map(|second| second.done).sum()));
        if matches!(result.model, LoadModel::Open { .. }) {
            let due: Option<u64> = within.iter().map(|second| second.due).sum();
            if let Some(due) = due {
                let _ = write!(out, " of {} scheduled", per_second(due));
            }
        }
    } else if result.length_s > 0.0 {
        let _ = write!(out, "; {} a second", text::decimal(done as f64 / result.length_s));
    }
    if let Some(connected) = within.iter().filter_map(|second| second.connected).max() {
        let _ = write!(out, "; up to {} connections", count(connected));
    }
    if result.unfinished > 0 {
        let _ = write!(out, "; {} unfinished", count(result.unfinished));
    }
    out.push('\n');
    out
}

/// Renders the traffic over the connections.
fn traffic(result: &LoadResult) -> String {
    let Some(traffic) = result.traffic else { return String::new() };
    let (sent, received) = (traffic.sent_bytes as f64, traffic.received_bytes as f64);
    let mut out = format!("{} sent, {} received", text::bytes(sent), text::bytes(received));
    if traffic.reconnects > 0 {
        let _ = write!(out, "; {} connections closed by the target", count(traffic.reconnects));
    }
    out.push('\n');
    out
}

fn times(result: &LoadResult, style: Style) -> String {
    let mut columns = vec![("", Left), ("", Left), ("count", Right)];
    columns.extend(SHOWN.map(|name| (name, Right)));
    columns.push(("max", Right));
    let mut table = Table::new(&columns);
    for step in &result.steps {
        let mut name = text::clean(&step.name);
        for (kind, latency) in kinds(step) {
            let mut cells = vec![std::mem::take(&mut name), kind.to_owned(), count(latency.count)];
            cells.extend(SHOWN.map(|name| milliseconds(latency.percentile_ns(name))));
            cells.push(milliseconds(latency.max_ns));
            table.row(cells);
        }
    }
    table.render(style)
}

/// Returns the kinds of times that are meaningful for a step.
fn kinds(step: &LoadStep) -> Vec<(&'static str, &Latency)> {
    let all = [
        ("response", &step.response),
        ("service", &step.service),
        ("first byte", &step.first_byte),
        ("lag", &step.lag),
    ];
    let mut kinds: Vec<_> =
        all.into_iter().filter_map(|(kind, latency)| Some((kind, latency.as_ref()?))).collect();
    // If a response arrives in one piece, the time to its first byte is not worth a line.
    let differs = |first: &Latency, service: &Latency| {
        let tenth = |latency: &Latency| latency.percentile_ns("p50").map(|p50_ns| p50_ns / 10);
        tenth(first).zip(service.percentile_ns("p50")).is_none_or(|(tenth, p50_ns)| tenth * 11 < p50_ns)
    };
    if let (Some(first), Some(service)) = (&step.first_byte, &step.service)
        && !differs(first, service)
    {
        kinds.retain(|(kind, _)| *kind != "first byte");
    }
    if step.is_connect {
        // Connections are made in advance, so their lag delays nobody.
        kinds.retain(|(kind, _)| *kind == "service");
    }
    kinds
}

fn errors(result: &LoadResult, style: Style) -> String {
    let mut table = Table::new(&[("errors", Left), ("", Left), ("count", Right), ("first message", Left)]);
    for step in &result.steps {
        for (kind, errors) in &step.errors {
            table.row([
                text::clean(&step.name),
                kind.replace('_', " "),
                count(errors.count),
                text::clean_words(&errors.first),
            ]);
        }
    }
    table.render(style)
}

fn generator(result: &LoadResult) -> String {
    let generator = &result.generator;
    let mut out = format!("{}: ", text::clean(&result.tool));
    match generator.cpu_s {
        Some(cpu_s) => {
            let whole_s = result.seconds.len().max(1) as f64;
            let _ = write!(out, "{} cores", text::decimal(cpu_s / whole_s));
        }
        None => out.push_str("CPU unknown"),
    }
    if generator.threads > 0 {
        let _ = write!(
            out,
            " in {} {}",
            generator.threads,
            if generator.threads == 1 { "thread" } else { "threads" }
        );
    }
    if generator.processes > 1 {
        let _ = write!(out, " of {} processes", generator.processes);
    }
    match generator.own_lag.as_ref().and_then(|lag| lag.percentile_ns("p99").or(lag.max_ns)) {
        Some(lag_ns) => {
            let _ = write!(out, "; own lag {} (p99)", milliseconds(Some(lag_ns)));
        }
        None => out.push_str("; own lag unknown"),
    }
    out.push('\n');
    out
}

/// Formats a number with thousands separators.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a time in milliseconds, with three significant digits; a dash if it is unknown.
fn milliseconds(nanoseconds: Option<u64>) -> String {
    let Some(nanoseconds) = nanoseconds else { return "-".to_owned() };
    let value = nanoseconds as f64 / 1e6;
    let decimals = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$} ms")
}

#[cfg(test)]
mod tests {
    use beamtune_model::load::{LoadSecond, Traffic};

    use super::*;

    #[test]
    fn times_have_three_digits() {
        let check = |nanoseconds, expected: &str| assert_eq!(milliseconds(Some(nanoseconds)), expected);
        check(45_000, "0.045 ms");
        check(1_234_000, "1.23 ms");
        check(45_678_000, "45.7 ms");
        check(945_678_000, "946 ms");
        check(12_345_678_000, "12346 ms");
        assert_eq!(milliseconds(None), "-");
    }

    #[test]
    fn values_that_another_tool_lacks_are_not_shown_as_zero() {
        let mut result = LoadResult {
            length_s: 2.5,
            seconds: (0..3).map(|second| LoadSecond::counted(second, 10, 0)).collect(),
            ..LoadResult::blank("wrk")
        };
        let style = Style::PLAIN;
        assert_eq!(title(&result), "2.5 s");
        assert_eq!(sums(&result), "0 done, 0 errors; 0 a second\n");
        assert!(render(&result, style).contains("wrk: CPU unknown; own lag unknown"));
        assert_eq!(traffic(&result), "");
        result.traffic =
            Some(Traffic { sent_bytes: 900, received_bytes: 1_500_000, messages: 0, reconnects: 7 });
        let expected = "900 B sent, 1.50 MB received; 7 connections closed by the target\n";
        assert_eq!(traffic(&result), expected);
        result.seconds.iter_mut().for_each(|second| (second.due, second.connected) = (Some(10), Some(7)));
        assert_eq!(sums(&result), "0 done, 0 errors; 10 a second; up to 7 connections\n");
    }

    #[test]
    fn first_byte_is_shown_if_the_whole_response_takes_longer() {
        let latency = |p50_ns| {
            let percentiles_ns = [("p50".to_owned(), p50_ns)].into();
            Some(Latency { count: 9, percentiles_ns, ..Latency::default() })
        };
        let mut step = LoadStep {
            name: "get".to_owned(),
            is_connect: false,
            is_send: false,
            done: 9,
            errors: [].into(),
            received_bytes: None,
            lag: latency(1_000),
            service: latency(1_000_000),
            response: None,
            first_byte: latency(999_000),
        };
        let names = |step: &LoadStep| kinds(step).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
        assert_eq!(names(&step), ["service", "lag"]);
        step.first_byte = latency(500_000);
        assert_eq!(names(&step), ["service", "first byte", "lag"]);
        step.is_connect = true;
        assert_eq!(names(&step), ["service"]);
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }
}
