//! Finds secrets in a text, such as cookies and passwords, so that the output does not show them.
//!
//! The output of a linter, which quotes lines and words, is kept in CI logs that more people can read than the file. Files of all formats
//! are scanned in the same way: the value after a name such as `cookie` is a secret.

use std::ops::Range;

/// Endings of names whose values are secrets. A name must be longer than the ending, because comments mention cookies, too.
const ENDINGS: &[&str] = &["cookie", "password", "passwd", "_pass", "secret", "secret_key_base", "token"];

/// Returns the byte ranges of the secrets in a text, in ascending order: for `-setcookie abc` the range of `abc`. Templates and variables
/// are not secrets.
pub fn secrets(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let length = rest.find(|c: char| !is_of_name(c)).unwrap_or(rest.len());
        if length == 0 {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        }
        let end = at + length;
        let is_filled_in =
            text.get(..at).is_some_and(|before| before.ends_with('$') || before.ends_with("${"));
        if rest.get(..length).is_some_and(names_a_secret)
            && !is_filled_in
            && let Some(secret) = value_after(text, end)
        {
            at = secret.end;
            found.push(secret);
        } else {
            at = end;
        }
    }
    found
}

/// Whether the value of a flag, a parameter (`-rabbit default_pass`) or a variable is a secret.
pub fn contains_secret(flag: &str) -> bool {
    !secrets(&format!("{flag} value")).is_empty()
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn names_a_secret(name: &str) -> bool {
    ENDINGS.iter().any(|ending| {
        let begin = name.len().checked_sub(ending.len()).filter(|begin| *begin > 0);
        begin.and_then(|begin| name.get(begin..)).is_some_and(|end| end.eq_ignore_ascii_case(ending))
    })
}

/// Returns the value after a name that ends at this byte.
fn value_after(text: &str, name_end: usize) -> Option<Range<usize>> {
    /// The key of a variable's value in Kubernetes.
    const KEY: &str = "value:";
    let mut at = name_end;
    let mut quote = None;
    loop {
        let rest = text.get(at..)?;
        let c = rest.chars().next()?;
        match c {
            '"' | '\'' => quote = Some(c),
            // The name or the value is a list item in YAML.
            '-' if rest.starts_with("- ") => {}
            c if c.is_whitespace() || matches!(c, '=' | ':' | ',' | '\\') => {}
            _ if rest.starts_with(KEY) && at > name_end => at += KEY.len() - 1,
            _ => break,
        }
        at += c.len_utf8();
    }
    let rest = text.get(at..).filter(|_| at > name_end)?;
    if rest.starts_with(['-', '+', '$', '<', '{', '}', '%', '|']) {
        return None;
    }
    let length = rest.find(|c: char| match quote {
        Some(quote) => c == quote || c == '\n',
        None => c.is_whitespace() || matches!(c, '"' | '\''),
    });
    Some(at..at + length.unwrap_or(rest.len()))
}

/// Replaces each secret by `*`.
pub(super) fn without_secrets(text: &str) -> String {
    let (mut shown, mut done) = (String::with_capacity(text.len()), 0);
    for secret in secrets(text) {
        shown.push_str(text.get(done..secret.start).unwrap_or_default());
        shown.push('*');
        done = secret.end;
    }
    shown.push_str(text.get(done..).unwrap_or_default());
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_after_names_of_secrets_are_hidden() {
        let check = |text: &str, expect: &str| assert_eq!(without_secrets(text), expect, "{text}");
        check("-setcookie abc +P 5000", "-setcookie * +P 5000");
        check("-setcookie my#secret # x", "-setcookie * # x");
        check("-setcookie 'a b' -heart", "-setcookie '*' -heart");
        check("ERL_FLAGS=\"-setcookie \\\"a b\\\" +P 1\"", "ERL_FLAGS=\"-setcookie \\\"*\" +P 1\"");
        check("ERL_FLAGS=\"-setcookie abc\"", "ERL_FLAGS=\"-setcookie *\"");
        check("ENV RELEASE_COOKIE=abc ERL_FLAGS=+K", "ENV RELEASE_COOKIE=* ERL_FLAGS=+K");
        check(
            "CMD [\"erl\", \"-setcookie\", \"abc\", \"+K\"]",
            "CMD [\"erl\", \"-setcookie\", \"*\", \"+K\"]",
        );
        check("- name: ERLANG_COOKIE\n  value: abc\n", "- name: ERLANG_COOKIE\n  value: *\n");
        check("- -setcookie\n- abc\n- +K\n", "- -setcookie\n- *\n- +K\n");
        check("{DB_PASSWORD: abc, ERL_FLAGS: +K}", "{DB_PASSWORD: * ERL_FLAGS: +K}");
        check("-rabbit default_pass '\"é\"'", "-rabbit default_pass '\"*\"'");
    }

    #[test]
    fn templates_and_missing_values_are_not_secrets() {
        for text in [
            "-setcookie ${RELEASE_COOKIE} +P 5000",
            "-setcookie $RELEASE_COOKIE +P 5000",
            "-setcookie <%= cookie %>",
            "-setcookie {{ erlang_cookie }}",
            "-setcookie {{ erlang_cookie | default(x) }}",
            "-setcookie +P 5000",
            "-setcookie -heart",
            "-setcookie",
            "# the cookie is elsewhere",
            "+P 5000",
            "",
        ] {
            assert_eq!(secrets(text), [], "{text}");
        }
    }

    #[test]
    fn secrets_are_recognised_by_name() {
        for flag in ["-setcookie", "-env RELEASE_COOKIE", "-rabbit default_pass", "ERLANG_COOKIE"] {
            assert!(contains_secret(flag), "{flag}");
        }
        for flag in ["-name", "-kernel net_ticktime", "+P", "cookie", ""] {
            assert!(!contains_secret(flag), "{flag}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_scanned(text in "(-setcookie|COOKIE|value:|[-+=: '\"\\\\\n$é]|ab){0,12}") {
            let mut end = 0;
            for secret in secrets(&text) {
                prop_assert!(secret.start >= end && text.get(secret.clone()).is_some());
                end = secret.end;
            }
        }
    }
}
