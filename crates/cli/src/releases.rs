//! OTP releases on the command line.

use beamtune_flags::OtpVersion;
use beamtune_report::flags::RELEASES;

/// OTP releases, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Releases(pub Vec<u32>);

/// Parses `27`, `25,27`, `25..27` (inclusive), and lists of these.
pub fn parse_releases(text: &str) -> Result<Releases, String> {
    let mut releases = Vec::new();
    for part in text.split(',') {
        let (first, last) = match part.split_once("..") {
            Some((first, last)) => (parse_release(first)?, parse_release(last.trim_start_matches('='))?),
            None => {
                let release = parse_release(part)?;
                (release, release)
            }
        };
        if first > last {
            return Err(format!("{part:?} is in descending order; write {last}..{first}"));
        }
        releases.extend(first..=last);
    }
    releases.sort_unstable();
    releases.dedup();
    Ok(Releases(releases))
}

/// Parses one release: `27`.
pub fn parse_release(text: &str) -> Result<u32, String> {
    let (first, last) = (RELEASES.start(), RELEASES.end());
    match text.trim().parse::<u32>() {
        Ok(release) if RELEASES.contains(&release) => Ok(release),
        _ => Err(format!("{text:?} is not a known OTP release; write {first} to {last}")),
    }
}

/// Parses a pair of versions, the older one first: `25..29`, `26.0..26.2`.
pub fn parse_upgrade(text: &str) -> Result<(OtpVersion, OtpVersion), String> {
    let usage = || format!("{text:?} is not a pair of OTP versions; write 25..29");
    let (from, to) = text.split_once("..").ok_or_else(usage)?;
    let version = |text: &str| {
        let version = OtpVersion::parse(text.trim()).ok_or_else(usage)?;
        parse_release(&version.release().to_string()).map(|_| version)
    };
    let (from, to) = (version(from)?, version(to)?);
    if from < to {
        Ok((from, to))
    } else {
        Err(format!("{from} is not older than {to}; write the older one first"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_of_releases_are_parsed() {
        let check = |text: &str, expect: Option<&[u32]>| {
            assert_eq!(parse_releases(text).ok().map(|releases| releases.0).as_deref(), expect, "{text}");
        };
        check("27", Some(&[27]));
        check("27,25", Some(&[25, 27]));
        check("25..27", Some(&[25, 26, 27]));
        check("25..=27", Some(&[25, 26, 27]));
        check("23, 25..26, 25", Some(&[23, 25, 26]));
        for text in ["", "27..25", "20", "30", "25..", "x", "25.3", "1..4000000000"] {
            check(text, None);
        }
    }

    #[test]
    fn an_upgrade_must_lead_to_a_newer_version() {
        let check = |text: &str, expect: bool| assert_eq!(parse_upgrade(text).is_ok(), expect, "{text}");
        check("25..29", true);
        check("26.0..26.2.5", true);
        check("29..25", false);
        check("25..25", false);
        check("25", false);
        check("R16B..25", false);
        check("25..99", false);
    }
}
