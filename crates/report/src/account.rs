//! The CPU account as text: one line per part; the parts add up to the total.

use beamtune_model::{CpuAccount, CpuShare, CpuUse};

use crate::text::{self, Style};

/// Smaller parts, in hundredths of a core, are summed up: the clocks of the VM and of the kernel differ by as much.
const SMALL: i64 = 2;

/// Groups of parts, by who used the CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// CPU used by the VM and its external programs.
    Used,
    /// CPU used by others, or withheld by the quota.
    Taken,
    /// Idle CPU.
    Idle,
}

impl Group {
    fn of(what: CpuUse) -> Group {
        match what {
            CpuUse::ExternalPrograms => Group::Used,
            CpuUse::Quota | CpuUse::Neighbours | CpuUse::Steal => Group::Taken,
            what if what.is_used() => Group::Used,
            _ => Group::Idle,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Group::Used => "used",
            Group::Taken => "lost",
            Group::Idle => "idle",
        }
    }
}

/// Returns the name of a part. `alone` is the only runnable process, for [`Use::SerialProcess`].
fn words(what: CpuUse, alone: Option<&str>) -> String {
    let words = match what {
        CpuUse::Code => "Erlang code",
        CpuUse::GarbageCollection => "garbage collection",
        CpuUse::Ports => "ports and drivers",
        CpuUse::Polling => "polling for I/O",
        CpuUse::Housekeeping => "VM housekeeping",
        CpuUse::DirtyCpu => "dirty CPU schedulers",
        CpuUse::DirtyIo => "dirty I/O schedulers",
        CpuUse::OtherThreads => "other threads",
        CpuUse::Switching => "sleep and wake-up",
        CpuUse::BusyWaiting => "busy wait",
        CpuUse::ExternalPrograms => "external programs",
        CpuUse::Quota => "throttled by the CPU quota",
        CpuUse::Neighbours => "other processes on the host",
        CpuUse::Steal => "stolen by the hypervisor",
        CpuUse::Locks => "schedulers blocked (locks, native code)",
        CpuUse::SerialProcess => match alone {
            Some(name) => return format!("only {name} is runnable"),
            None => "only one process is runnable",
        },
        CpuUse::TakingTurns => "only one process runnable at a time",
        CpuUse::WaitingForReplies => "waiting for a process or peer",
        CpuUse::NoScheduler => "fewer schedulers than CPUs",
        CpuUse::NoRunnable => "no runnable process",
    };
    words.to_owned()
}

/// A part of the account, rounded to hundredths of a core.
struct Part<'a> {
    share: &'a CpuShare,
    hundredths: i64,
}

/// Rounds all parts so that they add up to the rounded total: the remainder goes to the parts that are rounded down most.
fn parts(account: &CpuAccount) -> Vec<Part<'_>> {
    let hundredths = |cores: f64| 100.0 * cores;
    let mut parts: Vec<Part<'_>> = account
        .shares
        .iter()
        .map(|share| Part { share, hundredths: hundredths(share.cores).floor() as i64 })
        .collect();
    let sum: i64 = parts.iter().map(|part| part.hundredths).sum();
    let left = (hundredths(account.cores).round() as i64 - sum).max(0);
    let mut by_rest: Vec<&mut Part<'_>> = parts.iter_mut().collect();
    by_rest.sort_by(|a, b| {
        let rest = |part: &Part<'_>| hundredths(part.share.cores).fract();
        rest(b).total_cmp(&rest(a))
    });
    by_rest.into_iter().take(left as usize).for_each(|part| part.hundredths += 1);
    parts
}

fn cores(hundredths: i64) -> String {
    format!("{:.2}", hundredths as f64 / 100.0)
}

/// Maximum number of parts of a group that are named.
const MAX_NAMED: usize = 3;

