//! What a command answers, and what is said about a bad one.

use std::fs;

use serde_json::{Value, json};
use settled_tool_shell::Shell;
use settled_tools_api::{Concurrency, ReplayClass, ToolCall, ToolError, ToolExecutor as _};

use crate::support::{Host, Said, run, run_in, success};

fn failure(text: &str, metadata: Value) -> Said {
    Err((text.to_owned(), metadata))
}

#[tokio::test]
async fn a_command_answers_with_its_output_and_status() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().canonicalize().unwrap();
    let shell = Shell::new(folder.path()).unwrap();
    let exit = |code: i32| json!({ "exit_status": code });
    for (command, says) in [
        ("true", success("")),
        ("echo a; echo b >&2; echo c; echo d >&2", success("a\nb\nc\nd\n")),
        ("printf 'no end'", success("no end")),
        ("echo a; exit 3", failure("a\n[exit status 3]\n", exit(3))),
        ("printf a; false", failure("a\n[exit status 1]\n", exit(1))),
        ("echo a; kill -KILL $$", failure("a\n[killed by signal 9]\n", json!({"signal": 9}))),
        ("kill -TERM $$", failure("[killed by signal 15]\n", json!({"signal": 15}))),
        ("pwd", success(&format!("{}\n", real.display()))),
        // Nothing to read, and no terminal to wait for.
        ("cat; echo $?", success("0\n")),
        ("kill -TTIN $$; kill -TTOU $$; echo goes on", success("goes on\n")),
        // The shell has no child that it does not know.
        ("exec perl -e '1 while wait() != -1; print qq(no child\\n)'", success("no child\n")),
        ("echo a\necho b # a comment", success("a\nb\n")),
        ("echo \"$0 $#\"", success("/bin/sh 0\n")),
    ] {
        assert_eq!(run(&shell, command).await, says, "{command}");
    }
    for (command, word, code) in [("-x", "-x", 127), ("nonsense-command", "nonsense-command", 127), ("if", "yntax", 2)]
    {
        let (text, metadata) = run(&shell, command).await.unwrap_err();
        assert!(text.contains(word) && text.ends_with(&format!("[exit status {code}]\n")), "{command}: {text}");
        assert_eq!(metadata, exit(code));
    }
}

#[tokio::test]
async fn a_command_has_the_environment_that_was_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let shell = || Shell::new(folder.path()).unwrap();
    // Cargo sets the first one for every test.
    let command = "echo ${CARGO_MANIFEST_DIR:+inherited} ${KEY-unset} ${OTHER-unset}";
    for (shell, says) in [
        (shell(), "inherited unset unset\n"),
        (shell().env("KEY", "a b"), "inherited a b unset\n"),
        (shell().without_env("CARGO_MANIFEST_DIR"), "unset unset\n"),
        (shell().env("KEY", "k").clear_env().env("OTHER", "o"), "k o\n"),
        (shell().env("KEY", "k").without_env("KEY").env("KEY", "l"), "inherited l unset\n"),
    ] {
        assert_eq!(run(&shell, command).await, success(says), "{shell:?}");
    }
    let debug = format!("{:?}", shell().env("KEY", "secret"));
    assert!(debug.contains("KEY") && !debug.contains("secret"), "{debug}");
}

#[tokio::test]
async fn bad_input_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(folder.path()).unwrap();
    for (input, says) in [
        (json!({}), "bad input for `shell`: missing field `command`"),
        (json!(null), "bad input for `shell`: invalid type: null"),
        (json!("echo"), "bad input for `shell`: invalid type: string"),
        (json!({"command": ["echo"]}), "bad input for `shell`: invalid type: sequence"),
        (json!({"command": ""}), "`command` is empty"),
        (json!({"command": " \n"}), "`command` is empty"),
        (json!({"command": "echo \0"}), "`command` has a NUL character"),
        (json!({"command": "true", "timeout_ms": 0}), "bad input for `shell`: invalid value: integer `0`"),
        (json!({"command": "true", "timeout_ms": -5}), "bad input for `shell`: invalid value: integer `-5`"),
        (json!({"command": "true", "timeout_ms": 1.5}), "bad input for `shell`: invalid type: floating point"),
        (json!({"command": "true", "cwd": "/"}), "bad input for `shell`: unknown field `cwd`"),
        (json!({"command": format!(": {}", "x".repeat(4 << 20))}), "the command is too long for the system"),
    ] {
        let (host, _) = Host::new(None);
        let (text, _) = run_in(&shell, input, host.context()).await.unwrap_err();
        assert!(text.starts_with(says), "{text}");
    }
    for timeout in [json!(null), json!(60_000), json!(u64::MAX)] {
        let (host, _) = Host::new(None);
        let input = json!({"command": "true", "timeout_ms": timeout});
        assert_eq!(run_in(&shell, input, host.context()).await, success(""));
    }
    let (host, _) = Host::new(None);
    let other = shell.execute(ToolCall::new("bash", json!({"command": "true"})), host.context()).await;
    assert_eq!(other, Err(ToolError::failed("no tool is named `bash`")));
}

#[tokio::test]
async fn the_folder_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for (name, why) in [("file", "it is not a folder"), ("no", "it does not exist")] {
        let path = folder.path().join(name);
        let error = Shell::new(&path).unwrap_err().to_string();
        assert_eq!(error, format!("`{}` cannot be the working folder of the shell tool: {why}", path.display()));
    }
    let gone = folder.path().canonicalize().unwrap().join("gone");
    fs::create_dir(&gone).unwrap();
    let shell = Shell::new(&gone).unwrap();
    fs::remove_dir(&gone).unwrap();
    let says = format!("the working folder `{}` is gone", gone.display());
    assert_eq!(run(&shell, "true").await, failure(&says, Value::Null));
}

#[test]
fn the_definition_says_how_to_run_it() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(folder.path()).unwrap();
    for (shell, concurrency) in [(shell.clone(), Concurrency::Parallel), (shell.exclusive(), Concurrency::Exclusive)] {
        let [definition] = shell.definitions().try_into().unwrap();
        assert_eq!(
            (definition.name.as_str(), definition.replay.class(), definition.concurrency),
            ("shell", ReplayClass::AtMostOnce, concurrency)
        );
        let schema = definition.input_schema;
        assert_eq!(
            json!([schema["type"], schema["required"], schema["additionalProperties"]]),
            json!(["object", ["command"], false])
        );
        let command = &schema["properties"]["command"];
        let timeout = &schema["properties"]["timeout_ms"];
        assert_eq!(
            json!([command["type"], command["minLength"], timeout["type"], timeout["minimum"]]),
            json!(["string", 1, "integer", 1])
        );
    }
}
