//! A change happens whole or not at all, and what became of a lost one can be told.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::support::{Host, contents, files, folder, info, run_in};
use serde_json::{Value, json};
use settled_tool_files::Files;
use settled_tools_api::{Reconciled, Replay, ToolCall, ToolContext, ToolError, ToolExecutor as _, ToolOutput};
use tempfile::TempDir;

const TEMPORARY: &str = ".settled-key-0.tmp";

/// Copies a folder as a crash would leave it, times included.
fn image(from: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-a").arg(from.join(".")).arg(to.path()).status().unwrap();
    assert!(copied.success());
    to
}

/// What the reconciler of a tool says about the call with these notes.
async fn reconcile(root: &Path, name: &str, input: &Value, notes: &[Value]) -> Reconciled {
    let definitions = Files::new(root).unwrap().definitions();
    let definition = definitions.into_iter().find(|d| d.name == name).unwrap();
    let Replay::Reconcile(reconciler) = definition.replay else { panic!("{name}") };
    let mut info = info(0);
    info.notes = notes.to_vec();
    reconciler.reconcile(&ToolCall::new(name, input.clone()), &ToolContext::detached(info)).await
}

/// A change that is lost, in the folder `f: old`.
struct Lost {
    name: &'static str,
    input: Value,
    answer: &'static str,
    /// The folder when it has happened.
    after: &'static [(&'static str, &'static str)],
}

fn changes() -> [Lost; 3] {
    [
        Lost {
            name: "write_file",
            input: json!({"path": "f", "content": "new"}),
            answer: "replaced `f`: 3 bytes",
            after: &[("f", "new")],
        },
        Lost {
            name: "write_file",
            input: json!({"path": "d/g", "content": "new"}),
            answer: "created `d/g`: 3 bytes",
            after: &[("d/g", "new"), ("f", "old")],
        },
        Lost {
            name: "edit_file",
            input: json!({"path": "f", "old_text": "ol", "new_text": "bol"}),
            answer: "edited `f` at line 1",
            after: &[("f", "bold")],
        },
    ]
}

#[tokio::test]
async fn a_lost_change_is_told_from_one_that_never_was() {
    for Lost { name, input, answer, after } in changes() {
        let folder = folder(&[("f", b"old")]);
        let root = folder.path().to_owned();
        let image_at_note = Arc::new(std::sync::OnceLock::new());
        let host = Arc::new(Host {
            on_note: Some(Box::new({
                let (root, at_note) = (root.clone(), Arc::clone(&image_at_note));
                move || at_note.set(image(&root)).unwrap()
            })),
            ..Host::default()
        });
        let tools = Files::new(&root).unwrap();

        // Killed before its note.
        assert_eq!(reconcile(&root, name, &input, &[]).await, Reconciled::DidNot);

        let said = run_in(&tools, name, input.clone(), host.context(0)).await;
        assert_eq!(said.as_deref(), Ok(answer));
        let notes = host.notes.lock().unwrap().clone();

        // Killed behind its rename.
        let happened = Reconciled::Happened(ToolOutput::text(answer));
        assert_eq!(reconcile(&root, name, &input, &notes).await, happened);

        // Killed between its note and its rename.
        let killed = image_at_note.get().unwrap().path();
        assert!(contents(killed).keys().any(|path| path.ends_with(TEMPORARY)));
        assert_eq!(reconcile(killed, name, &input, &notes).await, Reconciled::DidNot);

        // The run that makes up for it leaves what the first would have left.
        let again = run_in(&Files::new(killed).unwrap(), name, input.clone(), ToolContext::detached(info(0))).await;
        assert_eq!(again.as_deref(), Ok(answer));
        assert_eq!(contents(killed), files(after));
        assert_eq!(contents(&root), files(after));
    }
}

