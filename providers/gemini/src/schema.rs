//! Schemas: JSON Schema as the subset of it that Gemini's own schemas are.

use serde_json::{Map, Value, json};

/// How deep references and schemas are followed: one that refers to itself has no end.
const DEEPEST: usize = 24;

/// Keywords that go over as they are.
const SAME: [&str; 13] = [
    "title",
    "description",
    "nullable",
    "default",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
    "pattern",
];

/// Keywords that say nothing about what fits.
const NOTES: [&str; 11] = [
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "propertyOrdering",
];

/// A JSON Schema as Gemini's own; `None` where it says something that the subset cannot.
///
/// References are put in place, `oneOf` becomes `anyOf`, `const` an `enum` of one, a type that may be null is `nullable`, and a format that is not known is dropped, as JSON Schema has it.
/// `additionalProperties` without a schema is dropped: the arguments of a call are validated against the whole schema before it runs.
/// Everything else makes `None`: then the schema goes whole into the field that takes JSON Schema.
pub(crate) fn subset(schema: &Value) -> Option<Value> {
    convert(schema, schema, DEEPEST)
}

/// Whether a schema is of an object of which nothing is said: Gemini's own refuses it, and it needs no parameters.
pub(crate) fn is_empty(schema: &Value) -> bool {
    let Value::Object(fields) = schema else { return false };
    let says = |(name, value): (&String, &Value)| match name.as_str() {
        "type" => *value != json!("object"),
        "properties" | "required" => value.as_object().is_some_and(|of| !of.is_empty()) || *value == json!(true),
        "additionalProperties" => *value != json!(false),
        name => !NOTES.contains(&name) && !matches!(name, "title" | "description"),
    };
    fields.get("type") == Some(&json!("object")) && !fields.iter().any(says)
}

fn convert(schema: &Value, root: &Value, depth: usize) -> Option<Value> {
    let fields = schema.as_object().filter(|_| depth > 0)?;
    if let Some(reference) = fields.get("$ref") {
        let place = reference.as_str()?.strip_prefix('#')?;
        let Value::Object(mut target) = convert(root.pointer(place)?, root, depth - 1)? else { return None };
        for (name, value) in fields {
            match name.as_str() {
                "$ref" => {}
                "title" | "description" | "default" => {
                    target.insert(name.clone(), value.clone());
                }
                name if NOTES.contains(&name) => {}
                _ => return None,
            }
        }
        return Some(Value::Object(target));
    }
    let mut out = Map::new();
    let mut kind = None;
    for (name, value) in fields {
        match name.as_str() {
            "type" => kind = Some(type_of(value, &mut out)?),
            "enum" => {
                let nulls = value.as_array()?.iter().any(Value::is_null);
                let texts: Vec<&Value> = value.as_array()?.iter().filter(|value| !value.is_null()).collect();
                if nulls {
                    out.insert("nullable".to_owned(), json!(true));
                }
                let texts = Some(texts).filter(|texts| texts.iter().all(|text| text.is_string()))?;
                out.insert("enum".to_owned(), json!(texts));
            }
            "const" => {
                value.as_str()?;
                out.insert("enum".to_owned(), json!([value]));
            }
            "properties" => {
                let of = value.as_object()?.iter();
                let of = of.map(|(name, schema)| Some((name.clone(), convert(schema, root, depth - 1)?)));
                out.insert("properties".to_owned(), Value::Object(of.collect::<Option<_>>()?));
            }
            "required" => {
                if value.as_array().is_some_and(|names| !names.is_empty()) {
                    out.insert("required".to_owned(), value.clone());
                }
            }
            "items" => {
                out.insert("items".to_owned(), convert(value, root, depth - 1)?);
            }
            "anyOf" | "oneOf" => {
                let null = json!({"type": "null"});
                let choices = value.as_array()?;
                if choices.contains(&null) {
                    out.insert("nullable".to_owned(), json!(true));
                }
                let choices = choices.iter().filter(|choice| **choice != null);
                let choices: Vec<Value> =
                    choices.map(|choice| convert(choice, root, depth - 1)).collect::<Option<_>>()?;
                match <[Value; 1]>::try_from(choices) {
                    Ok([Value::Object(only)]) => {
                        for (name, value) in only {
                            out.entry(name).or_insert(value);
                        }
                    }
                    Ok(_) => return None,
                    Err(choices) => {
                        out.insert("anyOf".to_owned(), Value::Array(choices));
                    }
                }
            }
            "format" => {
                let known = ["enum", "date-time", "float", "double", "int32", "int64"];
                if known.contains(&value.as_str()?) {
                    out.insert("format".to_owned(), value.clone());
                }
            }
            "additionalProperties" => {
                value.as_bool()?;
            }
            name if SAME.contains(&name) => {
                out.entry(name).or_insert_with(|| value.clone());
            }
            name if NOTES.contains(&name) => {}
            _ => return None,
        }
    }
    let kind = match kind {
        Some(kind) => Some(kind),
        None if out.contains_key("properties") => Some("OBJECT"),
        None if out.contains_key("items") => Some("ARRAY"),
        None if out.contains_key("enum") => Some("STRING"),
        None => None,
    };
    // What its own schemas must have.
    let fits = match kind {
        Some("OBJECT") => {
            out.get("properties").and_then(Value::as_object).is_some_and(|properties| !properties.is_empty())
        }
        Some("ARRAY") => out.contains_key("items"),
        Some("STRING") => true,
        Some(_) => !out.contains_key("enum"),
        None => out.contains_key("anyOf") || out.contains_key("type"),
    };
    if let Some(kind) = kind {
        out.insert("type".to_owned(), json!(kind));
    }
    fits.then_some(Value::Object(out))
}

/// The type in Gemini's words; one that may be null is nullable.
fn type_of(value: &Value, out: &mut Map<String, Value>) -> Option<&'static str> {
    let names: Vec<&str> = match value {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().map(Value::as_str).collect::<Option<_>>()?,
        _ => return None,
    };
    let (nulls, names): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| *name == "null");
    if !nulls.is_empty() {
        out.insert("nullable".to_owned(), json!(true));
    }
    let [name] = names.as_slice() else { return None };
    match name.to_ascii_lowercase().as_str() {
        "string" => Some("STRING"),
        "number" => Some("NUMBER"),
        "integer" => Some("INTEGER"),
        "boolean" => Some("BOOLEAN"),
        "array" => Some("ARRAY"),
        "object" => Some("OBJECT"),
        _ => None,
    }
}
