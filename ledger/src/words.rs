//! What the model is told about a call that gave no answer of its own.

use settled_tools_api::Content;

use crate::FailureCause;

/// A text as content.
fn say(text: String) -> Vec<Content> {
    vec![Content::Text(text)]
}

/// The text for a call that failed without an answer of its own.
pub(crate) fn failure(cause: FailureCause, why: &str, may_have_acted: bool) -> Vec<Content> {
    let what = match cause {
        FailureCause::Execution => "The tool failed",
        FailureCause::Panic => "The tool crashed",
        FailureCause::Timeout => "The tool took too long and was stopped",
        FailureCause::UnknownTool => "There is no such tool",
        FailureCause::InvalidArguments => "The arguments cannot be used and the tool was not run",
        FailureCause::Declined => "The user declined this call",
        FailureCause::Dismissed => "The user closed the question without an answer",
        FailureCause::Denied => "A rule does not allow this call",
        FailureCause::Interrupted => "The call was interrupted",
        FailureCause::NotRun => "The call was not run, because the step was stopped first",
        FailureCause::Infra => "The tool could not be run: the machine it runs on failed",
        FailureCause::ResultMissing => "The provider did not return a result for this call",
        FailureCause::ToolsDisabled => "Tools are not available in this step; answer with text",
    };
    let why = why.trim();
    let colon = if why.is_empty() { "" } else { ": " };
    let acted = if may_have_acted { ". It may have acted: check before you call it again" } else { "" };
    say(format!("{what}{colon}{why}{acted}."))
}

/// The text for a call whose result was lost with its process.
pub(crate) fn lost() -> Vec<Content> {
    say("The result of this call was lost. It may have acted: check before you call it again.".to_owned())
}

/// Why arguments that ended early cannot be used.
pub(crate) fn cut_off(bytes: usize) -> String {
    format!("they were cut off after {bytes} bytes; send the whole call again, in smaller parts if it is long")
}

/// Why arguments that are no JSON cannot be used.
pub(crate) fn not_json(raw: &str) -> String {
    match serde_json::from_str::<serde_json::Value>(raw) {
        Err(error) => format!("they are not valid JSON ({error}); send a valid JSON object"),
        Ok(_) => "they are not valid JSON; send a valid JSON object".to_owned(),
    }
}

/// What is on offer instead of an unknown tool.
pub(crate) fn unknown_tool<'a>(name: &str, offered: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = offered.collect();
    if names.is_empty() {
        format!("`{name}`; no tools are on offer")
    } else {
        format!("`{name}`; the tools on offer are: {}", names.join(", "))
    }
}
