//! Cases of the event log: append, read, follow.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use settled_ledger::store::{AppendError, Batch, Fence, Followed, NewSession, Next, StoreErrorKind};
use settled_ledger::{Delivery, ExecutionId, InputId, NewInputKind, NewRow, Notice, Recorded, Seq, Switch, Timestamp};
use settled_tools_api::SessionId;

use super::bench::{
    Bench, Checked, Details, EXECUTION, LEASE, OTHER, WORKER, all, answer, at_rest, call, ended, fails, follows,
    interrupt, next, placed, prompt, same, syncs,
};
use super::named_cases;

named_cases! {
    "append.lands", "It answers the new head, and the rows are read back as they were handed in." => lands;
    "append.rows_as_they_are", "Rows of any kind, version and time are kept to the letter." => rows_as_they_are;
    "append.without_rows", "A batch without rows keeps the head." => without_rows;
    "append.behind_the_head", "Behind an older head nothing lands, and the conflict names the head and the last batch." => behind_the_head;
    "append.beyond_the_head", "Behind a head that is not there yet nothing lands." => beyond_the_head;
    "append.other_claim", "After another worker's claim the older fence is refused." => other_claim;
    "append.own_newer_claim", "After the worker's own newer claim its older fence is refused." => own_newer_claim;
    "append.other_worker", "The fence's worker must be the owner, whatever its epoch." => other_worker;
    "append.future_epoch", "A fence of an epoch that was never handed out is refused." => future_epoch;
    "append.released", "After a release the fence is refused." => released;
    "append.lease_run_out", "A lease that has run out takes nothing away until another claim comes." => lease_run_out;
    "append.fenced_first", "A stale fence is told so, even where its batch is the last that landed." => fenced_first;
    "append.same_batch", "The last batch again answers the head again and changes nothing." => same_batch;
    "append.same_batch_new_claim", "The last batch is known over a new claim." => same_batch_new_claim;
    "append.older_batch", "A batch that landed before the last one is a conflict, not another landing." => older_batch;
    "append.refused_batch", "The id of a batch that was refused is not known: it may land yet." => refused_batch;
    "append.dropped", "A call that is dropped leaves a batch that lands once, appended again or not." => dropped;
    "append.takes_input", "Taken input leaves the inbox with the batch; the rest stays in its order." => takes_input;
    "append.taken_already", "A batch that takes input that was taken before is a conflict." => taken_already;
    "append.taken_cancelled", "A batch that takes input that was cancelled is a conflict." => taken_cancelled;
    "append.taken_elsewhere", "A batch that takes another session's input is a conflict." => taken_elsewhere;
    "append.all_or_nothing", "Of a batch that is refused nothing lands: no row, no state, no input taken." => all_or_nothing;
    "append.state", "The session takes the batch's state, and keeps its own where the batch has none." => state;
    "append.idle_on_input", "Idle is refused while input is pending that asks for a run, and nothing lands." => idle_on_input;
    "append.waiting_on_answer", "Waiting is refused while an answer to one of its calls is pending." => waiting_on_answer;
    "append.waiting_on_interrupt", "Waiting is refused while an interrupt of its execution is pending." => waiting_on_interrupt;
    "append.taken_does_not_count", "Input that the batch takes does not stand in its way." => taken_does_not_count;
    "append.held_on_input", "Held, a moment, and waiting for others are taken with input pending." => held_on_input;
    "append.races_with_input", "However an append to idle and an admission meet, the session does not sleep on the input." => races_with_input;
    "append.no_session", "Without a session it is not available, and the error's kind is not found." => append_no_session;
    "append.sessions_apart", "Each session has a sequence of its own, however they interleave." => sessions_apart;
    "append.many_at_once", "Appends to many sessions at once all land, each behind its own head." => many_at_once;
    "append.one_head_once", "Of two batches behind the same head one lands." => one_head_once;
    "read.range", "It gives the events after a place, in order, and fewer than asked for only at the head." => range;
    "read.nothing", "Behind the head, beyond it, and with no limit left there is nothing." => nothing;
    "read.there", "What was answered is seen by every other handle." => there;
    "read.no_session", "Without a session it fails: not found." => read_no_session;
    "follow.replays", "It replays from a place and then says once that it is synced, with the head." => replays;
    "follow.empty", "An empty log is synced at once." => follow_empty;
    "follow.tail", "What is appended comes after the marker, without gap or double." => tail;
    "follow.beyond_the_head", "From beyond the head it is synced at once and gives only what comes after." => follow_beyond;
    "follow.during_replay", "What is appended during the replay comes once, and behind the marker if the marker's head is before it." => during_replay;
    "follow.one_marker", "The marker comes once." => one_marker;
    "follow.slow_reader", "A reader that comes back late finds everything, and held nobody up." => slow_reader;
    "follow.many_readers", "Every reader gets everything from its own place." => many_readers;
    "follow.over_claims", "It goes on over a change of owner." => over_claims;
    "follow.sessions_apart", "It gives nothing of other sessions." => follow_apart;
    "follow.no_session", "Without a session it gives one error, not found, and ends." => follow_no_session;
    "follow.erased", "When the session is erased it gives one error, not found, and ends; a new session of that id is another." => follow_erased;
}

