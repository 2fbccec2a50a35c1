//! Cases of the replay class: what a tool says about running again is true.

use std::sync::Arc;

use serde_json::Value;
use settled_tools_api::{Reconciled, ReplayClass, ToolCall};

use super::bench::{Bench, Checked, Details, End, Host, Notes, all, broken, reconciled, same, shown};
use super::named_cases;

named_cases! {
    "effect.seen", "A sample of a tool that acts changes the world: else the cases below see nothing." => seen;
    "pure.acts_not", "A pure tool changes nothing." => pure;
    "idempotent.twice", "Running twice under one effect key does what running once does, and succeeds." => twice;
    "idempotent.at_once", "Running at once under one effect key does what running once does." => at_once;
    "idempotent.cut", "Running again after a run that was dropped, at whatever await, does what running once does." => idempotent_cut;
    "reconcile.before", "Before a call has run, its reconciler does not say that it happened." => before;
    "reconcile.happened", "After a call has run, its reconciler says that it happened." => happened;
    "reconcile.answer", "The result that the reconciler gives is the one that the run gave." => answer;
    "reconcile.acts_not", "A reconciler changes nothing." => reconcile_acts_not;
    "reconcile.other_call", "Of a call that has not run it does not say so because another one has." => other_call;
    "reconcile.cut", "Of a run that was dropped, at whatever await, it says what is true." => reconcile_cut;
    "reconcile.again", "A call that did not happen can be run again, and does what running once does." => again;
    "notes.lost", "A run that cannot leave its note stops without acting." => lost;
}

/// The inputs that succeed, of the tools of a replay class.
async fn of_class(
    bench: &Bench<'_>,
    lacking: &str,
    class: impl Fn(ReplayClass) -> bool,
) -> Result<Vec<(String, Value)>, Details> {
    let pick = |input: Option<&Value>, replay: ReplayClass| input.filter(|_| class(replay)).cloned();
    bench.samples(lacking, |sample, definition| pick(sample.working_input(), definition.replay.class())).await
}

async fn idempotent(bench: &Bench<'_>) -> Result<Vec<(String, Value)>, Details> {
    of_class(bench, "no tool is idempotent", |class| matches!(class, ReplayClass::Idempotent { .. })).await
}

async fn reconcilable(bench: &Bench<'_>) -> Result<Vec<(String, Value)>, Details> {
    of_class(bench, "no tool has a reconciler", |class| class == ReplayClass::Reconcile).await
}

/// The world after one undisturbed run.
async fn after_one(bench: &Bench<'_>, tool: &str, input: &Value) -> Result<Value, Details> {
    let subject = bench.open().await?;
    subject.run(tool, input, &Host::new(0)).await.output(tool)?;
    subject.look()
}

async fn seen(bench: &Bench<'_>) -> Checked {
    let acts = |class| matches!(class, ReplayClass::Idempotent { .. } | ReplayClass::Reconcile);
    for (tool, input) in of_class(bench, "no tool says that it acts and may run again", acts).await? {
        let subject = bench.open().await?;
        let before = subject.look()?;
        subject.run(&tool, &input, &Host::new(0)).await.output(&tool)?;
        if subject.look()? == before {
            return broken(format!("`{tool}` with {} has changed nothing that can be seen", shown(&input)));
        }
    }
    Ok(())
}

async fn pure(bench: &Bench<'_>) -> Checked {
    for (tool, input) in of_class(bench, "no tool is pure", |class| class == ReplayClass::Pure).await? {
        let subject = bench.open().await?;
        let before = subject.look()?;
        subject.run(&tool, &input, &Host::new(0)).await.output(&tool)?;
        same(&format!("the world after `{tool}`"), subject.look()?, before)?;
    }
    Ok(())
}

async fn twice(bench: &Bench<'_>) -> Checked {
    for (tool, input) in idempotent(bench).await? {
        let should = after_one(bench, &tool, &input).await?;
        let subject = bench.open().await?;
        for _ in 0..3 {
            subject.run(&tool, &input, &Host::new(0)).await.output(&tool)?;
        }
        same(&format!("the world after `{tool}` ran again under its effect key"), subject.look()?, should)?;
    }
    Ok(())
}

async fn at_once(bench: &Bench<'_>) -> Checked {
    for (tool, input) in idempotent(bench).await? {
        let should = after_one(bench, &tool, &input).await?;
        let subject = bench.open().await?;
        let hosts = [Host::new(0), Host::new(0), Host::new(0)];
        let _ends = all(hosts.iter().map(|host| Box::pin(subject.run(&tool, &input, host)) as _).collect()).await;
        same(&format!("the world after `{tool}` ran at once under one effect key"), subject.look()?, should)?;
    }
    Ok(())
}

async fn idempotent_cut(bench: &Bench<'_>) -> Checked {
    for (tool, input) in idempotent(bench).await? {
        let should = after_one(bench, &tool, &input).await?;
        for poll in 1.. {
            let subject = bench.open().await?;
            let host = Host::new(0);
            let end = subject.cut(&tool, &input, &host, poll).await;
            bench.calm(&subject).await?;
            subject.run(&tool, &input, &host.again()).await.output(&tool)?;
            let what = format!("the world after `{tool}` was dropped at its await number {poll} and ran again");
            same(&what, subject.look()?, should.clone())?;
            if end != End::Dropped {
                break;
            }
        }
    }
    Ok(())
}

async fn before(bench: &Bench<'_>) -> Checked {
    for (tool, input) in reconcilable(bench).await? {
        let subject = bench.open().await?;
        let said = reconciled(&*subject.reconciler(&tool)?, &tool, &input, &Host::new(0)).await?;
        if let Reconciled::Happened(_) = said {
            return broken(format!("`{tool}` has not run, and its reconciler says {}", shown(&said)));
        }
    }
    Ok(())
}

