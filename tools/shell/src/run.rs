//! One command from its start to its end.

use std::future::pending;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::json;
use settled_tools_api::{ToolContext, ToolError, ToolOutput, ToolReturn};
use tokio::time::{Instant, sleep, timeout};

use crate::Shell;
use crate::group::Group;
use crate::output::Output;

/// How long a group that was asked to end may take.
const GRACE: Duration = Duration::from_secs(1);

/// How long the output may stay open when the command has ended.
const DRAIN: Duration = Duration::from_millis(300);

/// What is kept of the run's time for stopping a command and answering with its output.
const MARGIN: Duration = Duration::from_millis(1_500);

/// How a command came to its end.
enum End {
    Exited(io::Result<ExitStatus>),
    Cancelled,
    TimedOut(Duration),
}

/// Runs a command.
///
/// The order of its lines is load-bearing: the shell's exit, not the end of its output, ends the wait, and the group is killed whatever happened before.
pub(crate) async fn run(
    shell: &Shell,
    command: &str,
    timeout_of_call: Option<Duration>,
    context: &ToolContext,
) -> Result<ToolReturn, ToolError> {
    // The runner's own deadline would throw the output away, so we stop a little before it.
    let remaining = context.remaining().map(|remaining| remaining.saturating_sub(MARGIN.min(remaining / 4)));
    let limit = match (timeout_of_call, remaining) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    if context.cancel().is_cancelled() {
        return Err(ToolError::failed("the call was cancelled before the command was started"));
    }
    let (reader, writer) = io::pipe().map_err(|error| host_failure(&error))?;
    let mut output = Output::new(reader, context).map_err(|error| host_failure(&error))?;
    let mut group = Group::start(shell, command, writer).map_err(|error| start_failure(shell, &error))?;

    let end = {
        let time_over = async {
            match limit {
                Some(limit) => {
                    sleep(limit).await;
                    limit
                }
                None => pending().await,
            }
        };
        let happened = async {
            tokio::select! {
                biased;
                status = group.exited() => End::Exited(status),
                () = context.cancel().cancelled() => End::Cancelled,
                limit = time_over => End::TimedOut(limit),
            }
        };
        output.until(happened).await
    };
    if !matches!(end, End::Exited(_)) {
        group.ask_to_end();
        let _exited_or_not = output.until(timeout(GRACE, group.exited())).await;
    }
    output.until_closed(Instant::now() + DRAIN).await;
    group.end().await;
    answer(end, output.finish())
}

fn answer(end: End, mut text: String) -> Result<ToolReturn, ToolError> {
    let (metadata, notice) = match end {
        End::Exited(Ok(status)) => match (status.code(), status.signal()) {
            (Some(0), _) => {
                let output = ToolOutput::text(text).with_metadata(json!({ "exit_status": 0 }));
                return Ok(ToolReturn::Output(output));
            }
            (Some(code), _) => (json!({ "exit_status": code }), format!("exit status {code}")),
            (None, signal) => {
                let signal = signal.unwrap_or_default();
                (json!({ "signal": signal }), format!("killed by signal {signal}"))
            }
        },
        End::Exited(Err(error)) => (json!({}), format!("the command ended, but its exit status is lost: {error}")),
        End::Cancelled => {
            (json!({ "stopped": "cancelled" }), "the command was stopped: the call was cancelled".to_owned())
        }
        End::TimedOut(limit) => (
            json!({ "stopped": "timeout" }),
            format!("the command was stopped after its time limit of {} ms", limit.as_millis()),
        ),
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!("[{notice}]\n"));
    Err(ToolError::Failed(ToolOutput::text(text).with_metadata(metadata)))
}

/// A command that did not start: mostly the host's fault, but the model can remove the folder, and write too much.
fn start_failure(shell: &Shell, error: &io::Error) -> ToolError {
    if !shell.folder.is_dir() {
        return ToolError::failed(format!("the working folder `{}` is gone", shell.folder.display()));
    }
    if error.kind() == io::ErrorKind::ArgumentListTooLong {
        return ToolError::failed("the command is too long for the system: write it into a file and run that");
    }
    host_failure(error)
}

fn host_failure(error: &io::Error) -> ToolError {
    ToolError::infra(format!("cannot start a process: {error}"))
}
