//! The checker of requests: a well-formed request has no breach, and each fault is found.

use std::sync::Arc;

use serde_json::{Value, json};
use settled_ledger::check::{Invariant, check_request};
use settled_provider_api::{
    AssistantPart, CallPart, Capabilities, HostedResultPart, Message, Purpose, Request, TextPart, ToolChoice,
    ToolResult,
};
use settled_tools_api::{Content, Media, ToolDefinition};

use crate::kit::{call, model, session, step};

fn local(ordinal: u32, id: &str) -> AssistantPart {
    AssistantPart::Call(CallPart::new(call(ordinal), id, "act", json!({})))
}

fn hosted(ordinal: u32, id: &str) -> AssistantPart {
    AssistantPart::Call(CallPart::new(call(ordinal), id, "search", json!({})).hosted())
}

fn hosted_result(ordinal: u32, id: &str) -> AssistantPart {
    AssistantPart::HostedResult(HostedResultPart::new(call(ordinal), id, "search", vec![Content::text("found")]))
}

fn result(ordinal: u32, id: &str) -> Message {
    Message::Tool(ToolResult::new(call(ordinal), id, "act", false, vec![Content::text("done")]))
}

fn text(text: &str) -> AssistantPart {
    AssistantPart::Text(TextPart::new(text))
}

fn request(messages: Vec<Message>) -> Request {
    let mut request = Request::new(model(), Purpose::step(session(), step(1)));
    request.messages = messages.into_iter().map(Arc::new).collect();
    request
}

/// A request has exactly these breaches, each of them for a model with the common capabilities.
#[track_caller]
fn check_whole(request: &Request, capabilities: &Capabilities, expected: &[&str]) {
    let found = check_request(request, capabilities);
    assert!(found.iter().all(|breach| breach.invariant == Invariant::I3 && breach.seq.is_none()));
    let found: Vec<_> = found.into_iter().map(|breach| breach.what).collect();
    assert_eq!(found, expected);
}

/// These messages have exactly these breaches.
#[track_caller]
fn check(messages: Vec<Message>, expected: &[&str]) {
    check_whole(&request(messages), &Capabilities::default(), expected);
}

/// A person's message, the model's of these parts, then these.
fn after(parts: Vec<AssistantPart>, rest: Vec<Message>) -> Vec<Message> {
    [vec![Message::user("hello"), Message::Assistant(parts)], rest].concat()
}

#[test]
fn a_well_formed_request_has_no_breach() {
    check(vec![Message::user("hello")], &[]);
    let parts = vec![text("so"), hosted(0, "h"), hosted_result(0, "h"), local(1, "a"), local(2, "b")];
    check(after(parts, vec![result(1, "a"), result(2, "b")]), &[]);
    // Left open by a pause: the model goes on from its own messages.
    check(after(vec![hosted(0, "h")], vec![]), &[]);
    check(after(vec![hosted(0, "h")], vec![Message::Assistant(vec![text("wait")])]), &[]);
    let later = Message::Assistant(vec![hosted_result(0, "h")]);
    check(after(vec![hosted(0, "h")], vec![later, Message::user("thanks")]), &[]);
    let stateful = AssistantPart::Reasoning(TextPart::new("").state(Some(json!({"signature": "x"}))));
    check(after(vec![stateful], vec![Message::user("thanks")]), &[]);
}

#[test]
fn each_local_call_has_one_result_right_behind_its_message() {
    let a = || vec![local(0, "a")];
    check(after(a(), vec![Message::user("well?")]), &["call `a` has no result right behind its message"]);
    check(
        after(a(), vec![Message::user("well?"), result(0, "a")]),
        &[
            "call `a` has no result right behind its message",
            "message 3 (tool): the result `a` answers no open call right before it",
        ],
    );
    let twice = "message 3 (tool): the result `a` answers no open call right before it";
    check(after(a(), vec![result(0, "a"), result(0, "a")]), &[twice]);
    check(
        vec![Message::user("hello"), result(0, "a")],
        &["message 1 (tool): the result `a` answers no open call right before it"],
    );
    let both = after(vec![local(0, "a"), local(1, "b")], vec![result(1, "b"), result(0, "a")]);
    check(both, &["message 2 (tool): the result `b` comes before that of an earlier call"]);
    check(
        after(a(), vec![result(0, "b")]),
        &[
            "message 2 (tool): the result `b` answers no open call right before it",
            "call `a` has no result right behind its message",
        ],
    );
    check(
        after(a(), vec![result(1, "a")]),
        &[
            "message 2 (tool): the result `a` answers no open call right before it",
            "call `a` has no result right behind its message",
        ],
    );
}

