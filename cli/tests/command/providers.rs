//! Runs over each wire: where requests go and with which key, what goes back, and how a session goes on with another provider.

use serde_json::json;
use settled_provider_api::{ErrorClass, ProviderError};
use settled_testkit::server::{Received, Wire};
use settled_testkit::{Stream, script};

use crate::common::{Ended, World, says};

/// A provider as the command knows it.
#[derive(Clone, Copy, Debug)]
struct Vendor {
    provider: &'static str,
    wire: Wire,
    /// Where requests go.
    target: &'static str,
    /// The model where none is named.
    model: &'static str,
    base_url_from: &'static str,
    key_from: &'static str,
    /// The header that has the key, and what stands before it.
    header: (&'static str, &'static str),
}

const VENDORS: [Vendor; 4] = [
    Vendor {
        provider: "openai-chat",
        wire: Wire::Chat,
        target: "/v1/chat/completions",
        model: "gpt-4.1-mini",
        base_url_from: "OPENAI_BASE_URL",
        key_from: "OPENAI_API_KEY",
        header: ("authorization", "Bearer "),
    },
    Vendor {
        provider: "openai",
        wire: Wire::Responses,
        target: "/v1/responses",
        model: "gpt-4.1-mini",
        base_url_from: "OPENAI_BASE_URL",
        key_from: "OPENAI_API_KEY",
        header: ("authorization", "Bearer "),
    },
    Vendor {
        provider: "anthropic",
        wire: Wire::Messages,
        target: "/v1/messages",
        model: "claude-haiku-4-5",
        base_url_from: "ANTHROPIC_BASE_URL",
        key_from: "ANTHROPIC_API_KEY",
        header: ("x-api-key", ""),
    },
    Vendor {
        provider: "gemini",
        wire: Wire::Gemini,
        target: "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        model: "gemini-2.5-flash",
        base_url_from: "GOOGLE_GEMINI_BASE_URL",
        key_from: "GEMINI_API_KEY",
        header: ("x-goog-api-key", ""),
    },
];

/// What only its own provider may be given back.
const STATE: &str = "b3BhcXVl";

/// An answer: reasoning with state, where the wire has any, and a call of the shell.
fn acts(command: &str) -> impl FnOnce(Stream) -> Stream {
    let input = json!({"command": command});
    move |stream| stream.reasoning("I look.", json!(STATE)).call_as("call_1", "shell", input).finish()
}

impl Vendor {
    fn url(&self, world: &World) -> String {
        world.server.base_url(self.wire)
    }

    fn has_state(&self) -> bool {
        self.wire != Wire::Chat
    }

    /// Holds a request to have come on this wire, for its model, with this key.
    fn asked(&self, request: &Received, key: Option<&str>) {
        assert_eq!(request.target, self.target, "{self:?}");
        let (name, before) = self.header;
        assert_eq!(request.header(name), key.map(|key| format!("{before}{key}")).as_deref(), "{self:?}");
        // Gemini's model is in the path.
        let model = request.body.get("model").map_or(self.model, |model| model.as_str().unwrap());
        assert_eq!(model, self.model, "{self:?}");
    }
}

