//! Cases of the inbox: admit, cancel, change, pending, hints.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use settled_ledger::store::{AdmitError, Admitted, Next, SessionState, StoreErrorKind};
use settled_ledger::{
    Arrival, Delivery, ExecutionId, InboxItem, InputId, NewInput, NewInputKind, Notice, Switch, Timestamp,
};
use settled_tools_api::SessionId;

use super::bench::{
    Bench, Checked, Details, EXECUTION, all, answer, at_rest, call, fails, interrupt, next, prompt, same,
};
use super::named_cases;

named_cases! {
    "admit.pending", "An admitted input is pending, whole, for every handle." => pending;
    "admit.order", "Pending input is in the order of arrival, numbered from 1." => order;
    "admit.arrival_once", "A place in the order of arrival is never used twice." => arrival_once;
    "admit.sessions_apart", "Each session has an inbox and an order of arrival of its own." => sessions_apart;
    "admit.same_key", "The same key with the same content is the input admitted before, whatever else differs." => same_key;
    "admit.same_key_promoted", "A key is known after its input was taken." => same_key_promoted;
    "admit.same_key_cancelled", "A key is known after its input was cancelled." => same_key_cancelled;
    "admit.same_key_changed", "A key stands for the content as it was admitted, also after a change of delivery." => same_key_changed;
    "admit.key_conflict", "The same key with other content is a conflict that names the input, and changes nothing." => key_conflict;
    "admit.key_conflict_promoted", "A key conflicts after its input was taken, too." => key_conflict_promoted;
    "admit.key_of_session", "A key counts within its session alone." => key_of_session;
    "admit.key_of_interrupt", "An interrupt's key is known after its execution has settled." => key_of_interrupt;
    "admit.without_key", "Without keys, the same content twice is two inputs." => without_key;
    "admit.same_key_at_once", "Of many admissions at once under one key one is new." => same_key_at_once;
    "admit.many_at_once", "Many admissions at once are all pending, each at its own place." => many_at_once;
    "admit.wakes", "Input wakes a session that is idle or held." => wakes;
    "admit.later", "Input that is to wait wakes nobody." => later;
    "admit.input_while_waiting", "Input never answers for the person: a session that waits for one goes on waiting." => input_while_waiting;
    "admit.input_while_backing_off", "Input does not shorten a backoff." => input_while_backing_off;
    "admit.answer", "An answer wakes the session that waits for that call." => admit_answer;
    "admit.answer_to_other_call", "An answer to another call, or where none is waited for, wakes nobody." => answer_to_other_call;
    "admit.interrupt", "An interrupt of the present execution is pending, and wakes a session that waits." => admit_interrupt;
    "admit.interrupt_other_execution", "An interrupt of another execution is dropped." => interrupt_other_execution;
    "admit.interrupt_at_rest", "An interrupt of a session without an execution is dropped." => interrupt_at_rest;
    "admit.dropped_leaves_nothing", "An interrupt that is dropped leaves nothing: no item, no state, no place, no key." => dropped_leaves_nothing;
    "admit.rest_of_state", "Of the state it changes what is waited for, and nothing else." => rest_of_state;
    "admit.no_session", "Without a session it fails: not found." => admit_no_session;
    "cancel.pending", "It takes pending input back and says so." => cancel_pending;
    "cancel.gone", "Input that was taken, cancelled or never there is not cancelled." => cancel_gone;
    "cancel.no_session", "Without a session it fails: not found." => cancel_no_session;
    "change.delivery", "It changes the delivery of a prompt or a notice in its place." => change_delivery;
    "change.others", "What has no delivery, or is gone, is not changed." => change_others;
    "change.no_session", "Without a session it fails: not found." => change_no_session;
    "pending.no_session", "Without a session it fails: not found." => pending_no_session;
    "hints.admit", "A listener hears of a session that has new input." => hints_admit;
    "hints.listeners", "Every listener hears, and one that does not listen holds nobody up." => hints_listeners;
}

