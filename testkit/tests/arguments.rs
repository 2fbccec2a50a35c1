//! Arguments that are made from schemas, and a model without a script.

use serde_json::{Value, json};
use settled_store_memory::MemoryStore;
use settled_testkit::{Permission, ToolRun, agent, arguments, script, tools, zero_script};
use settled_tools_api::ToolDefinition;

/// Whether the runner, which checks every call against its schema, lets these arguments reach the tool.
fn reaches_the_tool(schema: &Value) -> bool {
    let definition = ToolDefinition::new("try", "Tries.", schema.clone());
    let tools = tools().define(definition, Permission::Allow, [ToolRun::default().echo()]);
    agent(MemoryStore::new, zero_script()).tools(tools.clone()).run("Try.");
    tools.runs("try") == 1
}

fn check(schema: &Value, wanted: &Value) {
    assert_eq!((&arguments(schema), reaches_the_tool(schema)), (wanted, true), "{schema}");
}

/// The schema of an object with one required member.
fn of(schema: &Value) -> Value {
    json!({"type": "object", "properties": {"v": schema}, "required": ["v"]})
}

#[test]
fn what_is_made_of_each_schema() {
    let rows = [
        (json!({"type": "string"}), json!("text")),
        (json!({"type": "string", "minLength": 6}), json!("textxx")),
        (json!({"type": "string", "maxLength": 2}), json!("te")),
        (json!({"type": "string", "format": "email"}), json!("ann@example.com")),
        (json!({"type": "string", "format": "uuid"}), json!("00000000-0000-4000-8000-000000000000")),
        (json!({"type": "string", "format": "date-time"}), json!("2026-01-01T12:00:00Z")),
        (json!({"type": "string", "format": "ipv4"}), json!("192.0.2.1")),
        (json!({"type": "integer"}), json!(1)),
        (json!({"type": "integer", "minimum": 5}), json!(5)),
        (json!({"type": "integer", "exclusiveMinimum": 5}), json!(6)),
        (json!({"type": "integer", "maximum": -3}), json!(-3)),
        (json!({"type": "integer", "exclusiveMaximum": 0}), json!(-1)),
        (json!({"type": "integer", "minimum": 5, "multipleOf": 4}), json!(8)),
        (json!({"type": "integer", "maximum": -3, "multipleOf": 4}), json!(-4)),
        (json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}), json!(0.5)),
        (json!({"type": "number", "minimum": 0.5, "multipleOf": 0.25}), json!(0.75)),
        (json!({"type": "boolean"}), json!(true)),
        (json!({"type": "null"}), json!(null)),
        (json!({"type": ["null", "integer"]}), json!(1)),
        (json!({"const": [1, 2]}), json!([1, 2])),
        (json!({"enum": ["b", "a"]}), json!("b")),
        (json!({"type": "string", "pattern": "^x$", "examples": ["x"]}), json!("x")),
        (json!({"type": "integer", "default": 7}), json!(7)),
        (json!({"type": "array", "items": {"type": "integer"}}), json!([1])),
        (json!({"type": "array", "items": {"type": "integer"}, "maxItems": 0}), json!([])),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 2, "uniqueItems": true}),
            json!(["text", "1text"]),
        ),
        (
            json!({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2, "uniqueItems": true}),
            json!(["a", "b"]),
        ),
        (json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}), json!(["text", 2])),
        (json!({"anyOf": [{"type": "null"}, {"type": "boolean"}]}), json!(true)),
        (json!({"oneOf": [{"type": "string"}, {"type": "integer"}]}), json!("text")),
        (json!({"type": "object", "minProperties": 2}), json!({"key1": null, "key2": null})),
        (json!({}), json!(null)),
    ];
    for (schema, made) in rows {
        check(&of(&schema), &json!({"v": made}));
    }
}

#[test]
fn objects_have_what_they_require() {
    let address = json!({"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}}, "required": ["city"]});
    check(&json!({"type": "object", "properties": {"a": {"type": "string"}}}), &json!({}));
    check(&of(&address), &json!({"v": {"city": "text"}}));
    let by_reference = json!({
        "type": "object",
        "$defs": {"address": address},
        "properties": {"to": {"$ref": "#/$defs/address"}, "from": {"allOf": [{"$ref": "#/$defs/address"}, {"required": ["zip"]}]}},
        "required": ["to", "from"],
    });
    check(&by_reference, &json!({"to": {"city": "text"}, "from": {"city": "text", "zip": 1}}));
}

#[test]
fn a_schema_that_needs_itself_ends() {
    let schema = json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]});
    assert!(arguments(&schema).to_string().starts_with(r#"{"next":{"next":{"next":"#));
}

#[test]
fn without_tools_the_model_just_answers() {
    let run = agent(MemoryStore::new, zero_script()).run("Try.");
    assert_eq!((run.answer(), run.requests().len()), (Some("Done."), 1));
}

#[test]
fn an_answer_for_always_is_never_one_too_many() {
    let script = script().every_tool().always(|s| s.text("More.").finish());
    let test = agent(MemoryStore::new, script).tools(tools().tool("try", |run| run.ok("tried")));
    let run = test.prompt("One").runs().prompt("Two").runs().prompt("Three").runs().play();
    assert_eq!((run.answer(), run.requests().len()), (Some("More."), 4));
    let unused = agent(MemoryStore::new, script_of_two()).prompt("One").runs().try_play().unwrap_err();
    let line = "only 1 of 2 entries of the script were used; entry 2 is left, written at ";
    assert!(unused.lines[0].starts_with(line), "{unused}");
}

fn script_of_two() -> settled_testkit::Script {
    script().step(|s| s.finish()).step(|s| s.finish()).always(|s| s.finish())
}
