//! Summarising old history: what is summarised, the request for it, and what becomes of it.

use std::sync::Arc;

use settled_ledger::history::{AssistantEntry, Entry, Part};
use settled_ledger::{
    BudgetFold, CompactionEnded, CompactionFailed, CompactionReason, CompactionStarted, Failure, FailureClass, InputId,
    InterruptRecorded, InterruptedBy, LiveEvent, Lowering, StepError, estimate_tokens, media_in_words,
};
use settled_provider_api::{
    AssistantPart, Content, ErrorClass, FinishReason, Media, Message, ModelInfo, ProviderError, ProviderEvent, Purpose,
    ToolChoice, Usage,
};
use settled_tools_api::MessageId;

use crate::drain::Drain;
use crate::request;
use crate::retry;
use crate::settings::CompactionSettings;
use crate::stream::{Heard, Reading};
use crate::writer::Lost;

/// What became of a compaction.
pub(crate) enum Compacted {
    Done,
    Failed(StepError),
    NothingToSummarise,
    Interrupted(InterruptedBy),
}

/// What the model is asked for.
const ASK: &str = "Write a summary of the conversation so far, for yourself: it will stand in place of the conversation. \
Use these headings, in this order: Goal; Instructions and constraints; What was done; What was found out; State of the work; \
Next steps. Name files, commands, ids and decisions exactly. Do not call tools. Answer with the summary alone.";

/// How often the history to be summarised is halved when it is itself too long.
const MAX_HALVINGS: u32 = 4;

/// The share of an answer's limit that is reserved at most, in tokens.
const MAX_RESERVE: u64 = 32_000;

/// From how many tokens on the context is about to become too long; `None` where its limit is not known.
pub(crate) fn threshold(info: &ModelInfo, settings: &CompactionSettings) -> Option<u64> {
    let reserve = info.output.map_or(0, |output| output.min(MAX_RESERVE)).max(settings.buffer);
    let by_context = info.context.map(|context| context.saturating_sub(reserve));
    let by_input = info.input.map(|input| input.saturating_sub(settings.buffer));
    by_context.into_iter().chain(by_input).min()
}

/// Whether the context is about to become too long.
pub(crate) fn is_due(drain: &mut Drain) -> Result<bool, StepError> {
    if !drain.shop.settings.compaction.auto {
        return Ok(false);
    }
    let model = drain.model_ref()?;
    let info = Arc::clone(&drain.shop.model(&model)?.info);
    let threshold = threshold(&info, &drain.shop.settings.compaction);
    Ok(threshold.is_some_and(|threshold| context_size(drain) >= threshold))
}

/// The size of the context in tokens: what the provider last measured, and an estimate of what came after.
pub(crate) fn context_size(drain: &Drain) -> u64 {
    let entries = drain.fold.history.entries();
    let (measured, from) = drain.fold.measured.map_or((0, 0), |measured| (measured.tokens, measured.entries));
    let later: u64 = entries.iter().skip(from).map(|entry| tokens(entry)).sum();
    measured.saturating_add(later)
}

/// Asks for a summary and puts it in place of the history.
///
/// The inputs that asked for it leave the inbox with its start.
pub(crate) async fn compact(
    drain: &mut Drain,
    reason: CompactionReason,
    inputs: Vec<InputId>,
) -> Result<Compacted, Lost> {
    let Some(plan) = Plan::make(drain, reason) else {
        let error = StepError::new(FailureClass::Compaction, "there is nothing to summarise");
        drain.owe_taking(vec![CompactionFailed { reason, error, usage: None, cost_nanos: None }.into()], inputs);
        return Ok(Compacted::NothingToSummarise);
    };
    // In a batch of its own: what came before is not lost with it, and an input that is still owed stays.
    drain.writer.settle().await?;
    drain.owe_taking(vec![CompactionStarted { reason }.into()], inputs);
    // Durable before the request is sent, as a step is.
    drain.writer.settle().await?;
    let mut used = Used::default();
    let summarised = summarise(drain, plan, reason, &mut used).await?;
    let Used { usage, cost_nanos } = used;
    Ok(match summarised {
        Summarised::Text { text, recent, model } => {
            drain.owe_urgently(vec![CompactionEnded { reason, text, recent, model, usage, cost_nanos }.into()]);
            Compacted::Done
        }
        Summarised::Failed(error) => {
            drain.owe_urgently(vec![CompactionFailed { reason, error: error.clone(), usage, cost_nanos }.into()]);
            Compacted::Failed(error)
        }
        Summarised::Interrupted(input, by) => {
            let error = StepError::new(FailureClass::Aborted, "the compaction was interrupted");
            let mut owed = vec![CompactionFailed { reason, error, usage, cost_nanos }.into()];
            if drain.fold.step.is_none() {
                owed.insert(0, InterruptRecorded { message: None, by }.into());
            }
            drain.owe_taking(owed, vec![input]);
            Compacted::Interrupted(by)
        }
    })
}

