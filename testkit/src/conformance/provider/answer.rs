//! Cases of a whole answer: its events, its text and reasoning, its finish and usage.

use settled_provider_api::{ErrorClass, Finish, FinishReason, ProviderEvent, ResponseInfo, Usage};

use super::bench::{
    Answer, Bench, Checked, all, ask, broken, next, ready, request, same, shown, skipped, stream, until_text,
};
use super::events::{EventRule, check_events};
use super::{Reasoning, named_cases};
use crate::script;
use serde_json::json;

named_cases! {
    "events.order", "Starts come before pieces, pieces before ends, calls behind their arguments." => order;
    "events.index", "Blocks have the indexes 0, 1, 2, … in order of appearance, and none is used twice." => index;
    "events.end", "The finish comes last, when every block is closed." => end;
    "finish.one", "A whole answer has one finish, and does not fail." => one;
    "finish.reason", "The reason is the one that the provider gave." => reason;
    "finish.not_invented", "A body that ends without a finish has none." => not_invented;
    "finish.reads_on", "Behind the finish it reads on, to the end of the body." => reads_on;
    "text.whole", "The pieces are the text, and nothing else." => text;
    "text.live", "A piece is there when it has come, not when the answer is whole." => live;
    "text.unicode", "Every character arrives as it was sent." => unicode;
    "text.framing", "Text that looks like the wire's own framing is text." => framing;
    "text.large", "One piece may be very large, and the pieces very many." => large;
    "text.nothing", "An answer without content has a finish and nothing else." => nothing;
    "reasoning.apart", "Reasoning is reasoning, and text is text." => reasoning;
    "reasoning.state", "State that comes with reasoning is handed on." => state;
    "usage.whole", "The numbers are disjoint, and are those that the provider gave." => usage;
    "usage.not_invented", "What the provider did not report is not reported." => usage_not_invented;
    "response.info", "The response's id and the model that served it are handed on." => info;
    "beside.apart", "Two streams at once do not mix." => beside;
    "again.same", "A provider that has answered answers again." => again;
}

/// An answer in which every kind of block is.
async fn mixed(bench: &Bench<'_>) -> Result<Answer, super::bench::Details> {
    let reasons = bench.abilities().reasoning != Reasoning::None;
    let answer = bench
        .answer(|s| {
            let s = if reasons { s.reasoning("Let me see.", None) } else { s };
            s.text("I look.").call("look", json!({"at": "a"})).call_as("second", "look", json!({"at": "b"})).finish()
        })
        .await?;
    answer.whole()
}

async fn follows(bench: &Bench<'_>, rule: EventRule) -> Checked {
    let answer = mixed(bench).await?;
    match check_events(&answer.events).into_iter().find(|fault| fault.rule == rule) {
        Some(fault) => broken(format!("{fault}, in {}", shown(&answer.events))),
        None => Ok(()),
    }
}

async fn order(bench: &Bench<'_>) -> Checked {
    follows(bench, EventRule::Order).await
}

async fn index(bench: &Bench<'_>) -> Checked {
    follows(bench, EventRule::Index).await
}

async fn end(bench: &Bench<'_>) -> Checked {
    follows(bench, EventRule::End).await
}

async fn one(bench: &Bench<'_>) -> Checked {
    mixed(bench).await?.finish().map(|_| ())
}

async fn reason(bench: &Bench<'_>) -> Checked {
    for reason in bench.abilities().finishes {
        let calls = reason == FinishReason::ToolCalls;
        let answer = bench
            .answer(|s| {
                let s = s.text("So far.");
                let s = if calls { s.call("look", json!({})) } else { s };
                s.finish_with(Finish::new(reason))
            })
            .await?;
        same("the reason", answer.whole()?.finish()?.reason, reason)?;
    }
    Ok(())
}

async fn not_invented(bench: &Bench<'_>) -> Checked {
    let answer = bench.answer(|s| s.text_start("t").text_delta("t", "So far")).await?;
    let told = |class| matches!(class, ErrorClass::IncompleteStream | ErrorClass::Transport);
    match (answer.finishes().is_empty(), &answer.error) {
        (false, _) => broken(format!("it finished: {}", shown(&answer.events))),
        (true, Some(error)) if !told(error.class) => broken(format!("it failed for another reason: {error}")),
        (true, _) => same("what came of the text", answer.text(), "So far".to_owned()),
    }
}

async fn reads_on(bench: &Bench<'_>) -> Checked {
    let subject = bench.open(script().step(|s| s.text("Done.").finish().hang())).await?;
    let mut stream = stream(&subject).await?;
    loop {
        match next(&mut stream).await {
            Some(Ok(ProviderEvent::Finish(_))) => break,
            Some(Ok(_)) => {}
            other => return broken(format!("there should be a finish, and there was {}", shown(&other))),
        }
    }
    match ready(&mut stream).await {
        None | Some(Some(Ok(ProviderEvent::Alive))) => Ok(()),
        Some(item) => broken(format!("the body is open behind the finish, and the stream gave {}", shown(&item))),
    }
}

async fn says(bench: &Bench<'_>, text: &str) -> Checked {
    let answer = bench.answer(|s| s.text(text).finish()).await?.whole()?;
    same("the text", answer.text(), text.to_owned())
}