/// Runs every call that can be reconciled to its end, and asks what became of it.
async fn asked_after(bench: &Bench<'_>) -> Result<Vec<(String, settled_tools_api::ToolOutput, Reconciled)>, Details> {
    let mut said = Vec::new();
    for (tool, input) in reconcilable(bench).await? {
        let subject = bench.open().await?;
        let host = Host::new(0);
        let output = subject.run(&tool, &input, &host).await.output(&tool)?;
        let found = reconciled(&*subject.reconciler(&tool)?, &tool, &input, &host.again()).await?;
        said.push((tool, output, found));
    }
    Ok(said)
}

async fn happened(bench: &Bench<'_>) -> Checked {
    for (tool, _, said) in asked_after(bench).await? {
        if !matches!(said, Reconciled::Happened(_)) {
            return broken(format!("`{tool}` has run to its end, and its reconciler says {}", shown(&said)));
        }
    }
    Ok(())
}

async fn answer(bench: &Bench<'_>) -> Checked {
    for (tool, output, said) in asked_after(bench).await? {
        if let Reconciled::Happened(found) = said {
            same(&format!("the result of `{tool}`, reconciled"), found.content, output.content)?;
        }
    }
    Ok(())
}

async fn reconcile_acts_not(bench: &Bench<'_>) -> Checked {
    for (tool, input) in reconcilable(bench).await? {
        let subject = bench.open().await?;
        let reconciler = subject.reconciler(&tool)?;
        let host = Host::new(0);
        let untouched = subject.look()?;
        reconciled(&*reconciler, &tool, &input, &host).await?;
        same(&format!("the world after the reconciler of `{tool}` was asked"), subject.look()?, untouched)?;
        subject.run(&tool, &input, &host).await.output(&tool)?;
        let after = subject.look()?;
        reconciled(&*reconciler, &tool, &input, &host.again()).await?;
        same(&format!("the world after the reconciler of `{tool}` was asked again"), subject.look()?, after)?;
    }
    Ok(())
}

async fn other_call(bench: &Bench<'_>) -> Checked {
    for (tool, input) in reconcilable(bench).await? {
        let subject = bench.open().await?;
        subject.run(&tool, &input, &Host::new(0)).await.output(&tool)?;
        let said = reconciled(&*subject.reconciler(&tool)?, &tool, &input, &Host::new(1)).await?;
        if let Reconciled::Happened(_) = said {
            return broken(format!("another call of `{tool}` has run, and the reconciler says {}", shown(&said)));
        }
    }
    Ok(())
}

/// What is left of a run that was dropped: the subject, the notes, and what the reconciler says.
async fn cut_everywhere<F>(bench: &Bench<'_>, look: impl Fn(Cut) -> F + Send) -> Checked
where
    F: Future<Output = Checked> + Send,
{
    for (tool, input) in reconcilable(bench).await? {
        let done = after_one(bench, &tool, &input).await?;
        for poll in 1.. {
            let subject = bench.open().await?;
            let before = subject.look()?;
            let host = Host::new(0);
            let end = subject.cut(&tool, &input, &host, poll).await;
            bench.calm(&subject).await?;
            if end != End::Dropped {
                break;
            }
            let host = host.again();
            let said = reconciled(&*subject.reconciler(&tool)?, &tool, &input, &host).await?;
            let (tool, input, done) = (tool.clone(), input.clone(), done.clone());
            look(Cut { subject, host, said, before, done, tool, input, poll }).await?;
        }
    }
    Ok(())
}

struct Cut {
    subject: super::bench::Subject,
    host: Arc<Host>,
    said: Reconciled,
    before: Value,
    done: Value,
    tool: String,
    input: Value,
    poll: usize,
}

async fn reconcile_cut(bench: &Bench<'_>) -> Checked {
    cut_everywhere(bench, |cut| async move {
        let Cut { subject, said, before, done, tool, poll, .. } = cut;
        let should = match said {
            Reconciled::Happened(_) => done,
            Reconciled::DidNot => before,
            Reconciled::StillRunning | Reconciled::CannotTell => return Ok(()),
        };
        let what = format!(
            "the world after `{tool}` was dropped at its await number {poll}, of which is said {}",
            shown(&said)
        );
        same(&what, subject.look()?, should)
    })
    .await
}

async fn again(bench: &Bench<'_>) -> Checked {
    cut_everywhere(bench, |cut| async move {
        if cut.said != Reconciled::DidNot {
            return Ok(());
        }
        let call = ToolCall::new(&*cut.tool, cut.input.clone());
        cut.subject.run_call(call, &cut.host).await.output(&cut.tool)?;
        let what = format!("the world after `{}` was dropped at its await number {} and ran again", cut.tool, cut.poll);
        same(&what, cut.subject.look()?, cut.done)
    })
    .await
}

async fn lost(bench: &Bench<'_>) -> Checked {
    let mut some = false;
    for (tool, input) in of_class(bench, "no sample succeeds", |_| true).await? {
        let subject = bench.open().await?;
        let host = Host::new(0);
        subject.run(&tool, &input, &host).await.output(&tool)?;
        if host.notes_left().is_empty() {
            continue;
        }
        some = true;
        let subject = bench.open().await?;
        let before = subject.look()?;
        let end = subject.run(&tool, &input, &Arc::new(Host::of(0).notes(Notes::Lost))).await;
        if let End::Returned(_) | End::Panicked(_) = end {
            return broken(format!("`{tool}` could not leave its note, and ended with {}", shown(&end)));
        }
        same(&format!("the world after `{tool}` could not leave its note"), subject.look()?, before)?;
    }
    if some { Ok(()) } else { super::bench::skipped("no run leaves a note") }
}
