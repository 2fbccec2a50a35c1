//! Cases of ownership: create, claim, renew, release, due.

use std::time::Duration;

use settled_ledger::store::{ClaimError, Claimed, Fence, NewSession, Next, StoreErrorKind};
use settled_ledger::{Seq, WorkerId};
use settled_tools_api::SessionId;

use super::bench::{
    Bench, Checked, Details, EXECUTION, LEASE, OTHER, TICK, WORKER, at_rest, call, fails, placed, same,
};
use super::named_cases;

named_cases! {
    "create.events", "It makes a session with its first events and answers the head." => events;
    "create.at_rest", "A new session is idle, and nobody's." => new_at_rest;
    "create.exists", "A second session of an id fails: exists; the first is as it was." => exists;
    "claim.answers", "It answers a fence, the head and the state." => answers;
    "claim.epoch_grows", "Each claim's epoch is one more, over releases and whoever claims." => epoch_grows;
    "claim.owned", "While another's lease runs it fails: owned, by whom and until when; the owner keeps the session." => owned_by_other;
    "claim.run_out", "A lease that has run out to the millisecond is no hindrance." => run_out;
    "claim.lease_of_worker", "A worker's lease is one for all its sessions, and runs from its last claim." => lease_of_worker;
    "claim.own_anew", "A worker may claim its own session anew while its lease runs." => own_anew;
    "claim.no_session", "Without a session it fails: not found." => claim_no_session;
    "claim.one_at_once", "Of two workers that claim at once one gets the session." => one_at_once;
    "renew.all_sessions", "It makes the lease run from now, for all the worker's sessions." => all_sessions;
    "renew.fence", "It changes no fence." => renew_fence;
    "renew.not_others", "It renews nobody else's lease." => not_others;
    "renew.after_other_claim", "It does not take back what another worker has claimed since." => after_other_claim;
    "release.free", "Another worker may claim at once what was given up." => free;
    "release.stale", "A stale fence gives nothing up." => stale;
    "release.others_session", "A worker gives up one session, not all." => one_session;
    "release.no_session", "Without a session nothing happens." => release_no_session;
    "due.order", "It gives the sessions that are runnable or whose time has come, longest due first." => due_order;
    "due.since_runnable", "A session is due since it became runnable, however often it is woken after." => since_runnable;
    "due.not_before_time", "A moment is due when it has come, to the millisecond." => not_before_time;
    "due.others_not", "What waits, is held or idle is not due." => others_not;
    "due.owned", "What a live worker owns is not due, until the lease has run out or it is given up." => due_owned;
    "due.limit", "It gives at most so many." => due_limit;
}

async fn events(bench: &Bench) -> Checked {
    let session = SessionId::new("s")?;
    let rows = bench.rows(3);
    let new = NewSession::new(rows.clone(), [].into());
    same("the answer", bench.there().create(&session, new).await, Ok(Seq::new(3)))?;
    same("the log", bench.log(&session).await?, placed(&session, Seq::START, rows))?;
    let empty = SessionId::new("empty")?;
    let answer = bench.there().create(&empty, NewSession::default()).await;
    same("the answer without events", answer, Ok(Seq::START))
}

async fn new_at_rest(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    let info = bench.there().info(&session).await?;
    same("the state and the owner", (info.state, info.owner), (at_rest(Next::Idle), None))?;
    same("the inbox", bench.pending(&session).await?, Vec::new())
}

async fn exists(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let log = owned.push(2).await?;
    let new = NewSession::new(bench.rows(1), [].into());
    fails("create", bench.there().create(&owned.session, new).await, StoreErrorKind::Exists)?;
    owned.untouched(&log, &[], &Next::Idle).await?;
    owned.push(1).await.map(drop)
}

async fn answers(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    owned.push(3).await?;
    owned.turn(Next::Waiting(vec![call(1)])).await?;
    let info = bench.there().info(&owned.session).await?;
    bench.here().release(&owned.fence).await?;
    let claimed = bench.there().claim(OTHER, LEASE, &owned.session).await?;
    let fence = Fence::new(owned.session, OTHER, owned.fence.epoch + 1);
    same("the claim", claimed, Claimed::new(fence, Seq::new(3), info.state))
}

async fn epoch_grows(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    let mut last = None;
    for (worker, give_up) in [(WORKER, true), (OTHER, false), (OTHER, true), (WORKER, false), (OTHER, false)] {
        let fence = bench.there().claim(worker, LEASE, &session).await?.fence;
        if let Some(last) = last {
            same("the epoch", fence.epoch, last + 1)?;
        }
        last = Some(fence.epoch);
        if give_up {
            bench.there().release(&fence).await?;
        } else {
            bench.clock.pass(LEASE);
        }
    }
    Ok(())
}

