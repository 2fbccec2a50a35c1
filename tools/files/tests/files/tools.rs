//! What each tool answers, and what it leaves in the folder.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use crate::support::{contents, files, folder, info, run, run_in};
use serde_json::{Value, json};
use settled_tool_files::Files;
use settled_tools_api::{Concurrency, ReplayClass, ToolContext, ToolExecutor as _};

/// Runs a call in a folder with files; what it says and what the folder has afterwards must be this.
async fn check(before: &[(&str, &[u8])], name: &str, input: Value, says: Result<&str, &str>, after: &[(&str, &str)]) {
    let folder = folder(before);
    let tools = Files::new(folder.path()).unwrap().skip_folder("target");
    let said = run(&tools, name, input.clone()).await;
    assert_eq!(said.as_deref().map_err(String::as_str), says, "{name} {input}");
    assert_eq!(contents(folder.path()), files(after), "{name} {input}");
}

/// The same for a tool that leaves the folder as it is.
async fn check_read(before: &[(&str, &[u8])], name: &str, input: Value, says: Result<&str, &str>) {
    let after: Vec<(&str, String)> =
        before.iter().map(|(path, content)| (*path, String::from_utf8_lossy(content).into_owned())).collect();
    let after: Vec<(&str, &str)> = after.iter().map(|(path, content)| (*path, content.as_str())).collect();
    check(before, name, input, says, &after).await;
}

#[tokio::test]
async fn read_file_gives_lines() {
    let five: &[(&str, &[u8])] = &[("a.txt", b"1\n2\n3\n4\n5")];
    for (input, says) in [
        (json!({"path": "a.txt"}), Ok("1\n2\n3\n4\n5")),
        (json!({"path": "./a.txt", "offset": null}), Ok("1\n2\n3\n4\n5")),
        (json!({"path": "a.txt", "limit": 5}), Ok("1\n2\n3\n4\n5")),
        (json!({"path": "a.txt", "limit": 2}), Ok("1\n2\n[lines 1 to 2 are shown; the file goes on at offset 3]\n")),
        (
            json!({"path": "a.txt", "offset": 3, "limit": 1}),
            Ok("3\n[lines 3 to 3 are shown; the file goes on at offset 4]\n"),
        ),
        (json!({"path": "a.txt", "offset": 5, "limit": 9}), Ok("5")),
        (json!({"path": "a.txt", "offset": 6}), Err("`a.txt` has no line 6: it ends with line 5")),
        (json!({"path": "b.txt"}), Err("cannot read `b.txt`: it does not exist")),
        (json!({"path": "."}), Err("`.` is a folder, not a file")),
        (json!({"path": "a.txt/b"}), Err("cannot read `a.txt/b`: it, or a part of its path, is not a folder")),
    ] {
        check_read(five, "read_file", input, says).await;
    }
}

#[tokio::test]
async fn read_file_copes_with_what_is_not_plain_text() {
    let binary = "`f` is a binary file of 4 bytes: only text can be read and edited";
    for (content, says) in [
        (&b""[..], Ok("[the file is empty]\n")),
        (b"\n", Ok("\n")),
        (b"a\r\nb\r\n", Ok("a\r\nb\r\n")),
        (b"\0abc", Err(binary)),
        (b"abc\0", Err(binary)),
        ("gr\u{fc}n".as_bytes(), Ok("gr\u{fc}n")),
        (b"gr\xfcn\n", Ok("gr\u{fffd}n\n[the file is not UTF-8: each byte that is not is shown as \u{fffd}]\n")),
    ] {
        check_read(&[("f", content)], "read_file", json!({"path": "f"}), says).await;
    }
}

#[tokio::test]
async fn read_file_bounds_what_it_gives() {
    let lines: String = (1..=5000).map(|n| format!("{n}\n")).collect();
    let wide: String = (1..=100).map(|n| format!("{n}{}\n", "x".repeat(999))).collect();
    let long = format!("a{}\nend", "\u{e9}".repeat(100_000));
    let folder = folder(&[("lines", lines.as_bytes()), ("wide", wide.as_bytes()), ("long", long.as_bytes())]);
    let tools = Files::new(folder.path()).unwrap();

    let said = run(&tools, "read_file", json!({"path": "lines"})).await.unwrap();
    assert!(said.ends_with("\n2000\n[lines 1 to 2000 are shown; the file goes on at offset 2001]\n"), "{said}");

    // Followed by its offsets, the whole file comes out.
    let (mut whole, mut offset) = (String::new(), 1);
    loop {
        let said = run(&tools, "read_file", json!({"path": "wide", "offset": offset})).await.unwrap();
        assert!(said.len() <= 48 * 1024);
        let Some((part, notice)) = said.split_once('[') else {
            whole.push_str(&said);
            break;
        };
        whole.push_str(part);
        offset = notice.trim_end_matches("]\n").rsplit(' ').next().unwrap().parse().unwrap();
    }
    assert_eq!(whole, wide);

    let said = run(&tools, "read_file", json!({"path": "long"})).await.unwrap();
    let (part, notice) = said.split_once('\n').unwrap();
    assert!(part.starts_with("a\u{e9}") && part.ends_with('\u{e9}'));
    let bytes = part.len();
    assert_eq!(
        notice,
        format!("[line 1 is too long: its first {bytes} bytes are shown; the next line, if any, is at offset 2]\n")
    );
    assert_eq!(run(&tools, "read_file", json!({"path": "long", "offset": 2})).await.as_deref(), Ok("end"));
}

