//! Formats numbers and names for titles and details.

use beamtune_model::Subject;
use beamtune_model::rows::CHILD_OF;
pub(crate) use beamtune_model::text::bytes;
use beamtune_model::text::grouped;
use beamtune_stats::Trend;

/// Formats a number: two decimals below 1, one below 10 unless it is whole, and thousands separators: `0.15`, `7.2`, `1,817`.
pub(crate) fn number(value: f64) -> String {
    if value.fract() != 0.0 && value.abs() < 9.95 {
        return if value.abs() < 0.995 { format!("{value:.2}") } else { format!("{value:.1}") };
    }
    grouped(value)
}

/// Formats a rate without its unit. Unlike [`number`], it always has a decimal below 10: `0.25`, `7.0`, `1,817`.
pub(crate) fn rate(value: f64) -> String {
    match value.abs() {
        v if v < 0.995 => format!("{value:.2}"),
        v if v < 9.95 => format!("{value:.1}"),
        _ => number(value.round()),
    }
}

/// Formats CPU in cores, without the unit: `0.15`, `1.2`, `12.0`.
pub(crate) fn cores(value: f64) -> String {
    if value < 0.995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// Formats a number with its noun: `1 process`, `2 processes`.
pub(crate) fn counted(value: f64, one: &str, several: &str) -> String {
    let number = number(value);
    let noun = if number == "1" { one } else { several };
    format!("{number} {noun}")
}

/// Name of a subject for a title, or its pid if it has no name. A process without a registered name is named after its callback module or
/// its parent.
pub(crate) fn name(subject: &Subject) -> String {
    let name = subject.names().last().copied().unwrap_or_default();
    match (subject, name.strip_prefix(CHILD_OF)) {
        (Subject::Process { .. }, Some(parent)) => format!("process started by {parent}"),
        (Subject::Process { .. } | Subject::ProcessKind { .. }, None) => {
            callback_module(name).unwrap_or(name).to_owned()
        }
        _ => name.to_owned(),
    }
}

/// Returns the callback module in the initial call of a behaviour's process: `shop_cart` for `shop_cart:init/1` and
/// `supervisor:shop_cart/1`.
fn callback_module(initial_call: &str) -> Option<&str> {
    let (module, function) = initial_call.rsplit_once(':')?;
    match function.strip_suffix("/1")? {
        "init" => Some(module),
        callback if module == "supervisor" => Some(callback),
        _ => None,
    }
}

/// The pid of a process that a title calls by its name; empty if the title already contains the pid.
pub(crate) fn pid(subject: &Subject) -> &str {
    subject.pid().filter(|_| subject.names().len() > 1).unwrap_or_default()
}

/// Formats a short time: `35 ms`, `300 ms`, `2.0 s`.
pub(crate) fn pause(seconds: f64) -> String {
    if seconds < 0.9995 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.1} s") }
}

/// Marks a fun in a function name that the compiler generated: `shop:-sum/1-fun-0-/2`.
const OF_A_FUN: &str = ":-";

/// Names processes of a kind, for a title: `shop_cart processes`, `processes started by shop_sup`, `shop_worker_*`.
pub(crate) fn processes(kind: &str) -> String {
    match (kind.strip_prefix(CHILD_OF), callback_module(kind)) {
        (Some(parent), _) => format!("processes started by {parent}"),
        (None, _) if kind.contains(OF_A_FUN) => format!("processes of {kind}"),
        (None, Some(module)) => format!("{module} processes"),
        (None, None) if kind.contains(':') && kind.contains('/') => format!("{kind} processes"),
        (None, None) => kind.to_owned(),
    }
}

/// Like [`processes`], with their number: `3 shop_cart processes`, `3 processes started by shop_sup`, `3 shop_worker_* processes`.
pub(crate) fn several(count: usize, kind: &str) -> String {
    match processes(kind) {
        same if same == kind => format!("{count} {kind} processes"),
        processes => format!("{count} {processes}"),
    }
}

