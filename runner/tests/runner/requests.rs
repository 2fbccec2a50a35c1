//! What requests carry: attachments, media, room for the answer, the session's name, and what a summary is asked for with.

use std::sync::Arc;

use serde_json::json;
use settled_ledger::{Outcome, WorkerId};
use settled_provider_api::{
    AssistantPart, BlockEnd, Content, ErrorClass, FinishReason, Message, ModelInfo, ModelRef, ProviderError,
    ProviderEvent, RequestKind, ResponseInfo, ToolCallEvent, ToolChoice, Usage,
};
use settled_runner::{Agent, Builder, Settings};
use settled_tools_api::{Media, ToolOutput, ToolReturn};

use crate::common::{Counted, Item, Script};
use crate::world::{Tools, World, answer, calls, completed, stop, text};

/// An answer that used so many tokens.
fn used(said: &str, tokens: u64) -> Vec<ProviderEvent> {
    let end = ProviderEvent::finish(FinishReason::Stop, Usage::new(tokens, 0));
    text(said).into_iter().chain([end]).collect()
}

fn named(mime: &str, name: &str) -> Media {
    let mut media = Media::base64(mime, "ZGF0YQ==");
    media.name = Some(name.to_owned());
    media
}

/// 222: a person's text comes first and is left out when it is empty, then the attachments in their order; what the model does not take becomes a word about it.
#[tokio::test(start_paused = true)]
async fn attachments_follow_the_text() {
    let film = "[a file `b.mp4` of type video/mp4 was left out: the model does not accept it]";
    let cases = [
        ("See", vec![named("image/png", "a.png"), named("video/mp4", "b.mp4"), named("image/gif", "c.gif")], {
            format!("user: See | [image/png] | {film} | [image/gif]")
        }),
        ("", vec![named("image/webp", "a.webp")], "user: [image/webp]".to_owned()),
    ];
    for (said, attached, expected) in cases {
        let world = World::new(Script::default().then(answer("Seen")), Tools::default()).await;
        let mut input = world.session.input(said).without_waking();
        for media in attached {
            input = input.with(Content::Media(media));
        }
        input.send().await.unwrap();
        completed(&world.session.run().await.unwrap(), "Seen");
        assert_eq!(world.said(0), [expected]);
    }
}

/// 222: where nothing is left of a prompt, no message is sent for it.
#[tokio::test(start_paused = true)]
async fn a_prompt_of_nothing_is_no_message() {
    let world = World::new(Script::default().then(answer("Yes")).then(answer("Well")), Tools::default()).await;
    world.go().await;
    world.say(" ").await;
    completed(&world.session.run().await.unwrap(), "Well");
    assert_eq!(world.said(1), ["user: Go", "model: Yes", "user: Go on."], "the model is only asked to go on");
}

/// 234: the answer's limit is that of the model, or what the context leaves where that is less.
#[tokio::test(start_paused = true)]
async fn the_limit_of_an_answer_fits_the_room_that_is_left() {
    // A context, the model's limit, what the prompt measured last time; the limit that is asked for.
    let cases = [
        (Some(100_000), Some(8_000), 10_000, Some(8_000)),
        (Some(100_000), Some(95_000), 10_000, Some(89_999)),
        (Some(100_000), Some(95_000), 99_990, Some(1_024)),
        (None, Some(8_000), 1_000_000, Some(8_000)),
        (Some(100_000), None, 10_000, None),
    ];
    for (context, output, measured, expected) in cases {
        let mut settings = Settings::default();
        settings.compaction.auto = false;
        let info = ModelInfo::new().limits(context, output);
        let script = Script::default().then(used("Yes", measured)).then(answer("Well"));
        let world = World::knowing(info, settings, script, Tools::default()).await;
        world.go().await;
        completed(&world.go().await, "Well");
        // The last prompt is a token of two letters.
        assert_eq!(world.request(1).max_output, expected, "{context:?}, {output:?}, {measured}");
        assert_eq!(world.request(0).max_output, output.map(|output| output.min(99_999)));
    }
}

