//! From a log to a request's messages; every request that is made here must pass the checker.
//!
//! The numbers in the tests' docs are those of the behaviour catalogue.

use std::sync::Arc;

use serde_json::{Value, json};
use settled_ledger::check::check_request;
use settled_ledger::{
    CompactionEnded, CompactionReason, Delivery, Event, History, InputId, InputPromoted, Instruction,
    InstructionsUpdated, InterruptedBy, Lowering, StepStarted, StreamExit, Synthetic, SyntheticReason, ToolOutcome,
};
use settled_provider_api::{
    AssistantPart, BlockStart, Capabilities, ErrorClass, Finish, FinishReason, HostedResult, MediaBlock, Message,
    ModelRef, ProviderError, ProviderEvent, Purpose, Request, ToolCallEvent,
};
use settled_tools_api::{Content, Media, ToolOutput};

use crate::kit::{Bench, model, promoted, session, started, step, success};

/// A session as it goes: each step through a real ledger.
#[derive(Default)]
struct Talk {
    log: Vec<Event>,
    steps: u128,
    carried: Vec<settled_ledger::CarriedCall>,
}

impl Talk {
    fn user(&mut self, text: &str) {
        let number = self.log.len() as u128;
        self.log.push(promoted(number, text));
    }

    /// A step of a model, taken through and settled.
    fn step_of(&mut self, model: ModelRef, take: impl FnOnce(&mut Bench)) {
        self.steps += 1;
        let begun = StepStarted { model, ..started(self.steps, 1) };
        let mut bench = Bench::behind(std::mem::take(&mut self.log), begun, std::mem::take(&mut self.carried));
        take(&mut bench);
        bench.settle();
        self.carried = bench.ledger.left_open();
        self.log = bench.log;
        assert_eq!(settled_ledger::check::check_events(crate::kit::placed(&self.log)), []);
    }

    fn step(&mut self, events: &[ProviderEvent]) {
        self.step_of(model(), |bench| bench.stream(events));
    }

    /// A step that makes calls, each with its outcome.
    fn calls(&mut self, calls: &[(&str, ToolOutcome)]) {
        self.step_of(model(), |bench| {
            let keys: Vec<_> = (0..)
                .zip(calls)
                .map(|(index, (id, _))| bench.say(&ProviderEvent::tool_call(index, *id, "act", json!({}))).unwrap())
                .collect();
            // The results come in another order than the calls.
            for (key, (_, outcome)) in keys.into_iter().zip(calls).rev() {
                bench.run(key);
                bench.owe(|ledger| ledger.admit_outcome(key, outcome.clone()));
            }
            bench.stream(&[finish(FinishReason::ToolCalls)]);
        });
    }

    fn history(&self) -> History {
        let mut history = History::default();
        self.log.iter().for_each(|event| history.apply(event));
        history
    }

    /// The messages for a model, in words.
    #[track_caller]
    fn lowered_for(&self, model: &ModelRef, capabilities: &Capabilities) -> Vec<String> {
        let mut lowering = Lowering::new();
        let messages = lowering.update(&self.history(), model, capabilities).to_vec();
        // Event by event it is the same.
        let (mut history, mut followed) = (History::default(), Lowering::new());
        for event in &self.log {
            history.apply(event);
            followed.update(&history, model, capabilities);
        }
        assert_eq!(followed.update(&history, model, capabilities), messages);
        let mut request = Request::new(model.clone(), Purpose::step(session(), step(99)));
        request.messages = messages.clone();
        if lowering.wants_a_user() {
            request.messages.push(Arc::new(Message::user("go on")));
        }
        assert_eq!(check_request(&request, capabilities), [], "{messages:#?}");
        messages.iter().map(|message| show(message)).collect()
    }

    #[track_caller]
    fn check(&self, expected: &[&str]) {
        assert_eq!(self.lowered_for(&model(), &Capabilities::default()), expected);
    }
}

fn finish(reason: FinishReason) -> ProviderEvent {
    ProviderEvent::Finish(Finish::new(reason))
}

fn text(index: u32, text: &str) -> [ProviderEvent; 3] {
    [ProviderEvent::text_start(index), ProviderEvent::text_delta(index, text), ProviderEvent::text_end(index)]
}

