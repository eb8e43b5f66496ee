//! Numbering of incarnations.

use beamtune_model::Incarnation;

/// Numbers the incarnations that VM and host announce independently.
///
/// The two sources identify an incarnation differently (for a container, even process ids differ), and may notice a restart at different
/// ticks. So an announcement starts a new incarnation only if the same source has already announced the current one; otherwise this
/// source is only late.
#[derive(Debug, Default)]
pub(super) struct Incarnations {
    current: Option<Incarnation>,
    vm_knows: bool,
    host_knows: bool,
    /// Whether the current incarnation is from an earlier recorder, and no current source has announced an incarnation yet.
    resumed: bool,
}

impl Incarnations {
    /// Continues after the last incarnation of an earlier recorder.
    pub(super) fn resumed(current: Option<Incarnation>) -> Self {
        Incarnations { current, resumed: true, ..Incarnations::default() }
    }

    /// Number of the current incarnation; 0 if none is known yet.
    pub(super) fn number(&self) -> u32 {
        self.current.as_ref().map_or(0, |incarnation| incarnation.id)
    }

    /// Name of the node; empty if unknown.
    pub(super) fn node(&self) -> &str {
        self.current.as_ref().map_or("", |incarnation| &incarnation.node)
    }

    /// Processes the announcements of one sample; returns the incarnation that begins with it, if any. Data from the VM take precedence
    /// over data from the host.
    pub(super) fn announce(
        &mut self,
        vm: Option<Incarnation>,
        host: Option<Incarnation>,
    ) -> Option<Incarnation> {
        let (vm_announces, host_announces) = (vm.is_some(), host.is_some());
        let mut begins =
            self.current.is_none() || vm_announces && self.vm_knows || host_announces && self.host_knows;
        let incarnation = vm.or(host)?;
        if std::mem::take(&mut self.resumed) {
            begins = self.current.as_ref().is_none_or(|current| current.boot != incarnation.boot);
        }
        if !begins {
            self.vm_knows |= vm_announces;
            self.host_knows |= host_announces;
            return None;
        }
        (self.vm_knows, self.host_knows) = (vm_announces, host_announces);
        let id = self.current.as_ref().map_or(0, |current| current.id + 1);
        self.current = Some(Incarnation { id, ..incarnation });
        self.current.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incarnation(boot: &str) -> Option<Incarnation> {
        Some(Incarnation {
            id: 77,
            node: String::new(),
            os_pid: None,
            boot: boot.to_owned(),
            mono0: 0,
            wall0: 0,
        })
    }

    #[test]
    fn a_restart_announced_by_both_sources_is_one_new_incarnation() {
        /// Announcements of VM and host, and the incarnation that begins.
        type Step<'a> = (&'a str, &'a str, Option<(u32, &'a str)>);
        let check = |what: &str, steps: &[Step<'_>]| {
            let mut incarnations = Incarnations::default();
            for (step, (vm, host, expect)) in steps.iter().enumerate() {
                let announced = |name: &str| if name.is_empty() { None } else { incarnation(name) };
                let began = incarnations.announce(announced(vm), announced(host));
                let began = began.as_ref().map(|incarnation| (incarnation.id, incarnation.boot.as_str()));
                assert_eq!(began, *expect, "{what}, step {step}");
            }
        };
        check("both at once", &[("v0", "h0", Some((0, "v0"))), ("v1", "h1", Some((1, "v1")))]);
        check(
            "the host first",
            &[
                ("v0", "h0", Some((0, "v0"))),
                ("", "h1", Some((1, "h1"))),
                ("", "", None),
                ("v1", "", None),
                ("v2", "", Some((2, "v2"))),
                ("", "h2", None),
            ],
        );
        check(
            "the VM first",
            &[("v0", "h0", Some((0, "v0"))), ("v1", "", Some((1, "v1"))), ("", "h1", None)],
        );
        let mut incarnations =
            Incarnations::resumed(incarnation("v7").map(|incarnation| Incarnation { id: 7, ..incarnation }));
        assert_eq!(incarnations.announce(None, None), None);
        assert_eq!(incarnations.announce(incarnation("v7"), None), None, "the same incarnation");
        assert_eq!(incarnations.announce(incarnation("v8"), None).map(|incarnation| incarnation.id), Some(8));
        let mut incarnations =
            Incarnations::resumed(incarnation("v7").map(|incarnation| Incarnation { id: 7, ..incarnation }));
        assert_eq!(
            incarnations.announce(incarnation("v8"), None).map(|incarnation| incarnation.id),
            Some(8),
            "restarted while no recorder ran"
        );
        check("only the host", &[("", "h0", Some((0, "h0"))), ("", "h1", Some((1, "h1")))]);
        check(
            "the VM joins later",
            &[("", "h0", Some((0, "h0"))), ("v0", "", None), ("v1", "h1", Some((1, "v1")))],
        );
        check(
            "twice while the VM is away",
            &[
                ("v0", "h0", Some((0, "v0"))),
                ("", "h1", Some((1, "h1"))),
                ("", "h2", Some((2, "h2"))),
                ("v2", "", None),
            ],
        );
    }
}