#[test]
fn hosted_pairs_stand_inline() {
    check(
        after(vec![hosted_result(0, "h")], vec![Message::user("well?")]),
        &["message 1 (assistant): the hosted result `h` answers no open hosted call"],
    );
    check(
        after(vec![hosted(0, "h")], vec![Message::user("well?")]),
        &["message 2 (user): it follows a hosted call without its result, `h`"],
    );
    let mut blank = HostedResultPart::new(call(0), "h", "search", vec![Content::text("")]);
    let parts = |blank: &HostedResultPart| vec![hosted(0, "h"), AssistantPart::HostedResult(blank.clone())];
    check(
        after(parts(&blank), vec![Message::user("well?")]),
        &["message 1 (assistant): the hosted result `h` has a blank text and carries no state"],
    );
    blank.state = Some(json!(1));
    check(after(parts(&blank), vec![Message::user("well?")]), &[]);
}

#[test]
fn labels_are_unique_and_arguments_are_objects() {
    let blank = after(vec![local(0, " ")], vec![result(0, " ")]);
    check(blank, &["message 1 (assistant): the call of `act` has a blank id"]);
    let again = after(vec![local(0, "a")], [vec![result(0, "a")], after(vec![local(1, "a")], vec![])].concat());
    check([again, vec![result(1, "a")]].concat(), &["message 4 (assistant): the id `a` is used by an earlier call"]);
    let same_key = after(vec![local(0, "a"), local(0, "b")], vec![result(0, "a"), result(0, "b")]);
    check(same_key, &["message 1 (assistant): the call msg_00000000000000000000000000000001/0 stands there twice"]);
    for input in [Value::Null, json!([]), json!("{}")] {
        let parts = vec![AssistantPart::Call(CallPart::new(call(0), "a", "act", input))];
        check(after(parts, vec![result(0, "a")]), &["message 1 (assistant): the arguments of call `a` are no object"]);
    }
}

#[test]
fn nothing_is_blank_or_empty() {
    let thanks = || vec![Message::user("thanks")];
    check(vec![Message::user("  ")], &["message 0 (user): a text is blank"]);
    check(vec![Message::User(Vec::new())], &["message 0 (user): it has no content"]);
    check(after(vec![], thanks()), &["message 1 (assistant): it has no parts"]);
    check(after(vec![text("\n")], thanks()), &["message 1 (assistant): a text is blank and carries no state"]);
    let no_content = Message::Tool(ToolResult::new(call(0), "a", "act", true, Vec::new()));
    check(after(vec![local(0, "a")], vec![no_content]), &["message 2 (tool): it has no content"]);
    let mut blank_system = request(vec![Message::user("hello")]);
    blank_system.system = ["be kind".into(), "".into()].into();
    check_whole(&blank_system, &Capabilities::default(), &["system part 1 is blank"]);
}

#[test]
fn the_model_gets_only_what_it_takes() {
    let plain = Capabilities::default();
    check(vec![], &["it has no messages"]);
    let last = after(vec![text("so")], vec![]);
    check(last.clone(), &["the last message is the model's own, and the model does not go on from one"]);
    check_whole(&request(last), &plain.clone().assistant_last(), &[]);

    let notice = vec![Message::user("hello"), Message::System("later".into())];
    check(notice.clone(), &["message 1 (system): the model takes no system message in the middle of the history"]);
    check_whole(&request(notice), &plain.clone().system_in_middle(), &[]);

    let film = vec![Message::User(vec![Content::Media(Media::url("video/mp4", "https://a.test/b.mp4"))])];
    check(film.clone(), &["message 0 (user): the model does not accept media of type video/mp4"]);
    check_whole(&request(film), &plain.media(["video/*"]), &[]);
}

#[test]
fn tools_have_different_names_and_the_choice_can_be_met() {
    let with = |names: &[&str], choice: ToolChoice, expected: &[&str]| {
        let mut request = request(vec![Message::user("hello")]);
        request.tools = names.iter().map(|name| ToolDefinition::new(*name, "", json!({}))).collect();
        request.tool_choice = choice;
        check_whole(&request, &Capabilities::default(), expected);
    };
    with(&["a", "b"], ToolChoice::Tool("b".into()), &[]);
    with(&[], ToolChoice::None, &[]);
    with(&["a", "a"], ToolChoice::Auto, &["two tools are named `a`"]);
    with(&[""], ToolChoice::Auto, &["a tool has a blank name"]);
    with(&["a"], ToolChoice::Tool("b".into()), &["the tool `b` must be called and is not on offer"]);
    with(&[], ToolChoice::Required, &["a tool must be called and none is on offer"]);
}