async fn lands(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let mut log = owned.push(1).await?;
    same("the head", owned.head, Seq::new(1))?;
    log.extend(owned.push(3).await?);
    same("the head", owned.head, Seq::new(4))?;
    same("the log", bench.log(&owned.session).await?, log)?;
    same("the head that others see", bench.there().info(&owned.session).await?.head, Seq::new(4))
}

async fn rows_as_they_are(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let row = |at, kind: &str, version, body: &str| {
        NewRow::from_parts(Timestamp::from_millis(at), kind.to_owned(), version, body.to_owned())
    };
    let long = format!(r#"{{"text":"{}"}}"#, "0123456789abcdef".repeat(16 * 1024));
    let rows = vec![
        row(0, "not.known.yet", 1, r#"{ "b": 1, "a": [1.0, null, "\u0000"] }"#),
        row(-5, "text.ended", u16::MAX, "{}"),
        row(i64::MAX, "synthetic", 0, r#"{"text":"Grüße, 世界 👋🏽 \"'--; DROP TABLE"}"#),
        row(7, "", 1, &long),
    ];
    owned.append(Batch::new(bench.batch_id(), rows.clone())).await?;
    let should = placed(&owned.session, Seq::START, rows);
    same("the log", bench.log(&owned.session).await?, should)
}

async fn without_rows(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let log = owned.push(2).await?;
    same("the answer", owned.append(bench.batch(0)).await, Ok(owned.head))?;
    same("the log", bench.log(&owned.session).await?, log)?;
    owned.push(1).await.map(drop)
}

async fn behind_the_head(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let first = bench.batch(2);
    let log = placed(&owned.session, Seq::START, first.rows.clone());
    let conflict = AppendError::Conflict { head: Seq::new(2), batch: Some(first.id) };
    owned.append(first).await?;
    for expected in [Seq::START, Seq::new(1)] {
        let answer = bench.here().append(&owned.fence, expected, bench.batch(1)).await;
        same("the answer", answer, Err(conflict.clone()))?;
    }
    owned.untouched(&log, &[], &Next::Idle).await
}

async fn beyond_the_head(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let answer = bench.here().append(&owned.fence, Seq::new(1), bench.batch(1)).await;
    let conflict = AppendError::Conflict { head: Seq::START, batch: None };
    same("the answer", answer, Err(conflict))?;
    owned.untouched(&[], &[], &Next::Idle).await
}

async fn other_claim(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let log = owned.push(1).await?;
    bench.clock.pass(LEASE);
    let claimed = bench.there().claim(OTHER, LEASE, &owned.session).await?;
    same("the answer", owned.append(bench.batch(1)).await, Err(AppendError::Fenced))?;
    owned.untouched(&log, &[], &Next::Idle).await?;
    let answer = bench.there().append(&claimed.fence, claimed.head, bench.batch(1)).await;
    same("the answer to the new owner", answer, Ok(Seq::new(2)))
}

async fn own_newer_claim(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    bench.here().claim(WORKER, LEASE, &owned.session).await?;
    same("the answer", owned.append(bench.batch(1)).await, Err(AppendError::Fenced))?;
    owned.untouched(&[], &[], &Next::Idle).await
}

async fn other_worker(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let forged = Fence::new(owned.session.clone(), OTHER, owned.fence.epoch);
    let answer = bench.there().append(&forged, owned.head, bench.batch(1)).await;
    same("the answer", answer, Err(AppendError::Fenced))?;
    owned.untouched(&[], &[], &Next::Idle).await
}

async fn future_epoch(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let forged = Fence::new(owned.session.clone(), WORKER, owned.fence.epoch + 1);
    let answer = bench.here().append(&forged, owned.head, bench.batch(1)).await;
    same("the answer", answer, Err(AppendError::Fenced))?;
    owned.untouched(&[], &[], &Next::Idle).await
}

async fn released(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    bench.here().release(&owned.fence).await?;
    same("the answer", owned.append(bench.batch(1)).await, Err(AppendError::Fenced))?;
    owned.untouched(&[], &[], &Next::Idle).await
}

async fn lease_run_out(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    bench.clock.pass(LEASE * 2);
    owned.push(1).await.map(drop)
}

async fn fenced_first(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let batch = bench.batch(1);
    owned.append(batch.clone()).await?;
    bench.clock.pass(LEASE);
    bench.there().claim(OTHER, LEASE, &owned.session).await?;
    same("the answer", owned.append(batch).await, Err(AppendError::Fenced))
}

async fn same_batch(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let mut log = owned.push(1).await?;
    let input = bench.prompt("one");
    let taken = input.id;
    bench.there().admit(&owned.session, input).await?;
    let mut batch = bench.batch(2);
    batch.taken = vec![taken];
    batch.state = Some(at_rest(Next::Held));
    log.extend(placed(&owned.session, owned.head, batch.rows.clone()));
    let head = Seq::new(3);
    same("the first answer", owned.append(batch.clone()).await, Ok(head))?;
    // It is appended again behind the head that was expected then, and, where its answer came after all, behind the new one.
    same("the second answer", owned.append(batch.clone()).await, Ok(head))?;
    owned.head = head;
    same("the third answer", owned.append(batch).await, Ok(head))?;
    owned.untouched(&log, &[], &Next::Held).await
}

async fn same_batch_new_claim(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let batch = bench.batch(2);
    let log = placed(&owned.session, Seq::START, batch.rows.clone());
    owned.append(batch.clone()).await?;
    owned.fence = bench.there().claim(WORKER, LEASE, &owned.session).await?.fence;
    same("the answer", owned.append(batch).await, Ok(Seq::new(2)))?;
    owned.untouched(&log, &[], &Next::Idle).await
}

async fn older_batch(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let (first, second) = (bench.batch(1), bench.batch(1));
    let rows = [first.rows.clone(), second.rows.clone()].concat();
    let conflict = AppendError::Conflict { head: Seq::new(2), batch: Some(second.id) };
    owned.head = owned.append(first.clone()).await?;
    owned.append(second).await?;
    let answer = bench.here().append(&owned.fence, Seq::START, first).await;
    same("the answer", answer, Err(conflict))?;
    let log = placed(&owned.session, Seq::START, rows);
    owned.untouched(&log, &[], &Next::Idle).await
}

async fn refused_batch(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let batch = bench.batch(1);
    let refused = bench.here().append(&owned.fence, Seq::new(9), batch.clone()).await;
    same("whether it was refused", refused.is_err(), true)?;
    let log = placed(&owned.session, Seq::START, batch.rows.clone());
    same("the answer", owned.append(batch).await, Ok(Seq::new(1)))?;
    owned.untouched(&log, &[], &Next::Idle).await
}

async fn dropped(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let mut log = Vec::new();
    for _ in 0..8 {
        let batch = bench.batch(2);
        log.extend(placed(&owned.session, owned.head, batch.rows.clone()));
        let mut call: Pin<Box<dyn Future<Output = _> + Send + '_>> = Box::pin(owned.append(batch.clone()));
        let _ = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
        drop(call);
        let head = owned.append(batch).await?;
        same("the head", head, owned.head.plus(2))?;
        owned.head = head;
    }
    owned.untouched(&log, &[], &Next::Idle).await
}

/// Admits this many prompts and answers their ids.
async fn admitted(bench: &Bench, session: &SessionId, count: usize) -> Result<Vec<InputId>, Details> {
    let mut ids = Vec::new();
    for place in 0..count {
        let input = bench.prompt(&format!("prompt {place}"));
        ids.push(input.id);
        bench.there().admit(session, input).await?;
    }
    Ok(ids)
}

async fn takes_input(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let ids = admitted(bench, &owned.session, 5).await?;
    let mut batch = bench.batch(1);
    batch.taken = vec![ids[3], ids[0]];
    let log = placed(&owned.session, Seq::START, batch.rows.clone());
    same("the answer", owned.append(batch).await, Ok(Seq::new(1)))?;
    owned.untouched(&log, &[ids[1], ids[2], ids[4]], &Next::Runnable).await
}

/// Appends a batch that takes these inputs, of which one is gone; nothing of it may land.
async fn gone(bench: &Bench, taken: Vec<InputId>, owned: &super::bench::Owned<'_>) -> Checked {
    let log = bench.log(&owned.session).await?;
    let (pending, waits) = (bench.pending(&owned.session).await?, bench.next(&owned.session).await?);
    let mut batch = bench.batch(2);
    batch.taken = taken;
    batch.state = Some(at_rest(Next::Held));
    let answer = owned.append(batch).await;
    let conflict = matches!(&answer, Err(AppendError::Conflict { head, .. }) if *head == owned.head);
    same(&format!("whether {answer:?} is a conflict at head {}", owned.head), conflict, true)?;
    owned.untouched(&log, &pending, &waits).await
}

async fn taken_already(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let ids = admitted(bench, &owned.session, 2).await?;
    let mut batch = bench.batch(1);
    batch.taken = vec![ids[0]];
    owned.head = owned.append(batch).await?;
    gone(bench, vec![ids[1], ids[0]], &owned).await?;
    // One input cannot be taken twice by one batch either.
    gone(bench, vec![ids[1], ids[1]], &owned).await
}

async fn taken_cancelled(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let ids = admitted(bench, &owned.session, 2).await?;
    bench.there().cancel(&owned.session, ids[1]).await?;
    gone(bench, ids, &owned).await
}

async fn taken_elsewhere(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let other = bench.created("other").await?;
    let ids = admitted(bench, &other, 1).await?;
    gone(bench, ids.clone(), &owned).await?;
    same("the other session's inbox", bench.pending(&other).await?, ids)
}

async fn all_or_nothing(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let log = owned.push(1).await?;
    let ids = admitted(bench, &owned.session, 3).await?;
    let mut batch = bench.batch(2);
    batch.taken = vec![ids[0]];
    batch.state = Some(at_rest(Next::Held));
    let fence = owned.fence.clone();
    let stale = Fence::new(fence.session.clone(), fence.worker, fence.epoch + 1);
    let mut missing = batch.clone();
    missing.taken.push(InputId::from_u128(u128::MAX));
    let mut sleepy = batch.clone();
    sleepy.state = Some(at_rest(Next::Idle));
    for (fence, expected, batch) in [
        (&stale, owned.head, batch.clone()),
        (&fence, Seq::START, batch),
        (&fence, owned.head, missing),
        (&fence, owned.head, sleepy),
    ] {
        let refused = bench.here().append(fence, expected, batch).await;
        same("whether it was refused", refused.is_err(), true)?;
        owned.untouched(&log, &ids, &Next::Runnable).await?;
    }
    Ok(())
}

async fn state(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let states = [
        Next::Runnable,
        Next::At(Timestamp::from_millis(5)),
        Next::Waiting(vec![call(0), call(3)]),
        Next::Held,
        Next::Idle,
    ];
    for (next, execution) in states.into_iter().zip([Some(EXECUTION), None].into_iter().cycle()) {
        let mut batch = bench.turning(next.clone(), execution);
        batch.rows = bench.rows(1);
        let should = batch.state.clone();
        owned.head = owned.append(batch).await?;
        owned.push(1).await?;
        let seen = bench.there().info(&owned.session).await?.state;
        same("the state", Some(seen), should)?;
    }
    Ok(())
}

async fn idle_on_input(bench: &Bench) -> Checked {
    let kinds = [
        ("prompt", prompt("x", Delivery::Steer)),
        ("notice", NewInputKind::Notice(Notice::new("x", Delivery::Queue))),
        ("compact", NewInputKind::Compact),
        ("switch", NewInputKind::Switch(Switch::agent("plan"))),
    ];
    for (name, kind) in kinds {
        let mut owned = bench.owned(name).await?;
        owned.turn(Next::Runnable).await?;
        let input = bench.input(kind).without_waking();
        let id = input.id;
        bench.there().admit(&owned.session, input).await?;
        let mut batch = bench.turning(Next::Idle, None);
        batch.rows = bench.rows(1);
        same(&format!("the answer on a {name}"), owned.append(batch).await, Err(AppendError::Busy))?;
        owned.untouched(&[], &[id], &Next::Runnable).await?;
    }
    Ok(())
}

async fn waiting_on_answer(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    owned.turn(Next::Runnable).await?;
    let input = bench.input(answer(2)?);
    let id = input.id;
    bench.there().admit(&owned.session, input).await?;
    let batch = bench.turning(Next::Waiting(vec![call(1), call(2)]), Some(EXECUTION));
    same("the answer", owned.append(batch).await, Err(AppendError::Busy))?;
    owned.untouched(&[], &[id], &Next::Runnable).await?;
    let batch = bench.turning(Next::Waiting(vec![call(1)]), Some(EXECUTION));
    same("the answer where others are waited for", owned.append(batch).await, Ok(owned.head))
}

async fn waiting_on_interrupt(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    owned.turn(Next::Runnable).await?;
    let input = bench.input(interrupt(EXECUTION));
    let id = input.id;
    bench.there().admit(&owned.session, input).await?;
    let batch = bench.turning(Next::Waiting(vec![call(1)]), Some(EXECUTION));
    same("the answer", owned.append(batch).await, Err(AppendError::Busy))?;
    owned.untouched(&[], &[id], &Next::Runnable).await?;
    let later = Some(ExecutionId::from_u128(0xf));
    let batch = bench.turning(Next::Waiting(vec![call(1)]), later);
    same("the answer in another execution", owned.append(batch).await, Ok(owned.head))
}

async fn taken_does_not_count(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let ids = admitted(bench, &owned.session, 2).await?;
    let mut batch = bench.turning(Next::Idle, None);
    batch.taken = ids;
    same("the answer", owned.append(batch).await, Ok(owned.head))?;
    owned.untouched(&[], &[], &Next::Idle).await
}

async fn held_on_input(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let ids = admitted(bench, &owned.session, 1).await?;
    for next in [Next::Held, Next::At(Timestamp::from_millis(5)), Next::Waiting(vec![call(0)]), Next::Runnable] {
        owned.turn(next.clone()).await?;
        owned.untouched(&[], &ids, &next).await?;
    }
    Ok(())
}

async fn races_with_input(bench: &Bench) -> Checked {
    for round in 0..8 {
        let mut owned = bench.owned(&format!("s{round}")).await?;
        owned.turn(Next::Runnable).await?;
        let input = bench.prompt("x");
        let (mut landed, mut admitted) = (false, false);
        {
            let append: Pin<Box<dyn Future<Output = Checked> + Send + '_>> = Box::pin(async {
                landed = match owned.append(bench.turning(Next::Idle, None)).await {
                    Ok(_) => true,
                    Err(AppendError::Busy) => false,
                    Err(error) => return Err(error.into()),
                };
                Ok(())
            });
            let admit: Pin<Box<dyn Future<Output = Checked> + Send + '_>> = Box::pin(async {
                bench.there().admit(&owned.session, input).await?;
                admitted = true;
                Ok(())
            });
            let mut calls = vec![append, admit];
            if round % 2 == 1 {
                calls.reverse();
            }
            for answer in all(calls).await {
                answer?;
            }
        }
        same("whether the input was admitted", admitted, true)?;
        let seen = bench.next(&owned.session).await?;
        same(&format!("what it waits for (idle landed: {landed})"), seen, Next::Runnable)?;
    }
    Ok(())
}

