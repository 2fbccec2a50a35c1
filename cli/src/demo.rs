//! `settled demo`: a whole session against a scripted server, through the real adapter, real tools and a real SQLite file.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::json;
use settled_ledger::check::check_log;
use settled_ledger::{LiveEvent, Outcome};
use settled_provider_api::{ErrorClass, FixedKey, ModelInfo, ModelRef, ProviderError, Usage};
use settled_provider_openai::chat::OpenAiChat;
use settled_runner::{Agent, Runner, Session, SessionEvent, Settings};
use settled_store_sqlite::SqliteStore;
use settled_testkit::server::{Server, Wire};
use settled_testkit::{Script, Stream, script};
use settled_tool_files::Files;
use settled_tool_shell::Shell;
use settled_tools_api::{Decision, Policy, PolicyCall, SessionId, Toolbox};
use tokio::time::timeout;

use crate::args::Demo;
use crate::data::{self, DataFolder};
use crate::exit::{Exit, Failure};
use crate::{check, text, timeline};

/// How long a scene may take before something is wrong with this machine.
const LIMIT: Duration = Duration::from_secs(30);

/// How many requests the scenes make in all.
const REQUESTS: usize = 15;

/// One thing that happens, and what it shows.
struct Scene {
    title: &'static str,
    prompt: &'static str,
    /// Adds what the model answers to the script.
    answers: fn(Script) -> Script,
    act: Act,
    outcome: Outcome,
}

/// What happens while the scene runs.
#[derive(Clone, Copy)]
enum Act {
    Nothing,
    /// The run is interrupted when its tool shows progress.
    Interrupt,
    /// The call that waits is approved by another process.
    ApproveElsewhere,
}

pub(crate) async fn demo(args: Demo) -> Result<Exit, Failure> {
    let began = Instant::now();
    let unusable = |error: io::Error| Failure::failed(format!("there is no room for the demo's files: {error}"));
    let folder = tempfile::Builder::new().prefix("settled-demo-").tempdir().map_err(unusable)?;
    let work = folder.path().join("work");
    std::fs::create_dir(&work).map_err(unusable)?;
    let data = DataFolder::choose(Some(folder.path().join("data")))?;
    let store = data.open()?;

    let scenes = scenes();
    let server = Server::start(scenes.iter().fold(script(), |script, scene| (scene.answers)(script))).await;
    let server = server.map_err(|error| Failure::failed(format!("no server can be started on 127.0.0.1: {error}")))?;
    let runner = runner(&server, &store, &work)?;
    let id = SessionId::new("demo")?;
    let session = runner.session(id.clone()).await?;

    let mut as_scripted = true;
    for (number, scene) in (1..).zip(&scenes) {
        writeln!(io::stdout(), "{number}. {}\n   you:     {}", scene.title, scene.prompt)?;
        let played = timeout(LIMIT, play(&session, scene, &data)).await;
        let settled = played
            .map_err(|_| Failure::failed(format!("scene {number} is not over after {} s", LIMIT.as_secs())))??;
        let said = match (&settled.error, settled.answer) {
            (Some(error), _) => error.to_string(),
            (None, Some(answer)) if settled.outcome == Outcome::Completed => answer,
            _ => "what was under way is settled, and kept".to_owned(),
        };
        writeln!(io::stdout(), "   {}: {}\n", settled.outcome.name(), text::one_line(&said, 100))?;
        as_scripted &= settled.outcome == scene.outcome;
    }
    runner.shutdown(Duration::from_secs(1)).await;
    let requests = server.requests().len();
    as_scripted &= requests == REQUESTS && server.faults().is_empty() && !work.join("poem.txt").exists();

    let log = data::whole_log(&store, &id).await?;
    let mut out = io::stdout().lock();
    writeln!(out, "The timeline, as `settled log` shows it:\n")?;
    timeline::write(&log, &mut out)?;
    let breaches = check_log(&log);
    write!(out, "\nThe checker: ")?;
    check::write(&log, &breaches, &mut out)?;
    writeln!(
        out,
        "{requests} requests, {} durable commits, {}",
        store.stats().commits,
        text::seconds(began.elapsed())
    )?;
    if args.keep {
        let folder = folder.keep();
        writeln!(out, "kept: `settled log demo --data {}`", folder.join("data").display())?;
    }
    if !as_scripted {
        return Err(Failure::failed(
            "the demo did not go as its script says: this is a fault of settled, or of this machine",
        ));
    }
    Ok(if breaches.is_empty() { Exit::Completed } else { Exit::Failed })
}