/// Renders the account in a few lines: a bar, the CPU used and by what, and why the rest was not used. `alone` is the only runnable
/// process, if there is one.
pub fn bar(account: &CpuAccount, alone: Option<&str>, style: Style) -> String {
    let parts = parts(account);
    let is_used = |part: &&Part<'_>| Group::of(part.share.what) == Group::Used;
    let used: i64 = parts.iter().filter(is_used).map(|part| part.hundredths).sum();
    let share = if account.cores > 0.0 { used as f64 / (100.0 * account.cores) } else { 0.0 };
    let bar = text::bar(share);
    let of_used = named(&parts, &[Group::Used], alone);
    let rest = named(&parts, &[Group::Taken, Group::Idle], alone);
    let of_used = if of_used.is_empty() { String::new() } else { format!(": {}", of_used.join(", ")) };
    let line = format!("{} of {:.2} cores used by the node{of_used}", cores(used), account.cores);
    let indent = text::BAR_CELLS + 7;
    let room = style.width.saturating_sub(indent).max(30);
    let continued = " ".repeat(indent);
    let mut out = format!("CPU  {bar}  {}\n", text::wrap(&line, room, &continued));
    if !rest.is_empty() {
        let line = text::wrap(&rest.join("; "), room, &continued);
        out.push_str(&format!("{continued}{}\n", style.dim(&line)));
    }
    out
}