fn hosted(index: u32, id: &str) -> ProviderEvent {
    let call = ToolCallEvent::new(index, id, "search", json!({"q": 1})).hosted();
    ProviderEvent::ToolCall(call.state(Some(json!("of the call"))))
}

fn found(id: &str) -> ProviderEvent {
    let state = Some(json!("of the result"));
    ProviderEvent::HostedResult(HostedResult::new(id, vec![Content::text("found")], state))
}

/// A message in words: its role, then its parts, with state in angle brackets.
fn show(message: &Message) -> String {
    let content = |content: &[Content]| -> String {
        let piece = |piece: &Content| match piece {
            Content::Text(text) => format!("`{text}`"),
            Content::Media(media) => format!("[{}]", media.mime),
        };
        content.iter().map(piece).collect::<Vec<_>>().join(" ")
    };
    let state = |state: &Option<Value>| state.as_ref().map(|state| format!("<{state}>")).unwrap_or_default();
    let part = |part: &AssistantPart| match part {
        AssistantPart::Text(text) => format!("`{}`{}", text.text, state(&text.state)),
        AssistantPart::Reasoning(text) => format!("thinks `{}`{}", text.text, state(&text.state)),
        AssistantPart::Call(call) => {
            let who = if call.hosted { "hosts" } else { "calls" };
            format!("{who} {}={}{}{}", call.id, call.name, call.input, state(&call.state))
        }
        AssistantPart::HostedResult(result) => {
            let sign = if result.error { "!" } else { "=" };
            format!("gets {}{sign}{}{}", result.id, content(&result.content), state(&result.state))
        }
        AssistantPart::Media(media) => format!("[{}]", media.mime),
    };
    match message {
        Message::System(text) => format!("system: `{text}`"),
        Message::User(pieces) => format!("user: {}", content(pieces)),
        Message::Assistant(parts) => format!("model: {}", parts.iter().map(part).collect::<Vec<_>>().join(" ")),
        Message::Tool(result) => {
            let sign = if result.error { "!" } else { "=" };
            format!("tool: {}{sign}{}", result.id, content(&result.content))
        }
    }
}

/// 24, 228: the calls stand in the model's message, their results behind it, in the order of the calls.
#[test]
fn local_calls() {
    let mut talk = Talk::default();
    talk.user("hello");
    talk.calls(&[("a", success("one")), ("b", ToolOutcome::Failed(ToolOutput::text("no"), None))]);
    talk.step(&[&text(0, "Done")[..], &[finish(FinishReason::Stop)]].concat());
    talk.user("thanks");
    talk.check(&[
        "user: `hello`",
        "model: calls a=act{} calls b=act{}",
        "tool: a=`one`",
        "tool: b!`no`",
        "model: `Done`",
        "user: `thanks`",
    ]);
}

/// 30: labels that are blank or repeated are replaced, in the call and in its result.
#[test]
fn labels() {
    let mut talk = Talk::default();
    talk.user("hello");
    talk.calls(&[("tool_0", success("one")), ("tool_0", success("two")), (" ", success("three"))]);
    talk.calls(&[("tool_0", success("four")), ("call_1", success("five")), ("", success("six"))]);
    talk.check(&[
        "user: `hello`",
        "model: calls tool_0=act{} calls call_1=act{} calls call_2=act{}",
        "tool: tool_0=`one`",
        "tool: call_1=`two`",
        "tool: call_2=`three`",
        "model: calls call_3=act{} calls call_4=act{} calls call_5=act{}",
        "tool: call_3=`four`",
        "tool: call_4=`five`",
        "tool: call_5=`six`",
    ]);
}

/// A step with state on everything, up to its end.
fn stateful() -> Vec<ProviderEvent> {
    let start = |index, state: &str| BlockStart::new(index, Some(json!(state)));
    let call = ToolCallEvent::new(3, "a", "sing", json!({})).state(Some(json!("c")));
    vec![
        ProviderEvent::ReasoningStart(start(0, "r")),
        ProviderEvent::reasoning_delta(0, "hm"),
        ProviderEvent::ReasoningStart(start(1, "empty")),
        ProviderEvent::TextStart(start(2, "t")),
        ProviderEvent::text_delta(2, "so"),
        ProviderEvent::ToolCall(call),
        hosted(4, "h"),
        found("h"),
        hosted(5, "i"),
    ]
}

