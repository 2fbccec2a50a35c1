//! `docs/behaviours.md` names every scenario file, by its title, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

#[test]
fn the_page_names_every_scenario_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("docs/behaviours.md")).unwrap();
    let mut files = BTreeSet::new();
    for group in fs::read_dir(root.join("scenarios")).unwrap().map(|entry| entry.unwrap().path()) {
        for file in fs::read_dir(&group).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            let scenario: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            let link = format!("(../{})", file.strip_prefix(root).unwrap().display());
            let row = page.lines().find(|line| line.contains(&link));
            let row = row.unwrap_or_else(|| panic!("docs/behaviours.md has no row for {link}"));
            let title = scenario["name"].as_str().unwrap().replace('|', "\\|");
            let title =
                title.split_once(' ').filter(|_| !row.starts_with("|  |")).map_or(title.as_str(), |(_, title)| title);
            assert!(row.contains(title), "the row for {link} does not have the title `{title}`");
            files.insert(link);
        }
    }
    let rows = page.lines().filter(|line| line.contains("(../scenarios/")).count();
    assert_eq!(rows, files.len(), "docs/behaviours.md has rows without a file");
}