#[tokio::test]
async fn a_later_change_of_others_is_not_written_over() {
    for Lost { name, input, .. } in changes() {
        let folder = folder(&[("f", b"old")]);
        let root = folder.path().to_owned();
        let image_at_note = Arc::new(std::sync::OnceLock::new());
        let host = Arc::new(Host {
            on_note: Some(Box::new({
                let (root, at_note) = (root.clone(), Arc::clone(&image_at_note));
                move || at_note.set(image(&root)).unwrap()
            })),
            ..Host::default()
        });
        run_in(&Files::new(&root).unwrap(), name, input.clone(), host.context(0)).await.unwrap();
        let notes = host.notes.lock().unwrap().clone();
        let path = input["path"].as_str().unwrap();
        for lost in [image_at_note.get().unwrap().path(), &root] {
            fs::write(lost.join(path), "somebody else's").unwrap();
            assert_eq!(reconcile(lost, name, &input, &notes).await, Reconciled::CannotTell, "{name} {input}");
        }
        // Of the same length as what the call wrote.
        let length = notes[0]["len"].as_u64().unwrap();
        fs::write(root.join(path), "?".repeat(usize::try_from(length).unwrap())).unwrap();
        assert_eq!(reconcile(&root, name, &input, &notes).await, Reconciled::CannotTell);
        assert_eq!(reconcile(&root, name, &input, &[json!({"other": "note"})]).await, Reconciled::CannotTell);
    }
}

#[tokio::test]
async fn a_change_of_others_in_the_middle_wins() {
    let folder = folder(&[("f", b"old")]);
    let path = folder.path().join("f");
    let host = Arc::new(Host {
        on_note: Some(Box::new(move || fs::write(&path, "somebody else's").unwrap())),
        ..Host::default()
    });
    let tools = Files::new(folder.path()).unwrap();
    let said = run_in(&tools, "write_file", json!({"path": "f", "content": "new"}), host.context(0)).await;
    assert_eq!(
        said,
        Err("`f` was changed by another program meanwhile: read it again; this call changed nothing".to_owned())
    );
    assert_eq!(contents(folder.path()), files(&[("f", "somebody else's")]));
}

#[tokio::test]
async fn a_cancelled_change_changes_nothing() {
    for Lost { name, input, .. } in changes() {
        let folder = folder(&[("f", b"old")]);
        let tools = Files::new(folder.path()).unwrap();
        let mut host = Host::default();
        let cancel = host.cancel.clone();
        host.on_note = Some(Box::new(move || cancel.cancel()));
        let host = Arc::new(host);
        // Once in the middle, once before the start.
        for notes in [1, 1] {
            let said = run_in(&tools, name, input.clone(), host.context(0)).await;
            assert_eq!(said, Err("the call was cancelled before it had changed a file".to_owned()));
            assert_eq!(host.notes.lock().unwrap().len(), notes);
            assert_eq!(contents(folder.path()), files(&[("f", "old")]));
        }
    }
}

#[tokio::test]
async fn a_dropped_change_changes_nothing_and_lets_the_next_one_go_on() {
    let folder = folder(&[("f", b"old")]);
    let tools = Files::new(folder.path()).unwrap();
    let noting = Arc::new(tokio::sync::Notify::new());
    struct Hangs(Arc<tokio::sync::Notify>);
    #[async_trait::async_trait]
    impl settled_tools_api::ToolHost for Hangs {
        fn progress(&self, _: Value) {}
        async fn note(&self, _: Value) -> Result<(), settled_tools_api::NoteError> {
            self.0.notify_one();
            std::future::pending().await
        }
        fn remaining(&self) -> Option<std::time::Duration> {
            None
        }
    }
    let cancel = settled_tools_api::CancelSignal::never();
    let context = ToolContext::new(info(0), cancel, Arc::new(Hangs(Arc::clone(&noting))));
    let call = ToolCall::new("write_file", json!({"path": "f", "content": "new"}));
    let task = tokio::spawn({
        let tools = tools.clone();
        async move { tools.execute(call, context).await }
    });
    noting.notified().await;
    assert!(contents(folder.path()).contains_key(TEMPORARY));
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(contents(folder.path()), files(&[("f", "old")]));

    let edit = json!({"path": "f", "old_text": "old", "new_text": "next"});
    let said = run_in(&tools, "edit_file", edit, ToolContext::detached(info(1))).await;
    assert_eq!(said.as_deref(), Ok("edited `f` at line 1"));
}

#[tokio::test]
async fn without_its_note_a_change_does_not_happen() {
    let folder = folder(&[("f", b"old")]);
    let tools = Files::new(folder.path()).unwrap();
    let host = Arc::new(Host { refuse_notes: true, ..Host::default() });
    let call = ToolCall::new("write_file", json!({"path": "f", "content": "new"}));
    let said = tools.execute(call, host.context(0)).await;
    let lost = settled_tools_api::NoteError::default();
    assert_eq!(said, Err(ToolError::infra(lost.to_string())));
    assert_eq!(contents(folder.path()), files(&[("f", "old")]));
}
