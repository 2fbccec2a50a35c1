//! What the schemas refuse is answered with an error that names it; what they accept runs.

use crate::support::{folder, run};
use serde_json::{Value, json};
use settled_tool_files::Files;
use settled_tools_api::ToolExecutor as _;

/// Whether a schema accepts an input, in the few words of JSON Schema that the definitions use; another word fails the test.
fn accepts(schema: &Value, input: &Value) -> bool {
    schema.as_object().unwrap().iter().all(|(word, value)| match word.as_str() {
        "description" => true,
        "type" => match value.as_str().unwrap() {
            "object" => input.is_object(),
            "string" => input.is_string(),
            "integer" => input.is_i64() || input.is_u64(),
            other => panic!("{other}"),
        },
        "properties" => value.as_object().unwrap().iter().all(|(name, schema)| match input.get(name) {
            Some(input) => accepts(schema, input),
            None => true,
        }),
        "required" => value.as_array().unwrap().iter().all(|name| input.get(name.as_str().unwrap()).is_some()),
        "additionalProperties" => {
            let known = schema["properties"].as_object().unwrap();
            input.as_object().is_none_or(|input| input.keys().all(|name| known.contains_key(name)))
        }
        "minimum" => input.as_f64().is_none_or(|number| number >= value.as_f64().unwrap()),
        "minLength" => input.as_str().is_none_or(|text| text.chars().count() as u64 >= value.as_u64().unwrap()),
        "maxLength" => input.as_str().is_none_or(|text| text.chars().count() as u64 <= value.as_u64().unwrap()),
        "enum" => value.as_array().unwrap().contains(input),
        other => panic!("{other}"),
    })
}

/// Whether the schema accepts the input, and how the tool's failure begins, if it fails.
async fn check(name: &str, input: Value, accepted: bool, failure: Option<&str>) {
    let folder = folder(&[("f", b"text\n")]);
    let tools = Files::new(folder.path()).unwrap();
    let schema = tools.definitions().into_iter().find(|d| d.name == name).unwrap().input_schema;
    assert_eq!(accepts(&schema, &input), accepted, "{name} {input}");
    match (run(&tools, name, input.clone()).await, failure) {
        (Ok(_), None) => {}
        (Err(said), Some(failure)) if said.starts_with(failure) => {}
        (said, _) => panic!("{name} {input}: {said:?}"),
    }
}

#[tokio::test]
async fn inputs_that_fit_run() {
    for (name, input) in [
        ("read_file", json!({"path": "f"})),
        ("read_file", json!({"path": "f", "offset": 1, "limit": u64::MAX})),
        ("list_files", json!({})),
        ("list_files", json!({"path": ".", "glob": "**/*.rs"})),
        ("search_files", json!({"pattern": "t"})),
        ("search_files", json!({"pattern": "t+", "syntax": "regex", "case": "ignore", "path": "f", "glob": "*"})),
        ("edit_file", json!({"path": "f", "old_text": "text", "new_text": ""})),
        ("write_file", json!({"path": "g", "content": ""})),
    ] {
        check(name, input, true, None).await;
    }
}

#[tokio::test]
async fn inputs_that_do_not_fit_are_told() {
    for (name, input, failure) in [
        ("read_file", json!({}), "bad input for `read_file`: missing field `path`"),
        ("read_file", json!(null), "bad input for `read_file`: invalid type: null"),
        ("read_file", json!(["f"]), "bad input for `read_file`: invalid length 1"),
        ("read_file", json!({"path": 1}), "bad input for `read_file`: invalid type: integer `1`"),
        ("read_file", json!({"path": "f", "offset": 0}), "bad input for `read_file`: invalid value: integer `0`"),
        ("read_file", json!({"path": "f", "offset": -1}), "bad input for `read_file`: invalid value: integer `-1`"),
        ("read_file", json!({"path": "f", "limit": "9"}), "bad input for `read_file`: invalid type: string \"9\""),
        ("read_file", json!({"path": "f", "lines": 9}), "bad input for `read_file`: unknown field `lines`"),
        ("list_files", json!({"pattern": "*"}), "bad input for `list_files`: unknown field `pattern`"),
        ("search_files", json!({"path": "f"}), "bad input for `search_files`: missing field `pattern`"),
        ("search_files", json!({"pattern": ""}), "`pattern` is empty"),
        ("search_files", json!({"pattern": "x".repeat(1_001)}), "`pattern` is too long: it may have 1000 characters"),
        (
            "search_files",
            json!({"pattern": "x", "syntax": "glob"}),
            "bad input for `search_files`: unknown variant `glob`, expected `text` or `regex`",
        ),
        ("edit_file", json!({"path": "f", "old_text": "a"}), "bad input for `edit_file`: missing field `new_text`"),
        ("edit_file", json!({"path": "f", "old_text": "", "new_text": "a"}), "`old_text` is empty"),
        ("write_file", json!({"path": "f"}), "bad input for `write_file`: missing field `content`"),
        ("write_file", json!({"path": "f", "content": null}), "bad input for `write_file`: invalid type: null"),
    ] {
        check(name, input, false, Some(failure)).await;
    }
}

#[tokio::test]
async fn inputs_that_fit_but_make_no_sense_are_told() {
    for (name, input, failure) in [
        ("read_file", json!({"path": ""}), "the path is empty"),
        ("read_file", json!({"path": "f\0"}), "the path has a NUL character"),
        ("read_file", json!({"path": "x".repeat(5000)}), "cannot read `xxx"),
        ("read_file", json!({"path": "f", "offset": u64::MAX}), "`f` has no line 18446744073709551615"),
        ("list_files", json!({"glob": "[a"}), "bad `glob`: "),
        ("search_files", json!({"pattern": "(", "syntax": "regex"}), "bad `pattern`: regex parse error"),
        ("search_files", json!({"pattern": r"\w{9999}{9999}", "syntax": "regex"}), "bad `pattern`: "),
        ("search_files", json!({"pattern": "a\nb"}), "`pattern` has a line break: a match is within one line"),
        ("write_file", json!({"path": "x".repeat(300), "content": ""}), "cannot write `xxx"),
        ("write_file", json!({"path": "..", "content": ""}), "`..` leads out of the root folder"),
        ("write_file", json!({"path": ".", "content": ""}), "`.` is a folder, not a file"),
    ] {
        check(name, input, true, Some(failure)).await;
    }
}

#[tokio::test]
async fn an_unknown_tool_is_told() {
    let folder = folder(&[]);
    let tools = Files::new(folder.path()).unwrap();
    assert_eq!(run(&tools, "delete_file", json!({})).await, Err("no tool is named `delete_file`".to_owned()));
}