/// Plays one scene and gives how it ended.
async fn play(session: &Session, scene: &Scene, data: &DataFolder) -> Result<settled_runner::Settled, Failure> {
    let head = session.fold().await?.head;
    let mut follow = session.follow(head);
    session.prompt(scene.prompt).await?;
    match scene.act {
        Act::Nothing => {}
        Act::Interrupt => {
            // The tool has shown that it runs: it is in the middle of its work.
            while let Some(event) = follow.next().await {
                if let SessionEvent::Live(event) = event?
                    && matches!(event, LiveEvent::ToolProgress { .. })
                {
                    session.interrupt().await?;
                    break;
                }
            }
        }
        Act::ApproveElsewhere => {
            let parked = session.settled().await?;
            writeln!(io::stdout(), "   {}: {}", parked.outcome.name(), question(session).await?)?;
            let command = std::env::current_exe();
            let command = command.map_err(|error| Failure::failed(format!("this program is not found: {error}")))?;
            let mut approve = std::process::Command::new(command);
            approve.args(["approve", session.id().as_str(), "--data"]).arg(data.path());
            let approved = tokio::task::spawn_blocking(move || approve.output()).await;
            match approved {
                Ok(Ok(output)) if output.status.success() => {
                    let said = String::from_utf8_lossy(&output.stdout);
                    writeln!(io::stdout(), "   elsewhere: {}", text::one_line(&said, 100))?;
                }
                Ok(Ok(output)) => {
                    let said = String::from_utf8_lossy(&output.stderr);
                    return Err(Failure::failed(format!("the other process failed: {}", text::one_line(&said, 200))));
                }
                _ => return Err(Failure::failed("no other process can be started")),
            }
        }
    }
    Ok(session.settled().await?)
}

async fn question(session: &Session) -> Result<String, Failure> {
    let waiting = session.waiting().await?;
    Ok(waiting.first().map(|waiting| text::one_line(&waiting.text, 100)).unwrap_or_default())
}

fn runner(server: &Server, store: &SqliteStore, work: &Path) -> Result<Runner, Failure> {
    let chat = OpenAiChat::new(server.base_url(Wire::Chat), Arc::new(FixedKey::none()));
    let chat = chat.map_err(|error| Failure::failed(error.to_string()))?;
    let files = Files::new(work).map_err(|error| Failure::failed(error.to_string()))?;
    let shell = Shell::new(work).map_err(|error| Failure::failed(error.to_string()))?;
    let mut settings = Settings::default();
    // Nobody wants to wait in a demo.
    settings.retry.base = Duration::from_millis(50);
    settings.compaction.keep = 0;
    let runner = Runner::builder()
        .model(ModelRef::new("openai-chat", "scripted"), chat, ModelInfo::new())
        .tools(Toolbox::new().with(files).with(shell))
        .policy(AskBeforeRemoving)
        .agent(Agent::new("demo").system("You work in a temporary folder."))
        .settings(settings)
        .shared_store(Arc::new(store.clone()));
    Ok(runner.build()?)
}

/// Asks before a command that removes something.
struct AskBeforeRemoving;

