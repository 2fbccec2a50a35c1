//! Every public trait that a user may implement has a mock.
#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::fs;
use std::path::{Path, PathBuf};

/// The crates whose traits are implemented by users of ours.
const CRATES: [&str; 4] = ["tools-api", "provider-api", "ledger", "runner"];

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn every_public_trait_has_a_mock() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mocks = fs::read_to_string(root.join("src/mocks.rs")).unwrap();
    let mut traits = Vec::new();
    for name in CRATES {
        let mut files = Vec::new();
        sources(&root.join("..").join(name).join("src"), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let found = text.lines().filter_map(|line| line.strip_prefix("pub trait "));
            traits.extend(found.map(|rest| rest.split([':', ' ', '<']).next().unwrap().to_owned()));
        }
    }
    traits.sort();
    // A store is whatever has the four contracts: the mock of that name has them.
    traits.retain(|name| name != "Store");
    assert!(traits.len() >= 15, "{traits:?}");
    let missing: Vec<&String> = traits.iter().filter(|name| !mocks.contains(&format!("impl {name} for "))).collect();
    assert_eq!(missing, Vec::<&String>::new(), "these have no mock");
}
