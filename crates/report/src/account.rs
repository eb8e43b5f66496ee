//! Where the CPUs went, as text: a line for each part, and all of them add up.

use beamtune_model::{CpuAccount, Share, Use};

use crate::text::{self, Style};

/// Smaller parts are told together.
const SMALL: f64 = 0.01;

/// What a part is called.
fn words(what: Use) -> &'static str {
    match what {
        Use::Code => "Erlang code",
        Use::Collections => "garbage collection",
        Use::Ports => "ports and drivers",
        Use::Polling => "waiting for sockets (poll)",
        Use::Housekeeping => "the VM's own housekeeping",
        Use::DirtyCpu => "dirty CPU schedulers, without GC",
        Use::DirtyIo => "dirty I/O schedulers, without GC",
        Use::OtherThreads => "other threads",
        Use::Switching => "falling asleep, waking up",
        Use::BusyWaiting => "busy waiting",
        Use::Quota => "stopped by the quota",
        Use::Programs => "taken by programs that it started",
        Use::Others => "taken by other processes",
        Use::Stolen => "taken by the hypervisor",
        Use::Locks => "blocked inside the VM",
        Use::SerialProcess => "one serial process",
        Use::Turns => "one at a time",
        Use::Outside => "waiting for answers",
        Use::NoScheduler => "no scheduler for it",
        Use::Nothing => "nothing to run",
    }
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

    #[test]
    fn parts_are_told_in_their_order_and_small_ones_together() {
        let share = |what, cores, how: &str| Share { what, cores, how: how.to_owned() };
        let account = CpuAccount {
            cores: 4.0,
            seconds: 10.0,
            shares: vec![
                share(Use::Code, 1.0, ""),
                share(Use::Ports, 0.01, ""),
                share(Use::BusyWaiting, 0.5, ""),
                share(Use::Outside, 2.47, "shop_db (<0.99.0>) stands in prim_inet:recv0/3"),
                share(Use::Nothing, 0.02, ""),
            ],
        };
        let expect = "Where 4 CPUs went in 10 s\n  \
            used      Erlang code            1.00 cores   25 %\n            \
            busy waiting           0.50 cores   12 %\n  \
            not used  waiting for answers    2.47 cores   62 %  shop_db (<0.99.0>) stands in prim_inet:recv0/3\n            \
            less than 1 % each     0.03 cores    1 %\n";
        assert_eq!(render(&account, Style::PLAIN), expect);
    }
}
