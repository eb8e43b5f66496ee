use super::*;
use crate::fake::FakeHost;

/// The arguments that erlexec creates before init's flags.
const OTP: &str = "/usr/lib/erlang/erts-13.1.5/bin/beam.smp -- -root /usr/lib/erlang -bindir /usr/lib/erlang/erts-13.1.5/bin \
                   -progname erl -- -home /root --";

fn list(words: &[&str]) -> Vec<u8> {
    words.iter().flat_map(|word| word.bytes().chain([0])).collect()
}

/// Returns the product for these flags of init and environment variables.
fn product(host: &FakeHost, flags: &str, variables: &[&str]) -> String {
    let words: Vec<&str> = OTP.split_whitespace().chain(flags.split(' ')).collect();
    let line = CommandLine::parse(&list(&words));
    let environment = Environment::parse(&list(variables));
    let distribution = Distribution::configured(&line, &environment, Some("web-1"));
    let files = Files { tree: &host.tree(), root: Some("/".to_owned()) };
    Product::of(&line, &environment, &distribution, &files).to_string()
}

#[test]
fn products_are_identified_by_flags_and_environment() {
    let host = FakeHost::new();
    let check = |flags: &str, variables: &[&str], expect: &str| {
        assert_eq!(product(&host, flags, variables), expect, "{flags}");
    };
    // Debian's package, the Docker image, and any installation without a readable environment.
    let rabbit = "-pa  -noshell -noinput -s rabbit boot -boot start_sasl";
    check(rabbit, &["ERL_LIBS=/usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/plugins"], "RabbitMQ 3.10.8");
    check(rabbit, &["RABBITMQ_HOME=/opt/rabbitmq_server-3.12.1"], "RabbitMQ 3.12.1");
    check(rabbit, &[], "RabbitMQ");
    check("-extra /usr/lib/rabbitmq/escript/rabbitmqctl status", &[], "erl shell");
    check(
        "-run escript start -extra /usr/lib/rabbitmq/escript/rabbitmqctl status",
        &[],
        "escript rabbitmqctl",
    );

    check("-sname ejabberd@localhost -mnesia dir \"/x\" -s ejabberd -noinput", &[], "ejabberd");
    check("-sname ctl -hidden -noinput -s ejabberd_ctl -extra x status", &[], "erl -s ejabberd_ctl");
    check("-pa /usr/lib/yaws-2.1/ebin -run yaws -yaws id default", &[], "Yaws 2.1");
    check("-boot /opt/couchdb/releases/3.3.3/couchdb -name couchdb@127.0.0.1 -noinput", &[], "CouchDB 3.3.3");
    check("-boot /opt/emqx/releases/5.3.0/start -name emqx@127.0.0.1 -noshell", &[], "EMQX 5.3.0");
    check("-boot /usr/lib/vernemq/releases/1.13.0/start -name VerneMQ@127.0.0.1", &[], "VerneMQ 1.13.0");
    check("-boot /srv/releases/1.0.0/start -sname x", &["REL_NAME=riak", "REL_VSN=3.0.9"], "Riak 3.0.9");

    let release =
        "-noshell -s elixir start_cli -mode embedded -setcookie X -sname web -boot /app/releases/0.1.0/start";
    check(release, &["RELEASE_NAME=demo", "RELEASE_VSN=0.1.1"], "Elixir release demo 0.1.1");
    check(release, &[], "Elixir release web 0.1.0");
    check("-boot /srv/shop/releases/2.0/shop -noinput", &[], "release shop 2.0");
    check("-boot /srv/shop/releases/2.0/start -noinput", &[], "release shop 2.0");
    check("-boot /usr/lib/erlang/releases/25/start_sasl -noinput", &[], "erl");

    check("-noshell -s elixir start_cli -extra /usr/bin/mix phx.server", &[], "mix phx.server");
    check("-noshell -s elixir start_cli -extra /usr/bin/mix do --secret SECRET", &[], "mix do");
    check("-noshell -s elixir start_cli -extra /usr/bin/mix --secret", &[], "mix");
    check("-noshell -s elixir start_cli -sname x -extra -e Process.sleep(:infinity)", &[], "elixir");
    check("-noshell -s elixir start_cli -extra /srv/run.exs SECRET", &[], "elixir run.exs");
    check("-user Elixir.IEx.CLI -extra --no-halt +iex", &[], "iex");
    check("-user Elixir.IEx.CLI -extra --no-halt +iex -S mix", &[], "iex -S mix");
    check("-noshell -user elixir -extra --no-halt +iex -S mix phx.server", &[], "iex -S mix phx.server");
    check("-noshell -run escript start -extra /usr/local/bin/rebar3 shell", &[], "rebar3 shell");
    check("-noshell -boot no_dot_erlang -run escript start -extra ./es.erl a b", &[], "escript es.erl");
    check("-noinput -s lab main SECRET", &[], "erl -s lab");
    check("-sname a", &[], "erl shell");
    check("-noinput -eval x", &[], "erl");
}

