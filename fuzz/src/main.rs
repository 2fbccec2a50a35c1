//! One target under libFuzzer; which one says `SETTLED_FUZZ_TARGET`.
//!
//! Its first inputs are written into the folder `SETTLED_FUZZ_SEEDS` before libFuzzer reads its corpora.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

mod targets;

use targets::{Target, seeds};

static TARGET: OnceLock<Target> = OnceLock::new();

fn target() -> Target {
    let name = std::env::var("SETTLED_FUZZ_TARGET").unwrap_or_default();
    let found = Target::ALL.into_iter().find(|target| target.name() == name);
    found.unwrap_or_else(|| panic!("SETTLED_FUZZ_TARGET is none of {:?}", Target::ALL.map(Target::name)))
}

fuzz_target!(
    init: {
        let target = *TARGET.get_or_init(target);
        if let Some(folder) = std::env::var_os("SETTLED_FUZZ_SEEDS") {
            for (number, seed) in seeds(target).into_iter().enumerate() {
                let path = Path::new(&folder).join(format!("seed-{number:03}"));
                std::fs::write(&path, seed).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            }
        }
    },
    |data: &[u8]| TARGET.get_or_init(target).run(data)
);