/// 9, 21, 60, 224, 225, 226, 229: state goes back to its model only, and from a failed step only with a hosted pair.
#[test]
fn state_goes_back_only_where_it_came_from() {
    let said = |exit: StreamExit, model: ModelRef| {
        let mut talk = Talk::default();
        talk.user("hello");
        talk.step_of(model, |bench| {
            stateful().iter().for_each(|event| {
                bench.say(event);
            });
            if exit == StreamExit::Completed {
                bench.say(&finish(FinishReason::Stop));
            }
            bench.exit(exit.clone());
        });
        talk.lowered_for(&crate::kit::model(), &Capabilities::default())[1].clone()
    };
    let cut = StreamExit::Failed(ProviderError::new(ErrorClass::Transport, "no"));
    let missing = "gets i!`The provider did not return a result for this call.`";
    let same = "model: thinks `hm`<\"r\"> thinks ``<\"empty\"> `so`<\"t\"> calls a=sing{}<\"c\"> \
                hosts h=search{\"q\":1}<\"of the call\"> gets h=`found`<\"of the result\"> \
                hosts i=search{\"q\":1}<\"of the call\"> ";
    assert_eq!(said(StreamExit::Completed, model()), format!("{same}{missing}"));
    let failed = "model: `hm` `so` calls a=sing{} hosts h=search{\"q\":1}<\"of the call\"> \
                  gets h=`found`<\"of the result\"> hosts i=search{\"q\":1}<\"of the call\"> ";
    assert_eq!(said(cut, model()), format!("{failed}{missing}"));
    let other = "model: `hm` `so` calls a=sing{} hosts h=search{\"q\":1} gets h=`found` hosts i=search{\"q\":1} ";
    for elsewhere in [ModelRef::new("lab", "n"), ModelRef::new("shop", "m")] {
        assert_eq!(said(StreamExit::Completed, elsewhere), format!("{other}{missing}"));
    }
}

/// B115: a pause leaves a hosted call open; its result stands in the step that continues.
#[test]
fn a_pause_goes_on_from_the_models_own_message() {
    let mut talk = Talk::default();
    talk.user("hello");
    talk.step(&[hosted(0, "h"), finish(FinishReason::Pause)]);
    talk.check(&["user: `hello`", "model: hosts h=search{\"q\":1}<\"of the call\">"]);
    talk.step(&[finish(FinishReason::Pause)]);
    talk.check(&["user: `hello`", "model: hosts h=search{\"q\":1}<\"of the call\">"]);
    talk.step(&[&[found("h")][..], &text(0, "Here"), &[finish(FinishReason::Stop)]].concat());
    talk.check(&[
        "user: `hello`",
        "model: hosts h=search{\"q\":1}<\"of the call\">",
        "model: gets h=`found`<\"of the result\"> `Here`",
    ]);
}

/// A person who speaks while a pause has left a call open does not make the request ill-formed, and what comes later changes nothing.
#[test]
fn input_behind_a_pause() {
    let mut talk = Talk::default();
    talk.user("hello");
    talk.step(&[hosted(0, "h"), finish(FinishReason::Pause)]);
    talk.user("never mind");
    let open = "model: hosts h=search{\"q\":1}<\"of the call\"> gets h!`The call has no recorded outcome.`";
    talk.check(&["user: `hello`", open, "user: `never mind`"]);
    talk.step(&[&[found("h")][..], &text(0, "Here"), &[finish(FinishReason::Stop)]].concat());
    talk.check(&["user: `hello`", open, "user: `never mind`", "model: `Here`"]);
}