enum Summarised {
    Text { text: String, recent: String, model: settled_provider_api::ModelRef },
    Failed(StepError),
    Interrupted(InputId, InterruptedBy),
}

#[derive(Default)]
struct Used {
    usage: Option<Usage>,
    cost_nanos: Option<u64>,
}

impl Used {
    fn add(&mut self, usage: Option<Usage>, info: &ModelInfo) {
        let Some(usage) = usage else { return };
        self.cost_nanos = match (self.cost_nanos, info.cost(&usage)) {
            (None, cost) => cost,
            (Some(sum), cost) => Some(sum.saturating_add(cost.unwrap_or(0))),
        };
        self.usage = Some(self.usage.unwrap_or_default().plus(&usage));
    }
}

/// What is summarised, and what is kept word for word.
struct Plan {
    /// How many entries are summarised, from the oldest on.
    summarised: usize,
    /// The rest, as text.
    recent: String,
}

impl Plan {
    /// Plans a compaction; `None` where there is nothing to summarise.
    fn make(drain: &Drain, reason: CompactionReason) -> Option<Self> {
        let entries = drain.fold.history.entries();
        // What the provider has refused must become smaller than we thought was small enough.
        let keep = match reason {
            CompactionReason::Overflow => drain.shop.settings.compaction.keep / 2,
            _ => drain.shop.settings.compaction.keep,
        };
        let mut kept = 0;
        let mut from = entries.len();
        while let Some(entry) = from.checked_sub(1).and_then(|at| entries.get(at)) {
            kept += tokens(entry);
            if kept > keep {
                break;
            }
            from -= 1;
        }
        // What nobody has answered yet is kept, however long it is: it is what the model is to answer.
        let is_unanswered = |entry: &&Arc<Entry>| {
            matches!(entry.as_ref(), Entry::User(_) | Entry::Synthetic(_) | Entry::Instructions(_))
        };
        let answered = entries.len() - entries.iter().rev().take_while(is_unanswered).count();
        let is_new = |entry: &Arc<Entry>| !matches!(entry.as_ref(), Entry::Summary(_) | Entry::Instructions(_));
        if reason != CompactionReason::Manual || from == 0 {
            from = from.min(answered);
        }
        if !entries.iter().take(from).any(is_new) {
            // Everything else would be kept: then nothing else is.
            from = answered;
        }
        if !entries.iter().take(from).any(is_new) {
            return None;
        }
        let recent = entries.iter().skip(from).map(|entry| render(entry)).filter(|text| !text.is_empty());
        let recent: Vec<String> = recent.collect();
        Some(Self { summarised: from, recent: recent.join("\n\n") })
    }
}

/// How much of the tools' results a request for a summary carries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Results {
    Whole,
    Cut,
}

/// How many characters of a result are left where results are cut.
const RESULT: usize = 2_000;

