//! Restores function names as they are in the source, without the additions of compiler and linker.
//!
//! Nearly all of a VM is C. For the C++ of the JIT only names are needed, without argument types. So this module parses the few forms of
//! mangled names that occur there, and leaves other forms as they are.

/// Returns the name without symbol version and without suffixes of cloned and split functions (`.isra.0`, `.cold` …); for C++, the
/// qualified name.
pub fn plain(name: &str) -> String {
    let name = name.split('@').next().unwrap_or(name);
    // A leading dot belongs to the name, as in section names.
    let end = name.char_indices().skip(1).find(|(_, c)| *c == '.').map_or(name.len(), |(at, _)| at);
    let name = &name[..end];
    name.strip_prefix("_Z").and_then(path).unwrap_or_else(|| name.to_owned())
}

/// Returns the name without the underscores that a C library puts in front of internal names.
pub(crate) fn without_underscores(name: &str) -> &str {
    name.strip_prefix("__GI_").unwrap_or(name).trim_start_matches('_')
}

/// Converts the part after `_Z` to `a::b`; `None` for unsupported forms.
fn path(mangled: &str) -> Option<String> {
    let (mut rest, is_nested) = match mangled.strip_prefix('N') {
        // Qualifiers of the object: const, volatile, restrict, & and &&.
        Some(nested) => (nested.trim_start_matches(['K', 'V', 'r', 'R', 'O']), true),
        None => (mangled.strip_prefix('L').unwrap_or(mangled), false),
    };
    let mut parts: Vec<String> = Vec::new();
    if let Some(after) = rest.strip_prefix("St") {
        parts.push("std".to_owned());
        rest = after;
    }
    loop {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits > 0 {
            let length: usize = rest[..digits].parse().ok()?;
            let name = rest[digits..].get(..length).filter(|name| !name.is_empty())?;
            parts.push(name.to_owned());
            rest = &rest[digits + length..];
        } else if let Some(part) = structor(rest, parts.last()) {
            parts.push(part);
            rest = &rest[2..];
        } else {
            break;
        }
        if !is_nested {
            break;
        }
    }
    // `std` alone is not a name.
    let is_read = parts.len() > 1 || parts.first().is_some_and(|part| part != "std");
    is_read.then(|| parts.join("::"))
}

/// Returns the name of a constructor or destructor; `class` is the name before it.
fn structor(rest: &str, class: Option<&String>) -> Option<String> {
    let class = class?;
    match rest.as_bytes() {
        [b'C', b'1'..=b'5', ..] => Some(class.clone()),
        [b'D', b'0'..=b'5', ..] => Some(format!("~{class}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn compiler_additions_are_removed() {
        let check = |name: &str, expect: &str| assert_eq!(plain(name), expect, "{name}");
        check("ets_update_counter_3", "ets_update_counter_3");
        check("db_put_hash.isra.0", "db_put_hash");
        check("erts_schedule.cold", "erts_schedule");
        check("sched_yield@@GLIBC_2.2.5", "sched_yield");
        check("_Z17beam_jit_call_bifP7processPmPKvPFmS0_S1_S3_Em", "beam_jit_call_bif");
        check(
            "_ZN19BeamGlobalAssembler20emit_call_bif_sharedEv",
            "BeamGlobalAssembler::emit_call_bif_shared",
        );
        check("_ZNK6asmjit10CodeHolder8hasErrorEv", "asmjit::CodeHolder::hasError");
        check(
            "_ZN6asmjit10JitRuntimeC1EPKNS_12JitAllocator12CreateParamsE",
            "asmjit::JitRuntime::JitRuntime",
        );
        check("_ZN6asmjit10JitRuntimeD0Ev", "asmjit::JitRuntime::~JitRuntime");
        check("_ZSt9terminatev", "std::terminate");
        check("_ZL12static_thingi", "static_thing");
        // Unsupported forms are kept.
        check("_ZdlPv", "_ZdlPv");
        check("_ZN", "_ZN");
        check("_Z99short", "_Z99short");
        check("_Z0", "_Z0");
        check("_ZSt", "_ZSt");
        check("", "");
        check(".text", ".text");
    }

    #[test]
    fn internal_names_of_a_c_library_lose_their_underscores() {
        let check = |name, expect| assert_eq!(without_underscores(name), expect, "{name}");
        check("__sched_yield", "sched_yield");
        check("___pthread_mutex_lock", "pthread_mutex_lock");
        check("__GI___lll_lock_wait", "lll_lock_wait");
        check("syscall", "syscall");
    }

    proptest! {
        #[test]
        fn arbitrary_names_do_not_panic(name in ".{0,60}", mangled in "(N|L|K|St|[0-9]{1,3}|[A-Z][0-5]|[a-z]{1,4}|E|é){0,12}") {
            plain(&name);
            plain(&format!("_Z{mangled}"));
        }
    }
}
