//! What an answer costs, and what a session is called at a provider.

use settled_provider_api::{MessageId, ModelInfo, Price, Purpose, Rates, SessionId, Usage};

/// 243: the rates of the highest tier below the whole prompt hold for everything; reasoning costs what output costs.
#[test]
fn the_highest_tier_below_the_prompt_counts() {
    // In nano-units per token: 1, 2, 0.1 and 0.5 per million.
    let base = Rates::new(1_000, 2_000).cache(100, 500);
    let large = Rates::new(3_000, 4_000).cache(200, 600);
    let price = Price::new(base).tier(1_000, Rates::new(9_000, 9_000)).tier(100, large);
    let usage = |input: u64| Usage::new(input, 10).reasoning(2).cache_read(20).cache_write(1);
    let cases = [
        ("101 tokens are more than 100", price.clone(), usage(80), 292_600),
        ("100 are not", price.clone(), usage(79), 79_000 + 24_000 + 2_000 + 500),
        ("the highest of several", price.clone(), usage(980), 9_000 * (980 + 12 + 20 + 1)),
        ("only a tier, and too few tokens for it", Price::default().tier(100, large), usage(79), 0),
        ("a cache without a price costs what input costs", Price::new(Rates::new(1, 1)), usage(80), 80 + 12 + 20 + 1),
        ("nothing reported", price, Usage::default(), 0),
    ];
    for (what, price, usage, nanos) in cases {
        assert_eq!(price.cost(&usage), nanos, "{what}");
    }
    assert_eq!(ModelInfo::new().cost(&usage(80)), None, "without a price nobody knows");
}

/// 243: a price that is no price is an error, and never a cost.
#[test]
fn a_malformed_price_does_not_read() {
    for text in [
        r#"{"base": {"input": -1, "output": 2}}"#,
        r#"{"base": {"input": 0.5, "output": 2}}"#,
        r#"{"base": {"input": "1"}}"#,
        r#"{"tiers": [{"above": null, "rates": {}}]}"#,
    ] {
        assert!(serde_json::from_str::<Price>(text).is_err(), "{text}");
    }
    let whole = r#"{"base": {"input": 1, "output": 2}, "tiers": [{"above": 9, "rates": {"input": 3}}]}"#;
    let price: Price = serde_json::from_str(whole).unwrap();
    assert_eq!(price, Price::new(Rates::new(1, 2)).tier(9, Rates::new(3, 0)));
}

/// 256: the cache key is the session's name where it is short, at most 64 characters always, and different for different sessions.
#[test]
fn a_cache_key_is_short_and_the_sessions_own() {
    let key = |name: &str| {
        let purpose = Purpose::step(SessionId::new(name).unwrap(), MessageId::from_u128(1));
        purpose.cache_key().into_owned()
    };
    let long = |last: char| format!("{}{last}", "s".repeat(127));
    assert_eq!(key("ses_1"), "ses_1");
    assert_eq!(key(&"s".repeat(64)), "s".repeat(64));
    let (one, other) = (key(&long('a')), key(&long('b')));
    assert_eq!(one, format!("{}-{}", "s".repeat(47), &one[48..]), "what can be read of the name stays");
    assert_eq!((one.chars().count(), other.chars().count()), (64, 64));
    assert_ne!(one, other);
    assert_eq!(key(&long('a')), one, "the same in every request");
    assert_eq!(key(&"ü".repeat(128)).chars().count(), 64);
}