#[async_trait]
impl Policy for AskBeforeRemoving {
    async fn decide(&self, call: &PolicyCall) -> Decision {
        let command = call.input.get("command").and_then(|command| command.as_str());
        match command.filter(|command| command.starts_with("rm ")) {
            Some(command) => Decision::Ask(format!("Run `{command}`?")),
            None => Decision::Allow,
        }
    }
}

fn scenes() -> [Scene; 8] {
    [
        Scene {
            title: "A step of text",
            prompt: "What do you do?",
            answers: |script| says(script, "I run the tools you gave me, and every step of mine settles."),
            act: Act::Nothing,
            outcome: Outcome::Completed,
        },
        Scene {
            title: "Two tools at once, then another",
            prompt: "Fetch two colours and write a poem.",
            answers: |script| {
                let poem = json!({"path": "poem.txt", "content": "Roses are red\nViolets are blue\n"});
                let script = runs(script, &["sleep 0.2; echo red", "sleep 0.2; echo blue"]);
                says(script.step(|s| s.call("write_file", poem).finish()), "The poem is in poem.txt.")
            },
            act: Act::Nothing,
            outcome: Outcome::Completed,
        },
        Scene {
            title: "An interrupt in the middle of a tool",
            prompt: "Do something that takes long.",
            answers: |script| runs(script, &["echo working; sleep 30; echo done"]),
            act: Act::Interrupt,
            outcome: Outcome::Interrupted,
        },
        Scene {
            title: "The step after it",
            prompt: "What became of it?",
            answers: |script| says(script, "The command was interrupted; it may have done a part of its work."),
            act: Act::Nothing,
            outcome: Outcome::Completed,
        },
        Scene {
            title: "A provider that is overloaded, and then cuts its answer",
            prompt: "Are you still there?",
            answers: |script| {
                let cut = ProviderError::new(ErrorClass::Transport, "");
                let script = script.fail(ProviderError::new(ErrorClass::Overloaded, "The server is overloaded."));
                let script = script.step(|s| s.text_start("t").text_delta("t", "I was here all ").throw(cut));
                says(script, "the time.")
            },
            act: Act::Nothing,
            outcome: Outcome::Completed,
        },
        Scene {
            title: "A provider that fails",
            prompt: "And now?",
            answers: |script| {
                let why = "The model `scripted` does not exist or you do not have access to it.";
                script.fail(
                    ProviderError::new(ErrorClass::InvalidRequest, why).status(404).code("model_not_found".to_owned()),
                )
            },
            act: Act::Nothing,
            outcome: Outcome::Failed,
        },
        Scene {
            title: "A context that is too long: held, summarised, tried again",
            prompt: "Go on, please.",
            answers: |script| {
                let why = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.";
                let script = script.step(|s| s.error(ProviderError::new(ErrorClass::ContextOverflow, why)));
                let summary = "Goal: show what settled does. Done: a poem in poem.txt, among other things.";
                says(says(script, summary), "I have made room, and here I am.")
            },
            act: Act::Nothing,
            outcome: Outcome::Completed,
        },
        Scene {
            title: "A call that waits for approval, which another process gives",
            prompt: "Clean up.",
            answers: |script| says(runs(script, &["rm poem.txt"]), "The poem is gone."),
            act: Act::ApproveElsewhere,
            outcome: Outcome::Completed,
        },
    ]
}

/// An answer of text, a word at a time.
fn says(script: Script, text: &str) -> Script {
    script.step(|stream| {
        let open = stream.text_start("t");
        let said = text.split_inclusive(' ').fold(open, |stream, word| stream.text_delta("t", word));
        said.text_end("t", None).usage(Usage::new(12, 5)).finish()
    })
}

/// An answer of calls of the shell.
fn runs(script: Script, commands: &[&str]) -> Script {
    script.step(|stream| {
        let call = |stream: Stream, command: &&str| stream.call("shell", json!({"command": command}));
        commands.iter().fold(stream, call).usage(Usage::new(20, 10)).finish()
    })
}
