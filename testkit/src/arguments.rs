//! Arguments made from a tool's schema.

use serde_json::{Map, Number, Value, json};

/// How deep a schema may refer to itself.
const DEEPEST: u32 = 16;

/// Arguments that a schema accepts: what it requires, no more, and the same every time.
///
/// It follows `const`, `enum`, `examples`, `default`, types, `required`, nested objects and arrays, bounds of numbers, lengths and sizes, `uniqueItems`, `multipleOf`, the common formats of texts, `allOf`, the first of `anyOf` and `oneOf`, and `$ref` inside the schema.
/// It does not follow `pattern`, `not`, `if` and `dependentRequired`; give such a schema `examples`.
///
/// ```
/// use serde_json::json;
/// use settled_testkit::arguments;
///
/// let schema = json!({
///     "type": "object",
///     "properties": {
///         "to": {"type": "string", "format": "email"},
///         "cents": {"type": "integer", "minimum": 100},
///         "currency": {"enum": ["CHF", "EUR"]},
///         "note": {"type": "string"},
///     },
///     "required": ["to", "cents", "currency"],
/// });
/// assert_eq!(arguments(&schema), json!({"to": "ann@example.com", "cents": 100, "currency": "CHF"}));
/// ```
pub fn arguments(schema: &Value) -> Value {
    match (Maker { root: schema }).value(schema, 0, 0) {
        Value::Null => json!({}),
        made => made,
    }
}

/// Makes values for the parts of one schema.
struct Maker<'a> {
    root: &'a Value,
}

impl Maker<'_> {
    /// A value of a schema: the `nth` of several that differ where the schema lets them.
    fn value(&self, schema: &Value, nth: u64, depth: u32) -> Value {
        let Some(schema) = self.resolved(schema, depth) else { return Value::Null };
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        for listed in ["enum", "examples"] {
            if let Some(values) = schema.get(listed).and_then(Value::as_array).filter(|values| !values.is_empty()) {
                let place = usize::try_from(nth).unwrap_or(usize::MAX).min(values.len() - 1);
                return values[place].clone();
            }
        }
        if let Some(value) = schema.get("default").filter(|_| nth == 0) {
            return value.clone();
        }
        match kind(&schema) {
            "object" => self.object(&schema, nth, depth),
            "array" => self.array(&schema, depth),
            "string" => Value::String(text(&schema, nth)),
            "integer" => integer(&schema, nth),
            "number" => number(&schema, nth),
            "boolean" => Value::Bool(nth.is_multiple_of(2)),
            _ => Value::Null,
        }
    }

    /// The schema with its references, and with those that it has to agree with, in one object.
    fn resolved(&self, schema: &Value, depth: u32) -> Option<Map<String, Value>> {
        if depth > DEEPEST {
            return None;
        }
        let mut own = schema.as_object().cloned().unwrap_or_default();
        let mut others = Vec::new();
        if let Some(Value::String(to)) = own.remove("$ref") {
            others.push(to.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)).cloned()?);
        }
        if let Some(Value::Array(all)) = own.remove("allOf") {
            others.extend(all);
        }
        for choice in ["anyOf", "oneOf"] {
            if let Some(Value::Array(choices)) = own.remove(choice) {
                // The first that says more than nothing: `null` is often one of them.
                let first =
                    choices.iter().find(|one| one.get("type") != Some(&json!("null"))).or_else(|| choices.first());
                others.extend(first.cloned());
            }
        }
        for other in others {
            merge(&mut own, self.resolved(&other, depth + 1)?);
        }
        Some(own)
    }

    fn object(&self, schema: &Map<String, Value>, nth: u64, depth: u32) -> Value {
        let known = schema.get("properties").and_then(Value::as_object);
        let anything = schema.get("additionalProperties").filter(|schema| schema.is_object()).unwrap_or(&Value::Null);
        let mut made = Map::new();
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            let schema = known.and_then(|known| known.get(name)).unwrap_or(anything);
            made.insert(name.to_owned(), self.value(schema, nth, depth + 1));
        }
        let least = size(schema, "minProperties").unwrap_or(0);
        for (name, schema) in known.into_iter().flatten() {
            if made.len() as u64 >= least {
                break;
            }
            made.entry(name).or_insert_with(|| self.value(schema, nth, depth + 1));
        }
        for number in 1.. {
            if made.len() as u64 >= least {
                break;
            }
            made.entry(format!("key{number}")).or_insert_with(|| self.value(anything, nth, depth + 1));
        }
        Value::Object(made)
    }

    fn array(&self, schema: &Map<String, Value>, depth: u32) -> Value {
        let first = schema.get("prefixItems").and_then(Value::as_array).cloned().unwrap_or_default();
        let rest = schema.get("items").filter(|items| items.is_object());
        let wanted = if rest.is_some() { 1 } else { 0 }.max(first.len() as u64);
        let most = size(schema, "maxItems").unwrap_or(u64::MAX);
        let length = wanted.max(size(schema, "minItems").unwrap_or(0)).min(most);
        let item = |place: u64| {
            let own = usize::try_from(place).ok().and_then(|place| first.get(place));
            self.value(own.or(rest).unwrap_or(&Value::Null), place, depth + 1)
        };
        Value::Array((0..length).map(item).collect())
    }
}

