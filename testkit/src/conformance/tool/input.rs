//! Cases of what goes in and what comes out: good, bad and odd input, bounds, questions.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use settled_tools_api::{Content, MediaData, ToolCall, ToolOutput};

use super::bench::{Bench, Checked, End, Host, Subject, broken, same, shown, skipped};
use super::{Sample, named_cases};

named_cases! {
    "input.taken", "What the documentation shows succeeds." => taken;
    "input.refused", "What does not fit the schema fails with an answer: no panic, no breakdown of the host." => refused;
    "input.failed", "What cannot be done fails with an answer: no panic, no breakdown of the host." => failed;
    "input.says_why", "A failure has words for the model." => says_why;
    "input.refused_acts_not", "What is refused has changed nothing." => refused_acts_not;
    "input.odd", "No JSON whatever makes it panic." => odd;
    "input.unknown_tool", "The name of another tool fails with an answer." => unknown_tool;
    "output.bounded", "However much there is to say, the output has a bound." => bounded;
    "output.media", "Media have a media type, and base64 where they say so." => media;
    "deadline.passed", "With no time left it ends within the grace, and does not panic." => passed;
    "ask.asks", "It asks the person in words." => asks;
    "ask.acts_not", "Before it is answered it has changed nothing." => ask_acts_not;
    "ask.answered", "With its state and the answer it comes to its end, on another instance too." => answered;
    "ask.foreign_state", "A state that it did not give makes it fail with an answer, not panic." => foreign_state;
}

/// The inputs of a kind, of every sample that has some.
async fn inputs(
    bench: &Bench<'_>,
    lacking: &str,
    pick: impl Fn(&Sample) -> Vec<Value>,
) -> Result<Vec<(String, Value)>, super::bench::Details> {
    let picked = bench.samples(lacking, |sample, _| Some(pick(sample)).filter(|inputs| !inputs.is_empty())).await?;
    Ok(picked
        .into_iter()
        .flat_map(|(tool, inputs)| inputs.into_iter().map(move |input| (tool.clone(), input)))
        .collect())
}

fn call(tool: &str, input: &Value) -> String {
    format!("`{tool}` with {}", shown(input))
}

async fn taken(bench: &Bench<'_>) -> Checked {
    for (tool, input) in inputs(bench, "no sample has an input that succeeds", |sample| sample.takes.clone()).await? {
        let subject = bench.open().await?;
        subject.run(&tool, &input, &Host::new(0)).await.output(&call(&tool, &input))?;
    }
    Ok(())
}

/// The inputs that a sample says must fail.
fn bad(sample: &Sample) -> Vec<Value> {
    [sample.refuses.clone(), sample.fails.clone()].concat()
}

async fn refused(bench: &Bench<'_>) -> Checked {
    for (tool, input) in
        inputs(bench, "no sample has an input that is refused", |sample| sample.refuses.clone()).await?
    {
        let subject = bench.open().await?;
        subject.run(&tool, &input, &Host::new(0)).await.failure(&call(&tool, &input))?;
    }
    Ok(())
}

async fn failed(bench: &Bench<'_>) -> Checked {
    for (tool, input) in inputs(bench, "no sample has an input that fails", |sample| sample.fails.clone()).await? {
        let subject = bench.open().await?;
        subject.run(&tool, &input, &Host::new(0)).await.failure(&call(&tool, &input))?;
    }
    Ok(())
}

async fn says_why(bench: &Bench<'_>) -> Checked {
    for (tool, input) in inputs(bench, "no sample has an input that is refused or fails", bad).await? {
        let subject = bench.open().await?;
        let call = call(&tool, &input);
        let said = subject.run(&tool, &input, &Host::new(0)).await.failure(&call)?;
        if said.joined_text().trim().is_empty() {
            return broken(format!("{call}: it failed without a word"));
        }
    }
    Ok(())
}

async fn refused_acts_not(bench: &Bench<'_>) -> Checked {
    for (tool, input) in inputs(bench, "no sample has an input that is refused or fails", bad).await? {
        let subject = bench.open().await?;
        let before = subject.look()?;
        subject.run(&tool, &input, &Host::new(0)).await;
        same(&format!("the world after {}", call(&tool, &input)), subject.look()?, before)?;
    }
    Ok(())
}

async fn odd(bench: &Bench<'_>) -> Checked {
    let samples = bench
        .samples("there is no sample", |sample, _| Some(sample.working_input().cloned().unwrap_or_else(|| json!({}))))
        .await?;
    for (tool, base) in samples {
        let subject = bench.open().await?;
        for (input, number) in odd_inputs(&base).into_iter().zip(0..) {
            let host = Host::new(number);
            // A run that an odd input keeps busy is stopped, like any other.
            let cancel = host.cancel.clone();
            let timer = async {
                tokio::time::sleep(bench.grace()).await;
                cancel.cancel();
                std::future::pending().await
            };
            let end = either(subject.run(&tool, &input, &host), timer).await;
            end.no_panic(&call(&tool, &input))?;
        }
    }
    Ok(())
}

/// Waits for the first of two futures.
async fn either<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    std::future::poll_fn(|cx| match one.as_mut().poll(cx) {
        std::task::Poll::Pending => other.as_mut().poll(cx),
        ready => ready,
    })
    .await
}

