//! Keys: whoever pastes or prints one finds it in no file that the command keeps.

use settled_testkit::script;
use settled_testkit::server::Wire;

use super::common::{World, says, shells};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_in_no_file() {
    const KEY: &str = "sk-never-to-be-kept";
    const OTHER: &str = "k-of-another-vendor";
    let answers = script().step(shells([("call_1", "cat key")])).step(says("It is sk-never-to-be-kept."));
    let world = World::new(answers.step(says("Yes."))).await;
    std::fs::write(world.file("key"), format!("KEY={KEY}\nOTHER={OTHER}\n")).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = world.settled(arguments);
        command.args(["--tools", "shell", "--folder"]).arg(world.file(""));
        command.args(["--base-url", &world.server.base_url(Wire::Chat), "-s", "s", "-v"]).env("OPENAI_API_KEY", KEY);
        command.env("GEMINI_API_KEY", "k-gemini").env("GOOGLE_API_KEY", OTHER);
        let ended = command.output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        let traced = String::from_utf8(ended.stderr).unwrap();
        assert!(!traced.contains(KEY), "{traced}");
    };
    run(&["run", "What is the key?"]);
    run(&["run", &format!("Is it {KEY}?")]);
    // The server is given it in a header, and in no body.
    for request in world.server.requests() {
        assert!(!request.body.to_string().contains(KEY), "{request:?}");
    }
    let mut files = 0;
    for entry in std::fs::read_dir(world.data()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            for key in [KEY, OTHER] {
                let found = bytes.windows(key.len()).any(|window| window == key.as_bytes());
                assert!(!found, "{} has {key}", path.display());
            }
            files += 1;
        }
    }
    assert!(files > 0);
    assert!(world.timeline("s").contains("[redacted]"));
}
