//! Running the command as another process.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use settled_provider_api::Usage;
use settled_testkit::server::{Server, Wire};
use settled_testkit::{Script, Stream};
use tempfile::TempDir;

/// How long to wait for another process before giving up; nothing is asserted about it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with sessions, a folder to work in, and a scripted server.
pub(crate) struct World {
    folder: TempDir,
    pub(crate) server: Server,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl World {
    pub(crate) async fn new(script: Script) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        Self { folder, server: Server::start(script).await.unwrap() }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A file of the folder to work in.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("work").join(name)
    }

    /// The command with its data folder, and nothing of the environment that it goes by.
    pub(crate) fn settled(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_settled"));
        for name in [
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            "GEMINI_API_KEY",
            "GOOGLE_API_KEY",
            "GOOGLE_GEMINI_BASE_URL",
            "SETTLED_MODEL",
            "SETTLED_DATA",
            "RUST_LOG",
        ] {
            command.env_remove(name);
        }
        command.arg("--data").arg(self.data()).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs the command to its end.
    pub(crate) fn end(&self, arguments: &[&str]) -> Ended {
        self.settled(arguments).output().unwrap().into()
    }

    /// The base URL of Chat Completions.
    pub(crate) fn base_url(&self) -> String {
        self.server.base_url(Wire::Chat)
    }

    fn run_command(&self, session: &str, prompt: &str, more: &[&str]) -> Command {
        let base_url = self.base_url();
        let mut command = self.settled(&["run", prompt, "--session", session, "--base-url", &base_url, "--folder"]);
        command.arg(self.file("")).args(more);
        command
    }

    /// Runs `settled run` against the server to its end.
    pub(crate) fn run(&self, session: &str, prompt: &str, more: &[&str]) -> Ended {
        self.run_command(session, prompt, more).output().unwrap().into()
    }

    /// Starts `settled run` against the server.
    pub(crate) fn start(&self, session: &str, prompt: &str, more: &[&str]) -> Running {
        let mut command = self.run_command(session, prompt, more);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        Running { child, err, said: String::new() }
    }

    /// A session's timeline, after its log was checked.
    pub(crate) fn timeline(&self, session: &str) -> String {
        let check = self.end(&["check", session]);
        assert_eq!(check.code, Some(0), "{check:?}");
        self.end(&["log", session]).out
    }
}

/// A command that runs.
pub(crate) struct Running {
    pub(crate) child: Child,
    err: BufReader<std::process::ChildStderr>,
    said: String,
}

impl Running {
    /// Waits until a file is there: a tool has acted.
    pub(crate) fn wait_for(&mut self, file: &Path) {
        let began = Instant::now();
        while !file.exists() {
            if self.child.try_wait().unwrap().is_some() {
                self.err.read_to_string(&mut self.said).unwrap();
                panic!("the command ended by itself: {}", self.said);
            }
            assert!(began.elapsed() < PATIENCE, "{} is not there", file.display());
            std::thread::yield_now();
        }
    }

    /// Waits until a line on standard error has this.
    pub(crate) fn wait_until_said(&mut self, words: &str) {
        loop {
            let mut line = String::new();
            let read = self.err.read_line(&mut line).unwrap();
            self.said.push_str(&line);
            assert!(read > 0, "`{words}` was not said, but: {}", self.said);
            if line.contains(words) {
                return;
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        self.err.read_to_string(&mut self.said).unwrap();
        let output = self.child.wait_with_output().unwrap();
        Ended { err: self.said, ..Ended::from(output) }
    }
}

/// An answer of text alone.
pub(crate) fn says(text: &str) -> impl FnOnce(Stream) -> Stream {
    move |stream| stream.text(text).usage(Usage::new(12, 5)).finish()
}

/// An answer of calls of the shell alone: their ids and commands.
pub(crate) fn shells<const N: usize>(calls: [(&str, &str); N]) -> impl FnOnce(Stream) -> Stream {
    move |stream| {
        let call = |stream: Stream, (id, command)| stream.call_as(id, "shell", json!({"command": command}));
        calls.into_iter().fold(stream, call).finish()
    }
}

/// Every line as JSON.
pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