async fn append_no_session(bench: &Bench) -> Checked {
    let fence = Fence::new(SessionId::new("nobody")?, WORKER, 1);
    match bench.here().append(&fence, Seq::START, bench.batch(1)).await {
        Err(AppendError::Unavailable(error)) => same("the kind", error.kind, StoreErrorKind::NotFound),
        answer => same("the answer", format!("{answer:?}"), "Unavailable, not found".to_owned()),
    }
}

async fn sessions_apart(bench: &Bench) -> Checked {
    let mut sessions = Vec::new();
    for name in ["a", "b", "c"] {
        sessions.push((bench.owned(name).await?, Vec::new()));
    }
    for round in 0..6 {
        for (place, (owned, log)) in sessions.iter_mut().enumerate() {
            log.extend(owned.push((round + place) % 4).await?);
        }
    }
    for (owned, log) in &sessions {
        same("the log", &bench.log(&owned.session).await?, log)?;
        same("the head", owned.head, Seq::new(log.len() as u64))?;
    }
    Ok(())
}

async fn many_at_once(bench: &Bench) -> Checked {
    let mut sessions = Vec::new();
    for place in 0..32 {
        sessions.push(bench.owned(&format!("s{place}")).await?);
    }
    let calls = sessions
        .iter_mut()
        .map(|owned| -> Pin<Box<dyn Future<Output = Result<Vec<Recorded>, Details>> + Send + '_>> {
            Box::pin(async {
                let mut log = owned.push(1).await?;
                log.extend(owned.push(2).await?);
                Ok(log)
            })
        })
        .collect();
    let logs = all(calls).await;
    for (owned, log) in sessions.iter().zip(logs) {
        same("the log", bench.log(&owned.session).await?, log?)?;
    }
    Ok(())
}