#[test]
fn versions_are_found_in_folders_if_no_path_contains_them() {
    let host = FakeHost::new();
    host.file("/usr/lib/x86_64-linux-gnu/ejabberd-23.01/ebin/x", "");
    let ejabberd = "-sname ejabberd@localhost -s ejabberd -noinput";
    assert_eq!(product(&host, ejabberd, &["ERL_LIBS=/nothing:/usr/lib/x86_64-linux-gnu"]), "ejabberd 23.01");
    let rabbit = "-noinput -s rabbit boot -boot start_sasl";
    host.file("/opt/rabbitmq/plugins/rabbit-3.12.14/ebin/x", "");
    assert_eq!(product(&host, rabbit, &["ERL_LIBS=/opt/rabbitmq/plugins"]), "RabbitMQ 3.12.14");
    host.file("/usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/INSTALL", "");
    assert_eq!(product(&host, rabbit, &[]), "RabbitMQ 3.10.8");
}

#[test]
fn the_node_name_of_rabbitmq_is_predicted() {
    let host = FakeHost::new();
    let check = |flags: &str, variables: &[&str], expect: Option<(&str, NameSource)>| {
        let words: Vec<&str> = OTP.split_whitespace().chain(flags.split(' ')).collect();
        let files = Files { tree: &host.tree(), root: Some("/".to_owned()) };
        let line = CommandLine::parse(&list(&words));
        let name =
            rabbitmq_name(&line, &Environment::parse(&list(variables)), Some("web-1.example.org"), &files);
        let read = name.map(|name| (name.to_string(), name.source));
        assert_eq!(read, expect.map(|(name, source)| (name.to_owned(), source)), "{variables:?}");
    };
    let boot = "-noinput -s rabbit boot";
    check("-noinput -s other", &["RABBITMQ_NODENAME=hare"], None);
    check(boot, &[], Some(("rabbit@web-1", NameSource::Default)));
    check(boot, &["RABBITMQ_USE_LONGNAME=true"], Some(("rabbit@?", NameSource::Default)));
    let variable = NameSource::Environment("RABBITMQ_NODENAME");
    check(boot, &["RABBITMQ_NODENAME=hare@localhost"], Some(("hare@localhost", variable)));
    host.file(
        "/etc/rabbitmq/rabbitmq-env.conf",
        "# NODENAME=no@host\nNODENAME=hare@$(hostname)\nexport NODENAME=\"bunny@web-2\"\nSECRET=x\n",
    );
    check(boot, &[], Some(("bunny@web-2", NameSource::ConfigFile)));
    check(boot, &["RABBITMQ_NODENAME=hare"], Some(("hare@web-1", variable)));
    host.file("/other.conf", "RABBITMQ_NODENAME=jack@h.example.org\nUSE_LONGNAME=true\n");
    check(
        boot,
        &["RABBITMQ_CONF_ENV_FILE=/other.conf"],
        Some(("jack@h.example.org", NameSource::ConfigFile)),
    );
}

#[test]
fn the_distribution_port_of_rabbitmq_follows_from_its_amqp_port() {
    let check = |flags: &str, variables: &[&str], expect: Option<u16>| {
        let words: Vec<&str> = OTP.split_whitespace().chain(flags.split(' ')).collect();
        let ports = rabbitmq_ports(&CommandLine::parse(&list(&words)), &Environment::parse(&list(variables)));
        assert_eq!(ports, expect.map(|port| (port, port)), "{variables:?}");
    };
    let boot = "-noinput -s rabbit boot";
    check(boot, &[], Some(25_672));
    check(boot, &["RABBITMQ_NODE_PORT=35672"], Some(55_672));
    check(boot, &["RABBITMQ_NODE_PORT=65000"], None);
    check(boot, &["RABBITMQ_NODE_PORT=35672", "RABBITMQ_DIST_PORT=4370"], Some(4_370));
    check("-noinput -s other", &["RABBITMQ_DIST_PORT=4370"], None);
}
