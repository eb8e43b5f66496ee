//! Targets for trials, and beamtune processes that report their progress.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::{Otp, beamtune, folder, free_port, run, text, unique};

/// A server that echoes lines.
const ECHO: &str = "{ok,L}=gen_tcp:listen(PORT,[binary,{active,false},{packet,line},{reuseaddr,true}]), \
    F=fun F()-> {ok,S}=gen_tcp:accept(L), P=spawn(fun()-> receive go-> \
    G=fun G()-> case gen_tcp:recv(S,0) of {ok,D}-> gen_tcp:send(S,D), G(); _-> ok end end, G() end end), \
    ok=gen_tcp:controlling_process(S,P), P!go, F() end, F().";

/// A target of trials. Its processes are identified by its unique node name.
pub struct Target {
    pub port: u16,
    pub name: String,
    pub otp: Otp,
    pub folder: tempfile::TempDir,
    /// The file of its study.
    pub study: PathBuf,
}

impl Target {
    pub fn new(otp: Otp) -> Target {
        let folder = folder();
        let study = folder.path().join("a.study");
        Target { port: free_port(), name: unique("compare"), otp, folder, study }
    }

    /// Returns the command line that starts the target.
    pub fn start(&self) -> String {
        let erl = match &self.otp.root {
            Some(root) => format!("chroot {} erl", root.display()),
            None => "erl".to_owned(),
        };
        let echo = ECHO.replace("PORT", &self.port.to_string());
        format!("{erl} -noinput -name {0}@127.0.0.1 -setcookie {0} -eval '{echo}'", self.name)
    }

    /// Returns a `beamtune compare` command with the shortest allowed trials.
    pub fn compare(&self, start: &str, more: &[&str]) -> Command {
        let mut command = beamtune();
        command.args(["compare", "--start", start, "--ready", &format!("tcp:{}", self.port)]);
        command.args([
            "--load",
            &format!("tcp://127.0.0.1:{}", self.port),
            "--rate",
            "200",
            "--connections",
            "8",
        ]);
        command.args(["--for", "10s", "--warm-up", "10s", "--study", &text(&self.study)]).args(more);
        command.current_dir(self.folder.path());
        command
    }

    /// Returns the number of the target's VMs.
    pub fn processes(&self) -> usize {
        let is_it = |entry: std::io::Result<fs::DirEntry>| {
            let line = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line);
            // Count only VMs: the command lines of shells and of beamtune also contain the name.
            (line.contains("beam.smp") && line.contains(&self.name)).then_some(())
        };
        fs::read_dir("/proc").expect("/proc").filter_map(is_it).count()
    }

    pub fn trials(&self) -> usize {
        let output = run(beamtune().args(["study", "show", "--json"]).arg(&self.study));
        output.json()["trials"].as_u64().expect("a number") as usize
    }
}

/// A beamtune process. The test can wait for lines on its standard error.
pub struct BeamtuneProcess {
    pub child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl BeamtuneProcess {
    pub fn start(command: &mut Command) -> BeamtuneProcess {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        BeamtuneProcess { child, lines }
    }

    pub fn expect_line(&mut self, words: &str) -> String {
        let mut seen = Vec::new();
        for line in self.lines.by_ref().map_while(Result::ok) {
            if line.contains(words) {
                return line;
            }
            seen.push(line);
        }
        panic!("no line with {words:?} in {seen:#?}");
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(status.expect("kill").success());
    }
}

impl Drop for BeamtuneProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
