//! Cases of what tools say about themselves: names, words, schemas, limits.

use std::collections::BTreeSet;
use std::time::Duration;

use jsonschema::Validator;
use serde_json::Value;
use settled_tools_api::{Replay, ToolDefinition};

use super::bench::{Bench, Checked, Details, broken, same, shown, skipped};
use super::named_cases;

named_cases! {
    "name.well_formed", "A name has 1 to 64 ASCII letters, digits, `-` or `_`: what every provider takes." => well_formed;
    "name.unique", "No two tools of a set have the same name." => unique;
    "definitions.same", "The definitions are the same each time they are asked for." => same_again;
    "description.words", "A tool and each of its properties says in words what it is." => words;
    "schema.object", "The schema is of an object, without alternatives at its top: what every provider takes." => object;
    "schema.valid", "The schema is a JSON Schema, and refers to nothing outside of it." => valid;
    "schema.required", "What the schema requires is among its properties." => required;
    "schema.takes", "The schema takes every input that the documentation shows." => takes;
    "schema.examples", "Examples and defaults in the schema fit it." => examples;
    "schema.refuses", "The schema refuses what the tool does not take." => refuses;
    "limits.some_time", "A deadline, an idle limit and a validity are longer than no time." => some_time;
}

/// Holds every definition against a rule.
async fn every(bench: &Bench<'_>, rule: impl Fn(&ToolDefinition) -> Checked + Send) -> Checked {
    let subject = bench.open().await?;
    let definitions = subject.0.tools.definitions();
    if definitions.is_empty() {
        return broken("the set has no tools");
    }
    definitions.iter().try_for_each(rule)
}

async fn well_formed(bench: &Bench<'_>) -> Checked {
    every(bench, |definition| {
        let name = &definition.name;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        match (1..=64).contains(&name.len()) && name.bytes().all(fits) {
            true => Ok(()),
            false => broken(format!("the name `{}` is not of that form", name.escape_debug())),
        }
    })
    .await
}

async fn unique(bench: &Bench<'_>) -> Checked {
    let subject = bench.open().await?;
    let mut names = BTreeSet::new();
    for definition in subject.0.tools.definitions() {
        if !names.insert(definition.name.clone()) {
            return broken(format!("two tools are named `{}`", definition.name));
        }
    }
    Ok(())
}

async fn same_again(bench: &Bench<'_>) -> Checked {
    let subject = bench.open().await?;
    let said = || -> Vec<_> {
        let said = |d: ToolDefinition| {
            (d.name, d.description, d.input_schema, d.replay.class(), d.concurrency, d.deadline, d.idle)
        };
        subject.0.tools.definitions().into_iter().map(said).collect()
    };
    let first = said();
    (0..3).try_for_each(|_| same("the definitions", said(), first.clone()))
}

async fn words(bench: &Bench<'_>) -> Checked {
    every(bench, |definition| {
        let name = &definition.name;
        if definition.description.trim().is_empty() {
            return broken(format!("`{name}` has no description"));
        }
        let properties = definition.input_schema["properties"].as_object();
        let blank = properties.into_iter().flatten().find(|(_, schema)| {
            schema.get("description").is_some_and(|text| text.as_str().is_none_or(|text| text.trim().is_empty()))
        });
        match blank {
            Some((property, _)) => {
                broken(format!("the property `{property}` of `{name}` has a description without words"))
            }
            None => Ok(()),
        }
    })
    .await
}

async fn object(bench: &Bench<'_>) -> Checked {
    every(bench, |definition| {
        let (name, schema) = (&definition.name, &definition.input_schema);
        if schema["type"] != "object" {
            return broken(format!("the schema of `{name}` does not say `\"type\": \"object\"`"));
        }
        match ["anyOf", "oneOf", "allOf", "not", "enum"].into_iter().find(|word| schema.get(word).is_some()) {
            Some(word) => broken(format!("the schema of `{name}` has `{word}` at its top")),
            None => Ok(()),
        }
    })
    .await
}