/// Returns the largest parts of each group, and the sum of the others. If this sum is too small for an entry, it is added to the largest
/// part.
fn named(parts: &[Part<'_>], groups: &[Group], alone: Option<&str>) -> Vec<String> {
    let is_meant = |part: &&Part<'_>| groups.contains(&Group::of(part.share.what));
    let all: i64 = parts.iter().filter(is_meant).map(|part| part.hundredths).sum();
    let mut large: Vec<(CpuUse, i64)> = Vec::new();
    for group in groups {
        let mut of_group: Vec<&Part<'_>> = parts
            .iter()
            .filter(|part| Group::of(part.share.what) == *group && part.hundredths >= SMALL)
            .collect();
        of_group.sort_by_key(|part| std::cmp::Reverse(part.hundredths));
        large.extend(of_group.into_iter().take(MAX_NAMED).map(|part| (part.share.what, part.hundredths)));
    }
    let mut other = all - large.iter().map(|(_, hundredths)| hundredths).sum::<i64>();
    if other < SMALL
        && let Some((_, largest)) = large.iter_mut().max_by_key(|(_, hundredths)| *hundredths)
    {
        *largest += other;
        other = 0;
    }
    let name = |(what, hundredths): &(CpuUse, i64)| {
        let before = if Group::of(*what) == Group::Idle { "idle: " } else { "" };
        format!("{} {before}{}", cores(*hundredths), words(*what, alone))
    };
    let other = (other > 0 && !large.is_empty()).then(|| format!("{} other", cores(other)));
    large.iter().map(name).chain(other).collect()
}

/// Renders the account as a table with a heading.
pub fn render(account: &CpuAccount, style: Style) -> String {
    let heading = format!("Where {:.2} cores went in {}", account.cores, text::seconds(account.seconds));
    let mut out = format!("{}\n", style.bold(&heading));
    let mut parts = parts(account);
    parts.sort_by_key(|part| (Group::of(part.share.what), part.share.what));
    let (named, small): (Vec<&Part<'_>>, Vec<&Part<'_>>) =
        parts.iter().partition(|part| part.hundredths >= SMALL);
    let width = named.iter().map(|part| words(part.share.what, None).len()).max().unwrap_or(0);
    let line = |group: &str, name: &str, hundredths: i64, how: &str| {
        let share = if account.cores > 0.0 { hundredths as f64 / account.cores } else { 0.0 };
        let numbers =
            format!("  {group:<9}  {name:<width$}  {:>6} cores  {share:>3.0} %  ", cores(hundredths));
        let column = numbers.chars().count();
        let how =
            text::wrap(&text::sentence(how), style.width.saturating_sub(column).max(30), &" ".repeat(column));
        format!("{}\n", format!("{numbers}{}", style.dim(&how)).trim_end())
    };
    let mut before = None;
    for part in named {
        let group = Group::of(part.share.what);
        let name = if before == Some(group) { "" } else { group.name() };
        before = Some(group);
        out.push_str(&line(name, &words(part.share.what, None), part.hundredths, &part.share.how));
    }
    let rest: i64 = small.iter().map(|part| part.hundredths).sum();
    if rest > 0 {
        out.push_str(&line("", "other", rest, ""));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(cores: f64, shares: &[(CpuUse, f64, &str)]) -> CpuAccount {
        let share = |(what, cores, how): &(CpuUse, f64, &str)| CpuShare {
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
                (CpuUse::Code, 1.0, ""),
                (CpuUse::Ports, 0.01, ""),
                (CpuUse::BusyWaiting, 0.5, ""),
                (CpuUse::ExternalPrograms, 0.3, ""),
                (CpuUse::Neighbours, 0.2, ""),
                (CpuUse::WaitingForReplies, 1.98, "shop_db (<0.99.0>) in prim_inet:recv0/3"),
                (CpuUse::NoRunnable, 0.01, ""),
            ],
        );
        let expect = "Where 4.00 cores went in 10 s\n  \
            used       Erlang code                      1.00 cores   25 %\n             \
            busy wait                        0.50 cores   12 %\n             \
            external programs                0.30 cores    8 %\n  \
            lost       other processes on the host      0.20 cores    5 %\n  \
            idle       waiting for a process or peer    1.98 cores   50 %  shop_db (<0.99.0>) in\n\
            \u{20}                                                                prim_inet:recv0/3\n             \
            other                            0.02 cores    0 %\n";
        assert_eq!(render(&account, Style::PLAIN), expect);
    }

    #[test]
    fn the_bar_names_the_largest_parts_and_why_cores_are_idle() {
        let shares = [
            (CpuUse::Code, 0.21, ""),
            (CpuUse::GarbageCollection, 0.015, ""),
            (CpuUse::Ports, 0.03, ""),
            (CpuUse::BusyWaiting, 0.15, ""),
            (CpuUse::ExternalPrograms, 0.32, ""),
            (CpuUse::Neighbours, 0.09, ""),
            (CpuUse::Locks, 0.3, ""),
            (CpuUse::NoRunnable, 0.885, ""),
        ];
        let expect = "\
CPU  ███████░░░░░░░░░░░░░  0.73 of 2.00 cores used by the node: 0.32 external programs, 0.21 Erlang
                           code, 0.15 busy wait, 0.05 other
                           0.09 other processes on the host; 0.88 idle: no runnable process; 0.30
                           idle: schedulers blocked (locks, native code)
";
        assert_eq!(bar(&account(2.0, &shares), None, Style::PLAIN), expect);
        let serial = account(2.0, &[(CpuUse::Code, 1.0, ""), (CpuUse::SerialProcess, 1.0, "")]);
        assert!(
            bar(&serial, Some("shop_cart"), Style::PLAIN).contains("1.00 idle: only shop_cart is runnable\n")
        );
        assert!(
            bar(&account(0.0, &[]), None, Style::PLAIN)
                .starts_with("CPU  ░░░░░░░░░░░░░░░░░░░░  0.00 of 0.00")
        );
    }

    #[test]
    fn printed_parts_add_up_to_the_printed_whole() {
        // Rounded one by one, the parts would be 0.33 three times, which is 0.99.
        let thirds = account(
            1.0,
            &[
                (CpuUse::Code, 1.0 / 3.0, ""),
                (CpuUse::Ports, 1.0 / 3.0, ""),
                (CpuUse::NoRunnable, 1.0 / 3.0, ""),
            ],
        );
        let sum: i64 = parts(&thirds).iter().map(|part| part.hundredths).sum();
        assert_eq!(sum, 100);
    }
}
