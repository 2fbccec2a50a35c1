//! Cases of the catalogue: info, list, erase.

use std::collections::BTreeMap;
use std::time::Duration;

use settled_ledger::store::{Admitted, NewSession, Next, Query, SessionInfo, StateFilter, StoreErrorKind};
use settled_ledger::{Arrival, Delivery, NewRow, Seq, Timestamp};
use settled_tools_api::SessionId;

use super::bench::{Bench, Checked, Details, EXECUTION, LEASE, WORKER, at_rest, call, fails, prompt, same};
use super::named_cases;

named_cases! {
    "info.whole", "It gives the whole row: head, state, owner, tags, first and last time." => whole;
    "info.owner", "The owner is the worker whose lease has not run out." => owner;
    "info.no_session", "Without a session it fails: not found." => info_no_session;
    "list.order", "It gives the sessions in the order of their ids." => list_order;
    "list.pages", "Page by page it gives each session once, and says where it ends." => pages;
    "list.own_limit", "With a limit of 0 the store has its own, and the pages are complete." => own_limit;
    "list.cursor", "It goes on after an id, whether there is such a session or not." => cursor;
    "list.tag", "It gives only those with the tag asked for, name and value." => tag;
    "list.state", "It gives only those that wait for the kind of thing asked for." => list_state;
    "list.filtered_pages", "Filters and pages go together." => filtered_pages;
    "list.rows", "The rows are those that info gives." => list_rows;
    "erase.gone", "Nothing of an erased session is left: no row, no log, no inbox." => gone;
    "erase.anew", "A session of an erased one's id begins anew: head, order of arrival, keys." => anew;
    "erase.in_use", "While a lease on it runs it fails: in use; nothing is erased." => in_use;
    "erase.others", "Other sessions are as they were." => others;
    "erase.no_session", "Without a session it fails: not found." => erase_no_session;
}

