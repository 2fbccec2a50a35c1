//! A tool that runs shell commands, and leaves no process behind.
//!
//! [`Shell`] offers one tool, `shell`: a command for `/bin/sh`, and optionally `timeout_ms`.
//!
//! ```
//! use serde_json::json;
//! use settled_tool_shell::Shell;
//! # use settled_tools_api::{CallKey, EffectKey, MessageId, RunInfo, SessionId};
//! use settled_tools_api::{ToolCall, ToolContext, ToolExecutor, ToolReturn, Toolbox};
//!
//! # fn context() -> ToolContext {
//! #     let call = CallKey { step: MessageId::from_u128(1), ordinal: 0 };
//! #     let key = EffectKey::new("a-key").unwrap();
//! #     ToolContext::detached(RunInfo::new(key, SessionId::new("s").unwrap(), call))
//! # }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let shell = Shell::new(folder.path())?.env("CI", "true").without_env("OPENAI_API_KEY");
//!
//! let call = ToolCall::new("shell", json!({"command": "echo $CI; echo oops >&2", "timeout_ms": 5000}));
//! let ToolReturn::Output(output) = shell.execute(call, context()).await? else { panic!() };
//! assert_eq!(output.joined_text(), "true\noops\n");
//!
//! let call = ToolCall::new("shell", json!({"command": "exit 3"}));
//! let failed = shell.execute(call, context()).await.unwrap_err();
//! assert_eq!(failed.to_string(), "the tool failed: [exit status 3]\n");
//!
//! let tools = Toolbox::new().with(shell);
//! # drop(tools);
//! # Ok(())
//! # }
//! ```
//!
//! # Processes
//!
//! Each command has a process group of its own, and everything in the group ends with the call.
//!
//! - *A command ends* when its shell exits.
//!   What it left in the background is given 300 ms to close the output, and is then killed: a call never waits for the end of a pipe that somebody else holds.
//! - *A cancel or a time limit* sends `SIGTERM` to the group; if its shell has not exited one second later, the end comes all the same.
//! - *A dropped call* kills the group at once.
//! - *A host that dies*, even by `kill -9`, takes the group along: the group's leader is a watch that waits for the end of a pipe whose other end the host holds, and kills its group then.
//!
//! A process that leaves its group, by `setsid`, is out of reach.
//!
//! Commands read nothing: standard input is empty, and a read from the terminal fails instead of waiting for it.
//!
//! # Output
//!
//! Standard output and error are one pipe, so their order is the true one.
//! Escape sequences and control characters are stripped, bytes that are not UTF-8 become `U+FFFD`, and of a line that was overwritten after a carriage return the last version is kept.
//! While a command runs, its latest lines are shown as progress, `{"text": "…"}`, at most ten times a second.
//! Of long output the first and the last 256 KiB are kept, cut between lines where it has lines.
//! An exit status other than 0 is [`ToolError::Failed`] with the output and the status; the metadata has `exit_status`, `signal` or `stopped`.
//!
//! # Replay and concurrency
//!
//! The tool is [`AtMostOnce`](Replay::AtMostOnce): nobody knows what a command does twice.
//! Commands run beside each other and beside other tools, unless the shell is [`exclusive`](Shell::exclusive).
//!
//! The crate needs a tokio runtime with IO and time, and is for Unix; elsewhere it is empty.
#![cfg(unix)]

mod run;

mod group;

mod output;

mod clean;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;
use settled_tools_api::{
    Concurrency, Replay, ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor, ToolReturn,
};

/// The tool `shell`, for commands in one folder.
#[derive(Clone)]
pub struct Shell {
    folder: PathBuf,
    concurrency: Concurrency,
    inherited: Inherited,
    /// What is set beyond what is inherited, and with `None` what is not inherited.
    env: BTreeMap<OsString, Option<OsString>>,
}

/// Which variables of the host's environment a command has.
#[derive(Clone, Copy)]
enum Inherited {
    All,
    Nothing,
}

impl Shell {
    /// The tool for commands that begin in `folder`.
    ///
    /// The folder confines nothing: a command can do whatever the host's user can.
    ///
    /// # Errors
    ///
    /// When `folder` is missing, is not a folder, or cannot be entered.
    pub fn new(folder: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = folder.as_ref();
        let error = |source| Error { folder: folder.to_owned(), source };
        let real = folder.canonicalize().map_err(error)?;
        std::fs::read_dir(&real).map_err(error)?;
        Ok(Self { folder: real, concurrency: Concurrency::Parallel, inherited: Inherited::All, env: BTreeMap::new() })
    }

    /// The same tool, run with no other call beside it.
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.concurrency = Concurrency::Exclusive;
        self
    }

    /// The same tool, whose commands inherit no environment; what [`env`](Self::env) sets, before or after, stays.
    #[must_use]
    pub fn clear_env(mut self) -> Self {
        self.inherited = Inherited::Nothing;
        self
    }

    /// The same tool, whose commands have this environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), Some(value.into()));
        self
    }

    /// The same tool, whose commands do not have this environment variable: a key that is the host's own business.
    #[must_use]
    pub fn without_env(mut self, name: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), None);
        self
    }
}

impl fmt::Debug for Shell {
    /// Shows the names of the environment variables and not their values, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell")
            .field("folder", &self.folder)
            .field("concurrency", &self.concurrency)
            .field("env", &self.env.keys())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl ToolExecutor for Shell {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let mut definition = ToolDefinition::new(
            "shell",
            "Runs a command with `sh -c` in the working folder and gives its output, standard error included. \
             It cannot read input. Every process that it leaves in the background is killed when it ends.",
            json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string", "minLength": 1, "description": "The command, for `sh -c`."},
                    "timeout_ms": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Stop the command after this many milliseconds.",
                    },
                },
                "required": ["command"],
                "additionalProperties": false,
            }),
        )
        .replay(Replay::AtMostOnce);
        definition.concurrency = self.concurrency;
        vec![definition]
    }

    async fn execute(&self, call: ToolCall, context: ToolContext) -> Result<ToolReturn, ToolError> {
        if call.name != "shell" {
            return Err(ToolError::failed(format!("no tool is named `{}`", call.name)));
        }
        let input: Input = serde_json::from_value(call.input)
            .map_err(|error| ToolError::failed(format!("bad input for `shell`: {error}")))?;
        if input.command.trim().is_empty() {
            return Err(ToolError::failed("`command` is empty"));
        }
        if input.command.contains('\0') {
            return Err(ToolError::failed("`command` has a NUL character"));
        }
        let timeout = input.timeout_ms.map(|ms| Duration::from_millis(ms.get()));
        run::run(self, &input.command, timeout, &context).await
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    command: String,
    timeout_ms: Option<NonZeroU64>,
}

/// A folder that commands cannot begin in.
#[derive(Debug)]
pub struct Error {
    folder: PathBuf,
    source: io::Error,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` cannot be the working folder of the shell tool: ", self.folder.display())?;
        match self.source.kind() {
            io::ErrorKind::NotFound => f.write_str("it does not exist"),
            io::ErrorKind::NotADirectory => f.write_str("it is not a folder"),
            _ => self.source.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