async fn owned_by_other(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let until = bench.now().plus(LEASE);
    let refused = Err(ClaimError::Owned { worker: WORKER, until });
    same("the answer", bench.there().claim(OTHER, LEASE, &owned.session).await, refused.clone())?;
    bench.clock.pass(LEASE - TICK);
    same("the answer just before", bench.there().claim(OTHER, LEASE, &owned.session).await, refused)?;
    owned.push(1).await.map(drop)
}

async fn run_out(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    bench.clock.pass(LEASE);
    let claimed = bench.there().claim(OTHER, LEASE, &owned.session).await?;
    same("the owner", bench.here().info(&owned.session).await?.owner, Some(OTHER))?;
    same("the fence's worker", claimed.fence.worker, OTHER)
}

/// When a worker's lease runs out, as another is told that claims one of its sessions.
async fn owned_until(bench: &Bench, session: &SessionId) -> Result<Option<Duration>, Details> {
    match bench.there().claim(OTHER, LEASE, session).await {
        Err(ClaimError::Owned { worker, until }) => {
            same("the owner", worker, WORKER)?;
            Ok(Some(until.since(bench.now())))
        }
        Err(error) => Err(error.into()),
        Ok(_) => Ok(None),
    }
}

async fn lease_of_worker(bench: &Bench) -> Checked {
    let first = bench.owned("first").await?;
    bench.clock.pass(LEASE / 2);
    let second = bench.owned("second").await?;
    bench.clock.pass(LEASE / 2);
    for owned in [&first, &second] {
        let left = owned_until(bench, &owned.session).await?;
        same("what is left of the lease", left, Some(LEASE / 2))?;
    }
    Ok(())
}

async fn own_anew(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let again = bench.here().claim(WORKER, LEASE, &owned.session).await?;
    same("the epoch", again.fence.epoch, owned.fence.epoch + 1)?;
    owned.fence = again.fence;
    owned.push(1).await.map(drop)
}

async fn claim_no_session(bench: &Bench) -> Checked {
    match bench.there().claim(WORKER, LEASE, &SessionId::new("nobody")?).await {
        Err(ClaimError::Store(error)) => same("the kind", error.kind, StoreErrorKind::NotFound),
        answer => same("the answer", format!("{answer:?}"), "not found".to_owned()),
    }
}

async fn one_at_once(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    let answers = super::bench::all(vec![
        bench.here().claim(WORKER, LEASE, &session),
        bench.there().claim(OTHER, LEASE, &session),
        bench.here().claim(WorkerId::from_u128(0xc), LEASE, &session),
    ])
    .await;
    let got: Vec<_> = answers.iter().flatten().map(|claimed| claimed.fence.worker).collect();
    same("how many have claimed it", got.len(), 1)?;
    same("the owner", bench.there().info(&session).await?.owner, got.first().copied())
}

async fn all_sessions(bench: &Bench) -> Checked {
    let sessions = [bench.owned("one").await?, bench.owned("two").await?];
    bench.clock.pass(LEASE - TICK);
    bench.here().renew(WORKER, LEASE * 2).await?;
    for owned in &sessions {
        let left = owned_until(bench, &owned.session).await?;
        same("what is left of the lease", left, Some(LEASE * 2))?;
    }
    Ok(())
}

async fn renew_fence(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    bench.here().renew(WORKER, LEASE).await?;
    owned.push(1).await.map(drop)
}

async fn not_others(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    bench.clock.pass(LEASE / 2);
    bench.there().renew(OTHER, LEASE * 9).await?;
    let left = owned_until(bench, &owned.session).await?;
    same("what is left of the lease", left, Some(LEASE / 2))
}

async fn after_other_claim(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    bench.clock.pass(LEASE);
    let claimed = bench.there().claim(OTHER, LEASE, &owned.session).await?;
    bench.here().renew(WORKER, LEASE).await?;
    same("the owner", bench.here().info(&owned.session).await?.owner, Some(OTHER))?;
    let answer = bench.there().append(&claimed.fence, claimed.head, bench.batch(1)).await;
    same("the answer to the owner", answer, Ok(Seq::new(1)))
}

async fn free(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    bench.here().release(&owned.fence).await?;
    same("the owner", bench.there().info(&owned.session).await?.owner, None)?;
    let claimed = bench.there().claim(OTHER, LEASE, &owned.session).await?;
    same("the fence", claimed.fence, Fence::new(owned.session, OTHER, owned.fence.epoch + 1))
}