/// Joins names, and shows at most `max` of them: `a`, `a and b`, `a, b and 3 more`.
pub(crate) fn names(names: &[impl AsRef<str>], max: usize) -> String {
    let shown: Vec<&str> = names.iter().take(max).map(AsRef::as_ref).collect();
    match (names.len() - shown.len(), &shown[..]) {
        (0, [first @ .., last]) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        (0, _) => shown.concat(),
        (more, _) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Formats growth per second with its 95 % interval: `+7.1/s [6.8, 7.4]`.
pub(crate) fn growth(trend: &Trend) -> String {
    format!("+{}/s [{}, {}]", number(trend.slope), number(trend.low), number(trend.high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits_and_separators() {
        let check = |value, expect: &str| assert_eq!(number(value), expect);
        check(0.152, "0.15");
        check(7.04, "7.0");
        check(2.0, "2");
        check(15.02, "15");
        check(1_817.0, "1,817");
        check(134_217_727.0, "134,217,727");
        check(-1_234.0, "-1,234");
        assert_eq!(rate(7.0), "7.0");
        assert_eq!(rate(15.02), "15");
        assert_eq!(cores(0.152), "0.15");
        assert_eq!(cores(1.19), "1.2");
    }

    #[test]
    fn short_times_have_a_suitable_unit() {
        assert_eq!([pause(0.0352), pause(0.3), pause(2.04)], ["35 ms", "300 ms", "2.0 s"]);
    }

    #[test]
    fn nouns_agree_with_their_numbers() {
        assert_eq!(counted(1.0, "process", "processes"), "1 process");
        assert_eq!(counted(2_000.0, "process", "processes"), "2,000 processes");
    }

    #[test]
    fn a_process_is_called_by_its_pid_only_if_it_has_no_name() {
        let (named, nameless) = (Subject::process("shop (<0.9.0>)"), Subject::process("<0.9.0>"));
        assert_eq!((name(&named).as_str(), pid(&named)), ("shop", "<0.9.0>"));
        assert_eq!((name(&nameless).as_str(), pid(&nameless)), ("<0.9.0>", ""));
    }

    #[test]
    fn a_process_without_a_registered_name_is_named_after_its_module_or_its_parent() {
        let called = |title: &str| name(&Subject::process(title));
        assert_eq!(called("Elixir.Shop.Cart:init/1 (<0.9.0>)"), "Elixir.Shop.Cart");
        assert_eq!(called("supervisor:shop_sup/1 (<0.9.0>)"), "shop_sup");
        assert_eq!(called("child of shop:feed/1 (<0.9.0>)"), "process started by shop:feed/1");
        assert_eq!(called("shop:feed/1 (<0.9.0>)"), "shop:feed/1");
        assert_eq!(name(&Subject::kind("shop_cart:init/1")), "shop_cart");
        assert_eq!(name(&Subject::Function { name: "shop_cart:init/1".to_owned() }), "shop_cart:init/1");
    }

    #[test]
    fn processes_of_a_kind_are_named_after_what_started_them() {
        assert_eq!(processes("shop_cart:init/1"), "shop_cart processes");
        assert_eq!(processes("shop_cart:pay/2"), "shop_cart:pay/2 processes");
        assert_eq!(processes("child of shop_sup"), "processes started by shop_sup");
        assert_eq!(processes("shop_worker_*"), "shop_worker_*");
        assert_eq!(processes("shop:-run/1-fun-0-/0"), "processes of shop:-run/1-fun-0-/0");
        assert_eq!(several(2, "shop_cart:init/1"), "2 shop_cart processes");
        assert_eq!(several(3, "child of shop_sup"), "3 processes started by shop_sup");
        assert_eq!(several(4, "shop_worker_*"), "4 shop_worker_* processes");
    }

    #[test]
    fn long_lists_of_names_are_truncated() {
        let of = |count: usize| names(&["a", "b", "c", "d"][..count], 2);
        assert_eq!([of(0), of(1), of(2), of(4)], ["", "a", "a and b", "a, b and 2 more"]);
    }

    #[test]
    fn growth_is_formatted_with_its_interval() {
        let trend = Trend { slope: 7.08, low: 6.81, high: 15.4, p: 0.001 };
        assert_eq!(growth(&trend), "+7.1/s [6.8, 15]");
    }
}