/// What a model, or a bug, may hand to a tool: no object, members that are missing, that are of the wrong kind, too large, or too many.
fn odd_inputs(base: &Value) -> Vec<Value> {
    let deep = (0..60).fold(json!([]), |inner, _| json!([inner]));
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!(0.5),
        json!(1e308),
        json!(""),
        json!(" "),
        json!("\u{0}"),
        json!("..\u{2028}\u{feff}👋🏽"),
        json!("%s'\"`$("),
        json!("x".repeat(70_000)),
        json!([]),
        json!([null, 1, "a"]),
        json!({}),
        json!({"": {"": ""}}),
        deep,
    ];
    let mut inputs = values.to_vec();
    let members = base.as_object().cloned().unwrap_or_default();
    for name in members.keys() {
        let mut without = members.clone();
        without.remove(name);
        inputs.push(Value::Object(without));
        for value in &values {
            let mut with = members.clone();
            with.insert(name.clone(), value.clone());
            inputs.push(Value::Object(with));
        }
    }
    let mut more: Map<_, _> = members;
    more.insert("a member that nobody knows".to_owned(), json!(1));
    inputs.push(Value::Object(more));
    inputs
}

async fn unknown_tool(bench: &Bench<'_>) -> Checked {
    let subject = bench.open().await?;
    for name in ["no_tool_has_this_name", "", "\u{0}"] {
        subject.run(name, &json!({}), &Host::new(0)).await.failure(&format!("a call of `{}`", name.escape_debug()))?;
    }
    Ok(())
}

async fn bounded(bench: &Bench<'_>) -> Checked {
    let samples = bench.samples("no sample has a large output", |sample, _| sample.large.clone()).await?;
    for (tool, (input, bound)) in samples {
        let subject = bench.open().await?;
        let size = |output: &ToolOutput| output.joined_text().len();
        let size = match subject.run(&tool, &input, &Host::new(0)).await {
            End::Failed(settled_tools_api::ToolError::Failed(output)) => size(&output),
            end => size(&end.output(&call(&tool, &input))?),
        };
        if size > bound || size == 0 {
            return broken(format!("{}: the output has {size} bytes, and {bound} are its bound", call(&tool, &input)));
        }
    }
    Ok(())
}

async fn media(bench: &Bench<'_>) -> Checked {
    let mut some = false;
    for (tool, input) in inputs(bench, "no sample has an input that succeeds", |sample| sample.takes.clone()).await? {
        let subject = bench.open().await?;
        let output = subject.run(&tool, &input, &Host::new(0)).await.output(&call(&tool, &input))?;
        for piece in output.content {
            let Content::Media(media) = piece else { continue };
            some = true;
            if media.mime.split_once('/').is_none_or(|(kind, form)| kind.is_empty() || form.is_empty()) {
                return broken(format!("{}: `{}` is no media type", call(&tool, &input), media.mime));
            }
            if let MediaData::Base64(data) = media.data {
                let letters = data.trim_end_matches('=');
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
                if data.is_empty()
                    || data.len() % 4 != 0
                    || data.len() - letters.len() > 2
                    || !letters.bytes().all(fits)
                {
                    return broken(format!("{}: the media are not base64", call(&tool, &input)));
                }
            }
        }
    }
    if some { Ok(()) } else { skipped("no output has media") }
}

async fn passed(bench: &Bench<'_>) -> Checked {
    let samples = bench.samples("no sample succeeds", |sample, _| sample.working_input().cloned()).await?;
    for (tool, input) in samples {
        let subject = bench.open().await?;
        let host = Arc::new(Host::of(0).remaining(Duration::ZERO));
        let run = subject.run(&tool, &input, &host);
        match tokio::time::timeout(bench.grace(), run).await {
            Ok(end) => end.no_panic(&call(&tool, &input))?,
            Err(_) => return broken(format!("{}: it goes on for longer than the grace", call(&tool, &input))),
        }
    }
    Ok(())
}

/// The inputs on which a tool asks, and the answers.
async fn questions(bench: &Bench<'_>) -> Result<Vec<(String, (Value, String))>, super::bench::Details> {
    bench.samples("no sample asks", |sample, _| sample.asks.clone()).await
}

async fn asks(bench: &Bench<'_>) -> Checked {
    for (tool, (input, _)) in questions(bench).await? {
        let subject = bench.open().await?;
        let ask = subject.run(&tool, &input, &Host::new(0)).await.question(&call(&tool, &input))?;
        if ask.question.trim().is_empty() {
            return broken(format!("{}: it asks nothing", call(&tool, &input)));
        }
    }
    Ok(())
}

async fn ask_acts_not(bench: &Bench<'_>) -> Checked {
    for (tool, (input, _)) in questions(bench).await? {
        let subject = bench.open().await?;
        let before = subject.look()?;
        subject.run(&tool, &input, &Host::new(0)).await.question(&call(&tool, &input))?;
        same(&format!("the world after {}", call(&tool, &input)), subject.look()?, before)?;
    }
    Ok(())
}

async fn answered(bench: &Bench<'_>) -> Checked {
    for (tool, (input, answer)) in questions(bench).await? {
        let first = bench.open().await?;
        let host = Host::new(0);
        let ask = first.run(&tool, &input, &host).await.question(&call(&tool, &input))?;
        // The process may have been restarted between the question and the answer.
        for subject in [first, bench.open().await?] {
            let goes_on = ToolCall::new(&*tool, input.clone()).answered(ask.state.clone(), answer.clone());
            subject.run_call(goes_on, &host.again()).await.output(&format!("{} answered", call(&tool, &input)))?;
        }
    }
    Ok(())
}

async fn foreign_state(bench: &Bench<'_>) -> Checked {
    for (tool, (input, answer)) in questions(bench).await? {
        let subject: Subject = bench.open().await?;
        for state in odd_inputs(&json!({})) {
            let what = format!("{} answered, with the state {}", call(&tool, &input), shown(&state));
            let goes_on = ToolCall::new(&*tool, input.clone()).answered(state, answer.clone());
            subject.run_call(goes_on, &Host::new(0)).await.no_panic(&what)?;
        }
    }
    Ok(())
}