/// 153, 164: a summary's request has media in words only; results are whole while the prefix may be cached, and cut where the context was refused; fixed headings are asked for, and no tool may be called.
#[tokio::test(start_paused = true)]
async fn a_summary_is_asked_for_without_media() {
    const HEADINGS: [&str; 6] = [
        "Goal",
        "Instructions and constraints",
        "What was done",
        "What was found out",
        "State of the work",
        "Next steps",
    ];
    let long = "ä".repeat(2_500);
    let output = ToolOutput::new([
        Content::text(long.as_str()),
        Content::Media(named("image/png", "shot.png")),
        Content::Media(Media::base64("image/gif", "ZGF0YQ==")),
    ]);
    let tools = Tools::default().ends("look", Ok(ToolReturn::Output(output)));
    let too_large = || [Item::Throw(ProviderError::new(ErrorClass::PayloadTooLarge, "too large"))];
    for overflow in [false, true] {
        let script = Script::default().then(calls(&["look"])).then(answer("Seen"));
        let script = if overflow { script.then(too_large()) } else { script };
        let script = script.then(answer("We met")).then(answer("Well"));
        let world = World::new(script, tools.clone()).await;
        world.go().await;
        if overflow {
            completed(&world.go().await, "Well");
        } else {
            world.session.compact().await.unwrap();
            world.session.run().await.unwrap();
        }
        let number = if overflow { 3 } else { 2 };
        let request = world.request(number);
        assert_eq!((request.purpose.kind, &request.tool_choice), (RequestKind::Summary, &ToolChoice::None));
        assert_eq!((&request.tools, &request.system), (&world.request(0).tools, &world.request(0).system));
        let media = "[media `shot.png` of type image/png] | [media of type image/gif]";
        let shown = if overflow { format!("{}\n[1000 bytes left out here]", "ä".repeat(2_000)) } else { long.clone() };
        let said = world.said(number);
        assert_eq!(said[..3], ["user: Go".to_owned(), "model: look{}".to_owned(), format!("tool: {shown} | {media}")]);
        let ask = said.last().unwrap();
        let places: Vec<_> = HEADINGS.iter().map(|heading| ask.find(heading).unwrap()).collect();
        assert!(places.is_sorted(), "the headings are asked for in their order: {ask}");
        assert!(!format!("{:?}", request.messages).contains("ZGF0YQ=="), "no data is sent");
        assert_eq!(world.the("compaction.ended").await["text"], "We met", "any complete text is accepted");
    }
}

/// B064: a hosted call that a pause has left open is closed in the summary's request, which would not be well-formed without its result.
#[tokio::test(start_paused = true)]
async fn a_summary_closes_what_a_pause_has_left_open() {
    let search = ToolCallEvent::new(0, "h", "search", json!({"q": 1})).hosted();
    let paused = [ProviderEvent::ToolCall(search), ProviderEvent::finish(FinishReason::Pause, None)];
    let refused = [Item::Throw(ProviderError::new(ErrorClass::ContextOverflow, "too long"))];
    let script = Script::default().then(paused).then(refused).then(answer("We met")).then(answer("Well"));
    // In debug builds the runner checks each request as it goes out; a breach panics.
    let world = World::new(script, Tools::default()).await;
    completed(&world.go().await, "Well");
    let said = world.said(2);
    assert_eq!(world.request(2).purpose.kind, RequestKind::Summary);
    assert_eq!(said[..2], ["user: Go", "model: search{\"q\":1} | =The call has no recorded outcome."]);
    world.kinds().await;
}

/// 152: what a provider has refused is summarised down to less than what an automatic compaction keeps.
#[tokio::test(start_paused = true)]
async fn an_overflow_keeps_less_than_was_thought_to_fit() {
    // Eight rounds of about 1,250 tokens; 10,000 may be kept.
    let round = || answer(&"x".repeat(5_000));
    let refused = || [Item::Throw(ProviderError::new(ErrorClass::ContextOverflow, "too long"))];
    let mut settings = Settings::default();
    settings.compaction.keep = 10_000;
    let mut kept = Vec::new();
    for overflow in [false, true] {
        let script = (0..8).fold(Script::default(), |script, _| script.then(round()));
        let script = if overflow { script.then(refused()) } else { script };
        let script = script.then(answer("We met")).then(answer("Well"));
        let world = World::with(script, Tools::default(), |builder| builder.settings(settings.clone())).await;
        for _ in 0..8 {
            world.go().await;
        }
        if overflow {
            completed(&world.go().await, "Well");
        } else {
            world.session.compact().await.unwrap();
            world.session.run().await.unwrap();
        }
        let recent = world.the("compaction.ended").await["recent"].as_str().unwrap().to_owned();
        kept.push(recent.matches("Assistant:").count());
    }
    assert_eq!(kept, [7, 3], "half of what is kept otherwise");
}