fn tags(tags: &[(&str, &str)]) -> BTreeMap<String, String> {
    tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

async fn whole(bench: &Bench) -> Checked {
    let session = SessionId::new("s")?;
    let row = |at| NewRow::from_parts(Timestamp::from_millis(at), "synthetic".to_owned(), 1, "{}".to_owned());
    let tags = tags(&[("team", "blue"), ("", "x"), ("Grüße", "")]);
    let new = NewSession::new(vec![row(100), row(200)], tags.clone());
    bench.there().create(&session, new).await?;
    let mut should = SessionInfo::new(session.clone(), Seq::new(2), at_rest(Next::Idle));
    should.tags = tags;
    should.created = Timestamp::from_millis(100);
    should.updated = Timestamp::from_millis(200);
    same("the row", &bench.there().info(&session).await?, &should)?;

    let claimed = bench.here().claim(WORKER, LEASE, &session).await?;
    let mut batch = bench.turning(Next::Waiting(vec![call(0)]), Some(EXECUTION));
    batch.rows = vec![row(300), row(250)];
    should.owner = Some(WORKER);
    should.head = Seq::new(4);
    should.state = batch.state.clone().unwrap_or_default();
    should.updated = Timestamp::from_millis(250);
    bench.here().append(&claimed.fence, claimed.head, batch).await?;
    same("the row", &bench.there().info(&session).await?, &should)
}

async fn owner(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    same("the owner", bench.there().info(&owned.session).await?.owner, Some(WORKER))?;
    bench.clock.pass(LEASE);
    same("the owner after the lease", bench.there().info(&owned.session).await?.owner, None)?;
    bench.here().renew(WORKER, LEASE).await?;
    same("the owner renewed", bench.there().info(&owned.session).await?.owner, Some(WORKER))
}

async fn info_no_session(bench: &Bench) -> Checked {
    fails("info", bench.there().info(&SessionId::new("nobody")?).await, StoreErrorKind::NotFound)
}

/// Makes sessions of these names, in this order.
async fn created(bench: &Bench, names: &[&str]) -> Checked {
    for name in names {
        bench.created(name).await?;
    }
    Ok(())
}

/// Every page of a query: the ids.
async fn pages_of(bench: &Bench, mut query: Query) -> Result<Vec<Vec<String>>, Details> {
    let mut pages = Vec::new();
    loop {
        let page = bench.there().list(&query).await?;
        pages.push(page.sessions.into_iter().map(|info| info.session.into()).collect());
        match page.after {
            Some(after) if pages.len() < 100 => query.after = Some(after),
            Some(after) => return same("the end", Some(after), None).map(|()| pages),
            None => return Ok(pages),
        }
    }
}

fn named(pages: &[&[&str]]) -> Vec<Vec<String>> {
    pages.iter().map(|page| page.iter().map(|name| (*name).to_owned()).collect()).collect()
}

async fn list_order(bench: &Bench) -> Checked {
    same("without sessions", pages_of(bench, Query::all(10)).await?, named(&[&[]]))?;
    created(bench, &["b", "a10", "a9", "ü", "Z", "a", "👋", "_"]).await?;
    // By their bytes, as ids compare.
    let should = named(&[&["Z", "_", "a", "a10", "a9", "b", "ü", "👋"]]);
    same("the sessions", pages_of(bench, Query::all(10)).await?, should)
}

async fn pages(bench: &Bench) -> Checked {
    created(bench, &["a", "b", "c", "d", "e", "f"]).await?;
    let cases: [(usize, &[&[&str]]); 5] = [
        (1, &[&["a"], &["b"], &["c"], &["d"], &["e"], &["f"]]),
        (3, &[&["a", "b", "c"], &["d", "e", "f"]]),
        (4, &[&["a", "b", "c", "d"], &["e", "f"]]),
        (6, &[&["a", "b", "c", "d", "e", "f"]]),
        (7, &[&["a", "b", "c", "d", "e", "f"]]),
    ];
    for (limit, should) in cases {
        let seen = pages_of(bench, Query::all(limit)).await?;
        same(&format!("pages of {limit}"), seen, named(should))?;
    }
    Ok(())
}

async fn own_limit(bench: &Bench) -> Checked {
    let mut names = Vec::new();
    for place in 100..230 {
        names.push(format!("s{place}"));
        bench.created(&format!("s{place}")).await?;
    }
    let pages = pages_of(bench, Query::all(0)).await?;
    same("all pages", pages.concat(), names)
}

async fn cursor(bench: &Bench) -> Checked {
    created(bench, &["a", "c", "e"]).await?;
    for (after, should) in [("A", &["a", "c", "e"][..]), ("a", &["c", "e"]), ("b", &["c", "e"]), ("e", &[]), ("f", &[])]
    {
        let mut query = Query::all(10);
        query.after = Some(SessionId::new(after)?);
        same(&format!("after {after}"), pages_of(bench, query).await?, named(&[should]))?;
    }
    Ok(())
}

/// Makes sessions with tags.
async fn tagged(bench: &Bench) -> Checked {
    let sessions: [(&str, &[(&str, &str)]); 6] = [
        ("f", &[("team", "blue")]),
        ("a", &[("team", "blue"), ("user", "7")]),
        ("b", &[("team", "red")]),
        ("c", &[("user", "blue")]),
        ("d", &[]),
        ("e", &[("team", "blue"), ("user", "8")]),
    ];
    for (name, has) in sessions {
        bench.there().create(&SessionId::new(name)?, NewSession::new(Vec::new(), tags(has))).await?;
    }
    Ok(())
}

fn with_tag(name: &str, value: &str, limit: usize) -> Query {
    let mut query = Query::all(limit);
    query.tag = Some((name.to_owned(), value.to_owned()));
    query
}

async fn tag(bench: &Bench) -> Checked {
    tagged(bench).await?;
    let cases: [(&str, &str, &[&str]); 5] = [
        ("team", "blue", &["a", "e", "f"]),
        ("team", "red", &["b"]),
        ("user", "7", &["a"]),
        ("team", "blu", &[]),
        ("blue", "team", &[]),
    ];
    for (name, value, should) in cases {
        let seen = pages_of(bench, with_tag(name, value, 10)).await?;
        same(&format!("{name}={value}"), seen, named(&[should]))?;
    }
    Ok(())
}

async fn list_state(bench: &Bench) -> Checked {
    let far = bench.now().plus(Duration::from_secs(500));
    let states = [
        ("runs", Next::Runnable),
        ("later", Next::At(far)),
        ("waits", Next::Waiting(vec![call(0)])),
        ("held", Next::Held),
        ("idle", Next::Idle),
    ];
    for (name, next) in states {
        bench.waiting_for(name, next).await?;
    }
    let woken = bench.created("woken").await?;
    bench.there().admit(&woken, bench.prompt("x")).await?;
    let cases: [(StateFilter, &[&str]); 3] = [
        (StateFilter::Busy, &["later", "runs", "woken"]),
        (StateFilter::Waiting, &["waits"]),
        (StateFilter::Quiet, &["held", "idle"]),
    ];
    for (state, should) in cases {
        let mut query = Query::all(10);
        query.state = Some(state);
        same(&format!("{state:?}"), pages_of(bench, query).await?, named(&[should]))?;
    }
    Ok(())
}

async fn filtered_pages(bench: &Bench) -> Checked {
    tagged(bench).await?;
    for name in ["a", "f"] {
        bench.there().admit(&SessionId::new(name)?, bench.prompt("x")).await?;
    }
    let seen = pages_of(bench, with_tag("team", "blue", 1)).await?;
    same("pages of one", seen, named(&[&["a"], &["e"], &["f"]]))?;
    let mut query = with_tag("team", "blue", 1);
    query.state = Some(StateFilter::Busy);
    same("pages of one that are busy", pages_of(bench, query).await?, named(&[&["a"], &["f"]]))?;
    let mut query = with_tag("team", "blue", 2);
    query.state = Some(StateFilter::Quiet);
    same("one page of those that are quiet", pages_of(bench, query).await?, named(&[&["e"]]))
}

async fn list_rows(bench: &Bench) -> Checked {
    tagged(bench).await?;
    let mut owned = bench.owned("owned").await?;
    owned.push(2).await?;
    owned.turn(Next::Waiting(vec![call(0)])).await?;
    let page = bench.there().list(&Query::all(10)).await?;
    for row in &page.sessions {
        same("the row", row, &bench.there().info(&row.session).await?)?;
    }
    same("how many", page.sessions.len(), 7)
}

async fn gone(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    owned.push(100).await?;
    owned.turn(Next::Runnable).await?;
    bench.there().admit(&owned.session, bench.prompt("x").key("k".to_owned())).await?;
    bench.here().release(&owned.fence).await?;
    same("the answer", bench.there().erase(&owned.session).await, Ok(()))?;
    let missing = StoreErrorKind::NotFound;
    fails("info", bench.here().info(&owned.session).await, missing)?;
    fails("read", bench.here().read(&owned.session, Seq::START, 1).await, missing)?;
    fails("pending", bench.here().pending(&owned.session).await, missing)?;
    fails("erase", bench.here().erase(&owned.session).await, missing)?;
    same("what is due", bench.here().due(10).await?, Vec::new())?;
    same("the list", pages_of(bench, Query::all(10)).await?, named(&[&[]]))
}

async fn anew(bench: &Bench) -> Checked {
    let session = SessionId::new("s")?;
    let new = NewSession::new(bench.rows(70), tags(&[("team", "blue")]));
    bench.there().create(&session, new).await?;
    bench.there().admit(&session, bench.prompt("x").key("k".to_owned())).await?;
    bench.there().erase(&session).await?;

    let mut owned = bench.owned("s").await?;
    owned.untouched(&[], &[], &Next::Idle).await?;
    same("the head", owned.head, Seq::START)?;
    same("the tags", bench.there().info(&session).await?.tags, BTreeMap::new())?;
    same("the list by tag", pages_of(bench, with_tag("team", "blue", 9)).await?, named(&[&[]]))?;
    let input = bench.input(prompt("other", Delivery::Steer)).key("k".to_owned());
    let id = input.id;
    let admitted = bench.there().admit(&session, input).await;
    same("the answer", admitted, Ok(Admitted::New(id, Arrival::new(1))))?;
    let log = owned.push(3).await?;
    same("the log", bench.log(&session).await?, log)
}

async fn in_use(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let log = owned.push(1).await?;
    fails("erase", bench.there().erase(&owned.session).await, StoreErrorKind::InUse)?;
    owned.untouched(&log, &[], &Next::Idle).await?;
    bench.clock.pass(LEASE);
    same("the answer after the lease", bench.there().erase(&owned.session).await, Ok(()))
}

async fn others(bench: &Bench) -> Checked {
    let (mut kept, mut erased) = (bench.owned("kept").await?, bench.owned("erased").await?);
    let mut log = Vec::new();
    for _ in 0..5 {
        log.extend(kept.push(30).await?);
        erased.push(40).await?;
    }
    let input = bench.prompt("x").key("k".to_owned());
    let (id, kind) = (input.id, input.kind.clone());
    bench.there().admit(&kept.session, input).await?;
    bench.there().admit(&erased.session, bench.prompt("y").key("k".to_owned())).await?;
    bench.here().release(&erased.fence).await?;
    bench.there().erase(&erased.session).await?;
    kept.untouched(&log, &[id], &Next::Runnable).await?;
    let again = bench.there().admit(&kept.session, bench.input(kind).key("k".to_owned())).await;
    same("the answer", again, Ok(Admitted::Again(id)))?;
    log.extend(kept.push(2).await?);
    same("the log", bench.log(&kept.session).await?, log)
}

async fn erase_no_session(bench: &Bench) -> Checked {
    fails("erase", bench.there().erase(&SessionId::new("nobody")?).await, StoreErrorKind::NotFound)
}