async fn pending(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    let inputs = [
        bench.prompt("Grüße\u{0}").key("k".to_owned()),
        bench.input(NewInputKind::Compact),
        bench.input(answer(4)?),
        bench.input(NewInputKind::Switch(Switch::agent("plan"))),
        bench.input(NewInputKind::Notice(Notice::new("n", Delivery::Steer))),
    ];
    let mut should = Vec::new();
    for (input, place) in inputs.into_iter().zip(1..) {
        let item = InboxItem::new(input.clone(), Arrival::new(place));
        let admitted = bench.there().admit(&session, input).await;
        same("the answer", admitted, Ok(Admitted::New(item.id, item.arrival)))?;
        should.push(item);
    }
    same("what is pending here", &bench.here().pending(&session).await?, &should)?;
    same("what is pending there", &bench.there().pending(&session).await?, &should)
}

/// Admits an input that must be new, and answers its id.
async fn admit(bench: &Bench, session: &SessionId, input: NewInput) -> Result<InputId, Details> {
    let id = input.id;
    let admitted = bench.there().admit(session, input).await?;
    let new = matches!(admitted, Admitted::New(given, _) if given == id);
    same(&format!("whether {admitted:?} is new"), new, true)?;
    Ok(id)
}

async fn order(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    let mut should = Vec::new();
    for place in 1..=12_u64 {
        // Neither the ids nor the times grow: the order is that of arrival.
        let id = InputId::from_u128(u128::from((place * 7) % 13));
        let at = Timestamp::from_millis(1_000 - i64::try_from(place)?);
        let input = NewInput::new(id, at, prompt("x", Delivery::Queue));
        admit(bench, &session, input).await?;
        should.push((id, Arrival::new(place)));
    }
    let seen = bench.there().pending(&session).await?;
    let seen: Vec<_> = seen.into_iter().map(|item| (item.id, item.arrival)).collect();
    same("the order", seen, should)
}

async fn arrival_once(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let first = admit(bench, &owned.session, bench.prompt("first")).await?;
    let second = admit(bench, &owned.session, bench.prompt("second")).await?;
    bench.there().cancel(&owned.session, second).await?;
    let mut batch = bench.batch(0);
    batch.taken = vec![first];
    owned.append(batch).await?;
    let third = bench.prompt("third");
    let id = third.id;
    let admitted = bench.there().admit(&owned.session, third).await;
    same("the answer", admitted, Ok(Admitted::New(id, Arrival::new(3))))
}

async fn sessions_apart(bench: &Bench) -> Checked {
    let (one, two) = (bench.created("one").await?, bench.created("two").await?);
    let first = admit(bench, &one, bench.prompt("x")).await?;
    let second = bench.prompt("x");
    let id = second.id;
    let admitted = bench.there().admit(&two, second).await;
    same("the answer", admitted, Ok(Admitted::New(id, Arrival::new(1))))?;
    same("the first inbox", bench.pending(&one).await?, vec![first])?;
    same("the second inbox", bench.pending(&two).await?, vec![id])
}

/// The same content under the same key, and all else different.
fn again(bench: &Bench, kind: NewInputKind) -> NewInput {
    bench.clock.pass(Duration::from_secs(1));
    bench.input(kind).key("k".to_owned()).without_waking()
}

async fn same_key(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    let kind = prompt("x", Delivery::Queue);
    let id = admit(bench, &session, bench.input(kind.clone()).key("k".to_owned())).await?;
    for store in [bench.here(), bench.there()] {
        let admitted = store.admit(&session, again(bench, kind.clone())).await;
        same("the answer", admitted, Ok(Admitted::Again(id)))?;
    }
    same("the inbox", bench.pending(&session).await?, vec![id])
}

async fn same_key_promoted(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let kind = prompt("x", Delivery::Queue);
    let id = admit(bench, &owned.session, bench.input(kind.clone()).key("k".to_owned())).await?;
    let mut batch = bench.turning(Next::Idle, None);
    batch.taken = vec![id];
    owned.append(batch).await?;
    let admitted = bench.there().admit(&owned.session, again(bench, kind)).await;
    same("the answer", admitted, Ok(Admitted::Again(id)))?;
    owned.untouched(&[], &[], &Next::Idle).await
}

