//! OTP versions, ordered as in OTP's version scheme.
//!
//! Since OTP 17, a version is a sequence of numbers of any length (`25.3.2.12`), and the first number is the release.
//! Versions before OTP 17 have names (`R16B02`), which sort before all numbers.

use std::fmt;

use serde::Deserialize;

/// An OTP version: `27`, `25.3.2.12`. A release without a patch level means its first version: `27` is `27.0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct OtpVersion(Vec<u32>);

impl OtpVersion {
    /// Parses `25.2.3`, or a name older than OTP 17 such as `R16B02`; `None` for anything else.
    pub fn parse(text: &str) -> Option<OtpVersion> {
        if text.starts_with('R') {
            return Some(OtpVersion(Vec::new()));
        }
        let numbers: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
        numbers.map(OtpVersion::normal)
    }

    /// Returns the release: 25 for `25.2.3`, 0 for versions before OTP 17.
    pub fn release(&self) -> u32 {
        self.0.first().copied().unwrap_or_default()
    }

    /// Strips trailing zeros, so that 27, 27.0 and 27.0.0 are equal.
    fn normal(mut numbers: Vec<u32>) -> OtpVersion {
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        OtpVersion(numbers)
    }
}

impl From<u32> for OtpVersion {
    fn from(release: u32) -> OtpVersion {
        OtpVersion::normal(vec![release])
    }
}

impl TryFrom<String> for OtpVersion {
    type Error = String;

    fn try_from(text: String) -> Result<OtpVersion, String> {
        OtpVersion::parse(&text)
            .ok_or_else(|| format!("{text:?} is not an OTP version; expected 25.2.3 or R16B02, for example"))
    }
}

impl fmt::Display for OtpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("R16 or older"),
            [release] => write!(f, "{release}.0"),
            numbers => {
                let texts: Vec<_> = numbers.iter().map(u32::to_string).collect();
                f.write_str(&texts.join("."))
            }
        }
    }
}

/// Groups releases into ranges for output: `23 to 25` and `27`. `releases` must be ascending.
pub fn release_runs(releases: &[u32]) -> Vec<String> {
    let mut runs = Vec::new();
    for run in releases.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
        match run {
            [first, _, .., last] => runs.push(format!("{first} to {last}")),
            few => runs.extend(few.iter().map(u32::to_string)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> OtpVersion {
        OtpVersion::parse(text).expect(text)
    }

    #[test]
    fn versions_are_ordered_numerically() {
        let rising = ["R16B02", "17.0", "23.3.4.10", "24", "25.3.2.9", "25.3.2.12", "25.4", "27.0"];
        for pair in rising.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
        }
        assert_eq!(version("27"), version("27.0"));
        assert_eq!(OtpVersion::from(25), version("25.0"));
    }

    #[test]
    fn versions_are_formatted_as_in_otp() {
        let check = |text: &str, expect: &str| assert_eq!(version(text).to_string(), expect);
        check("25.3.2.12", "25.3.2.12");
        check("27", "27.0");
        check("R13B01", "R16 or older");
    }

    #[test]
    fn malformed_versions_are_rejected() {
        for text in ["", "25.", "25.x", "-1", "25.3-rc1"] {
            assert_eq!(OtpVersion::parse(text), None, "{text:?}");
        }
    }
}