/// The first type that a schema allows and that is not null; what its keywords speak of where it names none.
fn kind(schema: &Map<String, Value>) -> &str {
    match schema.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("null")
        }
        _ if schema.contains_key("properties") || schema.contains_key("required") => "object",
        _ if schema.contains_key("items") || schema.contains_key("prefixItems") => "array",
        _ if schema.contains_key("minimum") || schema.contains_key("maximum") => "number",
        _ if schema.is_empty() => "null",
        _ => "string",
    }
}

fn size(schema: &Map<String, Value>, name: &str) -> Option<u64> {
    schema.get(name).and_then(Value::as_u64)
}

fn text(schema: &Map<String, Value>, nth: u64) -> String {
    let of_format = match schema.get("format").and_then(Value::as_str) {
        Some("date") => Some(format!("2026-01-{:02}", 1 + nth % 28)),
        Some("date-time") => Some(format!("2026-01-{:02}T12:00:00Z", 1 + nth % 28)),
        Some("time") => Some(format!("12:00:{:02}Z", nth % 60)),
        Some("duration") => Some(format!("PT{}S", 1 + nth)),
        Some("email" | "idn-email") if nth == 0 => Some("ann@example.com".to_owned()),
        Some("email" | "idn-email") => Some(format!("ann{nth}@example.com")),
        Some("uri" | "iri" | "uri-reference" | "iri-reference") => Some(format!("https://example.com/{nth}")),
        Some("hostname" | "idn-hostname") => Some(format!("host{nth}.example.com")),
        Some("ipv4") => Some(format!("192.0.2.{}", 1 + nth % 250)),
        Some("ipv6") => Some(format!("2001:db8::{:x}", 1 + nth % 0xffff)),
        Some("uuid") => Some(format!("00000000-0000-4000-8000-{nth:012x}")),
        Some("json-pointer") => Some(format!("/{nth}")),
        _ => None,
    };
    if let Some(text) = of_format {
        return text;
    }
    let mut text = if nth == 0 { "text".to_owned() } else { format!("{nth}text") };
    let least = usize::try_from(size(schema, "minLength").unwrap_or(0)).unwrap_or(usize::MAX).min(1 << 16);
    while text.len() < least {
        text.push('x');
    }
    if let Some(most) = size(schema, "maxLength") {
        text.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    }
    text
}

fn integer(schema: &Map<String, Value>, nth: u64) -> Value {
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    #[expect(clippy::cast_possible_truncation, reason = "bounds beyond 64 bits are cut to them")]
    let whole = |bound: f64| bound as i64;
    let least = [bound("minimum").map(f64::ceil), bound("exclusiveMinimum").map(|bound| bound.floor() + 1.0)];
    let most = [bound("maximum").map(f64::floor), bound("exclusiveMaximum").map(|bound| bound.ceil() - 1.0)];
    let least = least.into_iter().flatten().map(whole).max();
    let most = most.into_iter().flatten().map(whole).min();
    let step = bound("multipleOf").map(whole).filter(|step| *step > 0).unwrap_or(1);
    let start = match (least, most) {
        (Some(least), _) => least,
        (None, Some(most)) => most.min(1),
        (None, None) => 1,
    };
    let nth = i64::try_from(nth).unwrap_or(i64::MAX);
    // The first multiple at or above the start.
    let first = start.saturating_add((step - start.rem_euclid(step)) % step);
    let up = first.saturating_add(nth.saturating_mul(step));
    match most {
        // Down from the bound where there is no room above the start.
        Some(most) if up > most => json!(most.saturating_sub(most.rem_euclid(step))),
        _ => json!(up),
    }
}

fn number(schema: &Map<String, Value>, nth: u64) -> Value {
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    if bound("multipleOf").is_some_and(|step| step.fract() == 0.0) {
        return integer(schema, nth);
    }
    let least = bound("minimum").into_iter().chain(bound("exclusiveMinimum")).reduce(f64::max);
    let most = bound("maximum").into_iter().chain(bound("exclusiveMaximum")).reduce(f64::min);
    #[expect(clippy::cast_precision_loss, reason = "any number does, as long as they differ")]
    let nth = nth as f64;
    let made = match (least, most, bound("multipleOf")) {
        (least, _, Some(step)) => ((least.unwrap_or(0.0) / step).floor() + 1.0 + nth) * step,
        // Inside the bounds, so that it does not matter whether they are part of it.
        (Some(least), Some(most), None) => least + (most - least) / (2.0 + nth),
        (Some(least), None, None) => least + 1.0 + nth,
        (None, Some(most), None) => most - 1.0 - nth,
        (None, None, None) => 1.5 + nth,
    };
    Number::from_f64(made).map_or(Value::Null, Value::Number)
}

/// Adds what another schema asks for; required names and properties add up, of the rest the first wins.
fn merge(into: &mut Map<String, Value>, other: Map<String, Value>) {
    for (name, value) in other {
        match (into.get_mut(&name), value) {
            (None, value) => {
                into.insert(name, value);
            }
            (Some(Value::Array(own)), Value::Array(more)) if name == "required" => own.extend(more),
            (Some(Value::Object(own)), Value::Object(more)) if name == "properties" => {
                for (name, schema) in more {
                    own.entry(name).or_insert(schema);
                }
            }
            (Some(_), _) => {}
        }
    }
}
