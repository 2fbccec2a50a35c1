//! The command as a person uses it: its output, its exit codes, its answers from outside, what it says to mistakes.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use settled_ledger::WorkerId;
use settled_ledger::store::Ownership;
use settled_provider_api::{ErrorClass, ProviderError};
use settled_store_sqlite::SqliteStore;
use settled_testkit::{Script, script};
use settled_tools_api::SessionId;

use crate::common::{Ended, World, lines, says, shells};

/// A run of one prompt: its script, its flags, and how it ends.
struct Case {
    script: Script,
    flags: &'static [&'static str],
    code: i32,
    out: &'static str,
    /// What standard error has, in this order.
    err: &'static [&'static str],
    /// What the timeline has.
    log: &'static [&'static str],
}

async fn check(case: Case) {
    let world = World::new(case.script).await;
    let ended = world.run("s", "Go", case.flags);
    assert_eq!((ended.code, &*ended.out), (Some(case.code), case.out), "{ended:?}");
    let mut rest = &*ended.err;
    for words in case.err {
        let (_, behind) = rest.split_once(words).unwrap_or_else(|| panic!("`{words}` is not in order in {ended:?}"));
        rest = behind;
    }
    let log = world.timeline("s");
    for words in case.log {
        assert!(log.contains(words), "`{words}` is not in {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_streamed() {
    check(Case {
        script: script().step(says("Good day.")),
        flags: &[],
        code: 0,
        out: "Good day.\n",
        err: &["session s completed; 12 tokens in, 5 out"],
        log: &["input: Go", "text: Good day.", "step 1 settled clean", "execution completed"],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tool_is_shown_with_its_time() {
    let note = json!({"path": "notes.txt", "content": "one"});
    check(Case {
        script: script()
            .step(|s| s.call("write_file", note).finish())
            .step(shells([("b", "cat notes.txt; exit 3")]))
            .step(|s| s.call("no_such_tool", json!({})).finish())
            .step(says("Done.")),
        flags: &["--tools", "files,shell"],
        code: 0,
        out: "Done.\n",
        err: &[
            "> write_file notes.txt",
            "✓ write_file notes.txt  0.",
            "> shell cat notes.txt; exit 3",
            "✗ shell cat notes.txt; exit 3  0.",
            "execution: one [exit status 3]",
            "✗ no_such_tool  unknown_tool",
            "session s completed",
        ],
        log: &[
            "call 0: write_file success after 0.",
            "call 0: shell failed (execution) after 0.",
            "step 4 settled clean",
        ],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_model_fails_and_says_where_to_look() {
    let refusal = ProviderError::new(ErrorClass::InvalidRequest, "The model `x` does not exist.").status(404);
    check(Case {
        script: script().fail(refusal.code("model_not_found".to_owned())),
        flags: &["--model", "x"],
        code: 1,
        out: "",
        err: &["invalid_request: The model `x` does not exist.", "check --model", "session s failed"],
        log: &["step 1 settled provider_failed", "execution failed: invalid_request"],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_fails_and_says_where_to_look() {
    let refusal = ProviderError::new(ErrorClass::Auth, "Incorrect API key provided.");
    check(Case {
        script: script().fail(refusal),
        flags: &[],
        code: 1,
        out: "",
        err: &["auth: Incorrect API key", "check OPENAI_API_KEY", "session s failed"],
        log: &["step 1 settled provider_failed"],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_needs_approval_parks_the_run() {
    check(Case {
        script: script().step(shells([("a", "touch acted")])),
        flags: &["--tools", "shell", "--ask", "shell"],
        code: 3,
        out: "",
        err: &["waits: Run shell with", "`settled approve s msg_", "session s parked"],
        log: &["call 0: waits for approval: Run shell with", "call 0: shell has not started"],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_json_lines() {
    let world = World::new(script().step(shells([("a", "echo hi")])).step(says("It says hi."))).await;
    let ended = world.run("s", "Go", &["--tools", "shell", "--json"]);
    assert_eq!((ended.code, &*ended.err), (Some(0), ""), "{ended:?}");
    let events = lines(&ended.out);
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).cloned().collect::<Vec<_>>();
    let live: String = of("text.delta").iter().map(|delta| delta["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(live, "It says hi.");
    let end = events.last().unwrap();
    let telling = ["session", "type", "outcome", "error", "answer", "waiting"].map(|key| end[key].clone());
    let expected = ["s".into(), "run.ended".into(), "completed".into(), Value::Null, "It says hi.".into(), json!([])];
    assert_eq!(telling, expected);

    // What has a sequence is the log, whole and in order; and a file of it can be checked.
    let durable: Vec<&Value> = events.iter().filter(|event| event["seq"].is_u64()).collect();
    let log = world.end(&["log", "s", "--json"]);
    assert_eq!(lines(&log.out).iter().collect::<Vec<_>>(), durable);
    let file = world.file("log.jsonl");
    std::fs::write(&file, &log.out).unwrap();
    let check = world.end(&["check", file.to_str().unwrap()]);
    assert_eq!((check.code, check.out), (Some(0), format!("{} events: every invariant holds\n", durable.len())));
    let twice = log.out.replace(r#""type":"tool.success""#, r#""type":"tool.started""#);
    std::fs::write(&file, twice).unwrap();
    let check = world.end(&["check", file.to_str().unwrap()]);
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(check.out.contains("I2 (a call starts at most once"), "{check:?}");
    std::fs::write(&file, "{}\n").unwrap();
    let check = world.end(&["check", file.to_str().unwrap()]);
    assert_eq!(check.code, Some(2), "{check:?}");
    assert!(check.err.contains("line 1: the field `session` is missing"), "{check:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_remembers_what_it_was_made_with() {
    let world = World::new(script().step(says("One.")).step(says("Two.")).step(says("Three."))).await;
    let flags = ["--model", "first", "--tools", "shell", "--system", "Be brief."];
    assert_eq!(world.run("s", "a", &flags).out, "One.\n");
    assert_eq!(world.end(&["run", "b", "-s", "s"]).out, "Two.\n");
    assert_eq!(world.end(&["run", "c", "-s", "s", "--model", "other", "--tools", "none"]).out, "Three.\n");
    let told = |request: &Value| {
        let messages = request["messages"].as_array().unwrap();
        let said: Vec<_> = messages.iter().filter(|message| message["role"] != "system").collect();
        let tools = request["tools"].as_array().map_or(0, Vec::len);
        (request["model"].as_str().unwrap().to_owned(), tools, said.len())
    };
    let requests: Vec<Value> = world.server.requests().into_iter().map(|request| request.body).collect();
    let told: Vec<_> = requests.iter().map(told).collect();
    assert_eq!(told, [("first".to_owned(), 1, 1), ("first".to_owned(), 1, 3), ("other".to_owned(), 0, 5)]);
    assert!(requests[0]["messages"][0].to_string().contains("Be brief."), "{}", requests[0]);
    assert!(world.timeline("s").contains("model openai-chat/other"));
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_and_private() {
    let world = World::new(script().step(says("One.")).step(shells([("a", "true")]))).await;
    let none = world.end(&["sessions"]);
    assert_eq!((none.code, &*none.out), (Some(0), ""), "{none:?}");
    world.run("quiet", "a", &[]);
    world.run("parked", "b", &["--tools", "shell", "--ask", "all"]);
    let listed = lines(&world.end(&["sessions", "--json"]).out);
    let listed: Vec<_> = listed.iter().map(|info| (info["session"].as_str(), info["state"].as_str())).collect();
    assert_eq!(listed, [(Some("quiet"), Some("idle")), (Some("parked"), Some("waits for a person"))]);
    assert_eq!(world.end(&["sessions"]).out.lines().count(), 2);
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(world.data()), mode(world.data().join("sessions.db"))), (0o700, 0o600));
}

/// Parks a call, hands in an answer from another process, and goes on.
async fn answered(answer: &[&str]) -> (World, Ended) {
    let world = World::new(script().step(shells([("a", "touch acted")])).step(says("So be it."))).await;
    let parked = world.run("s", "Go", &["--tools", "shell", "--ask", "all"]);
    assert_eq!(parked.code, Some(3), "{parked:?}");
    let handed_in = world.end(answer);
    assert_eq!(handed_in.code, Some(0), "{handed_in:?}");
    let ended = world.end(&["run", "--session", "s"]);
    world.timeline("s");
    (world, ended)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_call_runs_once() {
    let (world, ended) = answered(&["approve", "s"]).await;
    assert_eq!((ended.code, &*ended.out), (Some(0), "So be it.\n"), "{ended:?}");
    assert!(ended.err.contains("✓ shell touch acted"), "{ended:?}");
    assert!(world.file("acted").exists());
    let late = world.end(&["approve", "s"]);
    assert_eq!(late.code, Some(2), "{late:?}");
    assert!(late.err.contains("no call of session s waits"), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declined_call_stops_the_run_or_tells_the_model_why() {
    let (world, ended) = answered(&["decline", "s"]).await;
    assert_eq!((ended.code, &*ended.out), (Some(130), ""), "{ended:?}");
    assert!(!world.file("acted").exists());
    let (world, ended) = answered(&["decline", "s", "--feedback", "use another name"]).await;
    assert_eq!((ended.code, &*ended.out), (Some(0), "So be it.\n"), "{ended:?}");
    assert!(world.server.requests()[1].body.to_string().contains("use another name"));
    assert!(!world.file("acted").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_from_another_process_settles_what_is_parked() {
    let (world, ended) = answered(&["interrupt", "s"]).await;
    assert_eq!((ended.code, &*ended.out), (Some(130), ""), "{ended:?}");
    assert!(!world.file("acted").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_hands_its_prompt_to_the_first() {
    let wait = "touch running; until [ -e go ]; do sleep 0.02; done";
    let world = World::new(script().step(shells([("a", wait)])).step(says("To both."))).await;
    let mut first = world.start("s", "One", &["--tools", "shell"]);
    first.wait_for(&world.file("running"));
    let mut second = world.start("s", "Two", &[]);
    second.wait_until_said("another process runs session s");
    // The first takes it up at its next border: it has one when its tool has ended.
    second.wait_until_said("handed in");
    std::fs::write(world.file("go"), "").unwrap();
    let (first, second) = (first.end(), second.end());
    assert_eq!((first.code, &*first.out), (Some(0), "To both.\n"), "{first:?}");
    assert_eq!((second.code, &*second.out), (Some(0), "To both.\n"), "{second:?}");
    assert_eq!(world.server.requests().len(), 2);
    let log = world.timeline("s");
    assert!(log.contains("input: One") && log.contains("input: Two"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_another_program_is_waited_for() {
    let world = World::new(script().step(says("One.")).step(says("Two."))).await;
    assert_eq!(world.run("s", "a", &[]).code, Some(0));
    let store = SqliteStore::open(world.data().join("sessions.db")).unwrap();
    let other = WorkerId::from_u128(7);
    store.claim(other, Duration::from_secs(2), &SessionId::new("s").unwrap()).await.unwrap();
    let ended = world.run("s", "b", &[]);
    assert_eq!((ended.code, &*ended.out), (Some(0), "Two.\n"), "{ended:?}");
    assert!(ended.err.contains("another program holds session s, or died less than 5 s ago; waiting"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_can_come_from_standard_input() {
    use std::io::Write;
    let world = World::new(script().step(says("Read."))).await;
    let mut command = world.settled(&["run", "-", "--base-url", &world.base_url()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"line one\nline two\n").unwrap();
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!((ended.code, &*ended.out), (Some(0), "Read.\n"), "{ended:?}");
    assert_eq!(world.server.requests()[0].body["messages"][0]["content"], "line one\nline two\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_runs_to_its_end() {
    let demo = World::new(script()).await.end(&["demo"]);
    assert_eq!(demo.code, Some(0), "{demo:?}");
    for words in ["settled interrupted", "settled provider_failed", "waits for approval", "every invariant holds"] {
        assert!(demo.out.contains(words), "`{words}` is not in {}", demo.out);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_say_what_to_do() {
    let world = World::new(script()).await;
    let nobody = "http://127.0.0.1:9/v1";
    let cases: &[(&[&str], i32, &str)] = &[
        // A server that was never reached is not waited for.
        (&["run", "Hi", "--base-url", nobody], 1, "refuses connections: is the server running?"),
        (&["run", "Hi", "--folder", "/nowhere", "--base-url", nobody], 2, "`/nowhere` cannot be worked in"),
        (&["run", "Hi", "--base-url", "nobody"], 2, "must begin with http:// or https://"),
        (&["run", "Hi"], 2, "set OPENAI_API_KEY"),
        (&["run", "  ", "--base-url", nobody], 2, "the prompt is empty"),
        (&["run", "--base-url", nobody], 2, "give a prompt"),
        (&["run", "--session", "new", "--base-url", nobody], 2, "there is no session new to go on with"),
        (&["run", "Hi", "--session", "a b"], 2, "white space"),
        (&["run", "Hi", "--tools", "hammer"], 2, "files, shell"),
        (&["log", "nobody"], 2, "`settled sessions` lists"),
        (&["check", "nobody"], 2, "there is no session and no file `nobody`"),
        (&["approve", "nobody"], 2, "there is no session `nobody`"),
        (&["nonsense"], 2, "unrecognized subcommand"),
    ];
    for (arguments, code, says) in cases {
        let ended = world.end(arguments);
        assert_eq!((ended.code, &*ended.out), (Some(*code), ""), "{arguments:?}: {ended:?}");
        assert!(ended.err.contains(says), "{arguments:?}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_used_says_what_to_do() {
    let world = World::new(script()).await;
    std::fs::create_dir(world.data()).unwrap();
    std::fs::write(world.data().join("sessions.db"), "this is no database, whatever its name says; ".repeat(100))
        .unwrap();
    let ended = world.run("s", "Go", &[]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.err.contains("sessions.db` is not a SQLite database: give another path"), "{ended:?}");
    let ended = world.end(&["sessions", "--data", "/dev/null"]);
    assert_eq!((ended.code, ended.err.lines().count()), (Some(2), 1), "{ended:?}");
}

/// A name that is no tool's asks for nothing: it is refused, and so is a model without a name; a session remembers its system prompt.
#[tokio::test(flavor = "multi_thread")]
async fn what_would_be_passed_over_is_refused_or_remembered() {
    let world = World::new(script().step(says("One.")).step(says("Two."))).await;
    let url = world.server.base_url(settled_testkit::server::Wire::Chat);
    for (flags, why) in [(["--ask", "shel"], "there is no tool `shel` to --ask for"), (["--model", " "], "empty")] {
        let refused = world.end(&["run", "Go", "--base-url", &url, "--tools", "shell", flags[0], flags[1]]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains(why), "{refused:?}");
    }
    world.end(&["run", "Go", "--base-url", &url, "-s", "s", "--system", "Never touch it."]);
    world.end(&["run", "And?", "-s", "s"]);
    let requests = world.server.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert!(request.body["messages"][0].to_string().contains("Never touch it."), "{request:?}");
    }
}
