//! Redaction of profiles: functions are treated as in other call stacks, those of the kernel are kept only if they begin a system call.

use beamtune_model::{FrameKind, Profile};

use super::Replacer;

/// Prefixes of the functions in which the kernel begins a system call, a page fault or an interrupt, on x86-64 and ARM64.
const KERNEL_PREFIXES: &[&str] = &["__x64_sys_", "__arm64_sys_", "asm_exc_", "asm_sysvec_", "el0t_64_"];

impl Replacer {
    pub(super) fn profile(&mut self, profile: &mut Profile) {
        for frame in &mut profile.frames {
            frame.name = match frame.kind {
                FrameKind::Erlang | FrameKind::Bif => self.name(&frame.name),
                FrameKind::Kernel if KERNEL_PREFIXES.iter().any(|begin| frame.name.starts_with(begin)) => {
                    self.native_word(&frame.name)
                }
                FrameKind::Kernel if self.what.modules => self.by("function", &frame.name),
                FrameKind::Fragment | FrameKind::Emulator | FrameKind::Library | FrameKind::Kernel => {
                    self.native(&frame.name)
                }
            };
        }
        for thread in &mut profile.threads {
            thread.kind = self.word_of_locks(&thread.kind);
            thread.name.clone_from(&thread.kind);
        }
        profile.processes.values_mut().for_each(|name| *name = self.name(name));
        for remark in &mut profile.remarks {
            "something is missing (redacted)".clone_into(remark);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use beamtune_model::{Frame, ProfiledThread};

    use super::super::Redaction;
    use super::*;

    #[test]
    fn functions_of_the_vm_and_system_calls_are_kept() {
        use FrameKind::{Bif, Emulator, Erlang, Kernel, Library};
        let frames = [
            (Erlang, "gen_server:loop/7"),
            (Erlang, "clinic:admit/2"),
            (Bif, "ets:lookup/2"),
            (Emulator, "ets_lookup_2"),
            (Library, "clinic.so+0x1200"),
            (Kernel, "__x64_sys_writev"),
            (Kernel, "clinic_fs_write"),
        ];
        let frames = frames.map(|(kind, name)| Frame { kind, name: name.to_owned(), line: None });
        let check = |modules, expect: [&str; 7]| {
            let what = Redaction { modules };
            let mut replace = Replacer { what, known: HashMap::new(), counts: HashMap::new() };
            let thread = ProfiledThread { tid: 7, kind: "scheduler".to_owned(), name: "clinic_1".to_owned() };
            let mut profile = Profile {
                frames: frames.to_vec(),
                threads: vec![thread],
                processes: [(80, "ward".to_owned())].into(),
                remarks: vec!["as clinic says".to_owned()],
                ..Profile::default()
            };
            replace.profile(&mut profile);
            let names: Vec<&str> = profile.frames.iter().map(|frame| frame.name.as_str()).collect();
            assert_eq!(names, expect);
            assert_eq!((&*profile.threads[0].name, &*profile.processes[&80]), ("scheduler", "name1"));
            assert_eq!(profile.remarks, ["something is missing (redacted)"]);
        };
        let [_, admit, lookup, ets_lookup, _, writev, fs_write] =
            frames.each_ref().map(|frame| frame.name.as_str());
        check(false, ["gen_server:loop/7", admit, lookup, ets_lookup, "function1", writev, fs_write]);
        check(
            true,
            [
                "gen_server:loop/7",
                "module1:function1/2",
                lookup,
                ets_lookup,
                "function2",
                writev,
                "function3",
            ],
        );
    }
}
