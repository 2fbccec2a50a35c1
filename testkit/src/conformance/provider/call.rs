//! Cases of tool calls: whole, many, unclosed, broken.

use serde_json::{Value, json};
use settled_provider_api::{ErrorClass, ProviderError, ProviderEvent};

use super::bench::{Answer, Bench, Checked, broken, same, shown};
use super::named_cases;

named_cases! {
    "call.whole", "A call has the id, the name and the arguments that the provider gave." => whole;
    "call.pieces", "Arguments may come in pieces, cut anywhere, and the pieces are handed on." => pieces;
    "call.many", "Every call of an answer is a block of its own, in order." => many;
    "call.without_arguments", "A call whose arguments are closed and empty has `{}`." => without_arguments;
    "call.unclosed", "Arguments that the provider did not close are never called." => unclosed;
    "call.cut", "Arguments that were cut are never called." => cut;
    "call.malformed", "Closed arguments that are no JSON are told, and are never called." => malformed;
    "call.unicode", "Every character of the arguments arrives as it was sent." => unicode;
    "call.large", "The arguments may be very large." => large;
}

/// The arguments of every call.
fn inputs(answer: &Answer) -> Vec<(String, Value)> {
    answer.calls().iter().map(|call| (call.name.clone(), call.input.clone())).collect()
}

async fn whole(bench: &Bench<'_>) -> Checked {
    let input = json!({"to": "Ann", "lines": [1, 2.5, null, {"deep": true}]});
    let answer = bench.answer(|s| s.call_as("the-id", "send", input.clone()).finish()).await?.whole()?;
    same("the calls", inputs(&answer), vec![("send".to_owned(), input)])?;
    match answer.calls()[..] {
        // A wire without ids has its adapter make one.
        [call] if !call.id.is_empty() && !call.hosted => Ok(()),
        _ => broken(format!("the call is not as it was given: {}", shown(&answer.events))),
    }
}

async fn pieces(bench: &Bench<'_>) -> Checked {
    let text = r#"{"say":"Gr\u00fc\u00dfe \ud83d\udc4b","n":-1.5e3}"#;
    let answer = bench
        .answer(|s| {
            let pieces = text.as_bytes().chunks(3).map(|piece| String::from_utf8_lossy(piece).into_owned());
            let opened = pieces.fold(s.input_start("c", "send"), |s, piece| s.input_delta("c", piece));
            opened.input_end("c").called("c", "send", json!({"say": "Grüße 👋", "n": -1.5e3})).finish()
        })
        .await?
        .whole()?;
    same("the calls", inputs(&answer), vec![("send".to_owned(), json!({"say": "Grüße 👋", "n": -1.5e3}))])?;
    let raw: String = answer
        .events
        .iter()
        .filter_map(|event| match event {
            ProviderEvent::ToolInputDelta(piece) => Some(piece.text.as_str()),
            _ => None,
        })
        .collect();
    let parsed: Option<Value> = serde_json::from_str(&raw).ok();
    same("the pieces together", parsed, Some(json!({"say": "Grüße 👋", "n": -1.5e3})))
}

async fn many(bench: &Bench<'_>) -> Checked {
    let input = |n: u32| json!({ "n": n });
    let answer = bench
        .answer(|s| (0..5).fold(s, |s, n| s.call_as(format!("c{n}"), format!("tool{}", n % 2), input(n))).finish())
        .await?
        .whole()?;
    let should: Vec<_> = (0..5).map(|n| (format!("tool{}", n % 2), input(n))).collect();
    same("the calls", inputs(&answer), should)?;
    let mut blocks: Vec<_> = answer.calls().iter().map(|call| call.index).collect();
    blocks.dedup();
    same("how many blocks", blocks.len(), 5)
}

async fn without_arguments(bench: &Bench<'_>) -> Checked {
    let answer = bench
        .answer(|s| s.input_start("c", "look").input_end("c").called("c", "look", json!({})).finish())
        .await?
        .whole()?;
    same("the calls", inputs(&answer), vec![("look".to_owned(), json!({}))])
}

/// Arguments that are JSON already, and are not closed.
const WHOLE: &str = r#"{"cents":500}"#;

async fn unclosed(bench: &Bench<'_>) -> Checked {
    for text in [WHOLE, r#"{"cents":5"#, ""] {
        let answer = bench.answer(|s| s.input_start("c", "charge").input_delta("c", text)).await?;
        same("the calls", inputs(&answer), Vec::new())?;
    }
    Ok(())
}

async fn cut(bench: &Bench<'_>) -> Checked {
    for text in [WHOLE, r#"{"cents":5"#] {
        let broke = ProviderError::new(ErrorClass::Transport, "");
        let answer = bench.answer(|s| s.input_start("c", "charge").input_delta("c", text).throw(broke)).await?;
        same("the calls", inputs(&answer), Vec::new())?;
    }
    Ok(())
}

async fn malformed(bench: &Bench<'_>) -> Checked {
    let raw = r#"{"cents": five}"#;
    let answer = bench
        .answer(|s| {
            s.input_start("c", "charge").input_delta("c", raw).input_end("c").malformed("c", "charge", raw).finish()
        })
        .await?
        .whole()?;
    same("the calls", inputs(&answer), Vec::new())?;
    let told: Vec<_> = answer
        .events
        .iter()
        .filter_map(|event| match event {
            ProviderEvent::ToolInputMalformed(call) => Some((call.name.as_str(), call.raw.as_str())),
            _ => None,
        })
        .collect();
    same("what is no JSON", told, vec![("charge", raw)])
}

async fn takes(bench: &Bench<'_>, input: Value) -> Checked {
    let answer = bench.answer(|s| s.call("send", input.clone()).finish()).await?.whole()?;
    same("the calls", inputs(&answer), vec![("send".to_owned(), input)])
}

async fn unicode(bench: &Bench<'_>) -> Checked {
    takes(bench, json!({"Grüße": "世界 👋🏽 \u{0} \u{2028} \" \\ data: x\n\n", "": u64::MAX})).await
}

async fn large(bench: &Bench<'_>) -> Checked {
    takes(bench, json!({ "content": "0123456789abcde\n".repeat(20_000) })).await
}
