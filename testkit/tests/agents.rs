//! What is interesting about an agent, each in a few lines.

use serde_json::json;
use settled_provider_api::{ErrorClass, ModelInfo, Price, ProviderError, Rates, Usage};
use settled_store_memory::MemoryStore;
use settled_testkit::{agent, script, tools};

#[test]
fn an_agent_that_answers() {
    let run = agent(MemoryStore::new, script().step(|s| s.text("Hi.").finish())).run("Hello");
    assert_eq!((run.outcome(), run.answer()), ("completed", Some("Hi.")));
}

#[test]
fn an_interrupt_when_the_second_tool_has_started() {
    let tools = tools().tool("one", |run| run.effect().hang()).tool("two", |run| run.effect().hang());
    let script = script().step(|s| s.call("one", json!({})).call("two", json!({})).hang());
    let run = agent(MemoryStore::new, script).tools(tools).prompt("Go").when_running("two").interrupt().runs().play();
    assert_eq!(
        run.transcript(),
        "\
session: agent scenario, model script/model
user: Go
step 1
  one: call of one {}
  one: started
  two: call of two {}
  two: started
interrupted by user
  streamed: interrupted
  one: failed (interrupted, may have acted): The call was interrupted. It may have acted: check before you call it again.
  two: failed (interrupted, may have acted): The call was interrupted. It may have acted: check before you call it again.
step 1 failed (interrupted): aborted
interrupted
"
    );
}

#[test]
fn an_overflow_that_is_recovered() {
    let script = script()
        .step(|s| s.text("A long story.").finish())
        .overflow()
        .summary("They talked.")
        .step(|s| s.text("Yes.").finish());
    let run = agent(MemoryStore::new, script)
        .settings(|settings| settings.compaction.keep = 1)
        .prompt("Tell me.")
        .runs()
        .run("Is it true?");
    assert_eq!((run.outcome(), run.answer()), ("completed", Some("Yes.")));
    assert_eq!(run.requests().len(), 4);
}

#[test]
fn a_question_that_is_answered_after_a_restart() {
    let tools = tools().tool("pick", |run| run.ask("Which one?").echo());
    let script = script().step(|s| s.call("pick", json!({})).finish()).step(|s| s.text("The red one, then.").finish());
    let run = agent(MemoryStore::new, script)
        .tools(tools)
        .prompt("Choose")
        .runs()
        .crash()
        .answer("pick", "red")
        .runs()
        .play();
    assert_eq!((run.outcome(), run.answer()), ("completed", Some("The red one, then.")));
}

#[test]
fn a_crash_while_a_tool_acts_does_not_act_twice() {
    let tools = tools().tool("charge", |run| run.effect().sleep(1_000).ok("charged"));
    let script = script().step(|s| s.call("charge", json!({})).finish()).step(|s| s.text("I must check.").finish());
    let run = agent(MemoryStore::new, script)
        .tools(tools.clone())
        .prompt("Charge")
        .when_running("charge")
        .crash()
        .runs()
        .runs()
        .play();
    assert_eq!((tools.effects("charge"), run.answer()), (1, Some("I must check.")));
    assert!(run.transcript().contains("charge: unknown"), "{}", run.transcript());
}

#[test]
fn what_it_costs() {
    let script = script().step(|s| s.text("Hi.").usage(Usage::new(1_000, 200)).finish());
    let model = ModelInfo::new().price(Price::new(Rates::new(3_000, 15_000)));
    let run = agent(MemoryStore::new, script).model(model).run("Hello");
    assert_eq!(run.cost_nanos(), Some(6_000_000));
}

#[test]
fn a_retry_waits_without_waiting() {
    let busy = ProviderError::new(ErrorClass::RateLimit, "").retry_after(std::time::Duration::from_secs(60));
    let run = agent(MemoryStore::new, script().fail(busy).step(|s| s.text("Hi.").finish())).run("Hello");
    assert_eq!((run.outcome(), run.elapsed()), ("completed", 60_000));
}

#[test]
fn a_script_that_is_not_followed_fails_the_test() {
    let left = agent(MemoryStore::new, script().step(|s| s.finish()).step(|s| s.finish())).prompt("Hello").runs();
    let (file, written) = (file!(), line!() - 1);
    let line = format!("only 1 of 2 entries of the script were used; entry 2 is left, written at {file}:{written}:70");
    assert_eq!(left.try_play().unwrap_err().lines[0], line);
    let beyond = agent(MemoryStore::new, script()).prompt("Hello").runs();
    assert_eq!(beyond.try_play().unwrap_err().lines[0], "request 1: the script has 0 entries only");
}
