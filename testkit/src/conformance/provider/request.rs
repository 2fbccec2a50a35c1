//! Cases of what is sent: history, tools, settings; nothing is lost, doubled, or silently left out.

use std::sync::Arc;

use serde_json::{Value, json};
use settled_provider_api::{
    AssistantPart, Content, ErrorClass, Media, Message, MessageId, Options, ProviderError, Request, ResponseFormat,
    TextPart, ToolChoice, ToolResult,
};
use settled_tools_api::CallKey;

use super::bench::{
    Bench, Checked, Details, ask, broken, called, in_order, mentions, request, same, shown, skipped, tool,
};
use super::{Reasoning, Sent, named_cases};
use crate::script;

named_cases! {
    "request.model", "The model that is asked for is named in the request." => model;
    "request.history", "Every message is sent once, in order." => history;
    "request.system", "Every part of the system prompt is sent once, in order." => system;
    "request.pairs", "Calls and their results are sent in order, each result behind its call." => pairs;
    "request.error_result", "What a failed call says is sent." => error_result;
    "request.empty", "A history without messages is sent or refused, and does not panic." => empty;
    "request.unicode", "Every character is sent as it is." => unicode;
    "request.media", "An image is sent, or refused as unsupported." => media;
    "request.state", "State goes back as it came." => state;
    "request.same", "The same request is the same bytes: providers cache by them." => same_again;
    "tools.sent", "Every tool is sent, with name, description and schema." => tools;
    "tools.choice", "Every choice of tools is sent, or refused as unsupported; without a choice the tools are still sent." => choice;
    "options.each", "Every setting changes what is sent, or is refused as unsupported." => options;
    "options.format", "Every form of an answer is sent, or refused as unsupported." => format;
    "options.max_output", "The limit of the output is sent." => max_output;
    "options.raw", "Raw fields are sent as they are." => raw;
}

fn user(text: &str) -> Arc<Message> {
    Arc::new(Message::user(text))
}

async fn model(bench: &Bench<'_>) -> Checked {
    let subject = bench.open(script().step(|s| s.text("Hi.").finish())).await?;
    let name = subject.model.model.to_string();
    let sent = bench.sent(|_| {}).await?;
    match mentions(&sent, &name) > 0 || sent.target.contains(&name) {
        true => Ok(()),
        false => broken(format!("`{name}` is nowhere in {}", shown(&sent))),
    }
}

async fn history(bench: &Bench<'_>) -> Checked {
    let sent = bench
        .sent(|request| {
            request.messages = vec![
                user("first-message"),
                Arc::new(Message::assistant("first-answer")),
                user("second-message"),
                Arc::new(Message::assistant("second-answer")),
                user("third-message"),
            ];
        })
        .await?;
    in_order(&sent, &["first-message", "first-answer", "second-message", "second-answer", "third-message"])
}

async fn system(bench: &Bench<'_>) -> Checked {
    let sent =
        bench.sent(|request| request.system = Arc::from([Arc::from("first-part"), Arc::from("second-part")])).await?;
    for part in ["first-part", "second-part", "Hello there."] {
        same(&format!("how often `{part}` is sent"), mentions(&sent, part), 1)?;
    }
    let place = |text: &str| sent.body.to_string().find(text);
    match place("first-part") < place("second-part") {
        true => Ok(()),
        false => broken(format!("the parts are out of order in {}", sent.body)),
    }
}

fn result(ordinal: u32, id: &str, name: &str, error: IsError, text: &str) -> Arc<Message> {
    let key = CallKey { step: MessageId::from_u128(3), ordinal };
    let error = matches!(error, IsError::Yes);
    Arc::new(Message::Tool(ToolResult::new(key, id, name, error, vec![Content::text(text)])))
}

enum IsError {
    Yes,
    No,
}

/// Two calls at once, their results, and a further message.
fn with_calls(request: &mut Request, first: IsError) {
    let calls = vec![
        AssistantPart::Text(TextPart::new("I look.")),
        AssistantPart::Call(called(0, "call_a", "look", json!({"at": "argument-a"}))),
        AssistantPart::Call(called(1, "call_b", "look", json!({"at": "argument-b"}))),
    ];
    request.tools = Arc::from([tool("look", "at")]);
    request.messages = vec![
        user("first-message"),
        Arc::new(Message::Assistant(calls)),
        result(0, "call_a", "look", first, "result-a"),
        result(1, "call_b", "look", IsError::No, "result-b"),
        user("last-message"),
    ];
}