async fn same_key_cancelled(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    let kind = prompt("x", Delivery::Queue);
    let id = admit(bench, &session, bench.input(kind.clone()).key("k".to_owned())).await?;
    bench.there().cancel(&session, id).await?;
    let admitted = bench.there().admit(&session, again(bench, kind)).await;
    same("the answer", admitted, Ok(Admitted::Again(id)))?;
    same("the inbox", bench.pending(&session).await?, Vec::new())
}

async fn same_key_changed(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    let kind = prompt("x", Delivery::Queue);
    let id = admit(bench, &session, bench.input(kind.clone()).key("k".to_owned())).await?;
    bench.there().change(&session, id, Delivery::Steer).await?;
    let admitted = bench.there().admit(&session, again(bench, kind)).await;
    same("the answer", admitted, Ok(Admitted::Again(id)))?;
    let admitted = bench.there().admit(&session, again(bench, prompt("x", Delivery::Steer))).await;
    same("the answer to other content", admitted, Err(AdmitError::KeyConflict { input: id }))
}

async fn key_conflict(bench: &Bench) -> Checked {
    let session = bench.waiting_for("s", Next::Held).await?;
    let id = admit(bench, &session, again(bench, prompt("x", Delivery::Queue))).await?;
    let others = [
        prompt("y", Delivery::Queue),
        prompt("x", Delivery::Steer),
        NewInputKind::Notice(Notice::new("x", Delivery::Queue)),
        NewInputKind::Compact,
    ];
    for other in others {
        let admitted = bench.there().admit(&session, bench.input(other).key("k".to_owned())).await;
        same("the answer", admitted, Err(AdmitError::KeyConflict { input: id }))?;
    }
    same("the inbox", bench.pending(&session).await?, vec![id])?;
    same("what it waits for", bench.next(&session).await?, Next::Held)
}

async fn key_conflict_promoted(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let id = admit(bench, &owned.session, again(bench, prompt("x", Delivery::Queue))).await?;
    let mut batch = bench.batch(0);
    batch.taken = vec![id];
    owned.append(batch).await?;
    let admitted = bench.there().admit(&owned.session, again(bench, prompt("y", Delivery::Queue))).await;
    same("the answer", admitted, Err(AdmitError::KeyConflict { input: id }))
}

async fn key_of_session(bench: &Bench) -> Checked {
    let (one, two) = (bench.created("one").await?, bench.created("two").await?);
    admit(bench, &one, again(bench, prompt("x", Delivery::Queue))).await?;
    admit(bench, &two, again(bench, prompt("x", Delivery::Queue))).await?;
    admit(bench, &bench.created("three").await?, again(bench, prompt("y", Delivery::Queue))).await.map(drop)
}

async fn key_of_interrupt(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    owned.turn(Next::Runnable).await?;
    let id = admit(bench, &owned.session, again(bench, interrupt(EXECUTION))).await?;
    let mut batch = bench.turning(Next::Idle, None);
    batch.taken = vec![id];
    owned.append(batch).await?;
    let admitted = bench.there().admit(&owned.session, again(bench, interrupt(EXECUTION))).await;
    same("the answer", admitted, Ok(Admitted::Again(id)))
}

async fn without_key(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    let first = admit(bench, &session, bench.prompt("x")).await?;
    let second = admit(bench, &session, bench.prompt("x")).await?;
    same("the inbox", bench.pending(&session).await?, vec![first, second])
}