#[tokio::test]
async fn a_pipe_is_refused_and_not_waited_for() {
    let folder = folder(&[("a", b"x\n")]);
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
    assert!(made.success());
    let tools = Files::new(folder.path()).unwrap();
    let refused = Err("`pipe` is neither a file nor a folder, but a device, a pipe or a socket");
    for (name, input) in [
        ("read_file", json!({"path": "pipe"})),
        ("search_files", json!({"path": "pipe", "pattern": "x"})),
        ("edit_file", json!({"path": "pipe", "old_text": "x", "new_text": "y"})),
        ("write_file", json!({"path": "pipe", "content": "x"})),
    ] {
        assert_eq!(run(&tools, name, input).await.as_deref().map_err(String::as_str), refused, "{name}");
    }
    assert_eq!(run(&tools, "search_files", json!({"pattern": "x"})).await.as_deref(), Ok("a:1:x\n"));
}

#[tokio::test]
async fn list_files_lists_folders_and_patterns() {
    let tree: &[(&str, &[u8])] = &[
        (".git/config", b"x"),
        ("Cargo.toml", b"x"),
        ("src/a.rs", b"x"),
        ("src/deep/b.rs", b"x"),
        ("src/deep/c.js", b"x"),
        ("target/d.rs", b"x"),
    ];
    for (input, says) in [
        (json!({}), Ok(".git/\nCargo.toml\nsrc/\ntarget/\n")),
        (json!({"path": "src"}), Ok("a.rs\ndeep/\n")),
        (json!({"path": "src/../src/deep/"}), Ok("b.rs\nc.js\n")),
        (json!({"path": "target"}), Ok("d.rs\n")),
        (json!({"glob": "*"}), Ok("Cargo.toml\n")),
        (json!({"glob": "**/*.rs"}), Ok("src/a.rs\nsrc/deep/b.rs\n")),
        (json!({"glob": "src/*.rs"}), Ok("src/a.rs\n")),
        (json!({"path": "src", "glob": "**/*.{rs,js}"}), Ok("src/a.rs\nsrc/deep/b.rs\nsrc/deep/c.js\n")),
        (json!({"glob": "*.md"}), Ok("no file below `.` matches `*.md`\n")),
        (json!({"path": "nowhere"}), Err("cannot list `nowhere`: it does not exist")),
        (json!({"path": "Cargo.toml"}), Err("cannot list `Cargo.toml`: it, or a part of its path, is not a folder")),
    ] {
        check_read(tree, "list_files", input, says).await;
    }
    check_read(&[], "list_files", json!({}), Ok("`.` is an empty folder\n")).await;
}

#[tokio::test]
async fn list_files_bounds_what_it_gives() {
    let names: Vec<String> = (0..3000).map(|n| format!("{n:04}")).collect();
    let many: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
    let folder = folder(&many);
    let tools = Files::new(folder.path()).unwrap();
    for input in [json!({}), json!({"glob": "*"})] {
        let said = run(&tools, "list_files", input).await.unwrap();
        assert!(said.starts_with("0000\n0001\n"), "{said}");
        assert!(said.ends_with("\n1999\n[there is more than fits here: narrow it with `path` or `glob`]\n"), "{said}");
    }
}

