//! A call whose arguments come in pieces, each with its place in the whole.

use serde_json::{Map, Value};

use crate::chunk::PartialArg;

/// How deep arguments may be nested: what is deeper would not be read as JSON either.
const DEEPEST: usize = 100;

/// The arguments of one call, put together from pieces.
///
/// A piece names its place (`$.recipe.steps[0]`) and has a value; a text that goes on is joined with the next piece of the same place.
/// Places come in order: a list grows by one element at a time.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    root: Map<String, Value>,
    /// The place of the text that goes on.
    open: Option<String>,
}

/// One step of a place.
#[derive(Debug, PartialEq, Eq)]
enum Step<'p> {
    Field(&'p str),
    Element(usize),
}

impl Arguments {
    /// The whole.
    pub(crate) fn into_object(self) -> Map<String, Value> {
        self.root
    }

    /// Takes all arguments that came as one object.
    pub(crate) fn extend(&mut self, object: Map<String, Value>) {
        self.root.extend(object);
    }

    /// Takes a piece, or says why it has no place.
    pub(crate) fn take(&mut self, piece: PartialArg<'_>) -> Result<(), String> {
        let path = &*piece.json_path.0;
        let steps = steps(path).ok_or_else(|| format!("{path:?} is no place in the arguments"))?;
        let goes_on = self.open.as_deref() == Some(path);
        self.open = piece.will_continue.unwrap_or(false).then(|| path.to_owned());
        let value = match (piece.string_value, piece.number_value, piece.bool_value) {
            (Some(text), _, _) => Value::String(text.0.into_owned()),
            (_, Some(number), _) => {
                serde_json::from_str(number.get()).map_err(|_| format!("the number at {path:?} does not decode"))?
            }
            (_, _, Some(truth)) => Value::Bool(truth),
            _ => Value::Null,
        };
        let place = place(&mut self.root, &steps).ok_or_else(|| format!("{path:?} does not fit what came before"))?;
        match (place, value) {
            (Value::String(text), Value::String(more)) if goes_on => text.push_str(&more),
            (place, value) => *place = value,
        }
        Ok(())
    }
}

/// The steps of a place: `$.a.b[0]['c d']`.
fn steps(path: &str) -> Option<Vec<Step<'_>>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() == DEEPEST {
            return None;
        }
        let step;
        (step, rest) = if let Some(behind) = rest.strip_prefix('.') {
            let (name, rest) = behind.split_at(behind.find(['.', '[']).unwrap_or(behind.len()));
            (Step::Field(name), rest)
        } else if let Some(quoted) = rest.strip_prefix("['") {
            let (name, rest) = quoted.split_once("']")?;
            (Step::Field(name), rest)
        } else if let Some(quoted) = rest.strip_prefix("[\"") {
            let (name, rest) = quoted.split_once("\"]")?;
            (Step::Field(name), rest)
        } else {
            let (number, rest) = rest.strip_prefix('[')?.split_once(']')?;
            (Step::Element(number.parse().ok()?), rest)
        };
        steps.push(step);
    }
    Some(steps)
}

/// The value at a place, made where it is missing; `None` where something of another kind is in the way.
fn place<'r>(root: &'r mut Map<String, Value>, steps: &[Step<'_>]) -> Option<&'r mut Value> {
    let (Step::Field(first), behind) = steps.split_first()? else { return None };
    let mut value = root.entry(*first).or_insert(Value::Null);
    for step in behind {
        value = match step {
            Step::Field(name) => {
                if value.is_null() {
                    *value = Value::Object(Map::new());
                }
                value.as_object_mut()?.entry(*name).or_insert(Value::Null)
            }
            Step::Element(index) => {
                if value.is_null() {
                    *value = Value::Array(Vec::new());
                }
                let list = value.as_array_mut()?;
                if *index == list.len() {
                    list.push(Value::Null);
                }
                list.get_mut(*index)?
            }
        };
    }
    Some(value)
}