/// 247: a new session has the runner's first agent; the agent that a session has chosen wins, in another process too.
#[tokio::test(start_paused = true)]
async fn the_sessions_agent_wins() {
    let agents =
        |builder: Builder| builder.agent(Agent::new("second").system("The second.").system(" ").system("Be brief."));
    let script = Script::default().then(answer("One")).then(answer("Two"));
    let first = World::with(script, Tools::default(), agents).await;
    first.go().await;
    first.session.switch_agent("second").await.unwrap();
    completed(&first.go().await, "Two");
    let system = |world: &World, number: usize| {
        world.request(number).system.iter().map(|part| part.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(system(&first, 0), Vec::<String>::new());
    assert_eq!(system(&first, 1), ["The second.", "Be brief."], "what is blank is left out");
    let next = World::on(first.store.clone(), Script::default().then(answer("Three")), Tools::default(), |builder| {
        agents(builder).worker(WorkerId::from_u128(77)).ids(Counted::from(10_000))
    })
    .await;
    completed(&next.go().await, "Three");
    assert_eq!(system(&next, 0), ["The second.", "Be brief."]);
    let agents: Vec<_> = next.all("step.started").await.iter().map(|started| started["agent"].clone()).collect();
    assert_eq!(agents, ["tester", "second", "second"]);
}

/// 256: every request of a session carries its name: steps, retries and summaries.
#[tokio::test(start_paused = true)]
async fn every_request_carries_the_sessions_name() {
    let busy = Item::Throw(ProviderError::new(ErrorClass::Overloaded, "busy"));
    let script = Script::default().then([busy]).then(answer("Yes")).then(answer("We met")).then(answer("Well"));
    let world = World::new(script, Tools::default()).await;
    world.go().await;
    world.session.compact().await.unwrap();
    world.session.run().await.unwrap();
    completed(&world.go().await, "Well");
    assert_eq!(world.requests(), 4);
    for number in 0..4 {
        assert_eq!(world.request(number).purpose.cache_key(), "s", "request {number}");
    }
    assert_eq!(world.request(2).purpose.kind, RequestKind::Summary);
}

/// 227: whose state goes back is decided by the name of the model in the catalogue, and not by what the provider calls it.
#[tokio::test(start_paused = true)]
async fn models_are_told_apart_by_their_own_names() {
    let state = json!("signed");
    let thinks = |state: &serde_json::Value| {
        let info = ResponseInfo::new(None, Some("the-very-same".to_owned()));
        vec![
            ProviderEvent::ResponseInfo(info),
            ProviderEvent::reasoning_start(0),
            ProviderEvent::reasoning_delta(0, "Hm"),
            ProviderEvent::ReasoningEnd(BlockEnd::new(0, None, Some(state.clone()))),
            stop(),
        ]
    };
    let script = Script::default().then(thinks(&state)).then(answer("Same")).then(answer("Alias"));
    let alias = Arc::new(script.clone());
    let world = World::with(script, Tools::default(), |builder| {
        builder.shared_model(ModelRef::new("script", "alias"), alias, ModelInfo::new())
    })
    .await;
    world.go().await;
    completed(&world.go().await, "Same");
    world.session.switch_model(ModelRef::new("script", "alias")).await.unwrap();
    let settled = world.go().await;
    assert_eq!((settled.outcome, settled.answer.as_deref()), (Outcome::Completed, Some("Alias")));
    let first = |number: usize| match world.request(number).messages[1].as_ref() {
        Message::Assistant(parts) => parts[0].clone(),
        other => panic!("{other:?}"),
    };
    assert!(matches!(first(1), AssistantPart::Reasoning(part) if part.state == Some(state)));
    assert!(matches!(first(2), AssistantPart::Text(part) if part.state.is_none()), "for an alias it is another's");
}