fn completed(ended: &Ended, out: &str) {
    assert_eq!((ended.code, &*ended.out), (Some(0), out), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_wire_is_spoken_and_remembered() {
    for vendor in VENDORS {
        let world = World::new(script().step(acts("echo seen")).step(says("One.")).step(says("Two."))).await;
        let flags = ["--provider", vendor.provider, "--base-url", &vendor.url(&world), "--tools", "shell"];
        let run = |arguments: &[&str]| -> Ended {
            world.settled(arguments).env(vendor.key_from, " k-123 ").output().unwrap().into()
        };
        completed(&run(&[&["run", "Look", "--session", "s"], &flags[..]].concat()), "One.\n");
        completed(&run(&["run", "Again", "--session", "s"]), "Two.\n");

        let requests = world.server.requests();
        assert_eq!(requests.len(), 3, "{vendor:?}");
        for (place, request) in requests.iter().enumerate() {
            vendor.asked(request, Some("k-123"));
            let body = request.body.to_string();
            assert_eq!(body.contains("seen"), place > 0, "{vendor:?}: the call and its result: {body}");
            assert_eq!(body.contains(STATE), vendor.has_state() && place > 0, "{vendor:?}: {body}");
            assert_eq!(body.contains("One."), place == 2, "{vendor:?}: {body}");
        }
        let log = world.timeline("s");
        assert!(log.contains(&format!("for {}/{}", vendor.provider, vendor.model)), "{vendor:?}: {log}");
        let known = crate::common::lines(&world.end(&["sessions", "--json"]).out);
        assert_eq!(known[0]["tags"]["provider"], vendor.provider);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_with_any_other_provider() {
    for from in VENDORS {
        for to in VENDORS.into_iter().filter(|to| to.provider != from.provider) {
            let world =
                World::new(script().step(acts("echo seen")).step(says("One.")).step(says("Two.")).step(says("Three.")))
                    .await;
            let run = |arguments: &[&str]| -> Ended {
                world.settled(arguments).env(to.base_url_from, to.url(&world)).output().unwrap().into()
            };
            let (before, after) = (from.url(&world), to.url(&world));
            let first = ["run", "Look", "-s", "s", "--tools", "shell", "--provider", from.provider];
            completed(&run(&[&first[..], &["--base-url", &before]].concat()), "One.\n");
            completed(&run(&["run", "And?", "-s", "s", "--provider", to.provider, "--base-url", &after]), "Two.\n");
            completed(&run(&["run", "And now?", "-s", "s"]), "Three.\n");

            let requests = world.server.requests();
            assert_eq!(requests.len(), 4, "{from:?} {to:?}");
            for request in &requests[2..] {
                to.asked(request, None);
                let body = request.body.to_string();
                assert!(body.contains("seen") && body.contains("One."), "{from:?} {to:?}: {body}");
                assert!(!body.contains(STATE), "{from:?} {to:?}: another provider's state is in {body}");
            }
            world.timeline("s");
        }
    }
}

/// A switch that was handed in while the session waited for a person is still made by a later run.
#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_is_still_to_be_made_is_known_to_the_next_run() {
    let [chat, _, anthropic, _] = VENDORS;
    let script = script().step(acts("touch acted")).step(says("One.")).step(says("Two.")).step(says("Three."));
    let world = World::new(script).await;
    let run = |arguments: &[&str]| -> Ended {
        let mut command = world.settled(arguments);
        command.env(anthropic.base_url_from, anthropic.url(&world));
        command.env(chat.base_url_from, chat.url(&world)).current_dir(world.file("")).output().unwrap().into()
    };
    let parked = run(&["run", "Go", "-s", "s", "--tools", "shell", "--ask", "all"]);
    assert_eq!(parked.code, Some(3), "{parked:?}");
    let still_parked = run(&["run", "And?", "-s", "s", "--provider", "anthropic"]);
    assert_eq!(still_parked.code, Some(3), "{still_parked:?}");
    assert_eq!(run(&["approve", "s"]).code, Some(0));
    let ended = run(&["run", "-s", "s"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let targets: Vec<String> = world.server.requests().into_iter().map(|request| request.target).collect();
    assert_eq!((&*targets[0], &**targets.last().unwrap()), (chat.target, anthropic.target), "{targets:?}");
    assert!(world.timeline("s").contains("model anthropic/claude-haiku-4-5"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_refused_key_is_named() {
    for vendor in VENDORS {
        let world = World::new(script().fail(ProviderError::new(ErrorClass::Auth, "invalid x-api-key"))).await;
        let missing = world.end(&["run", "Hi", "--provider", vendor.provider]);
        assert_eq!(missing.code, Some(2), "{missing:?}");
        assert!(missing.err.contains(&format!("set {}", vendor.key_from)), "{vendor:?}: {missing:?}");
        let refused = world.end(&[
            "run",
            "Hi",
            "--provider",
            vendor.provider,
            "--base-url",
            &vendor.url(&world),
            "--retries",
            "0",
        ]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains(&format!("check {}", vendor.key_from)), "{vendor:?}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_not_in_the_environment_of_the_shell() {
    let vendor = VENDORS[3];
    let world = World::new(script().step(acts("env > seen")).step(says("Done."))).await;
    let mut command = world.settled(&["run", "Go", "--provider", "gemini", "--tools", "shell", "--folder"]);
    command.arg(world.file("")).args(["--base-url", &vendor.url(&world)]).env("GOOGLE_API_KEY", "k-google");
    for other in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"] {
        command.env(other, "k-other");
    }
    completed(&command.output().unwrap().into(), "Done.\n");
    vendor.asked(&world.server.requests()[0], Some("k-google"));
    let seen = std::fs::read_to_string(world.file("seen")).unwrap();
    assert!(seen.contains("PATH=") && !seen.contains("k-google") && !seen.contains("k-other"), "{seen}");
}