/// Puts a message's media into words, which is all that a summary can keep of it, and cuts results where room is short.
fn shorten(message: &mut Arc<Message>, results: Results) {
    let is_media = |piece: &Content| matches!(piece, Content::Media(_));
    let has_media = match message.as_ref() {
        Message::System(_) => false,
        Message::User(content) => content.iter().any(is_media),
        Message::Tool(result) => result.content.iter().any(is_media),
        Message::Assistant(parts) => parts.iter().any(|part| match part {
            AssistantPart::Media(_) => true,
            AssistantPart::HostedResult(result) => result.content.iter().any(is_media),
            AssistantPart::Text(_) | AssistantPart::Reasoning(_) | AssistantPart::Call(_) => false,
        }),
    };
    if has_media {
        media_in_words(Arc::make_mut(message), described);
    }
    let too_long = |piece: &Content| piece.as_text().is_some_and(|text| text.chars().nth(RESULT).is_some());
    if results == Results::Cut
        && matches!(message.as_ref(), Message::Tool(result) if result.content.iter().any(too_long))
        && let Message::Tool(result) = Arc::make_mut(message)
    {
        for piece in &mut result.content {
            if let Content::Text(text) = piece
                && let Some((end, _)) = text.char_indices().nth(RESULT)
            {
                let all = text.len();
                text.truncate(end);
                text.push_str(&format!("\n[{} bytes left out here]", all - end));
            }
        }
    }
}

fn described(media: &Media) -> String {
    let name = media.name.as_deref().map(|name| format!(" `{name}`")).unwrap_or_default();
    format!("[media{name} of type {}]", media.mime)
}

async fn summarise(
    drain: &mut Drain,
    plan: Plan,
    reason: CompactionReason,
    used: &mut Used,
) -> Result<Summarised, Lost> {
    let prepared = drain.model_ref().and_then(|model| {
        let known = drain.shop.model(&model)?.clone();
        let agent = Arc::clone(drain.shop.agent(&drain.fold.agent)?);
        Ok((model, known, agent))
    });
    let (model, known, agent) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Summarised::Failed(error)),
    };
    let tools = match drain.definitions().await? {
        Ok(tools) => tools,
        Err((input, by)) => return Ok(Summarised::Interrupted(input, by)),
    };
    // The prefix of the session's requests is kept, for the provider's cache, unless what was sent is known to be too long.
    let mut results = if reason == CompactionReason::Overflow { Results::Cut } else { Results::Whole };
    let mut halvings = 0;
    let mut skipped = 0;
    let mut budget = BudgetFold::default();
    loop {
        let mut part = settled_ledger::History::default();
        for entry in drain.fold.history.entries().iter().take(plan.summarised).skip(skipped) {
            part.push_shared(Arc::clone(entry));
        }
        // Part of the history, so that a hosted call that is open there is closed before it.
        part.push_shared(Arc::new(Entry::User(vec![Content::text(ASK)])));
        let mut messages = Lowering::new().update(&part, &model, &known.info.capabilities).to_vec();
        messages.iter_mut().for_each(|message| shorten(message, results));
        let purpose = Purpose::summary(drain.session.clone(), MessageId::from_u128(0)).attempt(budget.retries + 1);
        let mut request =
            request::base(model.clone(), purpose, &agent, drain.fold.history.instructions(), Arc::clone(&tools));
        request.messages = messages;
        request.tool_choice = ToolChoice::None;
        let request = Arc::new(request);
        drain.watch_request(&request);
        let mut reading = Reading::open(
            Arc::clone(&known.provider),
            request,
            &known.info,
            &drain.shop.settings,
            drain.shop.redaction.clone(),
        );
        let answer = match read(drain, &mut reading, &known.info, used).await? {
            Read::Interrupted(input, by) => return Ok(Summarised::Interrupted(input, by)),
            Read::Text(text) => return Ok(Summarised::Text { text, recent: plan.recent, model }),
            Read::Refused(error) => return Ok(Summarised::Failed(error)),
            Read::Failed(error) => error,
        };
        // The history to be summarised is itself too long: its older half is left out, at a border.
        let left = plan.summarised - skipped;
        if answer.is_overflow() && halvings < MAX_HALVINGS && left > 1 {
            halvings += 1;
            skipped += left.div_ceil(2);
            results = Results::Cut;
            continue;
        }
        let failure = Failure::Provider(answer);
        let Some(delay) = retry::delay(&failure, &budget, &drain.shop.settings.retry, drain.shop.draw()) else {
            return Ok(Summarised::Failed(failure.to_error()));
        };
        budget.retries += 1;
        if let Failure::Provider(error) = &failure {
            budget.timeouts += u32::from(error.class == ErrorClass::Timeout);
            budget.unknowns += u32::from(error.class == ErrorClass::Unknown);
        }
        if let Some((input, by)) = drain.sleep(delay).await? {
            return Ok(Summarised::Interrupted(input, by));
        }
    }
}

