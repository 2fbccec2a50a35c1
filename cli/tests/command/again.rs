//! Sessions that are played again as scenarios.

use serde_json::{Value, json};
use settled_testkit::script;

use crate::common::{World, says, shells};

#[tokio::test(flavor = "multi_thread")]
async fn a_log_becomes_a_scenario_that_holds() {
    let world = World::new(script().step(shells([("a", "echo hi")])).step(says("It says hi."))).await;
    assert_eq!(world.run("s", "Go", &["--tools", "shell", "--ask", "none"]).code, Some(0));
    let log = world.end(&["log", "s", "--json"]).out;
    let export = world.end(&["export", "s"]).out;
    let mut made = Vec::new();
    for (name, text) in [("log.jsonl", log), ("export.jsonl", export)] {
        let file = world.file(name);
        std::fs::write(&file, text).unwrap();
        let from = world.end(&["scenario", "--from", file.to_str().unwrap()]);
        assert_eq!((from.code, &*from.err), (Some(0), ""), "{from:?}");
        made.push(from.out);
    }
    assert_eq!(made[0], made[1]);
    let scenario: Value = serde_json::from_str(&made[0]).unwrap();
    assert_eq!(scenario["script"], json!([{"prompt": "Go"}, {"run": {}}]));
    assert_eq!(scenario["expect"]["answer"], json!("It says hi."));

    let file = world.file("again.json");
    std::fs::write(&file, &made[0]).unwrap();
    let again = world.end(&["scenario", file.to_str().unwrap()]);
    assert_eq!((again.code, &*again.err), (Some(0), ""), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_log_is_named() {
    let world = World::new(script()).await;
    let file = world.file("broken.jsonl");
    std::fs::write(&file, "{\"session\": \"s\"}\n").unwrap();
    let broken = world.end(&["scenario", "--from", file.to_str().unwrap()]);
    assert_eq!(broken.code, Some(2), "{broken:?}");
    assert!(broken.err.contains("line 1: the field `seq` is missing"), "{broken:?}");
    let both = world.end(&["scenario", "--from", "a", "b"]);
    assert_eq!(both.code, Some(2), "{both:?}");
    let none = world.end(&["scenario"]);
    assert!(none.code == Some(2) && none.err.contains("<FILE>"), "{none:?}");
}
