//! No path leads out of the root, whichever tool is asked.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{contents, files, folder, run};
use serde_json::json;
use settled_tool_files::Files;
use tempfile::TempDir;

/// A folder `root` beside a folder `outside`, and links of every kind between them.
fn two_folders() -> TempDir {
    let both = folder(&[("outside/secret", b"secret"), ("root/in/file", b"inside")]);
    let root = both.path().join("root");
    for (to, link) in [
        ("../outside/secret", "link_to_file"),
        ("../outside", "link_to_folder"),
        ("../outside/new", "link_to_nothing"),
        ("in/../../outside/secret", "link_in_and_out"),
        ("link_to_folder/secret", "link_to_link"),
        ("in/file", "link_inside"),
        ("in", "folder_inside"),
        ("loop", "loop"),
    ] {
        symlink(to, root.join(link)).unwrap();
    }
    symlink(both.path().join("outside/secret"), root.join("absolute_link")).unwrap();
    both
}

#[tokio::test]
async fn no_path_leads_out() {
    let both = two_folders();
    let before = contents(both.path());
    let root = both.path().join("root");
    let tools = Files::new(&root).unwrap();
    let absolute = both.path().join("outside/secret").display().to_string();
    let sneaky = root.join("../outside/secret").display().to_string();
    let sibling = format!("{}-not/secret", root.display());
    for path in [
        "../outside/secret",
        "in/../../outside/secret",
        "link_to_file",
        "link_to_folder/secret",
        "link_to_folder/new",
        "link_to_folder/new/deep",
        "link_to_nothing",
        "link_in_and_out",
        "link_to_link",
        "absolute_link",
        "/etc/passwd",
        &absolute,
        &sneaky,
        &sibling,
        "..",
        "../new",
        "/",
    ] {
        let refused =
            format!("`{path}` leads out of the root folder `{}`: only files inside it can be used", root.display());
        for (name, input) in [
            ("read_file", json!({"path": path})),
            ("list_files", json!({"path": path})),
            ("list_files", json!({"path": path, "glob": "*"})),
            ("search_files", json!({"path": path, "pattern": "secret"})),
            ("edit_file", json!({"path": path, "old_text": "secret", "new_text": "x"})),
            ("write_file", json!({"path": path, "content": "x"})),
        ] {
            assert_eq!(run(&tools, name, input).await, Err(refused.clone()), "{name} {path}");
        }
    }
    assert_eq!(contents(both.path()), before);
}

#[tokio::test]
async fn no_walk_leads_out() {
    let both = two_folders();
    let tools = Files::new(both.path().join("root")).unwrap();
    let said = run(&tools, "search_files", json!({"pattern": "s"})).await;
    assert_eq!(said.as_deref(), Ok("in/file:1:inside\n"));
    let said = run(&tools, "list_files", json!({"glob": "**"})).await;
    assert_eq!(said.as_deref(), Ok("in/file\n"));
}

#[tokio::test]
async fn links_and_absolute_paths_inside_are_followed() {
    let both = two_folders();
    let root = both.path().join("root");
    // The root itself may be reached by a link, and either of its paths is good.
    let link = both.path().join("link_to_root");
    symlink(&root, &link).unwrap();
    let tools = Files::new(&link).unwrap();
    for path in [
        "link_inside".to_owned(),
        "folder_inside/file".to_owned(),
        "in/../in/./file".to_owned(),
        root.join("in/file").display().to_string(),
        link.join("in/file").display().to_string(),
    ] {
        assert_eq!(run(&tools, "read_file", json!({"path": path})).await.as_deref(), Ok("inside"), "{path}");
    }
    let said = run(&tools, "write_file", json!({"path": "link_inside", "content": "new"})).await;
    assert_eq!(said.as_deref(), Ok("replaced `link_inside`: 3 bytes"));
    let said = run(&tools, "write_file", json!({"path": "folder_inside/other", "content": "other"})).await;
    assert_eq!(said.as_deref(), Ok("created `folder_inside/other`: 5 bytes"));
    // The link is still one.
    assert_eq!(fs::read_link(root.join("link_inside")).unwrap().to_str(), Some("in/file"));
    assert_eq!(contents(&root.join("in")), files(&[("file", "new"), ("other", "other")]));
}

#[tokio::test]
async fn a_link_to_itself_ends() {
    let both = two_folders();
    let tools = Files::new(both.path().join("root")).unwrap();
    for (name, input) in
        [("read_file", json!({"path": "loop"})), ("write_file", json!({"path": "loop", "content": "x"}))]
    {
        let said = run(&tools, name, input).await.unwrap_err();
        assert!(said.contains("`loop`: Too many levels of symbolic links"), "{said}");
    }
}