enum Read {
    Text(String),
    Failed(ProviderError),
    Refused(StepError),
    Interrupted(InputId, InterruptedBy),
}

/// Reads a summary to its end.
async fn read(drain: &mut Drain, reading: &mut Reading, info: &ModelInfo, used: &mut Used) -> Result<Read, Lost> {
    let mut text = String::new();
    let mut finish = None;
    let mut failed = None;
    loop {
        let heard = match drain.interruptible(reading.next()).await? {
            Ok(heard) => heard,
            Err((input, by)) => return Ok(Read::Interrupted(input, by)),
        };
        match heard {
            Heard::Event(_) if failed.is_some() => {}
            Heard::Event(ProviderEvent::TextDelta(delta)) => {
                drain.slot.live.publish(|| LiveEvent::CompactionDelta { text: delta.text.as_str().into() });
                text.push_str(&delta.text);
            }
            Heard::Event(ProviderEvent::Finish(came)) => {
                finish = Some(came.reason);
                used.add(came.usage, info);
            }
            Heard::Event(ProviderEvent::Error(error)) => failed = Some(error),
            Heard::Event(_) => {}
            Heard::Failed(error) => return Ok(Read::Failed(failed.unwrap_or(error))),
            Heard::Panicked(text) => {
                let error = StepError::new(FailureClass::Internal, format!("the provider's adapter panicked: {text}"));
                return Ok(Read::Refused(error));
            }
            Heard::End => break,
        }
    }
    let refused = |why: &str| Read::Refused(StepError::new(FailureClass::Compaction, why));
    Ok(match (failed, finish) {
        (Some(error), _) => Read::Failed(error),
        (None, None) => {
            Read::Failed(ProviderError::new(ErrorClass::IncompleteStream, "the summary ended without a finish"))
        }
        (None, Some(FinishReason::Stop)) if text.trim().is_empty() => refused("the model gave an empty summary"),
        (None, Some(FinishReason::Stop)) => Read::Text(text),
        (None, Some(FinishReason::ContentFilter | FinishReason::Refusal)) => {
            Read::Refused(StepError::new(FailureClass::Provider(ErrorClass::ContentPolicy), "the summary was refused"))
        }
        (None, Some(reason)) => refused(&format!("the summary is not complete: it ended with `{}`", reason.name())),
    })
}

/// A rough number of tokens of an entry.
fn tokens(entry: &Entry) -> u64 {
    match entry {
        Entry::User(content) => estimate_tokens(&Message::User(content.clone())),
        Entry::Synthetic(text) | Entry::Instructions(text) => (text.len() as u64).div_ceil(4),
        Entry::Summary(summary) => ((summary.text.len() + summary.recent.len()) as u64).div_ceil(4),
        Entry::Assistant(step) => (render_step(step).len() as u64).div_ceil(4),
    }
}

/// An entry as text, word for word.
fn render(entry: &Entry) -> String {
    match entry {
        Entry::User(content) => format!("User:\n{}", render_content(content)),
        Entry::Synthetic(text) => format!("System:\n{text}"),
        // What holds stands in the prefix behind the compaction.
        Entry::Instructions(_) => String::new(),
        Entry::Summary(summary) => format!("Summary:\n{}\n\n{}", summary.text, summary.recent),
        Entry::Assistant(step) => format!("Assistant:\n{}", render_step(step)),
    }
}

fn render_step(step: &AssistantEntry) -> String {
    let parts = step.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.text.clone()),
        Part::Reasoning(_) => None,
        Part::Media(media, _) => Some(described(media)),
        Part::HostedResult(result) => Some(format!("[result: {}]", render_content(&result.outcome.content))),
        Part::Call(call) => {
            let result = call.outcome.as_ref().map(|outcome| render_content(&outcome.content));
            let result = result.map(|result| format!("\n[result: {result}]")).unwrap_or_default();
            Some(format!("[call of {} with {}]{result}", call.name, call.input))
        }
    });
    parts.collect::<Vec<_>>().join("\n")
}

fn render_content(content: &[Content]) -> String {
    let pieces = content.iter().map(|piece| match piece {
        Content::Text(text) => text.clone(),
        Content::Media(media) => described(media),
    });
    pieces.collect::<Vec<_>>().join("\n")
}