async fn stale(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let older = owned.fence.clone();
    owned.fence = bench.here().claim(WORKER, LEASE, &owned.session).await?.fence;
    let forged = Fence::new(owned.session.clone(), OTHER, owned.fence.epoch);
    for fence in [older, forged] {
        bench.there().release(&fence).await?;
        same("the owner", bench.there().info(&owned.session).await?.owner, Some(WORKER))?;
    }
    owned.push(1).await.map(drop)
}

async fn one_session(bench: &Bench) -> Checked {
    let (one, mut two) = (bench.owned("one").await?, bench.owned("two").await?);
    bench.here().release(&one.fence).await?;
    same("the other's owner", bench.there().info(&two.session).await?.owner, Some(WORKER))?;
    two.push(1).await.map(drop)
}

async fn release_no_session(bench: &Bench) -> Checked {
    let fence = Fence::new(SessionId::new("nobody")?, WORKER, 1);
    same("the answer", bench.here().release(&fence).await, Ok(()))
}

/// The ids of the sessions that are due.
async fn due(bench: &Bench) -> Result<Vec<String>, Details> {
    let due = bench.there().due(100).await?;
    Ok(due.into_iter().map(String::from).collect())
}

async fn due_order(bench: &Bench) -> Checked {
    let second = Duration::from_secs(1);
    let start = bench.now();
    bench.waiting_for("c", Next::Runnable).await?;
    bench.waiting_for("d", Next::At(start.plus(second * 5))).await?;
    bench.waiting_for("never", Next::At(start.plus(second * 500))).await?;
    bench.clock.pass(second * 2);
    bench.waiting_for("a", Next::Runnable).await?;
    bench.waiting_for("e", Next::At(start.plus(second))).await?;
    bench.clock.pass(second * 2);
    let woken = bench.created("b").await?;
    bench.there().admit(&woken, bench.prompt("x")).await?;
    same("what is due", due(bench).await?, vec!["c", "e", "a", "b"].into_iter().map(str::to_owned).collect())?;
    bench.clock.pass(second * 2);
    let should = vec!["c", "e", "a", "b", "d"].into_iter().map(str::to_owned).collect();
    same("what is due later", due(bench).await?, should)
}

async fn since_runnable(bench: &Bench) -> Checked {
    let first = bench.waiting_for("z-first", Next::Runnable).await?;
    bench.clock.pass(TICK);
    bench.waiting_for("a-second", Next::Runnable).await?;
    bench.clock.pass(TICK);
    bench.there().admit(&first, bench.prompt("x")).await?;
    same("what is due", due(bench).await?, vec!["z-first".to_owned(), "a-second".to_owned()])
}

async fn not_before_time(bench: &Bench) -> Checked {
    bench.waiting_for("s", Next::At(bench.now().plus(LEASE))).await?;
    bench.clock.pass(LEASE - TICK);
    same("what is due just before", due(bench).await?, Vec::new())?;
    bench.clock.pass(TICK);
    same("what is due then", due(bench).await?, vec!["s".to_owned()])
}

async fn others_not(bench: &Bench) -> Checked {
    for (name, next) in [("waits", Next::Waiting(vec![call(0)])), ("held", Next::Held), ("idle", Next::Idle)] {
        // It was due before, and is not any more.
        let mut owned = bench.owned(name).await?;
        owned.turn(Next::Runnable).await?;
        owned.turn(next).await?;
        bench.here().release(&owned.fence).await?;
    }
    bench.created("new").await?;
    bench.clock.pass(LEASE * 100);
    same("what is due", due(bench).await?, Vec::new())
}

async fn due_owned(bench: &Bench) -> Checked {
    let (mut one, mut two) = (bench.owned("one").await?, bench.owned("two").await?);
    for owned in [&mut one, &mut two] {
        owned.turn(Next::Runnable).await?;
    }
    same("what is due while they are owned", due(bench).await?, Vec::new())?;
    bench.here().release(&one.fence).await?;
    same("what is due after a release", due(bench).await?, vec!["one".to_owned()])?;
    bench.clock.pass(LEASE);
    same("what is due after the lease", due(bench).await?, vec!["one".to_owned(), "two".to_owned()])
}

async fn due_limit(bench: &Bench) -> Checked {
    for place in 0..5 {
        bench.waiting_for(&format!("s{place}"), Next::Runnable).await?;
        bench.clock.pass(TICK);
    }
    for limit in [0, 1, 3, 5, 9] {
        let due = bench.there().due(limit).await?;
        let should = (0..limit.min(5)).map(|place| SessionId::new(format!("s{place}"))).collect::<Result<_, _>>()?;
        same("what is due", due, should)?;
    }
    same(
        "the execution that goes on",
        bench.there().info(&SessionId::new("s0")?).await?.state.execution,
        Some(EXECUTION),
    )
}
