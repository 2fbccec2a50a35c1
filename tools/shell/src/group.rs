//! The processes of one call: a group that cannot outlive the call, nor the host.

use std::io::{self, PipeWriter};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use crate::{Inherited, Shell};

/// Which shell runs the commands, and the watch.
const SH: &str = "/bin/sh";

/// The watch leads the group and outlasts the signals that only ask; when the host is gone, its input ends and it kills the group.
const WATCH: &str = "trap '' HUP INT QUIT TERM; read -r _; kill -KILL 0";

/// The command's shell.
/// With these signals ignored, a read from the terminal fails; otherwise it would stop the whole group without anyone's seeing why.
const COMMAND: &str = "trap '' TTIN TTOU; exec \"$0\" -c -- \"$1\"";

/// How long a killed process is waited for; one that hangs in the kernel is left to the runtime's reaper.
const REAP: Duration = Duration::from_millis(300);

/// A running command, with all that it started.
///
/// Dropping it kills the group.
pub(crate) struct Group {
    /// The group's id; it belongs to this group for as long as the watch has not been reaped, which is last of all.
    id: Pid,
    watch: Child,
    /// Its closing, by whatever end the host comes to, is what the watch waits for.
    _lifeline: Option<ChildStdin>,
    command: Child,
    ended: bool,
}

impl Group {
    /// Starts the watch, then the command in the watch's group.
    pub(crate) fn start(shell: &Shell, command: &str, output: PipeWriter) -> io::Result<Self> {
        let mut watch = Command::new(SH)
            .args(["-c", WATCH])
            .current_dir("/")
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let id = watch
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()))
            .ok_or_else(|| io::Error::other("a process that was just started has no id"))?;
        let lifeline = watch.stdin.take();

        let mut sh = Command::new(SH);
        if matches!(shell.inherited, Inherited::Nothing) {
            sh.env_clear();
        }
        for (name, value) in &shell.env {
            match value {
                Some(value) => sh.env(name, value),
                None => sh.env_remove(name),
            };
        }
        let command = sh
            .args(["-c", COMMAND, SH, command])
            .current_dir(&shell.folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(id.as_raw_nonzero().get())
            .kill_on_drop(true)
            .spawn()?;
        // `sh`, dropped here, holds the last copies of the output's write end on our side.
        Ok(Self { id, watch, _lifeline: lifeline, command, ended: false })
    }

    /// Waits for the command's own process, not for what it started; may be dropped and called again.
    ///
    /// It fails where the host ignores `SIGCHLD` or somebody else reaped the process: it has ended, its status is lost.
    pub(crate) async fn exited(&mut self) -> io::Result<ExitStatus> {
        self.command.wait().await
    }

    /// Asks every process of the group to end.
    pub(crate) fn ask_to_end(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills every process of the group.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Kills what is left of the group, and reaps it.
    pub(crate) async fn end(mut self) {
        self.kill();
        self.ended = true;
        let _reaped = timeout(REAP, self.command.wait()).await;
        let _reaped = timeout(REAP, self.watch.wait()).await;
    }

    fn signal(&self, signal: Signal) {
        // It fails only where the whole group is dead already.
        let _dead_already = kill_process_group(self.id, signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
        }
    }
}
