//! Comparing a result with what was expected of it.

use std::fmt;

use serde_json::Value;

/// One place at which a result is not what was expected.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Mismatch {
    /// The place in the result, as `events[3].text`.
    pub place: String,
    /// What was expected there.
    pub expected: Value,
    /// What is there; `None` where there is nothing of that name or number.
    pub found: Option<Value>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found ", self.place, self.expected)?;
        match &self.found {
            Some(found) => found.fmt(f),
            None => f.write_str("nothing"),
        }
    }
}

/// Where a result is not what was expected: objects match by the keys given, lists in full, `{"in_order": [...]}` as a subsequence.
pub(super) fn compare(expected: &Value, found: &Value) -> Vec<Mismatch> {
    let mut mismatches = Vec::new();
    look(expected, Some(found), String::new(), &mut mismatches);
    mismatches
}

fn look(expected: &Value, found: Option<&Value>, place: String, into: &mut Vec<Mismatch>) {
    let mismatch = |place: String| Mismatch { place, expected: expected.clone(), found: found.cloned() };
    match (expected, found) {
        (Value::Object(keys), Some(Value::Array(items))) if keys.len() == 1 && keys.contains_key("in_order") => {
            in_order(keys.get("in_order").and_then(Value::as_array), items, &place, into);
        }
        (Value::Object(keys), Some(Value::Object(fields))) => {
            for (key, expected) in keys {
                let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
                look(expected, fields.get(key), place, into);
            }
        }
        (Value::Array(expected), Some(Value::Array(items))) => {
            for number in 0..expected.len().max(items.len()) {
                let place = format!("{place}[{number}]");
                match (expected.get(number), items.get(number)) {
                    (Some(expected), item) => look(expected, item, place, into),
                    (None, item) => into.push(Mismatch {
                        place,
                        expected: Value::from("the end of the list"),
                        found: item.cloned(),
                    }),
                }
            }
        }
        (expected, Some(value)) if expected == value => {}
        _ => into.push(mismatch(place)),
    }
}

fn in_order(expected: Option<&Vec<Value>>, items: &[Value], place: &str, into: &mut Vec<Mismatch>) {
    let mut from = 0;
    for (number, expected) in expected.into_iter().flatten().enumerate() {
        let rest = items.iter().enumerate().skip(from);
        let hit = rest.into_iter().find(|(_, item)| compare(expected, item).is_empty());
        match hit {
            Some((at, _)) => from = at + 1,
            None => {
                into.push(Mismatch {
                    place: format!("{place}.in_order[{number}], behind {place}[{}]", from.saturating_sub(1)),
                    expected: expected.clone(),
                    found: None,
                });
                return;
            }
        }
    }
}