async fn one_head_once(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let calls = (0..4)
        .map(|_| -> Pin<Box<dyn Future<Output = _> + Send + '_>> { Box::pin(owned.append(bench.batch(1))) })
        .collect();
    let landed = all(calls).await.into_iter().filter(Result::is_ok).count();
    same("how many landed", landed, 1)?;
    same("the head", bench.there().info(&owned.session).await?.head, Seq::new(1))
}

/// A log of 300 events in batches of many sizes, with another session's between them.
async fn long(bench: &Bench) -> Result<(super::bench::Owned<'_>, Vec<Recorded>), Details> {
    let mut owned = bench.owned("s").await?;
    let mut other = bench.owned("other").await?;
    let mut log = Vec::new();
    for size in [1, 2, 70, 1, 128, 30, 3, 65] {
        log.extend(owned.push(size).await?);
        other.push(size % 7).await?;
    }
    Ok((owned, log))
}

async fn range(bench: &Bench) -> Checked {
    let (owned, log) = long(bench).await?;
    for after in [0, 1, 2, 63, 64, 65, 127, 128, 200, 298, 299] {
        for limit in [1, 2, 64, 65, 100, 299, 300, 301, usize::MAX] {
            let should = log.iter().skip(after).take(limit).cloned().collect();
            let seen = bench.there().read(&owned.session, Seq::new(after as u64), limit).await?;
            same(&format!("{limit} after {after}"), seen, should)?;
        }
    }
    Ok(())
}

async fn nothing(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    same("an empty log", bench.log(&owned.session).await?, Vec::new())?;
    owned.push(3).await?;
    for (after, limit) in [(3, 10), (4, 10), (u64::MAX, 10), (0, 0)] {
        let seen = bench.here().read(&owned.session, Seq::new(after), limit).await?;
        same(&format!("{limit} after {after}"), seen, Vec::new())?;
    }
    Ok(())
}

async fn there(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let mut log = Vec::new();
    for _ in 0..8 {
        log.extend(owned.push(1).await?);
        same("the log here", &bench.here().read(&owned.session, Seq::START, 100).await?, &log)?;
        same("the log there", &bench.there().read(&owned.session, Seq::START, 100).await?, &log)?;
    }
    Ok(())
}

async fn read_no_session(bench: &Bench) -> Checked {
    let session = SessionId::new("nobody")?;
    fails("read", bench.here().read(&session, Seq::START, 1).await, StoreErrorKind::NotFound)
}

async fn replays(bench: &Bench) -> Checked {
    let (owned, log) = long(bench).await?;
    for after in [0, 1, 64, 250, 300] {
        let mut events = bench.there().follow(&owned.session, Seq::new(after));
        follows(&mut events, &log[usize::try_from(after)?..]).await?;
        syncs(&mut events, owned.head).await?;
    }
    Ok(())
}

async fn follow_empty(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    syncs(&mut bench.there().follow(&session, Seq::START), Seq::START).await
}

async fn tail(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let mut log = owned.push(2).await?;
    let mut events = bench.there().follow(&owned.session, Seq::START);
    follows(&mut events, &log).await?;
    syncs(&mut events, owned.head).await?;
    for size in [1, 3, 1, 70, 2] {
        log = owned.push(size).await?;
        follows(&mut events, &log).await?;
    }
    // Several batches at once, and one without rows between them.
    log = owned.push(1).await?;
    owned.push(0).await?;
    log.extend(owned.push(2).await?);
    follows(&mut events, &log).await
}

async fn follow_beyond(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    owned.push(1).await?;
    let mut events = bench.there().follow(&owned.session, Seq::new(3));
    syncs(&mut events, Seq::new(1)).await?;
    owned.push(1).await?;
    let log = owned.push(4).await?;
    follows(&mut events, &log[1..]).await
}

async fn during_replay(bench: &Bench) -> Checked {
    let (mut owned, log) = long(bench).await?;
    let mut events = bench.there().follow(&owned.session, Seq::START);
    follows(&mut events, &log[..10]).await?;
    let more = owned.push(80).await?;
    let mut rest = log[10..].iter().chain(&more).cloned();
    let mut marker = None;
    let mut last = Seq::new(10);
    while last < owned.head {
        match next(&mut events).await?? {
            Followed::Event(event) => {
                last = event.seq;
                same("the next event", Some(event), rest.next())?;
            }
            Followed::Synced(head) => {
                same("the marker's place", head, last)?;
                same("whether the marker has come before", marker.replace(head), None)?;
            }
        }
    }
    if marker.is_none() {
        syncs(&mut events, owned.head).await?;
    }
    let more = owned.push(1).await?;
    follows(&mut events, &more).await
}

async fn one_marker(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let mut events = bench.there().follow(&owned.session, Seq::START);
    syncs(&mut events, Seq::START).await?;
    for _ in 0..3 {
        let log = owned.push(1).await?;
        follows(&mut events, &log).await?;
        bench.clock.pass(Duration::from_secs(3_600));
    }
    Ok(())
}

async fn slow_reader(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let mut events = bench.there().follow(&owned.session, Seq::START);
    syncs(&mut events, Seq::START).await?;
    let mut log = Vec::new();
    for _ in 0..40 {
        log.extend(owned.push(60).await?);
    }
    follows(&mut events, &log).await
}

async fn many_readers(bench: &Bench) -> Checked {
    let (mut owned, log) = long(bench).await?;
    let from = [0_usize, 100, 299, 300];
    let mut readers = Vec::new();
    for after in from.into_iter().cycle().take(12) {
        let mut events = bench.there().follow(&owned.session, Seq::new(after as u64));
        follows(&mut events, &log[after..]).await?;
        syncs(&mut events, owned.head).await?;
        readers.push(events);
    }
    // One that goes away takes nothing from the others.
    drop(readers.swap_remove(3));
    let more = owned.push(2).await?;
    for events in &mut readers {
        follows(events, &more).await?;
    }
    Ok(())
}

async fn over_claims(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let mut events = bench.there().follow(&owned.session, Seq::START);
    syncs(&mut events, Seq::START).await?;
    for _ in 0..3 {
        let log = owned.push(1).await?;
        follows(&mut events, &log).await?;
        bench.here().release(&owned.fence).await?;
        owned.fence = bench.there().claim(WORKER, LEASE, &owned.session).await?.fence;
    }
    let log = owned.push(1).await?;
    follows(&mut events, &log).await
}

async fn follow_apart(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let mut other = bench.owned("other").await?;
    let mut events = bench.there().follow(&owned.session, Seq::START);
    other.push(2).await?;
    syncs(&mut events, Seq::START).await?;
    for _ in 0..3 {
        other.push(2).await?;
        let log = owned.push(1).await?;
        other.push(1).await?;
        follows(&mut events, &log).await?;
    }
    Ok(())
}

async fn follow_no_session(bench: &Bench) -> Checked {
    let mut events = bench.here().follow(&SessionId::new("nobody")?, Seq::START);
    fails("the first item", next(&mut events).await?, StoreErrorKind::NotFound)?;
    same("whether it has ended", ended(&mut events).await, true)
}

async fn follow_erased(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let log = owned.push(2).await?;
    let mut events = bench.there().follow(&owned.session, Seq::START);
    follows(&mut events, &log).await?;
    syncs(&mut events, owned.head).await?;
    bench.here().release(&owned.fence).await?;
    bench.here().erase(&owned.session).await?;
    let again = NewSession::new(bench.rows(5), [].into());
    bench.here().create(&owned.session, again).await?;
    fails("the next item", next(&mut events).await?, StoreErrorKind::NotFound)?;
    same("whether it has ended", ended(&mut events).await, true)
}
