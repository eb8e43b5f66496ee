use std::collections::HashMap;

use super::*;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Each line was tested with `erlang:get_cookie()` on OTP 25, 27 and 29 (and 23, except lines with two `-setcookie`).
#[test]
fn command_line_is_parsed_as_the_node_does() {
    fn check(line: &str, expect: Option<&str>) {
        let process = Process { arguments: words(line), ..Process::default() };
        assert_eq!(from_arguments(&process).as_deref(), expect, "{line}");
    }
    check("beam.smp -- -root /r -progname erl -- -home /h -- -sname x -setcookie a", Some("a"));
    check("-setcookie a -setcookie b", None);
    check("-setcookie a b -setcookie c", Some("c"));
    check("-setcookie a -setcookie n@x c", Some("a"));
    check("-setcookie", None);
    check("-setcookie b c", None);
    check("-setcookie a b c -setcookie d", Some("d"));
    check("-setcookie a -extra -setcookie b", Some("a"));
    check("-setcookie a -- -setcookie", None);
    check("-setcookie a -- b", Some("a"));
    check("-nocookie", Some("nocookie"));
    check("-nocookie -setcookie a", Some("a"));
    check("-sname a +S 2", None);
}

fn files<'a>(known: &'a [(&'a str, io::Result<&'a str>)]) -> impl FnMut(&Path) -> io::Result<Vec<u8>> + 'a {
    let known: HashMap<_, _> = known.iter().map(|(path, content)| (Path::new(path), content)).collect();
    move |path| match known.get(path) {
        Some(Ok(content)) => Ok(content.as_bytes().to_vec()),
        Some(Err(error)) => Err(error.kind().into()),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

fn process(arguments: &str, environment: &[(&str, &str)]) -> Process {
    Process {
        arguments: words(arguments),
        environment: environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
        directory: "/srv".into(),
        owner: "rabbitmq".to_owned(),
        owner_home: Some("/owner".into()),
        root: "/".into(),
    }
}

#[test]
fn cookie_of_a_local_process_is_found_where_the_node_finds_it() {
    fn check(process: &Process, known: &[(&str, io::Result<&str>)], expect: &str, origin: &str) {
        let places = places(&CookieSettings::default(), Some(process)).unwrap();
        let found = find(&places, files(known)).unwrap();
        assert_eq!(String::from_utf8_lossy(found.cookie.secret()), expect);
        assert_eq!(found.origin, origin);
    }
    let everything = [("RELEASE_COOKIE", "env"), ("RELEASE_ROOT", "/rel"), ("HOME", "/env-home")];
    let in_files = [
        ("/rel/releases/COOKIE", Ok("release\n")),
        ("/flag-home/.erlang.cookie", Ok("flag\n")),
        ("/env-home/.erlang.cookie", Ok("home")),
        ("/owner/.erlang.cookie", Ok("owner")),
    ];
    let check_with = |arguments, environment: &[(&str, &str)], expect, origin| {
        check(&process(arguments, environment), &in_files, expect, origin);
    };
    check_with("-home /flag-home -setcookie line", &everything, "line", "the node's command line");
    check_with("-home /flag-home", &everything, "env", "RELEASE_COOKIE in the node's environment");
    check_with("-home /flag-home", &everything[1..], "release", "/rel/releases/COOKIE");
    check_with("-home /flag-home", &everything[2..], "flag", "/flag-home/.erlang.cookie");
    check_with("", &everything[2..], "home", "/env-home/.erlang.cookie");
    check_with("", &[], "owner", "/owner/.erlang.cookie");
    // The second place in a home directory, since OTP 25.
    check(
        &process("-home /h", &[]),
        &[("/h/.config/erlang/.erlang.cookie", Ok("config"))],
        "config",
        "/h/.config/erlang/.erlang.cookie",
    );
    check(
        &process("-home /h", &[("XDG_CONFIG_HOME", "/x")]),
        &[("/x/erlang/.erlang.cookie", Ok("xdg"))],
        "xdg",
        "/x/erlang/.erlang.cookie",
    );
    // In a container, and with a relative path.
    let contained = Process { root: "/proc/7/root".into(), ..process("", &[("RELEASE_ROOT", "rel")]) };
    check(
        &contained,
        &[("/proc/7/root/srv/rel/releases/COOKIE", Ok("inside"))],
        "inside",
        "/proc/7/root/srv/rel/releases/COOKIE",
    );
}

#[test]
fn user_settings_take_precedence() {
    let process = process("-setcookie line", &[]);
    let given = CookieSettings {
        file: Some("/given".into()),
        environment: Some(Cookie::new("variable", "x").unwrap()),
        ..CookieSettings::default()
    };
    let look = |given: &CookieSettings| {
        find(&places(given, Some(&process)).unwrap(), files(&[("/given", Ok("file"))]))
    };
    assert_eq!(look(&given).unwrap().origin, "/given");
    assert_eq!(look(&CookieSettings { file: None, ..given }).unwrap().origin, "BEAMTUNE_COOKIE");
}

#[test]
fn own_cookie_file_is_used_without_a_process() {
    let given = CookieSettings { home: Some("/me".into()), ..CookieSettings::default() };
    let places = places(&given, None).unwrap();
    let found = find(&places, files(&[("/me/.erlang.cookie", Ok("mine"))])).unwrap();
    assert_eq!(found.origin, "/me/.erlang.cookie");
    let error = find(&places, files(&[])).unwrap_err().to_string();
    assert!(error.contains("/me/.erlang.cookie, /me/.config/erlang/.erlang.cookie"), "{error}");
    assert!(error.contains("--cookie-file"), "{error}");
}

#[test]
fn unreadable_file_is_an_error_with_owner_and_next_step() {
    let places = places(&CookieSettings::default(), Some(&process("-home /var/lib/rabbitmq", &[]))).unwrap();
    let denied = ("/var/lib/rabbitmq/.erlang.cookie", Err(io::ErrorKind::PermissionDenied.into()));
    let error = find(&places, files(&[denied])).unwrap_err().to_string();
    assert_eq!(
        error,
        "the cookie is in /var/lib/rabbitmq/.erlang.cookie, which cannot be read (permission denied): run beamtune \
         as rabbitmq or as root, or give the cookie with --cookie-file FILE or BEAMTUNE_COOKIE"
    );
    // A file that the user gives must exist.
    let given = CookieSettings { file: Some("/none".into()), ..CookieSettings::default() };
    let error = find(&super::places(&given, None).unwrap(), files(&[])).unwrap_err();
    assert!(matches!(error, AttachError::CookieUnreadable { path, .. } if path == "/none"));
}

#[test]
fn cookie_file_is_parsed_as_otp_does() {
    fn check(content: &str, expect: Result<&str, &str>) {
        let cookie = Cookie::from_file(content.as_bytes(), "FILE");
        match (cookie, expect) {
            (Ok(cookie), Ok(expect)) => assert_eq!(String::from_utf8_lossy(cookie.secret()), expect),
            (Err(error), Err(expect)) => assert_eq!(error.to_string(), expect),
            (other, expect) => panic!("{content:?}: {other:?} instead of {expect:?}"),
        }
    }
    check("ABC", Ok("ABC"));
    check("ABC\r\n \n", Ok("ABC"));
    check("A B \n", Ok("A B "));
    check("", Err("FILE contains no usable cookie: it is empty"));
    check("\n", Err("FILE contains no usable cookie: it is empty"));
    check("AB\nCD", Err("FILE contains no usable cookie: it has characters that are not printable ASCII"));
    check(
        &"a".repeat(256),
        Err("FILE contains no usable cookie: it is longer than an atom's 255 characters"),
    );
}

#[test]
fn cookie_is_never_printed() {
    let cookie = Cookie::new("SECRET", "here").unwrap();
    let found = FoundCookie { cookie: cookie.clone(), origin: "here".to_owned() };
    let place = Place::Text { cookie: cookie.clone(), origin: "here".to_owned() };
    let given = CookieSettings { environment: Some(cookie), ..CookieSettings::default() };
    let bad = Cookie::new("SECRET\u{10348}", "here").unwrap_err();
    for text in [format!("{found:?}{place:?}{given:?}"), format!("{bad} {bad:?}")] {
        assert!(!text.contains("SECRET"), "{text}");
    }
}
