//! Products built on Erlang are shown as their users know them: Elixir processes by module and label, ejabberd by name. (For RabbitMQ, see
//! rabbitmq.rs.)
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Otp, Process, TIMEOUT, beamtune, folder, free_port, otp, run, text, unique};
use serde_json::Value;

/// Two servers, one of them registered. Each receives about 900 items per second, but handles only 50. The senders end after a few
/// minutes. `LABEL` is a placeholder.
const SHOP: &str = r#"
defmodule Shop.Server do
  defmacro __using__(_) do
    quote do
      use GenServer
      def init(_), do: (LABEL; {:ok, nil})
      def handle_cast(:item, state), do: (Process.sleep(20); {:noreply, state})
    end
  end
end
defmodule Shop.Cart, do: use Shop.Server
defmodule Shop.Till, do: use Shop.Server
{:ok, cart} = GenServer.start(Shop.Cart, nil)
{:ok, till} = GenServer.start(Shop.Till, nil, name: Shop.Till)
for server <- [cart, till] do
  spawn(fn ->
    for _ <- 1..10_000 do
      for _ <- 1..20, do: GenServer.cast(server, :item)
      Process.sleep(20)
    end
  end)
end
long? = fn server -> elem(Process.info(server, :message_queue_len), 1) > 1_500 end
Stream.repeatedly(fn -> Process.sleep(50) end) |> Enum.find(fn _ -> long?.(cart) and long?.(till) end)
IO.puts("ready")
"#;

/// Returns the output of `beamtune doctor` for the shop, in one line. If the release has no Elixir, returns `None` and prints that the
/// test is skipped.
fn doctor_of_the_shop(otp: &Otp, naming: &[&str], label: &str) -> Option<String> {
    if !otp.command("elixir").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped, because OTP {} has no Elixir (scripts/install.sh test; make otp)", otp.release);
        return None;
    }
    let mut command = otp.command("elixir");
    command.args(naming).args([
        "--cookie",
        &unique("cookie"),
        "--no-halt",
        "-e",
        &SHOP.replace("LABEL", label),
    ]);
    let mut node = Process::start(&mut command);
    node.expect_line("ready");
    let output = run(beamtune().args(["doctor", &node.pid().to_string(), "--for", "12s", "-v"]));
    assert_eq!(output.status, Some(1), "{}\n{}", output.stdout, output.stderr);
    // The page breaks long sentences into lines.
    Some(output.stdout.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn elixir_processes_are_shown_with_modules_in_elixir_syntax() {
    let Some(otp) = otp(25) else { return };
    let alive = unique("shop");
    let Some(output) = doctor_of_the_shop(&otp, &["--sname", &alive], ":ok") else { return };
    assert!(output.starts_with(&format!("{alive}@")), "{output}");
    assert!(output.contains("· elixir ·"), "{output}");
    for part in [
        "Shop.Cart waits while its queue grows",
        "Shop.Till waits while its queue grows",
        "initial call Shop.Cart.init/1",
        "Process.sleep/1",
    ] {
        assert!(output.contains(part), "no {part:?} in: {output}");
    }
    assert!(!output.contains("Elixir."), "{output}");
}

#[test]
fn label_of_an_elixir_process_is_its_title() {
    for release in [27, 29] {
        let Some(otp) = otp(release) else { continue };
        let name = format!("{}@127.0.0.1", unique("shop"));
        let label = r#"Process.set_label("queue of customer 17")"#;
        let Some(output) = doctor_of_the_shop(&otp, &["--name", &name], label) else { continue };
        // A registered name takes precedence over a label.
        for part in
            ["queue of customer 17 waits while its queue grows", "Shop.Till waits while its queue grows"]
        {
            assert!(output.contains(part), "OTP {release}: no {part:?} in: {output}");
        }
        assert!(!output.contains("Elixir."), "OTP {release}: {output}");
    }
}

#[test]
fn ejabberd_is_shown_by_name_and_can_be_attached_to() {
    let Some((libraries, versions)) = ejabberd() else {
        eprintln!("skipped, because ejabberd is not installed (scripts/install.sh test)");
        return;
    };
    let folder = folder();
    let path = |name: &str| text(&folder.path().join(name));
    let port = free_port();
    let config = format!(
        "hosts: [localhost]\nlisten:\n  - {{port: {port}, ip: \"127.0.0.1\", module: ejabberd_c2s}}\nacme: {{auto: false}}\n"
    );
    fs::write(path("ejabberd.yml"), config).expect("the configuration");
    // The command of `ejabberdctl foreground`, without the change of user and the settings in /etc. The node itself creates its cookie, in
    // its home directory.
    let mut command = Command::new("erl");
    command.args(["-sname", &format!("{}@localhost", unique("ejabberd")), "-noinput"]);
    command.args(["-mnesia", "dir", &format!("{:?}", path("spool")), "-s", "ejabberd"]);
    command
        .env("HOME", folder.path())
        .env("ERL_LIBS", libraries)
        .env("EJABBERD_CONFIG_PATH", path("ejabberd.yml"));
    command
        .env("EJABBERD_LOG_PATH", path("ejabberd.log"))
        .env("ERL_CRASH_DUMP_BYTES", "0")
        .stderr(Stdio::null());
    let mut node = Process::start(&mut command);

    let log = || fs::read_to_string(path("ejabberd.log")).unwrap_or_default();
    let deadline = Instant::now() + 3 * TIMEOUT;
    while !log().contains("is started in the node") {
        if node.child.try_wait().expect("wait").is_some() || Instant::now() > deadline {
            let log = log();
            eprintln!(
                "skipped, because ejabberd did not start: {}",
                log.lines().last().unwrap_or("it has no log")
            );
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }

    let is_named = |name: &Value| {
        let version = name.as_str().and_then(|name| name.strip_prefix("ejabberd "));
        versions.iter().any(|known| version == Some(known.as_str()))
    };
    let rows = run(beamtune().args(["nodes", "--json"])).json();
    let row = rows.as_array().into_iter().flatten().find(|row| row["pid"] == node.pid()).expect("its row");
    assert!(is_named(&row["runs"]) && row["attachable"] == true, "{versions:?}, but {row:#}");
    let answer = run(beamtune().args(["doctor", &node.pid().to_string(), "--for", "3s", "--json"])).json();
    assert!(is_named(&answer["node"]["product"]), "{versions:?}, but {}", answer["node"]);
    // Message queues can be read only inside the node.
    assert!(answer["healthy"].to_string().contains("BT006"), "{answer:#}");
}

/// Returns the folder of ejabberd's libraries, and the versions of ejabberd in Debian's folder names.
fn ejabberd() -> Option<(PathBuf, Vec<String>)> {
    fs::read_dir("/usr/lib").ok()?.filter_map(|entry| Some(entry.ok()?.path())).find_map(|folder| {
        let names =
            fs::read_dir(&folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let versions: Vec<_> =
            names.filter_map(|name| Some(name.strip_prefix("ejabberd-")?.to_owned())).collect();
        (!versions.is_empty()).then_some((folder, versions))
    })
}
