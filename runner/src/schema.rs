//! Checking a call's arguments against its tool's schema.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::Value;

/// Checks arguments; the error says where, and what was expected there.
///
/// A schema that is itself broken checks nothing: the tool then sees what the model gave.
pub(crate) fn check(schema: &Value, input: &Value) -> Result<(), String> {
    let Some(validator) = validator(schema) else { return Ok(()) };
    let faults: Vec<String> = validator
        .iter_errors(input)
        .take(MOST_FAULTS)
        .map(|fault| {
            let place = fault.instance_path().to_string();
            let place = if place.is_empty() { "the arguments".to_owned() } else { format!("`{place}`") };
            format!("at {place}: {fault}")
        })
        .collect();
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

/// How many faults the model is told about at once.
const MOST_FAULTS: usize = 5;

/// How many compiled schemas are kept.
const MOST_KEPT: usize = 256;

/// Compiling a schema costs more than a whole step, so compiled ones are kept by their text.
static KEPT: Mutex<BTreeMap<String, Option<Arc<Validator>>>> = Mutex::new(BTreeMap::new());

fn validator(schema: &Value) -> Option<Arc<Validator>> {
    let text = schema.to_string();
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).get(&text).cloned();
    if let Some(kept) = kept {
        return kept;
    }
    let made = jsonschema::validator_for(schema);
    let made = made.inspect_err(|error| tracing::warn!(%error, "a tool's schema is broken and checks nothing"));
    let made = made.ok().map(Arc::new);
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() >= MOST_KEPT {
        all.clear();
    }
    all.insert(text, made.clone());
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn faults_name_the_place_and_what_was_expected() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}, "required": ["a", "y"]});
        let check = |input: Value| check(&schema, &input);
        assert_eq!(check(json!({"a": [1], "y": 0})), Ok(()));
        assert_eq!(
            check(json!({"a": [1, "x"], "y": 0})),
            Err("at `/a/1`: \"x\" is not of type \"integer\"".to_owned())
        );
        assert_eq!(check(json!({"a": []})), Err("at the arguments: \"y\" is a required property".to_owned()));
    }
}