async fn valid(bench: &Bench<'_>) -> Checked {
    every(bench, |definition| {
        // A reference that leads out would be fetched, or silently not be looked at.
        let outside = nodes(&definition.input_schema)
            .into_iter()
            .find(|node| node.get("$ref").is_some_and(|to| to.as_str().is_none_or(|to| !to.starts_with('#'))));
        match outside {
            Some(node) => broken(format!("the schema of `{}` refers to {}", definition.name, node["$ref"])),
            None => validator(definition, &definition.input_schema).map(|_| ()),
        }
    })
    .await
}

async fn required(bench: &Bench<'_>) -> Checked {
    every(bench, |definition| {
        for node in nodes(&definition.input_schema) {
            let properties = node["properties"].as_object();
            let missing = node["required"].as_array().into_iter().flatten().find(|name| {
                name.as_str().is_none_or(|name| properties.is_none_or(|properties| !properties.contains_key(name)))
            });
            if let Some(missing) = missing {
                return broken(format!(
                    "the schema of `{}` requires {missing}, and has no such property",
                    definition.name
                ));
            }
        }
        Ok(())
    })
    .await
}

async fn takes(bench: &Bench<'_>) -> Checked {
    let inputs = bench
        .samples("no sample has an input that fits", |sample, definition| {
            let inputs: Vec<_> = sample.fitting().cloned().collect();
            (!inputs.is_empty()).then(|| (inputs, definition.clone()))
        })
        .await?;
    for (tool, (inputs, definition)) in inputs {
        let validator = validator(&definition, &definition.input_schema)?;
        for input in inputs {
            if let Err(why) = validator.validate(&input) {
                return broken(format!("`{tool}` is shown with {}, and its schema says: {why}", shown(&input)));
            }
        }
    }
    Ok(())
}

async fn examples(bench: &Bench<'_>) -> Checked {
    let mut some = false;
    let subject = bench.open().await?;
    for definition in subject.0.tools.definitions() {
        for node in nodes(&definition.input_schema) {
            let listed = node.get("examples").and_then(Value::as_array).into_iter().flatten();
            for value in listed.chain(node.get("default")) {
                some = true;
                let validator = validator(&definition, node)?;
                if let Err(why) = validator.validate(value) {
                    return broken(format!("the schema of `{}` shows {}: {why}", definition.name, shown(value)));
                }
            }
        }
    }
    if some { Ok(()) } else { skipped("no schema has examples or defaults") }
}

async fn refuses(bench: &Bench<'_>) -> Checked {
    let inputs = bench
        .samples("no sample has an input that is refused", |sample, definition| {
            (!sample.refuses.is_empty()).then(|| (sample.refuses.clone(), definition.clone()))
        })
        .await?;
    for (tool, (inputs, definition)) in inputs {
        let validator = validator(&definition, &definition.input_schema)?;
        if let Some(input) = inputs.iter().find(|input| validator.is_valid(input)) {
            return broken(format!("`{tool}` does not take {}, and its schema does", shown(input)));
        }
    }
    Ok(())
}

async fn some_time(bench: &Bench<'_>) -> Checked {
    every(bench, |definition| {
        let valid_for = match &definition.replay {
            Replay::Idempotent { valid_for } => Some(*valid_for),
            _ => None,
        };
        let limits = [("deadline", definition.deadline), ("idle limit", definition.idle), ("validity", valid_for)];
        match limits.into_iter().find(|(_, limit)| *limit == Some(Duration::ZERO)) {
            Some((what, _)) => broken(format!("the {what} of `{}` is no time at all", definition.name)),
            None => Ok(()),
        }
    })
    .await
}

fn validator(definition: &ToolDefinition, schema: &Value) -> Result<Validator, Details> {
    jsonschema::validator_for(schema)
        .map_err(|why| Details::Broken(format!("the schema of `{}` is none: {why}", definition.name)))
}

/// A schema and every schema of a property or an item in it.
fn nodes(schema: &Value) -> Vec<&Value> {
    let mut found = vec![schema];
    let mut next = 0;
    while let Some(node) = found.get(next).copied() {
        next += 1;
        let properties = node.get("properties").and_then(Value::as_object).into_iter().flatten();
        found.extend(properties.map(|(_, schema)| schema));
        found.extend(node.get("items").filter(|items| items.is_object()));
    }
    found
}
