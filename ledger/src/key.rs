//! Keys that are computed: of a call's effect, of its arguments.

use serde_json::Value;
use settled_tools_api::{CallKey, EffectKey, SessionId};
use sha2::{Digest, Sha256};

/// The stable name of a call's side effect: a hash of session, step and ordinal, 64 hexadecimal digits.
pub fn effect_key(session: &SessionId, call: CallKey) -> EffectKey {
    let digest = Sha256::new()
        .chain_update(session.as_str())
        .chain_update([0])
        .chain_update(call.step.as_u128().to_be_bytes())
        .chain_update(call.ordinal.to_be_bytes())
        .finalize();
    #[expect(clippy::expect_used, reason = "64 hexadecimal digits are an effect key")]
    EffectKey::new(hex(&digest)).expect("64 hexadecimal digits are an effect key")
}

/// The hash of a call's canonical arguments: members sorted by name, no white space, 64 hexadecimal digits.
///
/// An approval is bound to it: what was approved is what runs.
pub fn arguments_hash(input: &Value) -> String {
    let mut canonical = String::new();
    write_canonical(input, &mut canonical);
    hex(&Sha256::digest(canonical))
}

fn write_canonical(value: &Value, into: &mut String) {
    match value {
        Value::Array(items) => {
            into.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    into.push(',');
                }
                write_canonical(item, into);
            }
            into.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            into.push('{');
            for (place, (name, member)) in members.into_iter().enumerate() {
                if place > 0 {
                    into.push(',');
                }
                into.push_str(&Value::from(name.as_str()).to_string());
                into.push(':');
                write_canonical(member, into);
            }
            into.push('}');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => into.push_str(&value.to_string()),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
