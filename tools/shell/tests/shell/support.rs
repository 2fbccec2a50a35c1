//! A folder, a runner's side that keeps progress, and a named pipe that shows who is alive.

use std::fs::File;
use std::future::Future;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use settled_tool_shell::Shell;
use settled_tools_api::{
    CallKey, CancelSource, EffectKey, MessageId, NoteError, RunInfo, SessionId, ToolCall, ToolContext, ToolError,
    ToolExecutor, ToolHost, ToolReturn,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The runner's side of a call.
pub(crate) struct Host {
    pub(crate) cancel: CancelSource,
    remaining: Option<Duration>,
    progress: UnboundedSender<Value>,
}

impl Host {
    /// A host, and the progress that it is shown.
    pub(crate) fn new(remaining: Option<Duration>) -> (Arc<Self>, UnboundedReceiver<Value>) {
        let (progress, shown) = unbounded_channel();
        (Arc::new(Self { cancel: CancelSource::new(), remaining, progress }), shown)
    }

    pub(crate) fn context(self: &Arc<Self>) -> ToolContext {
        let call = CallKey { step: MessageId::from_u128(1), ordinal: 0 };
        let info = RunInfo::new(EffectKey::new("key").unwrap(), SessionId::new("s").unwrap(), call);
        ToolContext::new(info, self.cancel.signal(), Arc::<Self>::clone(self))
    }
}

#[async_trait]
impl ToolHost for Host {
    fn progress(&self, progress: Value) {
        // A test that does not look at it has dropped the other end.
        let _looked_at_or_not = self.progress.send(progress);
    }

    async fn note(&self, _: Value) -> Result<(), NoteError> {
        panic!("the shell leaves no notes")
    }

    fn remaining(&self) -> Option<Duration> {
        self.remaining
    }
}

/// What a call ends with: the text and the metadata, of a success or of a failure.
pub(crate) type Said = Result<(String, Value), (String, Value)>;

/// Runs a call.
pub(crate) async fn run_in(shell: &Shell, input: Value, context: ToolContext) -> Said {
    match shell.execute(ToolCall::new("shell", input), context).await {
        Ok(ToolReturn::Output(output)) => Ok((output.joined_text(), output.metadata.unwrap_or_default())),
        Err(ToolError::Failed(output)) => Err((output.joined_text(), output.metadata.unwrap_or_default())),
        other => panic!("{other:?}"),
    }
}

/// Runs a command that nobody watches.
pub(crate) async fn run(shell: &Shell, command: &str) -> Said {
    let (host, _) = Host::new(None);
    within(run_in(shell, json!({ "command": command }), host.context())).await
}

/// A success with this text.
pub(crate) fn success(text: &str) -> Said {
    Ok((text.to_owned(), json!({"exit_status": 0})))
}

/// A call that was stopped.
pub(crate) fn stopped(text: &str, by: &str) -> Said {
    Err((text.to_owned(), json!({ "stopped": by })))
}

/// A safety net, in real time: what hangs fails.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.unwrap()
}

/// A named pipe, `alive` in a folder, that a command and its children hold open: it is closed when all are dead.
///
/// A wait for it holds a paused clock.
pub(crate) struct Alive(BufReader<File>);

impl Alive {
    pub(crate) fn make(folder: &Path) {
        let made = Command::new("mkfifo").arg(folder.join("alive")).status().unwrap();
        assert!(made.success());
    }

    /// Waits until the command has opened the pipe and written `ready`.
    pub(crate) async fn ready(folder: &Path) -> Self {
        let path = folder.join("alive");
        let ready = move || {
            let mut pipe = BufReader::new(File::open(path).unwrap());
            let mut line = String::new();
            pipe.read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            Self(pipe)
        };
        tokio::task::spawn_blocking(ready).await.unwrap()
    }

    /// Waits until nobody holds the pipe.
    pub(crate) async fn dead(mut self) {
        let dead = move || {
            let mut line = String::new();
            assert_eq!(self.0.read_line(&mut line).unwrap(), 0, "{line}");
        };
        tokio::task::spawn_blocking(dead).await.unwrap();
    }
}