/// 13, 88, 226: what a failed or interrupted step had said stays, and its calls have their outcomes.
#[test]
fn failed_and_interrupted_steps() {
    let mut talk = Talk::default();
    talk.user("hello");
    talk.step_of(model(), |bench| {
        bench.say(&ProviderEvent::text_start(0));
        bench.say(&ProviderEvent::text_delta(0, "Parti"));
        let key = bench.say(&ProviderEvent::tool_call(1, "a", "act", json!({"x": 1}))).unwrap();
        bench.run(key);
        bench.say(&ProviderEvent::tool_input_start(2, "b", "act"));
        bench.say(&ProviderEvent::tool_input_delta(2, "{\"y"));
        bench.owe(|ledger| ledger.admit_interrupt(InterruptedBy::User));
        bench.exit(StreamExit::Interrupted);
        bench.owe(|ledger| ledger.admit_outcome(key, ToolOutcome::Stopped(None)));
    });
    talk.user("again");
    talk.check(&[
        "user: `hello`",
        "model: `Parti` calls a=act{\"x\":1} calls b=act{}",
        "tool: a!`The call was interrupted. It may have acted: check before you call it again.`",
        "tool: b!`The call was not run, because the step was stopped first.`",
        "user: `again`",
    ]);
}

/// 19, 222: what is empty is left out; a blank text stays only with state.
#[test]
fn empty_messages() {
    let mut talk = Talk::default();
    talk.user("hello");
    talk.step(&[finish(FinishReason::Stop)]);
    talk.step(&[&text(0, " \n")[..], &[finish(FinishReason::Stop)]].concat());
    talk.user("  ");
    talk.check(&["user: `hello`"]);
    talk.calls(&[("a", ToolOutcome::Success(ToolOutput::new([Content::text(""), Content::text("x")]), None))]);
    talk.check(&["user: `hello`", "model: calls a=act{}", "tool: a=`x`"]);
}

/// 222, 232, 234: media that the model does not accept is put into words, wherever it stands.
#[test]
fn media() {
    let film = || Media::url("video/mp4", "https://a.test/b.mp4");
    let mut named = film();
    named.name = Some("b.mp4".into());
    let mut talk = Talk::default();
    let content =
        vec![Content::text("look"), Content::Media(Media::base64("image/png", "AA==")), Content::Media(named)];
    talk.log.push(InputPromoted { input: InputId::from_u128(1), delivery: Delivery::Steer, content }.into());
    talk.calls(&[("a", ToolOutcome::Success(ToolOutput::new([Content::Media(film())]), None))]);
    talk.step(&[
        ProviderEvent::Media(MediaBlock::new(0, Media::base64("image/png", "AA=="), None)),
        finish(FinishReason::Stop),
    ]);
    talk.check(&[
        "user: `look` [image/png] `[a file `b.mp4` of type video/mp4 was left out: the model does not accept it]`",
        "model: calls a=act{}",
        "tool: a=`[a file of type video/mp4 was left out: the model does not accept it]`",
        "model: [image/png]",
    ]);
    let all = Capabilities::default().media(["image/*", "video/*"]);
    assert_eq!(
        talk.lowered_for(&model(), &all),
        ["user: `look` [image/png] [video/mp4]", "model: calls a=act{}", "tool: a=[video/mp4]", "model: [image/png]",]
    );
}