async fn pairs(bench: &Bench<'_>) -> Checked {
    let sent = bench.sent(|request| with_calls(request, IsError::No)).await?;
    in_order(&sent, &["first-message", "argument-a", "argument-b", "result-a", "result-b", "last-message"])?;
    // A wire without ids pairs by the order; one with ids has each twice.
    for id in ["call_a", "call_b"] {
        let times = mentions(&sent, id);
        if times == 1 {
            return broken(format!("`{id}` is in the call or in its result, and not in both: {}", sent.body));
        }
    }
    Ok(())
}

async fn error_result(bench: &Bench<'_>) -> Checked {
    let sent = bench.sent(|request| with_calls(request, IsError::Yes)).await?;
    in_order(&sent, &["argument-a", "argument-b", "result-a", "result-b"])
}

async fn empty(bench: &Bench<'_>) -> Checked {
    match bench.lowered(|request| request.messages.clear()).await? {
        Ok(_) => Ok(()),
        Err(error) if error.class == ErrorClass::InvalidRequest => Ok(()),
        Err(error) => broken(format!("it was refused for another reason: {error}")),
    }
}

async fn unicode(bench: &Bench<'_>) -> Checked {
    let text = "Grüße, 世界 👋🏽 e\u{301} \t\\ \" \u{2028} \u{10ffff} ｆｉｎ";
    let sent = bench.sent(|request| request.messages = vec![user(text)]).await?;
    same("how often the text is sent", mentions(&sent, text), 1)
}

/// What was sent, or that it was refused as unsupported.
async fn sent_or_unsupported(
    bench: &Bench<'_>,
    what: &str,
    write: impl FnOnce(&mut Request) + Send,
) -> Result<Option<Sent>, Details> {
    match bench.lowered(write).await? {
        Ok(sent) => Ok(Some(sent)),
        Err(ProviderError { class: ErrorClass::Unsupported, .. }) => Ok(None),
        Err(error) => broken(format!("{what} was refused, and not as unsupported: {error}")),
    }
}

async fn media(bench: &Bench<'_>) -> Checked {
    let data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let content = vec![Content::text("What is this?"), Content::Media(Media::base64("image/png", data))];
    let sent = sent_or_unsupported(bench, "an image", |request| {
        request.messages = vec![Arc::new(Message::User(content))];
    })
    .await?;
    match sent {
        Some(sent) => same("how often the image is sent", mentions(&sent, data), 1),
        None => Ok(()),
    }
}

async fn state(bench: &Bench<'_>) -> Checked {
    if bench.abilities().reasoning != Reasoning::WithState {
        return skipped("the wire has no state with its reasoning");
    }
    let script = script()
        .step(|s| s.reasoning("I think.", json!("c3RhdGU=")).text("I say.").finish())
        .step(|s| s.text("Hi.").finish());
    let subject = bench.open(script).await?;
    let first = ask(&subject, request(&subject.model)).await.whole()?;
    let Some(state) = first.states().into_iter().find(|state| state.to_string().contains("c3RhdGU=")) else {
        return broken("the state did not arrive");
    };
    let mut second = request(&subject.model);
    second.messages.push(Arc::new(Message::Assistant(vec![
        AssistantPart::Reasoning(TextPart::new("I think.").state(Some(state.clone()))),
        AssistantPart::Text(TextPart::new("I say.")),
    ])));
    second.messages.push(user("Go on."));
    ask(&subject, second).await.whole()?;
    let sent = subject.far.sent();
    match sent.last().is_some_and(|sent| mentions(sent, "c3RhdGU=") > 0) {
        true => Ok(()),
        false => broken(format!("the state is not in {}", shown(&sent.last()))),
    }
}

async fn same_again(bench: &Bench<'_>) -> Checked {
    let write = |request: &mut Request| {
        with_calls(request, IsError::No);
        request.tools = Arc::from(["a", "b", "c", "d"].map(|name| tool(name, "at")));
    };
    let first = bench.sent(write).await?;
    let second = bench.sent(write).await?;
    same("the body", second.body.to_string(), first.body.to_string())
}