#[tokio::test]
async fn search_files_finds_lines() {
    let long = format!("{}needle{}", "a".repeat(1000), "b".repeat(1000));
    let long_line = format!("long:1:\u{2026}{}needle{}\u{2026}\n", "a".repeat(75), "b".repeat(219));
    let tree: &[(&str, &[u8])] = &[
        (".git/config", b"fn main"),
        ("bin", b"fn main\0"),
        ("latin", b"gr\xfcn fn main\n"),
        ("long", long.as_bytes()),
        ("src/a.rs", b"fn main() {\r\n    FN(1)\n}\n"),
        ("src/b.txt", b"fn other\nfn main"),
        ("target/d.rs", b"fn main"),
    ];
    let skipped = "[1 binary files were not searched]\n";
    for (input, says) in [
        (
            json!({"pattern": "fn main"}),
            Ok(format!("latin:1:gr\u{fffd}n fn main\nsrc/a.rs:1:fn main() {{\nsrc/b.txt:2:fn main\n{skipped}")),
        ),
        (json!({"pattern": "fn(", "case": "ignore"}), Ok(format!("src/a.rs:2:    FN(1)\n{skipped}"))),
        (
            json!({"pattern": r"^fn \w+$", "syntax": "regex", "path": "src"}),
            Ok("src/b.txt:1:fn other\nsrc/b.txt:2:fn main\n".to_owned()),
        ),
        (json!({"pattern": "fn", "glob": "**/*.rs"}), Ok("src/a.rs:1:fn main() {\n".to_owned())),
        (json!({"pattern": "main", "path": "target"}), Ok("target/d.rs:1:fn main\n".to_owned())),
        (json!({"pattern": "other", "path": "src/b.txt"}), Ok("src/b.txt:1:fn other\n".to_owned())),
        (json!({"pattern": "needle", "path": "long"}), Ok(long_line)),
        (json!({"pattern": "^", "syntax": "text"}), Ok(format!("no match for `^` in `.`\n{skipped}"))),
        (json!({"pattern": "x", "path": "bin"}), Ok(format!("no match for `x` in `bin`\n{skipped}"))),
        (json!({"pattern": "x", "path": "no"}), Err("cannot search `no`: it does not exist")),
    ] {
        check_read(tree, "search_files", input, says.as_deref().map_err(|text| *text)).await;
    }
}

#[tokio::test]
async fn search_files_leaves_out_large_files_and_says_so() {
    let folder = folder(&[("small", b"x")]);
    fs::write(folder.path().join("large"), "x\n".repeat(6 << 20)).unwrap();
    let tools = Files::new(folder.path()).unwrap();
    let said = run(&tools, "search_files", json!({"pattern": "x"})).await;
    assert_eq!(said.as_deref(), Ok("small:1:x\n[1 files above 10 MiB were not searched]\n"));
}

#[tokio::test]
async fn write_file_makes_and_replaces() {
    for (before, input, says, after) in [
        (
            &[][..],
            json!({"path": "a/b/c.txt", "content": "hi\n"}),
            Ok("created `a/b/c.txt`: 3 bytes"),
            &[("a/b/c.txt", "hi\n")][..],
        ),
        (&[("a", &b"old"[..])], json!({"path": "a", "content": ""}), Ok("replaced `a`: 0 bytes"), &[("a", "")]),
        (
            &[("a/b", b"old")],
            json!({"path": "a", "content": "x"}),
            Err("`a` is a folder, not a file"),
            &[("a/b", "old")],
        ),
        (
            &[("a", b"old")],
            json!({"path": "a/b", "content": "x"}),
            Err("cannot write `a/b`: it, or a part of its path, is not a folder"),
            &[("a", "old")],
        ),
        (&[], json!({"path": "new/", "content": "x"}), Err("`new/` is not the path of a file"), &[]),
    ] {
        check(before, "write_file", input, says, after).await;
    }
}

#[tokio::test]
async fn edit_file_replaces_one_exact_text() {
    let edit = |old: &str, new: &str| json!({"path": "f", "old_text": old, "new_text": new});
    for (before, input, says, after) in [
        ("a\nb\nc\n", edit("b", "B"), Ok("edited `f` at line 2"), "a\nB\nc\n"),
        ("a\nb\nc\n", edit("a\nb\n", ""), Ok("edited `f` at line 1"), "c\n"),
        (
            "a\nb\n",
            edit("x", "y"),
            Err("`old_text` is not in `f`: read the file and copy the text exactly, with its white space"),
            "a\nb\n",
        ),
        (
            "x y x z x",
            edit("x", "y"),
            Err("`old_text` is in `f` 3 times: give more of the lines around the one you mean"),
            "x y x z x",
        ),
        (
            "aaa",
            edit("aa", "b"),
            Err("`old_text` is in `f` 2 times: give more of the lines around the one you mean"),
            "aaa",
        ),
        ("a\r\nb\r\nc\r\n", edit("a\nb", "x\ny\r\nz"), Ok("edited `f` at line 1"), "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\n", edit("a\r\n", "a\n"), Ok("edited `f` at line 1"), "a\nb\r\n"),
        ("a", edit("", "b"), Err("`old_text` is empty: use write_file to make a file"), "a"),
        ("a", edit("a", "a"), Err("`old_text` and `new_text` are the same: there is nothing to change"), "a"),
        ("a\0", edit("a", "b"), Err("`f` is a binary file of 2 bytes: only text can be read and edited"), "a\0"),
    ] {
        check(&[("f", before.as_bytes())], "edit_file", input, says, &[("f", after)]).await;
    }
    check(&[], "edit_file", edit("a", "b"), Err("cannot read `f`: it does not exist"), &[]).await;
}

