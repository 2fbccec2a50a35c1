//! Each part of the suite, cut very short: that it runs and keeps its promises is a test like any other.

use std::process::Command;

/// Runs one part; its last line says that every promise was kept.
fn check(words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_settled-process-suite")).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("{words:?} did not run: {error}"));
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}:\n{said}\n{wrong}");
    let kept = format!("{}: every promise was kept\n", words.first().unwrap_or(&""));
    assert!(said.ends_with(&kept), "{words:?}:\n{said}\n{wrong}");
}

#[test]
fn a_few_kills() {
    check(&["kill", "--rounds", "3"]);
}

#[test]
fn one_stop() {
    check(&["stop", "--rounds", "1"]);
}

#[test]
fn a_short_soak() {
    check(&["soak", "--seconds", "3", "--lanes", "4", "--prompts", "1", "--kept", "4"]);
}