async fn text(bench: &Bench<'_>) -> Checked {
    let pieces = ["", "One", " and", " two.", "\n", " "];
    let answer = bench
        .answer(|s| {
            let opened = pieces.iter().fold(s.text_start("t"), |s, piece| s.text_delta("t", *piece));
            opened.text_end("t", None).finish()
        })
        .await?
        .whole()?;
    same("the text", answer.text(), pieces.concat())?;
    same("the reasoning", answer.reasoning(), String::new())
}

async fn live(bench: &Bench<'_>) -> Checked {
    let subject = bench.open(script().step(|s| s.text_start("t").text_delta("t", "First").hang())).await?;
    until_text(&mut stream(&subject).await?, "First").await
}

async fn unicode(bench: &Bench<'_>) -> Checked {
    says(bench, "Grüße, 世界 👋🏽 e\u{301} \u{200d}\u{fe0f} \u{1f}\t\\ \" \u{2028} \u{10ffff} ｆｉｎ").await
}

async fn framing(bench: &Bench<'_>) -> Checked {
    says(bench, "data: [DONE]\n\nevent: error\r\n\r\ndata: {\"error\":{\"message\":\"no\"}}\n\n]}\n0\r\n\r\n").await
}

async fn large(bench: &Bench<'_>) -> Checked {
    says(bench, &"0123456789abcdef".repeat(30_000)).await?;
    let many = 3_000;
    let answer = bench
        .answer(|s| {
            let opened = (0..many).fold(s.text_start("t"), |s, piece| s.text_delta("t", format!("{piece} ")));
            opened.text_end("t", None).finish()
        })
        .await?
        .whole()?;
    same("the text", answer.text(), (0..many).map(|piece| format!("{piece} ")).collect())
}

async fn nothing(bench: &Bench<'_>) -> Checked {
    let answer = bench.answer(|s| s.finish()).await?.whole()?;
    same("the reason", answer.finish()?.reason, FinishReason::Stop)?;
    same("the text", answer.text(), String::new())?;
    same("how many calls", answer.calls().len(), 0)
}

async fn reasoning(bench: &Bench<'_>) -> Checked {
    if bench.abilities().reasoning == Reasoning::None {
        return skipped("the wire has no reasoning");
    }
    let answer = bench.answer(|s| s.reasoning("I think.", None).text("I say.").finish()).await?.whole()?;
    same("reasoning and text", (answer.reasoning(), answer.text()), ("I think.".to_owned(), "I say.".to_owned()))
}

async fn state(bench: &Bench<'_>) -> Checked {
    if bench.abilities().reasoning != Reasoning::WithState {
        return skipped("the wire has no state with its reasoning");
    }
    let answer = bench.answer(|s| s.reasoning("I think.", json!("c3RhdGU=")).text("I say.").finish()).await?.whole()?;
    match answer.states().iter().any(|state| state.to_string().contains("c3RhdGU=")) {
        true => Ok(()),
        false => broken(format!("the state is nowhere in {}", shown(&answer.events))),
    }
}

async fn usage(bench: &Bench<'_>) -> Checked {
    let usage = bench.abilities().usage;
    let reasons = usage.reasoning.is_some() && bench.abilities().reasoning != Reasoning::None;
    let answer = bench
        .answer(|s| {
            let s = if reasons { s.reasoning("Let me see.", None) } else { s };
            s.text("Hi.").usage(usage).finish()
        })
        .await?
        .whole()?;
    same("the usage", answer.finish()?.usage, Some(usage))
}

async fn usage_not_invented(bench: &Bench<'_>) -> Checked {
    let answer = bench.answer(|s| s.text("Hi.").finish()).await?.whole()?;
    let reported = answer.finish()?.usage.filter(|usage| *usage != Usage::default());
    same("the usage", reported, None)
}

async fn info(bench: &Bench<'_>) -> Checked {
    let Some((id, model)) = bench.abilities().response_info else {
        return skipped("the wire says nothing of its responses");
    };
    let info = ResponseInfo::new(Some(id), Some(model));
    let said = info.clone();
    let answer = bench.answer(|s| s.event(ProviderEvent::ResponseInfo(said)).text("Hi.").finish()).await?.whole()?;
    let mut seen = ResponseInfo::default();
    for event in answer.events {
        if let ProviderEvent::ResponseInfo(more) = event {
            seen.response_id = more.response_id.or(seen.response_id);
            seen.served_model = more.served_model.or(seen.served_model);
        }
    }
    same("what is known of the response", seen, info)
}

async fn beside(bench: &Bench<'_>) -> Checked {
    let long = |word: &str| word.repeat(200);
    let script = script()
        .step(|s| s.text(long("a")).text(long("a")).finish())
        .step(|s| s.text(long("b")).text(long("b")).finish());
    let subject = bench.open(script).await?;
    let (one, other) = (ask(&subject, request(&subject.model)), ask(&subject, request(&subject.model)));
    let answers = all(vec![Box::pin(one), Box::pin(other)]).await;
    let mut texts = Vec::new();
    for answer in answers {
        texts.push(answer.whole()?.text());
    }
    texts.sort_unstable();
    same("the two texts", texts, vec![long("aa"), long("bb")])
}

async fn again(bench: &Bench<'_>) -> Checked {
    let script = script().step(|s| s.text("One.").finish()).step(|s| s.text("Two.").finish());
    let subject = bench.open(script).await?;
    for text in ["One.", "Two."] {
        let answer = ask(&subject, request(&subject.model)).await.whole()?;
        same("the text", answer.text(), text.to_owned())?;
    }
    Ok(())
}