/// B004: whatever became of a call, the model gets one result for it, right behind its message.
#[test]
fn every_outcome_has_one_result() {
    let output = || ToolOutput::text("so");
    let outcomes = [
        (success("done"), false),
        (ToolOutcome::Success(ToolOutput::default(), None), true),
        (ToolOutcome::Failed(output(), None), true),
        (ToolOutcome::Unknown(output()), true),
        (ToolOutcome::Declined { feedback: Some("later".into()) }, true),
        (ToolOutcome::Declined { feedback: None }, true),
        (ToolOutcome::Dismissed, true),
        (ToolOutcome::Infra("disk full".into()), true),
        (ToolOutcome::Panicked("oh".into()), true),
        (ToolOutcome::TimedOut("5 s".into()), true),
        (ToolOutcome::Stopped(Some(json!("half"))), true),
        (ToolOutcome::SchemaViolated("at `/x`: 1 is no string".into()), true),
        (ToolOutcome::Denied { rule: "no-network".into() }, true),
        (ToolOutcome::NotRun, true),
        (ToolOutcome::Lost, true),
        // The step ends while a person is waited for.
        (ToolOutcome::Ask { question: "which?".into(), state: json!(1) }, true),
    ];
    // An outcome that is new must find its place above.
    let kind = |outcome: &ToolOutcome| match outcome {
        ToolOutcome::Success(..) => 0,
        ToolOutcome::Ask { .. } => 1,
        ToolOutcome::Failed(..) => 2,
        ToolOutcome::Unknown(_) => 3,
        ToolOutcome::Declined { .. } => 4,
        ToolOutcome::Dismissed => 5,
        ToolOutcome::Infra(_) => 6,
        ToolOutcome::Panicked(_) => 7,
        ToolOutcome::TimedOut(_) => 8,
        ToolOutcome::Stopped(_) => 9,
        ToolOutcome::SchemaViolated(_) => 10,
        ToolOutcome::Denied { .. } => 11,
        ToolOutcome::NotRun => 12,
        ToolOutcome::Lost => 13,
    };
    let kinds: std::collections::BTreeSet<u8> = outcomes.iter().map(|(outcome, _)| kind(outcome)).collect();
    assert_eq!(kinds.len(), 14, "every outcome has a case");
    for (outcome, error) in outcomes {
        let mut talk = Talk::default();
        talk.user("hello");
        talk.calls(&[("a", outcome.clone()), ("b", success("done"))]);
        let said = talk.lowered_for(&model(), &Capabilities::default());
        let results: Vec<_> = said.iter().filter(|message| message.starts_with("tool")).collect();
        assert_eq!(results.len(), 2, "{outcome:?}: {said:?}");
        assert_eq!(said.iter().position(|message| message.starts_with("tool")), Some(2), "{outcome:?}");
        let is_error = results[0].starts_with("tool: a!");
        assert_eq!(is_error, error, "{outcome:?}: {}", results[0]);
        assert_eq!(results[1], "tool: b=`done`");
    }
}

/// 234: media may have 25 MiB in all; where there is more, the oldest becomes a text until 15 MiB are left, and stays that.
#[test]
fn too_much_media() {
    // 6 MiB each.
    let data: Arc<str> = "A".repeat(8 << 20).into();
    let picture = |name: &str| {
        let mut media = Media::base64("image/png", Arc::clone(&data));
        media.name = Some(name.into());
        Content::Media(media)
    };
    let mut talk = Talk::default();
    let ask = |talk: &mut Talk, name: &str| {
        let content = vec![Content::text("see"), picture(name)];
        talk.log.push(InputPromoted { input: InputId::from_u128(1), delivery: Delivery::Steer, content }.into());
    };
    ask(&mut talk, "1");
    talk.calls(&[("a", ToolOutcome::Success(ToolOutput::new([picture("2")]), None))]);
    ask(&mut talk, "3");
    ask(&mut talk, "4");
    let said = ["user: `see` [image/png]", "model: calls a=act{}"];
    let seen = "user: `see` [image/png]";
    talk.check(&[said[0], said[1], "tool: a=[image/png]", seen, seen]);
    // The fifth is too much: three go, so that two are left.
    ask(&mut talk, "5");
    let gone = |name: &str| format!("`[a file `{name}` of type image/png was left out: there was too much of it]`");
    let (one, two, three) = (format!("user: `see` {}", gone("1")), format!("tool: a={}", gone("2")), gone("3"));
    let three = format!("user: `see` {three}");
    talk.check(&[&one, said[1], &two, &three, seen, seen]);
    // One more changes nothing of what stands before it.
    ask(&mut talk, "6");
    talk.check(&[&one, said[1], &two, &three, seen, seen, seen]);
    // What the provider fetches itself is not counted.
    let mut linked = Talk::default();
    let content = (0..30).map(|_| Content::Media(Media::url("image/png", "https://a.test/b.png"))).collect();
    linked.log.push(InputPromoted { input: InputId::from_u128(1), delivery: Delivery::Steer, content }.into());
    linked.check(&[&format!("user: {}", ["[image/png]"; 30].join(" "))]);
}

