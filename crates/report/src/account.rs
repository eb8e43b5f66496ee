//! Where the CPUs went, as text: a line for each part, and all of them add up.

use beamtune_model::{CpuAccount, Share, Use};

use crate::text::{self, Style};

/// Parts below this share of all are summed up.
const SMALL: f64 = 0.01;

/// What a part is called.
fn words(what: Use) -> &'static str {
    match what {
        Use::Code => "Erlang code",
        Use::Collections => "garbage collection",
        Use::Ports => "ports and drivers",
        Use::Polling => "polling for I/O",
        Use::Housekeeping => "VM housekeeping",
        Use::DirtyCpu => "dirty CPU schedulers, without GC",
        Use::DirtyIo => "dirty I/O schedulers, without GC",
        Use::OtherThreads => "other threads",
        Use::Switching => "sleep and wake-up",
        Use::BusyWaiting => "busy wait",
        Use::Quota => "throttled by the CPU quota",
        Use::Programs => "used by external programs",
        Use::Others => "used by other processes of the host",
        Use::Stolen => "stolen by the hypervisor",
        Use::Locks => "schedulers blocked (locks, native code)",
        Use::SerialProcess => "one serial process",
        Use::Turns => "processes run one at a time",
        Use::Outside => "processes wait for replies",
        Use::NoScheduler => "fewer schedulers than CPUs",
        Use::Nothing => "no runnable process",
    }
}

/// Cells of the bar.
const BAR_CELLS: usize = 20;
/// Parts of the used CPU that are named.
const MAX_NAMED: usize = 3;
/// A reason for unused CPU is named from this share of all on (judgement): below, it explains little.
const MIN_UNUSED_SHARE: f64 = 0.10;

/// The account in a line or two: a bar, how much was used and by what, and why the rest was not.
pub fn bar(account: &CpuAccount, style: Style) -> String {
    let (used, unused): (Vec<&Share>, Vec<&Share>) =
        account.shares.iter().partition(|share| share.what.is_used());
    let total = used.iter().fold(0.0, |sum, share| sum + share.cores);
    let filled =
        if account.cores > 0.0 { (total / account.cores * BAR_CELLS as f64).round() as usize } else { 0 };
    let filled = filled.min(BAR_CELLS);
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR_CELLS - filled));
    let mut named = largest(&used, SMALL * account.cores);
    named.truncate(MAX_NAMED);
    let mut parts: Vec<String> =
        named.iter().map(|share| format!("{:.2} {}", share.cores, words(share.what))).collect();
    let named: f64 = named.iter().map(|share| share.cores).sum();
    if total - named >= 0.005 && !parts.is_empty() {
        parts.push(format!("{:.2} other", total - named));
    }
    let cores = if account.cores == 1.0 { "core" } else { "cores" };
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    let line = format!("{total:.2} of {} {cores} used by the VM{parts}", text::decimal(account.cores));
    let indent = BAR_CELLS + 7;
    let room = style.width.saturating_sub(indent).max(30);
    let mut out = format!("CPU  {bar}  {}\n", text::wrap(&line, room, &" ".repeat(indent)));
    let reasons: Vec<String> = largest(&unused, MIN_UNUSED_SHARE * account.cores)
        .iter()
        .map(|share| format!("{:.2} unused: {}", share.cores, words(share.what)))
        .collect();
    if !reasons.is_empty() {
        let line = text::wrap(&reasons.join(", "), room, &" ".repeat(indent));
        out.push_str(&format!("{:indent$}{}\n", "", style.dim(&line)));
    }
    out
}

/// Those of at least so many cores, the largest first.
fn largest<'s>(shares: &[&'s Share], min_cores: f64) -> Vec<&'s Share> {
    let mut large: Vec<&Share> =
        shares.iter().copied().filter(|share| share.cores >= min_cores.max(0.005)).collect();
    large.sort_by(|a, b| b.cores.total_cmp(&a.cores));
    large
}

