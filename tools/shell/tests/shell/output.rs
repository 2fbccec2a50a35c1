//! What is kept and shown of a command's output.

use std::fs;

use serde_json::json;
use settled_tool_shell::Shell;

use crate::support::{Host, run, run_in, success, within};

/// B160: whatever bytes come, the text is clean.
#[tokio::test]
async fn all_bytes_become_clean_text() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..=255).collect();
    fs::write(folder.path().join("all"), bytes).unwrap();
    let shell = Shell::new(folder.path()).unwrap();
    // The escape takes 0x1c with it, as a sequence of one byte.
    let ascii: String = (0x20..0x7f).map(char::from).collect();
    let text = format!("\t\n{ascii}{}", "\u{fffd}".repeat(128));
    assert_eq!(run(&shell, "cat all").await, success(&text));
}

#[tokio::test]
async fn long_output_keeps_its_beginning_and_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(folder.path()).unwrap();
    let whole: String = (1..=300_000).map(|n| format!("{n}\n")).collect();
    let (text, _) = run(&shell, "seq 1 300000").await.unwrap();
    let (head, rest) = text.split_once('[').unwrap();
    let (notice, tail) = rest.split_once("]\n").unwrap();
    let left_out = whole.len() - head.len() - tail.len();
    assert_eq!(notice, format!("{left_out} bytes of output are left out here"));
    assert!(whole.starts_with(head) && whole.ends_with(tail) && head.ends_with('\n'));
    assert!(whole[..whole.len() - tail.len()].ends_with('\n'), "the cut is between lines");
    for kept in [head.len(), tail.len()] {
        assert!((250 * 1024..=256 * 1024).contains(&kept), "{kept}");
    }
}

#[tokio::test]
async fn one_endless_line_is_bounded_too() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(folder.path()).unwrap();
    for letter in ["x", "\\303\\251", "\\200"] {
        let command = format!("printf '{letter}%.0s' $(seq 1 20000) >k; for i in $(seq 1 75); do cat k; done; exit 1");
        let (text, _) = run(&shell, &command).await.unwrap_err();
        assert!(text.len() < 600 * 1024, "{}", text.len());
        assert!(text.contains(" bytes of output are left out here]\n") && text.ends_with("\n[exit status 1]\n"));
        assert!(letter == "\\200" || !text.contains('\u{fffd}'), "a character was cut in two");
    }
}

#[tokio::test]
async fn a_flood_can_be_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(folder.path()).unwrap();
    let (host, mut shown) = Host::new(None);
    let context = host.context();
    let call = tokio::spawn(async move { run_in(&shell, json!({"command": "yes"}), context).await });
    assert_eq!(within(shown.recv()).await.unwrap()["text"].as_str().map(|text| &text[..4]), Some("y\ny\n"));
    host.cancel.cancel();
    let (text, metadata) = within(call).await.unwrap().unwrap_err();
    assert!(text.starts_with("y\ny\n") && text.ends_with("[the command was stopped: the call was cancelled]\n"));
    assert!(text.len() < 600 * 1024);
    assert_eq!(metadata, json!({"stopped": "cancelled"}));
}

#[tokio::test]
async fn progress_shows_the_latest_lines() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(folder.path()).unwrap();
    let (host, mut shown) = Host::new(None);
    let context = host.context();
    // Each part waits until the test has seen the one before.
    let command = "mkfifo a b; echo one; read x <a; printf 'two\\rthree'; read x <b; echo; seq 1 20";
    let call = tokio::spawn({
        let shell = shell.clone();
        async move { run_in(&shell, json!({ "command": command }), context).await }
    });
    for (text, next) in [("one", "a"), ("one\nthree", "b")] {
        assert_eq!(within(shown.recv()).await, Some(json!({ "text": text })));
        assert_eq!(run(&shell, &format!("echo >{next}")).await, success(""));
    }
    let numbers: String = (1..=20).map(|n| format!("{n}\n")).collect();
    assert_eq!(within(call).await.unwrap(), success(&format!("one\nthree\n{numbers}")));
    drop(host);
    let mut last = None;
    while let Some(progress) = shown.recv().await {
        last = Some(progress);
    }
    assert_eq!(last, Some(json!({"text": "11\n12\n13\n14\n15\n16\n17\n18\n19\n20"})));
}
