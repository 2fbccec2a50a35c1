//! Keys that are computed: stable from the first release.

use serde_json::{Value, json};
use settled_ledger::{arguments_hash, effect_key};
use settled_tools_api::{CallKey, MessageId, SessionId};

#[test]
fn an_effect_key_is_frozen_and_safe_in_a_header() {
    let key = |session: &str, step: u128, ordinal: u32| {
        let call = CallKey { step: MessageId::from_u128(step), ordinal };
        effect_key(&SessionId::new(session).unwrap(), call)
    };
    // The hash of `s`, a zero byte, sixteen bytes of the step and four of the ordinal, as any SHA-256 gives it.
    assert_eq!(key("s", 1, 0).as_str(), EXPECTED);
    assert!(key("s", 1, 0).as_str().bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let all = [key("s", 1, 0), key("s", 1, 1), key("s", 2, 0), key("t", 1, 0), key("s", u128::MAX, u32::MAX)];
    assert!(all.iter().all(|key| key.as_str().len() == 64));
    for (place, one) in all.iter().enumerate() {
        assert!(!all[..place].contains(one), "each call of each step of each session has its own");
    }
}

/// What another implementation of the hash gives for the same bytes.
const EXPECTED: &str = "7124e7af94b3121fcc2c27bfa0a2ae2926780496ca51e48eeb8e57ae9662204c";

#[test]
fn the_hash_of_arguments_does_not_depend_on_their_order() {
    let hash = |text: &str| arguments_hash(&serde_json::from_str::<Value>(text).unwrap());
    let one = hash(r#"{"b":[1,{"y":null,"x":"\u00e9"}],"a":{"d":1.5,"c":true}}"#);
    assert_eq!(one, hash(" { \"a\" : {\"c\":true,\"d\":1.5}, \"b\":[1, {\"x\":\"\u{e9}\", \"y\":null}] } "));
    assert_eq!(one, "13dff07e143fb797f39ed92487c8814ab9593eb16f125984844fe1f7a39b68ae");
    for other in [
        r#"{"b":[{"y":null,"x":"é"},1],"a":{"d":1.5,"c":true}}"#,
        r#"{"b":[1,{"y":null,"x":"e"}],"a":{"d":1.5,"c":true}}"#,
        r#"{"b":[1,{"y":null,"x":"é"}],"a":{"d":1.5}}"#,
    ] {
        assert_ne!(one, hash(other));
    }
    assert_ne!(arguments_hash(&json!({"a": "1"})), arguments_hash(&json!({"a": 1})));
    assert_ne!(arguments_hash(&json!(["a", "b"])), arguments_hash(&json!(["a,b"])));
    assert_ne!(arguments_hash(&json!({"a\":1,\"b": 2})), arguments_hash(&json!({"a": 1, "b": 2})));
}
