//! What every fuzz target asks of a reader: no panic, spans in order, and changes that read back as they were made or are refused.

use beamtune_flags::source::{Change, Format, apply, read, text};

/// Reads arbitrary bytes; the first one chooses the word that is changed.
pub fn check(format: Format, bytes: &[u8]) {
    let Ok(text) = text(bytes) else { return };
    assert_eq!(apply(text, &[]), text);
    let Ok(fragments) = read(format, text) else { return };
    for (index, fragment) in fragments.iter().enumerate() {
        let mut end = 0;
        for word in &fragment.words {
            assert!(word.span.start >= end && text.get(word.span.clone()).is_some(), "{word:?}");
            end = word.span.end;
        }
        let Some(last) = fragment.words.len().checked_sub(1) else { continue };
        let word = usize::from(bytes.first().copied().unwrap_or_default()).min(last);
        let change = Change::Replace { word, text: "it's \"new\"".to_owned() };
        let Ok(edits) = fragment.change(&[change]) else { continue };
        let again = read(format, &apply(text, &edits)).expect("a changed file is read");
        for (other, (old, new)) in fragments.iter().zip(&again).enumerate() {
            for (at, (old, new)) in old.words.iter().zip(&new.words).enumerate() {
                let replaced = (other, at) == (index, word);
                assert_eq!(new.text, if replaced { "it's \"new\"" } else { &old.text });
            }
        }
    }
}
