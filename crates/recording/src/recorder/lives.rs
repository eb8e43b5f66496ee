//! Telling the lives of a VM apart.

use beamtune_model::Incarnation;

/// Numbers the lives, of which each source tells on its own.
///
/// The VM and its host know a life by different signs (and from inside a container by different process ids), and need
/// not notice a restart at the same tick. So a life begins when a source announces one that has announced
/// the present one before; a source that has not, only catches up.
#[derive(Debug, Default)]
pub(super) struct Lives {
    present: Option<Incarnation>,
    vm_knows: bool,
    host_knows: bool,
    /// The present life was met by an earlier recorder, and no source has told of one yet.
    resumed: bool,
}

impl Lives {
    /// Goes on after the life that an earlier recorder met last.
    pub(super) fn resumed(present: Option<Incarnation>) -> Self {
        Lives { present, resumed: true, ..Lives::default() }
    }

    /// The number of the present life; 0 also before anything is known of it.
    pub(super) fn current(&self) -> u32 {
        self.present.as_ref().map_or(0, |life| life.id)
    }

    /// The name of the node, if it is known.
    pub(super) fn node(&self) -> &str {
        self.present.as_ref().map_or("", |life| &life.node)
    }

    /// Takes what the sources announce with one sample; returns the life that begins with it. What the VM says of
    /// itself counts for more than what the host says.
    pub(super) fn meet(&mut self, vm: Option<Incarnation>, host: Option<Incarnation>) -> Option<Incarnation> {
        let (vm_tells, host_tells) = (vm.is_some(), host.is_some());
        let mut begins = self.present.is_none() || vm_tells && self.vm_knows || host_tells && self.host_knows;
        let life = vm.or(host)?;
        if std::mem::take(&mut self.resumed) {
            begins = self.present.as_ref().is_none_or(|present| present.boot != life.boot);
        }
        if !begins {
            self.vm_knows |= vm_tells;
            self.host_knows |= host_tells;
            return None;
        }
        (self.vm_knows, self.host_knows) = (vm_tells, host_tells);
        let id = self.present.as_ref().map_or(0, |present| present.id + 1);
        self.present = Some(Incarnation { id, ..life });
        self.present.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(boot: &str) -> Option<Incarnation> {
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
    fn a_restart_seen_by_both_sources_is_one_new_life_whoever_sees_it_first() {
        /// What the VM tells, what the host tells, and the life that begins.
        type Step<'a> = (&'a str, &'a str, Option<(u32, &'a str)>);
        let check = |what: &str, steps: &[Step<'_>]| {
            let mut lives = Lives::default();
            for (step, (vm, host, expect)) in steps.iter().enumerate() {
                let told = |name: &str| if name.is_empty() { None } else { life(name) };
                let began = lives.meet(told(vm), told(host));
                let began = began.as_ref().map(|life| (life.id, life.boot.as_str()));
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
        let mut lives = Lives::resumed(life("v7").map(|life| Incarnation { id: 7, ..life }));
        assert_eq!(lives.meet(None, None), None);
        assert_eq!(lives.meet(life("v7"), None), None, "the same life, met by another recorder");
        assert_eq!(lives.meet(life("v8"), None).map(|life| life.id), Some(8));
        let mut lives = Lives::resumed(life("v7").map(|life| Incarnation { id: 7, ..life }));
        assert_eq!(lives.meet(life("v8"), None).map(|life| life.id), Some(8), "restarted meanwhile");
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