async fn tools(bench: &Bench<'_>) -> Checked {
    let sent = bench
        .sent(|request| request.tools = Arc::from([tool("look", "first_property"), tool("send", "second_property")]))
        .await?;
    let body = sent.body.to_string();
    for part in ["What look does.", "first_property", "What send does.", "second_property"] {
        if !body.contains(part) {
            return broken(format!("`{part}` is not in {body}"));
        }
    }
    Ok(())
}

async fn choice(bench: &Bench<'_>) -> Checked {
    let mut seen: Vec<(String, Value)> = Vec::new();
    for choice in [ToolChoice::Auto, ToolChoice::None, ToolChoice::Required, ToolChoice::Tool("send".to_owned())] {
        let what = format!("the choice {choice:?}");
        let sent = sent_or_unsupported(bench, &what, |request| {
            request.tools = Arc::from([tool("look", "at"), tool("send", "to")]);
            request.tool_choice = choice;
        })
        .await?;
        let Some(sent) = sent else { continue };
        if mentions(&sent, "What look does.") != 1 {
            return broken(format!("with {what} the tools are not sent"));
        }
        if let Some((other, _)) = seen.iter().find(|(_, body)| *body == sent.body) {
            return broken(format!("{what} sends the same as {other}"));
        }
        seen.push((what, sent.body));
    }
    Ok(())
}

/// A setting must change what is sent, or be refused.
async fn changes(bench: &Bench<'_>, what: &str, options: Options) -> Checked {
    let plain = bench.sent(|request| request.tools = Arc::from([tool("look", "at")])).await?;
    let sent = sent_or_unsupported(bench, what, |request| {
        request.tools = Arc::from([tool("look", "at")]);
        request.options = Arc::new(options);
    })
    .await?;
    match sent {
        Some(sent) if sent.body == plain.body && sent.headers == plain.headers => {
            broken(format!("{what} was neither sent nor refused"))
        }
        _ => Ok(()),
    }
}

async fn options(bench: &Bench<'_>) -> Checked {
    let of = |write: fn(&mut Options)| {
        let mut options = Options::default();
        write(&mut options);
        options
    };
    for (what, options) in [
        ("a temperature", of(|options| options.temperature = Some(0.375))),
        ("nucleus sampling", of(|options| options.top_p = Some(0.625))),
        ("a text that ends the answer", of(|options| options.stop = vec!["the-end".to_owned()])),
        ("a seed", of(|options| options.seed = Some(424_242))),
        ("no calls at once", of(|options| options.parallel_tool_calls = Some(false))),
        ("how much to reason", of(|options| options.reasoning_effort = Some("low".to_owned()))),
        ("a tier of service", of(|options| options.service_tier = Some("flex".to_owned()))),
    ] {
        changes(bench, what, options).await?;
    }
    Ok(())
}

async fn format(bench: &Bench<'_>) -> Checked {
    let schema = json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": false});
    for format in
        [ResponseFormat::JsonObject, ResponseFormat::JsonSchema { name: "form".to_owned(), schema, strict: true }]
    {
        let what = format!("{format:?}");
        let mut options = Options::default();
        options.response_format = Some(format);
        let plain = bench.sent(|_| {}).await?;
        let sent = sent_or_unsupported(bench, &what, |request| request.options = Arc::new(options)).await?;
        if sent.is_some_and(|sent| sent.body == plain.body) {
            return broken(format!("{what} was neither sent nor refused"));
        }
    }
    Ok(())
}

async fn max_output(bench: &Bench<'_>) -> Checked {
    let sent = bench.sent(|request| request.max_output = Some(4_321)).await?;
    match mentions(&sent, "4321") {
        1 => Ok(()),
        times => broken(format!("the limit is {times} times in {}", sent.body)),
    }
}

async fn raw(bench: &Bench<'_>) -> Checked {
    let value = json!({"deep": [1, null, "x"]});
    let mut options = Options::default();
    options.raw.insert("x_suite".to_owned(), value.clone());
    let sent = sent_or_unsupported(bench, "a raw field", |request| request.options = Arc::new(options)).await?;
    match sent {
        Some(sent) => same("the raw field", sent.body.get("x_suite"), Some(&value)),
        None => Ok(()),
    }
}
