//! Rules of the house that are plain tests: who may depend on whom, and that every module says what it is.
#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Whom a crate may depend on, among our own: the arrows of ARCHITECTURE.md.
///
/// Development dependencies are free: a test may see any store or adapter.
fn may_see(name: &str) -> &'static [&'static str] {
    match name {
        "settled-tools-api" => &[],
        "settled-provider-api" => &["settled-tools-api"],
        "settled-ledger" => &["settled-tools-api", "settled-provider-api"],
        "settled-runner" => &["settled-tools-api", "settled-provider-api", "settled-ledger"],
        "settled-testkit" => &["settled-tools-api", "settled-provider-api", "settled-ledger", "settled-runner"],
        "settled-provider-wire" => &["settled-tools-api", "settled-provider-api"],
        _ if name.starts_with("settled-provider-") => {
            &["settled-tools-api", "settled-provider-api", "settled-provider-wire"]
        }
        _ if name.starts_with("settled-store-") => &["settled-tools-api", "settled-provider-api", "settled-ledger"],
        _ if name.starts_with("settled-tool-") => &["settled-tools-api"],
        "settled-cli" | "settled-process-suite" => &["*"],
        _ => panic!("`{name}` has no place in the house: give it one here and in ARCHITECTURE.md"),
    }
}

/// What else the leaves may depend on: they stay light.
fn may_use(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "settled-tools-api" => Some(&["async-trait", "serde", "serde_json"]),
        "settled-provider-api" => Some(&["async-trait", "futures-core", "serde", "serde_json"]),
        "settled-ledger" => Some(&["async-trait", "futures-core", "serde", "serde_json", "sha2"]),
        _ => None,
    }
}

#[test]
fn the_arrows_hold() {
    for (name, dependencies) in dependencies() {
        let (ours, theirs): (BTreeSet<_>, BTreeSet<_>) =
            dependencies.iter().map(String::as_str).partition(|dependency| dependency.starts_with("settled-"));
        let allowed = may_see(&name);
        if allowed != ["*"] {
            let broken: Vec<_> = ours.iter().filter(|dependency| !allowed.contains(*dependency)).collect();
            assert!(broken.is_empty(), "`{name}` must not depend on {broken:?}");
        }
        if let Some(light) = may_use(&name) {
            let heavy: Vec<_> = theirs.iter().filter(|dependency| !light.contains(*dependency)).collect();
            assert!(heavy.is_empty(), "`{name}` is a leaf and must not depend on {heavy:?}");
        }
    }
}

#[test]
fn every_module_says_what_it_is() {
    let mut silent = Vec::new();
    let mut looked_at = 0;
    for source in sources(&root()) {
        looked_at += 1;
        let text = std::fs::read_to_string(&source).unwrap();
        if !text.starts_with("//!") {
            silent.push(source);
        }
    }
    assert!(looked_at > 50, "only {looked_at} modules were found");
    assert_eq!(silent, Vec::<PathBuf>::new(), "the first line of a module is a `//!` line");
}

#[test]
fn the_ledger_is_kept_pure_by_its_lints() {
    let banned = std::fs::read_to_string(root().join("ledger/clippy.toml")).unwrap();
    for name in ["std::time::SystemTime", "std::time::Instant", "std::hash::RandomState", "std::thread::spawn"] {
        assert!(banned.contains(name), "ledger/clippy.toml does not ban {name}");
    }
}

/// Each crate of the workspace, and what it depends on outside of tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |package: &Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let real = dependencies.filter(|dependency| dependency["kind"] != "dev");
        real.map(|dependency| dependency["name"].as_str().unwrap().to_owned()).collect()
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.map(|package| (package["name"].as_str().unwrap().to_owned(), of(package))).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every Rust source of the workspace.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