/// 158, 221: a summary stands for what came before it; a synthetic notice speaks as a person does.
#[test]
fn a_checkpoint_and_a_notice() {
    let mut talk = Talk::default();
    talk.user("hello");
    talk.calls(&[("a", success("one"))]);
    for (recent, end) in
        [("", ""), ("and then", "\n\nThe most recent part of the conversation, word for word:\n\nand then")]
    {
        let compacted = CompactionEnded {
            reason: CompactionReason::Auto,
            text: "we met".into(),
            recent: recent.into(),
            model: model(),
            usage: None,
            cost_nanos: None,
        };
        talk.log.extend([
            settled_ledger::CompactionStarted { reason: CompactionReason::Auto }.into(),
            compacted.into(),
            Synthetic { reason: SyntheticReason::Restart, text: "restarted".into() }.into(),
        ]);
        talk.calls(&[("a", success("two"))]);
        talk.check(&[
            &format!("user: `This is a summary of the conversation so far:\n\nwe met{end}`"),
            "user: `restarted`",
            "model: calls a=act{}",
            "tool: a=`two`",
        ]);
    }
}

/// 246-250: the first observation stands in the prefix; a change is a message, in the role that the model allows; a compaction moves what holds into the prefix.
#[test]
fn instructions_stand_or_are_told() {
    let says = |key: &str, text: Option<&str>| Instruction { key: key.into(), text: text.map(Into::into) };
    let updated = |changed: Vec<Instruction>| Event::from(InstructionsUpdated { changed });
    let mut talk = Talk::default();
    let prefix = |talk: &Talk| {
        let mut history = History::default();
        talk.log.iter().for_each(|event| history.apply(event));
        history.instructions().standing().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(prefix(&talk), [""; 0]);
    talk.log.push(updated(vec![says("style", Some("tabs")), says("date", None), says("place", Some("here"))]));
    assert_eq!(prefix(&talk), ["tabs", "here"]);
    talk.user("hello");
    talk.calls(&[("a", success("one"))]);
    talk.log.push(updated(vec![says("style", None), says("date", Some("monday"))]));
    talk.user("and now");
    assert_eq!(prefix(&talk), ["tabs", "here"]);
    let told = "The instructions that were given for `style` no longer hold.\n\nFrom now on these instructions hold for `date`, instead of any that were given for it before:\n\nmonday";
    for (capabilities, role) in
        [(Capabilities::default(), "user"), (Capabilities::default().system_in_middle(), "system")]
    {
        let told = format!("{role}: `{told}`");
        assert_eq!(
            talk.lowered_for(&model(), &capabilities),
            ["user: `hello`", "model: calls a=act{}", "tool: a=`one`", &told, "user: `and now`"]
        );
    }
    talk.log.extend([
        settled_ledger::CompactionStarted { reason: CompactionReason::Auto }.into(),
        CompactionEnded {
            reason: CompactionReason::Auto,
            text: "we met".into(),
            recent: String::new(),
            model: model(),
            usage: None,
            cost_nanos: None,
        }
        .into(),
    ]);
    assert_eq!(prefix(&talk), ["here", "monday"]);
    talk.check(&["user: `This is a summary of the conversation so far:\n\nwe met`"]);
}

/// A hosted call that was summarised away while it was open: its result has nothing to answer to.
#[test]
fn a_result_whose_call_was_summarised_away() {
    let mut talk = Talk::default();
    talk.user("hello");
    talk.step(&[hosted(0, "h"), finish(FinishReason::Pause)]);
    let compacted = CompactionEnded {
        reason: CompactionReason::Auto,
        text: "we met".into(),
        recent: String::new(),
        model: model(),
        usage: None,
        cost_nanos: None,
    };
    let begun = settled_ledger::CompactionStarted { reason: CompactionReason::Auto };
    talk.log.extend([begun.into(), compacted.into()]);
    talk.step(&[&[found("h")][..], &text(0, "Here"), &[finish(FinishReason::Stop)]].concat());
    talk.check(&["user: `This is a summary of the conversation so far:\n\nwe met`", "model: `Here`"]);
}

/// 43 and the size of a context: an estimate grows with what is said.
#[test]
fn estimates() {
    let tokens = |message: &Message| settled_ledger::estimate_tokens(message);
    assert_eq!(tokens(&Message::user("12345678")), 2);
    assert_eq!(tokens(&Message::user("123456789")), 3);
    let picture = Message::User(vec![Content::Media(Media::base64("image/png", "A".repeat(4_000_000)))]);
    assert_eq!(tokens(&picture), 1_600);
}