#[tokio::test]
async fn an_edit_leaves_bytes_that_are_not_utf8() {
    let folder = folder(&[("f", b"gr\xfcn a\n")]);
    let tools = Files::new(folder.path()).unwrap();
    let said = run(&tools, "edit_file", json!({"path": "f", "old_text": "a", "new_text": "b"})).await;
    assert_eq!(said.as_deref(), Ok("edited `f` at line 1"));
    assert_eq!(fs::read(folder.path().join("f")).unwrap(), b"gr\xfcn b\n");
}

#[tokio::test]
async fn permissions_are_kept_and_respected() {
    let folder = folder(&[("script", b"old"), ("secret", b"old"), ("fixed", b"old")]);
    let path = |name: &str| folder.path().join(name);
    let mode = |name: &str| fs::metadata(path(name)).unwrap().mode() & 0o7777;
    for (name, mode) in [("script", 0o777), ("secret", 0o600), ("fixed", 0o444)] {
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let tools = Files::new(folder.path()).unwrap();
    let write = |name: &str| json!({"path": name, "content": "new"});
    assert_eq!(run(&tools, "write_file", write("script")).await.as_deref(), Ok("replaced `script`: 3 bytes"));
    assert_eq!(run(&tools, "write_file", write("secret")).await.as_deref(), Ok("replaced `secret`: 3 bytes"));
    assert_eq!(
        run(&tools, "write_file", write("fixed")).await,
        Err("`fixed` is read-only: it was not changed".to_owned())
    );
    assert_eq!(contents(folder.path()), files(&[("script", "new"), ("secret", "new"), ("fixed", "old")]));
    assert_eq!([mode("script"), mode("secret"), mode("fixed")], [0o777, 0o600, 0o444]);
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_edits_of_one_file_all_land() {
    let before: String = (0..20).map(|n| format!("<{n}>\n")).collect();
    let after: String = (0..20).map(|n| format!("<{n}!>\n")).collect();
    let folder = folder(&[("f", before.as_bytes())]);
    let tools = Files::new(folder.path()).unwrap();
    let mut edits = tokio::task::JoinSet::new();
    for n in 0..20 {
        let tools = tools.clone();
        edits.spawn(async move {
            let input = json!({"path": "f", "old_text": format!("<{n}>"), "new_text": format!("<{n}!>")});
            run_in(&tools, "edit_file", input, ToolContext::detached(info(n))).await
        });
    }
    let mut said: Vec<_> = edits.join_all().await.into_iter().map(Result::unwrap).collect();
    said.sort_unstable();
    let mut expected: Vec<_> = (1..=20).map(|line| format!("edited `f` at line {line}")).collect();
    expected.sort_unstable();
    assert_eq!(said, expected);
    assert_eq!(contents(folder.path()), files(&[("f", &after)]));
}

#[test]
fn a_root_must_be_a_folder() {
    let folder = folder(&[("f", b"")]);
    for (path, why) in [("f", "it is not a folder"), ("no", "it does not exist")] {
        let path = folder.path().join(path);
        let error = Files::new(&path).unwrap_err().to_string();
        assert_eq!(error, format!("`{}` cannot be the root of the file tools: {why}", path.display()));
    }
}

#[test]
fn the_definitions_say_how_to_run_them() {
    let folder = folder(&[]);
    let definitions = Files::new(folder.path()).unwrap().definitions();
    let said: Vec<_> = definitions.iter().map(|d| (d.name.as_str(), d.replay.class(), d.concurrency)).collect();
    assert_eq!(
        said,
        [
            ("read_file", ReplayClass::Pure, Concurrency::Parallel),
            ("list_files", ReplayClass::Pure, Concurrency::Parallel),
            ("search_files", ReplayClass::Pure, Concurrency::Parallel),
            ("edit_file", ReplayClass::Reconcile, Concurrency::Parallel),
            ("write_file", ReplayClass::Reconcile, Concurrency::Parallel),
        ]
    );
}