/// Admits inputs at once, by turns through one handle and the other.
async fn at_once(bench: &Bench, session: &SessionId, inputs: Vec<NewInput>) -> Vec<Result<Admitted, AdmitError>> {
    let calls = inputs
        .into_iter()
        .zip([bench.here(), bench.there()].into_iter().cycle())
        .map(|(input, store)| -> Pin<Box<dyn Future<Output = _> + Send + '_>> { Box::pin(store.admit(session, input)) })
        .collect();
    all(calls).await
}

async fn same_key_at_once(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    let inputs = (0..8).map(|_| again(bench, prompt("x", Delivery::Queue))).collect();
    let answers = at_once(bench, &session, inputs).await;
    let [item] = &bench.there().pending(&session).await?[..] else {
        return same("how many are pending", bench.pending(&session).await?.len(), 1);
    };
    let mut news = 0;
    for answer in answers {
        match answer? {
            Admitted::New(id, _) if id == item.id => news += 1,
            other => same("the answer", other, Admitted::Again(item.id))?,
        }
    }
    same("how many are new", news, 1)
}

async fn many_at_once(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    let inputs: Vec<_> = (0..16).map(|_| bench.prompt("x")).collect();
    let mut should = Vec::new();
    for (answer, input) in at_once(bench, &session, inputs.clone()).await.into_iter().zip(inputs) {
        match answer? {
            Admitted::New(id, arrival) if id == input.id => should.push(InboxItem::new(input, arrival)),
            other => same("whether the answer is new", format!("{other:?}"), format!("New({})", input.id))?,
        }
    }
    should.sort_by_key(|item| item.arrival);
    let places: Vec<_> = should.iter().map(|item| item.arrival.get()).collect();
    same("the places", places, (1..=16).collect())?;
    same("what is pending", bench.here().pending(&session).await?, should)
}

/// What there is to admit but for an interrupt and an answer.
fn ordinary() -> [NewInputKind; 5] {
    [
        prompt("x", Delivery::Queue),
        prompt("x", Delivery::Steer),
        NewInputKind::Notice(Notice::new("n", Delivery::Queue)),
        NewInputKind::Compact,
        NewInputKind::Switch(Switch::agent("plan")),
    ]
}

/// Admits each kind of ordinary input to a session that waits for something, and holds it against what it should wait for then.
async fn admits_to(bench: &Bench, waits: &Next, should: &Next, shape: impl Fn(NewInput) -> NewInput) -> Checked {
    for (kind, place) in ordinary().into_iter().zip(0..) {
        let name = format!("s{place}-{}", bench.batch_id());
        let session = bench.waiting_for(&name, waits.clone()).await?;
        let what = format!("what it waits for after {kind:?}");
        let id = admit(bench, &session, shape(bench.input(kind))).await?;
        same(&what, &bench.next(&session).await?, should)?;
        same("the inbox", bench.pending(&session).await?, vec![id])?;
    }
    Ok(())
}

async fn wakes(bench: &Bench) -> Checked {
    for waits in [Next::Idle, Next::Held, Next::Runnable] {
        admits_to(bench, &waits, &Next::Runnable, |input| input).await?;
    }
    Ok(())
}

async fn later(bench: &Bench) -> Checked {
    for waits in [Next::Idle, Next::Held, Next::Runnable] {
        admits_to(bench, &waits, &waits, NewInput::without_waking).await?;
    }
    Ok(())
}

async fn input_while_waiting(bench: &Bench) -> Checked {
    let waits = Next::Waiting(vec![call(0)]);
    admits_to(bench, &waits, &waits, |input| input).await
}

async fn input_while_backing_off(bench: &Bench) -> Checked {
    let waits = Next::At(bench.now().plus(Duration::from_secs(60)));
    admits_to(bench, &waits, &waits, |input| input).await
}

async fn admit_answer(bench: &Bench) -> Checked {
    let session = bench.waiting_for("s", Next::Waiting(vec![call(1), call(2)])).await?;
    let id = admit(bench, &session, bench.input(answer(2)?)).await?;
    same("what it waits for", bench.next(&session).await?, Next::Runnable)?;
    same("the inbox", bench.pending(&session).await?, vec![id])
}

async fn answer_to_other_call(bench: &Bench) -> Checked {
    let waits = [Next::Waiting(vec![call(1), call(2)]), Next::Idle, Next::Held, Next::At(bench.now())];
    for (next, place) in waits.into_iter().zip(0..) {
        let session = bench.waiting_for(&format!("s{place}"), next.clone()).await?;
        let id = admit(bench, &session, bench.input(answer(3)?)).await?;
        same("what it waits for", bench.next(&session).await?, next)?;
        same("the inbox", bench.pending(&session).await?, vec![id])?;
    }
    Ok(())
}

async fn admit_interrupt(bench: &Bench) -> Checked {
    let waits = [Next::Runnable, Next::At(bench.now().plus(Duration::from_secs(60))), Next::Waiting(vec![call(0)])];
    for (next, place) in waits.into_iter().zip(0..) {
        let session = bench.waiting_for(&format!("s{place}"), next).await?;
        let id = admit(bench, &session, bench.input(interrupt(EXECUTION))).await?;
        let state = bench.there().info(&session).await?.state;
        same("the state", (state.next, state.execution), (Next::Runnable, Some(EXECUTION)))?;
        same("the inbox", bench.pending(&session).await?, vec![id])?;
    }
    Ok(())
}

async fn interrupt_other_execution(bench: &Bench) -> Checked {
    let session = bench.waiting_for("s", Next::Waiting(vec![call(0)])).await?;
    let other = bench.input(interrupt(ExecutionId::from_u128(0xf)));
    same("the answer", bench.there().admit(&session, other).await, Ok(Admitted::Dropped))
}

async fn interrupt_at_rest(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    for next in [Next::Idle, Next::Held] {
        let mut batch = bench.batch(0);
        batch.state = Some(at_rest(next));
        owned.head = owned.append(batch).await?;
        let input = bench.input(interrupt(EXECUTION));
        same("the answer", bench.there().admit(&owned.session, input).await, Ok(Admitted::Dropped))?;
    }
    Ok(())
}

async fn dropped_leaves_nothing(bench: &Bench) -> Checked {
    let waits = Next::Waiting(vec![call(0)]);
    let session = bench.waiting_for("s", waits.clone()).await?;
    let other = bench.input(interrupt(ExecutionId::from_u128(0xf))).key("k".to_owned());
    bench.there().admit(&session, other).await?;
    same("the inbox", bench.pending(&session).await?, Vec::new())?;
    same("what it waits for", bench.next(&session).await?, waits)?;
    let input = bench.prompt("x").key("k".to_owned());
    let id = input.id;
    let admitted = bench.there().admit(&session, input).await;
    same("the answer to another input of its key", admitted, Ok(Admitted::New(id, Arrival::new(1))))
}

async fn rest_of_state(bench: &Bench) -> Checked {
    let mut owned = bench.owned("s").await?;
    let state = SessionState::new(Next::Waiting(vec![call(0)]), Some(EXECUTION)).handed_over();
    let mut batch = bench.batch(0);
    batch.state = Some(state.clone());
    owned.head = owned.append(batch).await?;
    admit(bench, &owned.session, bench.input(answer(0)?)).await?;
    let mut should = state;
    should.next = Next::Runnable;
    same("the state", bench.there().info(&owned.session).await?.state, should)
}

async fn admit_no_session(bench: &Bench) -> Checked {
    let session = SessionId::new("nobody")?;
    match bench.there().admit(&session, bench.prompt("x")).await {
        Err(AdmitError::Store(error)) => same("the kind", error.kind, StoreErrorKind::NotFound),
        answer => same("the answer", format!("{answer:?}"), "not found".to_owned()),
    }
}

async fn cancel_pending(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    let mut ids = Vec::new();
    for kind in ordinary() {
        ids.push(admit(bench, &session, bench.input(kind)).await?);
    }
    let gone = ids.remove(2);
    same("the answer", bench.there().cancel(&session, gone).await, Ok(true))?;
    same("the inbox", bench.pending(&session).await?, ids)
}

async fn cancel_gone(bench: &Bench) -> Checked {
    let owned = bench.owned("s").await?;
    let other = bench.created("other").await?;
    let taken = admit(bench, &owned.session, bench.prompt("taken")).await?;
    let cancelled = admit(bench, &owned.session, bench.prompt("cancelled")).await?;
    let stays = admit(bench, &owned.session, bench.prompt("stays")).await?;
    let elsewhere = admit(bench, &other, bench.prompt("elsewhere")).await?;
    let mut batch = bench.batch(0);
    batch.taken = vec![taken];
    owned.append(batch).await?;
    bench.there().cancel(&owned.session, cancelled).await?;
    for input in [taken, cancelled, elsewhere, InputId::from_u128(u128::MAX)] {
        same("the answer", bench.there().cancel(&owned.session, input).await, Ok(false))?;
    }
    same("the inbox", bench.pending(&owned.session).await?, vec![stays])?;
    same("the other inbox", bench.pending(&other).await?, vec![elsewhere])
}

async fn cancel_no_session(bench: &Bench) -> Checked {
    let cancelled = bench.there().cancel(&SessionId::new("nobody")?, InputId::from_u128(1)).await;
    fails("cancel", cancelled, StoreErrorKind::NotFound)
}

async fn change_delivery(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    let before = bench.prompt("before");
    let prompted = bench.prompt("x").key("k".to_owned());
    let noticed = bench.input(NewInputKind::Notice(Notice::new("n", Delivery::Queue)));
    let mut should = Vec::new();
    for (input, place) in [before, prompted, noticed].into_iter().zip(1..) {
        should.push(InboxItem::new(input.clone(), Arrival::new(place)));
        admit(bench, &session, input).await?;
    }
    for item in &mut should[1..] {
        same("the answer", bench.there().change(&session, item.id, Delivery::Steer).await, Ok(true))?;
        match &mut item.input {
            NewInputKind::Prompt(prompt) => prompt.delivery = Delivery::Steer,
            NewInputKind::Notice(notice) => notice.delivery = Delivery::Steer,
            _ => {}
        }
    }
    same("what is pending", bench.here().pending(&session).await?, should)
}

async fn change_others(bench: &Bench) -> Checked {
    let session = bench.waiting_for("s", Next::Waiting(vec![call(0)])).await?;
    let others = [NewInputKind::Compact, NewInputKind::Switch(Switch::agent("plan")), answer(1)?, interrupt(EXECUTION)];
    let mut ids = vec![InputId::from_u128(u128::MAX)];
    for other in others {
        ids.push(admit(bench, &session, bench.input(other)).await?);
    }
    let before = bench.there().pending(&session).await?;
    let gone = admit(bench, &session, bench.prompt("x")).await?;
    bench.there().cancel(&session, gone).await?;
    ids.push(gone);
    for id in ids {
        same("the answer", bench.there().change(&session, id, Delivery::Steer).await, Ok(false))?;
    }
    same("what is pending", bench.there().pending(&session).await?, before)
}

async fn change_no_session(bench: &Bench) -> Checked {
    let session = SessionId::new("nobody")?;
    let changed = bench.there().change(&session, InputId::from_u128(1), Delivery::Steer).await;
    fails("change", changed, StoreErrorKind::NotFound)
}

async fn pending_no_session(bench: &Bench) -> Checked {
    let pending = bench.there().pending(&SessionId::new("nobody")?).await;
    fails("pending", pending, StoreErrorKind::NotFound)
}

/// Listens until a session was heard of.
async fn hears(hints: &mut settled_ledger::store::HintStream, session: &SessionId) -> Checked {
    while next(hints).await? != *session {}
    Ok(())
}

async fn hints_admit(bench: &Bench) -> Checked {
    let (one, two) = (bench.created("one").await?, bench.created("two").await?);
    let mut hints = bench.here().hints();
    for session in [&one, &two, &one] {
        admit(bench, session, bench.prompt("x")).await?;
        hears(&mut hints, session).await?;
    }
    Ok(())
}

async fn hints_listeners(bench: &Bench) -> Checked {
    let session = bench.created("s").await?;
    let deaf = bench.here().hints();
    let mut listeners = [bench.here().hints(), bench.there().hints(), bench.here().hints()];
    for _ in 0..3 {
        admit(bench, &session, bench.prompt("x")).await?;
        for hints in &mut listeners {
            hears(hints, &session).await?;
        }
    }
    drop(deaf);
    Ok(())
}