/// The account, with a heading.
pub fn render(account: &CpuAccount, style: Style) -> String {
    let cpus = if account.cores == 1.0 { "CPU" } else { "CPUs" };
    let heading =
        format!("Where {} {cpus} went in {}", text::decimal(account.cores), text::seconds(account.seconds));
    let mut out = format!("{}\n", style.bold(&heading));
    let (told, small): (Vec<&Share>, Vec<&Share>) =
        account.shares.iter().partition(|share| share.cores >= SMALL * account.cores);
    let width = told.iter().map(|share| words(share.what).len()).max().unwrap_or(0);
    let line = |group: &str, name: &str, cores: f64, how: &str| {
        let share = if account.cores > 0.0 { 100.0 * cores / account.cores } else { 0.0 };
        let numbers = format!("  {group:<8}  {name:<width$}  {cores:>6.2} cores  {share:>3.0} %  ");
        let column = numbers.chars().count();
        let how =
            text::wrap(&text::sentence(how), style.width.saturating_sub(column).max(30), &" ".repeat(column));
        format!("{}\n", format!("{numbers}{}", style.dim(&how)).trim_end())
    };
    let mut before = None;
    for share in told {
        let is_used = share.what.is_used();
        let group = match (before == Some(is_used), is_used) {
            (true, _) => "",
            (false, true) => "used",
            (false, false) => "not used",
        };
        before = Some(is_used);
        out.push_str(&line(group, words(share.what), share.cores, &share.how));
    }
    let rest: f64 = small.iter().map(|share| share.cores).sum();
    if rest > 0.0 {
        out.push_str(&line("", "less than 1 % each", rest, ""));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(cores: f64, shares: &[(Use, f64, &str)]) -> CpuAccount {
        let share = |(what, cores, how): &(Use, f64, &str)| Share {
            what: *what,
            cores: *cores,
            how: (*how).to_owned(),
        };
        CpuAccount { cores, seconds: 10.0, shares: shares.iter().map(share).collect() }
    }

    #[test]
    fn parts_keep_their_order_and_small_ones_are_summed_up() {
        let account = account(
            4.0,
            &[
                (Use::Code, 1.0, ""),
                (Use::Ports, 0.01, ""),
                (Use::BusyWaiting, 0.5, ""),
                (Use::Outside, 2.47, "shop_db (<0.99.0>) in prim_inet:recv0/3"),
                (Use::Nothing, 0.02, ""),
            ],
        );
        let expect = "Where 4 CPUs went in 10 s\n  \
            used      Erlang code                   1.00 cores   25 %\n            \
            busy wait                     0.50 cores   12 %\n  \
            not used  processes wait for replies    2.47 cores   62 %  shop_db (<0.99.0>) in prim_inet:recv0/3\n            \
            less than 1 % each            0.03 cores    1 %\n";
        assert_eq!(render(&account, Style::PLAIN), expect);
    }

    #[test]
    fn the_bar_names_the_largest_parts_and_why_cores_are_unused() {
        let account = account(
            2.0,
            &[
                (Use::Code, 0.21, ""),
                (Use::Collections, 0.02, ""),
                (Use::BusyWaiting, 0.15, ""),
                (Use::Ports, 0.03, ""),
                (Use::Locks, 0.3, ""),
                (Use::Nothing, 1.29, ""),
            ],
        );
        let expect = "\
CPU  ████░░░░░░░░░░░░░░░░  0.41 of 2 cores used by the VM: 0.21 Erlang code, 0.15 busy wait, 0.03
                           ports and drivers, 0.02 other
                           1.29 unused: no runnable process, 0.30 unused: schedulers blocked (locks,
                           native code)
";
        assert_eq!(bar(&account, Style::PLAIN), expect);
        assert!(
            bar(&self::account(0.0, &[]), Style::PLAIN).starts_with("CPU  ░░░░░░░░░░░░░░░░░░░░  0.00 of 0")
        );
    }
}
