//! Processes: a child as its parent sees it, and what one holds.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::Outcome;
use crate::child::Task;

/// What this process has in memory, in bytes.
pub(crate) fn resident() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1_024).ok_or_else(|| "no VmRSS in /proc/self/status".to_owned())
}

/// A running child; it is killed where its parent gives it up.
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    input: Option<ChildStdin>,
    said: Receiver<String>,
    timer: Option<(Sender<()>, JoinHandle<()>)>,
}

/// What a child says within some time.
pub(crate) enum Heard {
    Line(String),
    Nothing,
    End,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Well,
    Killed,
    Failed,
}

impl Process {
    pub(crate) fn start(task: &Task) -> Outcome<Self> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .args(task.words())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("no child process: {error}"))?;
        let pid = Pid::from_child(&child);
        let output = child.stdout.take().ok_or("a child without an output")?;
        let (say, said) = channel();
        std::thread::spawn(move || listen(output, &say));
        Ok(Self { pid, input: child.stdin.take(), said, child, timer: None })
    }

    /// Kills it in so long, unless it has ended by then.
    pub(crate) fn kill_in(&mut self, span: Duration) {
        let (stop, stopped) = channel::<()>();
        let pid = self.pid;
        let thread = std::thread::spawn(move || {
            if stopped.recv_timeout(span) == Err(RecvTimeoutError::Timeout) {
                // It may have ended by itself; it is not waited for yet, so its number is still its own.
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        self.timer = Some((stop, thread));
    }

    /// The next line that it says; `None` when it says nothing any more.
    pub(crate) fn line(&self) -> Option<String> {
        self.said.recv().ok()
    }

    /// What it says within so long.
    pub(crate) fn line_within(&self, span: Duration) -> Heard {
        match self.said.recv_timeout(span) {
            Ok(line) => Heard::Line(line),
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
            Err(RecvTimeoutError::Disconnected) => Heard::End,
        }
    }

    pub(crate) fn signal(&self, signal: Signal) -> Outcome<()> {
        kill_process(self.pid, signal).map_err(|error| format!("a child was not sent {signal:?}: {error}"))
    }

    /// Says one line to it.
    pub(crate) fn tell(&mut self, line: &str) -> Outcome<()> {
        let input = self.input.as_mut().ok_or("a child without an input")?;
        writeln!(input, "{line}").map_err(|error| format!("a child does not listen: {error}"))
    }

    /// Waits for its end, when it says nothing any more.
    pub(crate) fn end(mut self) -> Outcome<End> {
        self.stop_timer();
        let status = self.child.wait().map_err(|error| error.to_string())?;
        Ok(match status.signal() {
            _ if status.success() => End::Well,
            Some(signal) if signal == Signal::KILL.as_raw() => End::Killed,
            _ => End::Failed,
        })
    }

    /// Afterwards the child may be waited for: its number may then be another process's.
    fn stop_timer(&mut self) {
        if let Some((stop, thread)) = self.timer.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop_timer();
        // Both do nothing to a child that was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hands on whole lines; half a line is nothing that was said.
fn listen(output: impl Read, say: &Sender<String>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        if line.pop() != Some(b'\n') {
            return;
        }
        let _ = say.send(String::from_utf8_lossy(&line).into_owned());
        line.clear();
    }
}
