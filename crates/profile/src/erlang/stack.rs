//! Call stacks of Erlang processes.
//!
//! A stack holds terms and return addresses. Code is aligned, so a return address has the tag bits 00, which no term on a stack has (`CP` in
//! erl_term.h). The last one on a complete stack is the code that ends the process.

use super::code::Code;
use super::fragments::Fragments;

/// Limit of frames; deeper recursion is cut in the middle, since its frames repeat.
const MAX_FRAMES: usize = 1_024;
/// Low bits of a return address.
const TAG_MASK: u64 = 3;
/// Fragments push return addresses without alignment; these are among the first words.
const MAX_UNALIGNED_WORDS: usize = 4;

/// The frames of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErlangStack {
    /// An address within the calling function of each frame, innermost first.
    pub frames: Vec<u64>,
    /// Whether the end of the process was reached.
    pub is_complete: bool,
}

/// Finds the return addresses in the words of a stack, from its top on. `is_in_fragment`: the sampled code belongs to no function, so that
/// return addresses may be unaligned at first.
pub fn frames(words: &[u64], code: &Code, fragments: &Fragments, is_in_fragment: bool) -> ErlangStack {
    let mut stack = ErlangStack::default();
    for (index, word) in words.iter().enumerate() {
        let may_be_unaligned = is_in_fragment && stack.frames.is_empty() && index < MAX_UNALIGNED_WORDS;
        if *word & TAG_MASK != 0 && !may_be_unaligned {
            continue;
        }
        if fragments.normal_exit == Some(*word) {
            stack.is_complete = true;
            break;
        }
        let call = word.wrapping_sub(1);
        if code.function_at(call).is_some() && stack.frames.len() < MAX_FRAMES {
            stack.frames.push(call);
        }
    }
    stack
}
