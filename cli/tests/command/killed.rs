//! A command that is stopped, killed or told to leave, and goes on: no tool runs twice, and every call has its outcome.

use rustix::process::Signal;
use settled_testkit::{Script, script};

use crate::common::{World, says, shells};

/// Two commands for a shell that runs one at a time: the second waits for its turn while the first runs.
fn two_commands() -> Script {
    script().step(shells([("a", "echo first >> acted; sleep 600"), ("b", "echo second >> acted")]))
}

const TOOLS: [&str; 2] = ["--tools", "shell"];

/// What is done to the process while its tool runs.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Kill,
    Terminate,
    /// Ctrl-C twice, the second while the tool resists the first.
    InterruptTwice,
}

async fn check(blow: Blow, first: Script, code: Option<i32>, said: &str) {
    // What was unfinished goes on by itself; what is said meanwhile joins it.
    let world = World::new(first.step(says("I go on."))).await;
    let mut running = world.start("s", "Go", &TOOLS);
    running.wait_for(&world.file("acted"));
    match blow {
        Blow::Kill => running.child.kill().unwrap(),
        Blow::Terminate => running.signal(Signal::TERM),
        Blow::InterruptTwice => {
            running.signal(Signal::INT);
            running.wait_until_said("interrupting");
            running.signal(Signal::INT);
        }
    }
    let ended = running.end();
    assert_eq!(ended.code, code, "{blow:?}: {ended:?}");
    assert!(ended.err.contains(said), "{blow:?}: {ended:?}");

    // The session remembers its server and its tools.
    let again = world.end(&["run", "--session", "s"]);
    let acted = std::fs::read_to_string(world.file("acted")).unwrap();
    assert_eq!(acted, "first\n", "{blow:?}: a tool ran twice, or one that was not started ran");
    let log = world.timeline("s");
    assert!(log.contains("call 1: shell failed (not_run)"), "{blow:?}: {log}");
    match blow {
        Blow::Kill | Blow::Terminate => {
            assert!(log.contains("call 0: shell unknown (may have acted)"), "{blow:?}: {log}");
            assert_eq!((again.code, &*again.out), (Some(0), "I go on.\n"), "{blow:?}: {again:?}");
        }
        // The interrupt is in the log: what goes on settles it and asks for nothing more.
        Blow::InterruptTwice => {
            assert!(log.contains("execution interrupted"), "{blow:?}: {log}");
            assert_eq!((again.code, &*again.out), (Some(130), ""), "{blow:?}: {again:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_run_goes_on_and_runs_no_tool_twice() {
    check(Blow::Kill, two_commands(), None, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_told_to_stop_goes_on_later() {
    check(Blow::Terminate, two_commands(), Some(143), "`settled run --session s` goes on").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_interrupt_leaves_at_once() {
    let resisting = script().step(shells([
        ("a", "trap '' TERM; echo first >> acted; while :; do sleep 600; done"),
        ("b", "echo second >> acted"),
    ]));
    check(Blow::InterruptTwice, resisting, Some(130), "left at once").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_settles_and_says_what_was_kept() {
    let world = World::new(two_commands().step(says("Where were we?"))).await;
    let mut running = world.start("s", "Go", &TOOLS);
    running.wait_for(&world.file("acted"));
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.err.contains("kept: 1 step with 0 characters of text and 2 calls"), "{ended:?}");
    let log = world.timeline("s");
    for line in [
        "call 0: shell failed (interrupted, may have acted)",
        "call 1: shell failed (not_run)",
        "step 1 settled interrupted",
    ] {
        assert!(log.contains(line), "`{line}` is not in {log}");
    }

    let again = world.run("s", "Hello?", &[]);
    assert_eq!((again.code, &*again.out), (Some(0), "Where were we?\n"), "{again:?}");
    assert_eq!(std::fs::read_to_string(world.file("acted")).unwrap(), "first\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_in_the_text_keeps_the_text() {
    let world = World::new(script().step(|s| s.text_start("t").text_delta("t", "Half an ").hang())).await;
    let mut running = world.start("s", "Go", &["--json"]);
    let out = running.child.stdout.take().unwrap();
    // The text has come when its first delta is there.
    let mut out = std::io::BufRead::lines(std::io::BufReader::new(out));
    assert!(out.any(|line| line.unwrap().contains("text.delta")));
    running.signal(Signal::INT);
    let rest: Vec<_> = out.map(Result::unwrap).collect();
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(rest.last().unwrap().contains(r#""outcome":"interrupted""#), "{rest:?}");
    assert!(world.timeline("s").contains("text: Half an"), "{rest:?}");
}
