//! What the VM's own tools have printed, and somebody has copied.

use beamtune_import::lcnt as read;
use beamtune_model::locks::WAIT_BINS;
use beamtune_model::{Period, facts};

use super::assert_harmless;
use super::sample::judge;

/// Tables of `lcnt`, or what is left of them. What is read has the form of counts, what is not read has its place in the text, and both
/// reach a person.
pub fn lcnt(bytes: &[u8]) {
    let imported = match read(bytes) {
        Ok(imported) => imported,
        Err(error) => return assert_harmless(&error.to_string()),
    };
    assert_eq!(Ok(&imported), read(bytes).as_ref(), "the same text is the same");
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().count().max(1);
    for unread in &imported.unread {
        assert!((1..=lines).contains(&unread.line) && unread.column > 0, "{unread:?}");
        assert!(!unread.why.is_empty() && unread.text.len() <= 4_096, "{unread:?}");
    }
    let session = &imported.session;
    assert!(session.length >= 0 && session.locks >= 0 && session.told >= 0, "{session:?}");
    for row in &imported.rows {
        assert!(row.locks >= 0 && row.tries >= 0 && row.collisions >= 0 && row.waited >= 0, "{row:?}");
        assert!(row.histogram.len() <= WAIT_BINS && row.histogram.iter().all(|count| *count >= 0), "{row:?}");
        assert!(row.line.is_none() || row.file.is_some(), "{row:?}");
        assert!(row.class.len() <= bytes.len(), "{row:?}");
    }
    let mut period = Period::default();
    period.facts.set(facts::IMPORTED_FROM, "lcnt");
    if let Some((_, online)) = imported.banner.schedulers {
        period.facts.set(facts::SCHEDULERS_ONLINE, online.to_string());
    }
    if let Some(release) = &imported.banner.release {
        period.facts.set(facts::OTP_RELEASE, release.as_str());
    }
    period.lock_session = Some(imported.session);
    period.locks = imported.rows;
    judge(&period);
}
