//! Sessions that leave as a file and come to another folder.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use settled_testkit::script;

use crate::common::{Ended, World, says, shells};

/// Runs the command with another folder of sessions.
fn elsewhere(world: &World, arguments: &[&str]) -> Ended {
    let data = elsewhere_data(world);
    world.settled(&[arguments, &["--data", data.to_str().unwrap()]].concat()).output().unwrap().into()
}

fn elsewhere_data(world: &World) -> PathBuf {
    world.data().with_file_name("elsewhere")
}

/// Exports a session to a file of the folder to work in.
fn export(world: &World, session: &str) -> String {
    let file = world.file(&format!("{session}.jsonl")).to_str().unwrap().to_owned();
    let exported = world.end(&["export", session, &file]);
    assert_eq!((exported.code, &*exported.out), (Some(0), ""), "{exported:?}");
    assert!(exported.err.contains(&format!("exported to {file}")), "{exported:?}");
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_in_another_folder() {
    let world = World::new(
        script()
            .step(shells([("a", "echo hi")]))
            .step(says("It says hi."))
            .step(shells([("b", "touch acted")]))
            .step(says("Done.")),
    )
    .await;
    assert_eq!(world.run("s", "Go", &["--tools", "shell", "--ask", "none"]).code, Some(0));
    let parked = world.run("s", "Act", &["--ask", "shell"]);
    assert_eq!(parked.code, Some(3), "{parked:?}");

    let file = export(&world, "s");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "{file}");
    let written = std::fs::read_to_string(&file).unwrap();
    let (by_id, by_file) = (world.end(&["check", "s"]), world.end(&["check", &file]));
    assert_eq!((by_file.code, &by_file.out), (Some(0), &by_id.out), "{by_file:?}");
    assert_eq!(world.end(&["export", "s"]).out, written);

    let imported = elsewhere(&world, &["import", &file]);
    assert_eq!((imported.code, &*imported.out), (Some(0), ""), "{imported:?}");
    let events = written.lines().count() - 2;
    assert_eq!(imported.err, format!("session s: {events} events imported\n"));
    assert_eq!(elsewhere(&world, &["export", "s"]).out, written);
    for command in [&["log", "s"][..], &["log", "s", "--json"], &["check", "s"]] {
        let (here, there) = (world.end(command), elsewhere(&world, command));
        assert_eq!((here.code, &here.out), (Some(0), &there.out), "{command:?}: {there:?}");
    }

    let again = elsewhere(&world, &["import", &file]);
    assert_eq!((again.code, &*again.out), (Some(2), ""), "{again:?}");
    assert!(again.err.contains("there is a session `s` already"), "{again:?}");
    assert_eq!(elsewhere(&world, &["export", "s"]).out, written);

    // What the person was asked is answered there, and the call runs there.
    assert_eq!(elsewhere(&world, &["approve", "s"]).code, Some(0));
    let ended = elsewhere(&world, &["run", "-s", "s", "--ask", "shell"]);
    assert_eq!((ended.code, &*ended.out), (Some(0), "Done.\n"), "{ended:?}");
    assert!(world.file("acted").exists());
    assert_eq!(elsewhere(&world, &["check", "s"]).code, Some(0));
}

/// An import that reads its file from standard input, of a session whose input nobody has taken yet.
#[tokio::test(flavor = "multi_thread")]
async fn pending_input_comes_along() {
    let world = World::new(script().step(shells([("a", "touch acted")])).step(says("Both."))).await;
    assert_eq!(world.run("s", "One", &["--tools", "shell", "--ask", "shell"]).code, Some(3));
    assert_eq!(world.run("s", "Two", &["--tools", "shell", "--ask", "shell"]).code, Some(3));
    assert_eq!(world.end(&["approve", "s"]).code, Some(0));
    let file = export(&world, "s");
    let mut command = world.settled(&["import", "-", "--data", elsewhere_data(&world).to_str().unwrap()]);
    command.stdin(Stdio::from(std::fs::File::open(file).unwrap()));
    let imported = Ended::from(command.output().unwrap());
    assert!(imported.err.contains("and 2 pending inputs imported"), "{imported:?}");
    let ended = elsewhere(&world, &["run", "-s", "s"]);
    assert_eq!((ended.code, &*ended.out), (Some(0), "Both.\n"), "{ended:?}");
    assert!(world.server.requests()[1].body.to_string().contains("Two"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_refused_leaves_nothing() {
    let world = World::new(script().step(says("One."))).await;
    assert_eq!(world.run("s", "a", &[]).code, Some(0));
    let file = export(&world, "s");
    let sound = std::fs::read_to_string(&file).unwrap();
    let changed = sound.replacen("One.", "Two.", 1);
    let lines = sound.lines().count();
    let cases: [(&str, String); 5] = [
        (&sound[..sound.len() / 2], "line ".to_owned()),
        (&changed, format!("line {lines}: the checksum is that of another file")),
        ("", "line 1: the file is empty".to_owned()),
        ("{}\n", "line 1: this is not what `settled export` writes".to_owned()),
        (&sound.replacen("\"seq\":2", "\"seq\":7", 1), "line 3: event 7 stands where event 2 must be".to_owned()),
    ];
    for (text, says) in &cases {
        std::fs::write(&file, text).unwrap();
        let refused = elsewhere(&world, &["import", &file]);
        assert_eq!((refused.code, &*refused.out), (Some(2), ""), "{refused:?}");
        assert!(refused.err.contains(&format!("`{file}`, {says}")), "{refused:?}");
        let check = world.end(&["check", &file]);
        assert!(matches!(check.code, Some(1 | 2)) && check.out.is_empty(), "{check:?}");
    }
    let none = elsewhere(&world, &["sessions", "--json"]);
    assert_eq!((none.code, &*none.out), (Some(0), ""), "{none:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_runs_is_exported_and_not_imported_over() {
    let world = World::new(script().step(shells([("a", "touch running; until [ -e go ]; do sleep 0.02; done")]))).await;
    let mut running = world.start("s", "One", &["--tools", "shell"]);
    running.wait_for(&world.file("running"));
    let file = export(&world, "s");
    let refused = world.end(&["import", &file]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("there is a session `s` already, and another process runs it"), "{refused:?}");
    running.signal(rustix::process::Signal::KILL);
    running.end();

    // Elsewhere it is what a killed run is: what had started may have acted.
    assert_eq!(elsewhere(&world, &["import", &file]).code, Some(0));
    elsewhere(&world, &["run", "-s", "s"]);
    let log = elsewhere(&world, &["log", "s"]).out;
    assert!(log.contains("call 0: shell unknown (may have acted)"), "{log}");
    assert_eq!(elsewhere(&world, &["check", "s"]).code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_with_files_say_what_to_do() {
    let world = World::new(script().step(says("One."))).await;
    assert_eq!(world.run("s", "a", &[]).code, Some(0));
    let cases: &[(&[&str], &str)] = &[
        (&["export", "nobody"], "there is no session `nobody`: `settled sessions` lists"),
        (&["export", "s", "/nowhere/s.jsonl"], "`/nowhere/s.jsonl` cannot be written"),
        (&["import", "/nowhere"], "`/nowhere` cannot be read"),
        (&["import"], "<FILE>"),
    ];
    for (arguments, says) in cases {
        let ended = world.end(arguments);
        assert_eq!((ended.code, &*ended.out), (Some(2), ""), "{arguments:?}: {ended:?}");
        assert!(ended.err.contains(says), "{arguments:?}: {ended:?}");
    }
}
