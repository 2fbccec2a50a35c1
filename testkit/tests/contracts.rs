//! The pages of the store's contracts against the suite: each case stands on the page of its method, and each page says what is lost and what cancelling does.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use settled_testkit::conformance::store::cases;

/// The four contracts, as they stand in the ledger.
const CONTRACTS: [&str; 4] = ["EventLog", "Inbox", "Ownership", "Catalog"];

/// Each method of the contracts, and its page.
fn pages() -> BTreeMap<String, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ledger/src/store.rs");
    let source = std::fs::read_to_string(source).unwrap();
    let mut pages = BTreeMap::new();
    for contract in CONTRACTS {
        let (_, body) = source.split_once(&format!("pub trait {contract}: ")).unwrap();
        let (body, _) = body.split_once("\n}\n").unwrap();
        let mut page = String::new();
        for line in body.lines().map(str::trim) {
            if let Some(doc) = line.strip_prefix("///") {
                page.push_str(doc);
                page.push('\n');
            } else if let Some((_, method)) = line.split_once("fn ") {
                let (name, _) = method.split_once('(').unwrap();
                pages.insert(name.to_owned(), std::mem::take(&mut page));
            }
        }
    }
    pages
}

/// The cases that a page names: words with a dot in code quotes.
fn named(page: &str) -> Vec<&str> {
    let words = page.split('`').skip(1).step_by(2);
    words.filter(|word| word.split_once('.').is_some_and(|(method, _)| pages().contains_key(method))).collect()
}

#[test]
fn every_case_stands_on_its_method_s_page_and_no_other_does() {
    let mut promised = BTreeMap::<String, BTreeSet<&str>>::new();
    for case in cases() {
        let (method, _) = case.name.split_once('.').unwrap();
        promised.entry(method.to_owned()).or_default().insert(case.name);
    }
    let pages = pages();
    assert_eq!(pages.len(), 16);
    for (method, page) in &pages {
        let names = named(page);
        let once: BTreeSet<_> = names.iter().copied().collect();
        assert_eq!(names.len(), once.len(), "the page of `{method}` names a case twice");
        assert_eq!(Some(&once), promised.get(method), "the page of `{method}`");
    }
    assert_eq!(pages.len(), promised.len(), "each method has cases");
}

#[test]
fn every_page_says_what_is_lost_and_what_cancelling_does() {
    for (method, page) in pages() {
        for what in ["*Loses* ", "*Cancelling*"] {
            assert_eq!(page.matches(what).count(), 1, "`{what}` on the page of `{method}`");
        }
    }
}
