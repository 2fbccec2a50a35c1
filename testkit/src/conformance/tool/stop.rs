//! Cases of how a run is stopped, and what it shows before.

use std::sync::Arc;

use serde_json::Value;

use super::bench::{Bench, Checked, Details, End, Host, MOMENT, Subject, broken, same};
use super::{Sample, named_cases};

named_cases! {
    "cancel.stops", "A cancel ends a long run within the grace." => stops;
    "cancel.before", "A run that is cancelled before it begins ends within the grace." => before;
    "cancel.leaves_nothing", "When a cancelled run has ended, nothing of it is at work." => leaves_nothing;
    "cancel.quiet", "When a cancelled run has ended, the world does not change any more." => quiet;
    "cancel.goes_on", "After a cancelled run the tools take calls as before." => cancel_goes_on;
    "drop.leaves_nothing", "Of a run that is dropped nothing is at work after the grace." => drop_leaves_nothing;
    "drop.quiet", "Of a run that is dropped nothing changes the world after the grace." => drop_quiet;
    "drop.goes_on", "After a run was dropped, at whatever await, the tools take calls as before." => drop_goes_on;
    "progress.shown", "What is to show progress shows some before it ends." => shown_before;
    "progress.not_after", "After a run has ended no progress comes." => not_after;
}

/// At how many of a run's awaits it is dropped, where it does not end by itself.
const POLLS: usize = 8;

/// The inputs whose runs do not end by themselves.
async fn long(bench: &Bench<'_>) -> Result<Vec<(String, Value)>, Details> {
    bench.samples("no sample runs long", |sample, _| sample.long.clone()).await
}

/// The inputs whose runs succeed.
async fn short(bench: &Bench<'_>) -> Result<Vec<(String, Value)>, Details> {
    bench.samples("no sample succeeds", |sample, _| sample.working_input().cloned()).await
}

/// Begins a long run, cancels it, and waits for its end.
async fn cancelled(bench: &Bench<'_>, subject: &Subject, tool: &str, input: &Value, host: &Arc<Host>) -> Checked {
    let mut run = Box::pin(subject.run(tool, input, host));
    subject.started(&mut run, host).await?;
    host.cancel.cancel();
    ends(bench, tool, run).await
}

/// Waits for the end of a run whose cancel has come.
async fn ends(bench: &Bench<'_>, tool: &str, run: impl Future<Output = End>) -> Checked {
    match tokio::time::timeout(bench.grace(), run).await {
        Ok(end) => end.no_panic(&format!("`{tool}` cancelled")),
        Err(_) => broken(format!("`{tool}` goes on for longer than the grace after its cancel")),
    }
}

async fn stops(bench: &Bench<'_>) -> Checked {
    for (tool, input) in long(bench).await? {
        let subject = bench.open().await?;
        cancelled(bench, &subject, &tool, &input, &Host::new(0)).await?;
    }
    Ok(())
}

async fn before(bench: &Bench<'_>) -> Checked {
    for (tool, input) in long(bench).await? {
        let subject = bench.open().await?;
        let host = Host::new(0);
        host.cancel.cancel();
        ends(bench, &tool, subject.run(&tool, &input, &host)).await?;
    }
    Ok(())
}

async fn leaves_nothing(bench: &Bench<'_>) -> Checked {
    for (tool, input) in long(bench).await? {
        let subject = bench.open().await?;
        cancelled(bench, &subject, &tool, &input, &Host::new(0)).await?;
        bench.calm(&subject).await?;
    }
    Ok(())
}

/// Holds the world still for a while.
async fn still(subject: &Subject, what: &str) -> Checked {
    let then = subject.look()?;
    for _ in 0..5 {
        tokio::time::sleep(MOMENT).await;
        same(what, subject.look()?, then.clone())?;
    }
    Ok(())
}

async fn quiet(bench: &Bench<'_>) -> Checked {
    for (tool, input) in long(bench).await? {
        let subject = bench.open().await?;
        cancelled(bench, &subject, &tool, &input, &Host::new(0)).await?;
        still(&subject, &format!("the world after `{tool}` was cancelled")).await?;
    }
    Ok(())
}

/// Holds every tool of a subject to its taking calls.
async fn takes_calls(bench: &Bench<'_>, subject: &Subject, tool: &str, input: &Value, after: &str) -> Checked {
    let what = format!("`{tool}` after a run was {after}");
    match tokio::time::timeout(bench.grace(), subject.run(tool, input, &Host::new(9))).await {
        Ok(end) => end.output(&what).map(|_| ()),
        Err(_) => broken(format!("{what}: it hangs")),
    }
}

async fn cancel_goes_on(bench: &Bench<'_>) -> Checked {
    for (tool, input) in long(bench).await? {
        let subject = bench.open().await?;
        cancelled(bench, &subject, &tool, &input, &Host::new(0)).await?;
        for (tool, input) in short(bench).await? {
            takes_calls(bench, &subject, &tool, &input, "cancelled").await?;
        }
    }
    Ok(())
}

async fn drop_leaves_nothing(bench: &Bench<'_>) -> Checked {
    for (tool, input) in long(bench).await? {
        let subject = bench.open().await?;
        let host = Host::new(0);
        let mut run = Box::pin(subject.run(&tool, &input, &host));
        subject.started(&mut run, &host).await?;
        drop(run);
        bench.calm(&subject).await?;
    }
    Ok(())
}

async fn drop_quiet(bench: &Bench<'_>) -> Checked {
    let pick = |sample: &Sample| [sample.working_input().cloned(), sample.long.clone()].into_iter().flatten().collect();
    let picked = bench.samples("there is no sample", |sample, _| Some(pick(sample))).await?;
    let inputs = picked
        .into_iter()
        .flat_map(|(tool, inputs): (_, Vec<_>)| inputs.into_iter().map(move |input| (tool.clone(), input)));
    for (tool, input) in inputs {
        for poll in 1..=POLLS {
            let subject = bench.open().await?;
            let host = Host::new(0);
            // A long run may not come to this await: it is dropped where it is.
            let cut = tokio::time::timeout(MOMENT * 5, subject.cut(&tool, &input, &host, poll)).await;
            bench.calm(&subject).await?;
            still(&subject, &format!("the world after `{tool}` was dropped at its await number {poll}")).await?;
            if cut != Ok(End::Dropped) {
                break;
            }
        }
    }
    Ok(())
}

async fn drop_goes_on(bench: &Bench<'_>) -> Checked {
    for (tool, input) in short(bench).await? {
        for poll in 1.. {
            let subject = bench.open().await?;
            let end = subject.cut(&tool, &input, &Host::new(0), poll).await;
            if end != End::Dropped {
                break;
            }
            bench.calm(&subject).await?;
            for (other, input) in short(bench).await?.into_iter().filter(|(other, _)| *other != tool) {
                takes_calls(bench, &subject, &other, &input, &format!("dropped at its await number {poll}")).await?;
            }
        }
    }
    Ok(())
}

async fn shown_before(bench: &Bench<'_>) -> Checked {
    for (tool, input) in bench.samples("no sample shows progress", |sample, _| sample.shows.clone()).await? {
        let subject = bench.open().await?;
        let host = Host::new(0);
        subject.run(&tool, &input, &host).await.no_panic(&tool)?;
        if host.progress_shown().is_empty() {
            return broken(format!("`{tool}` has ended without a sign of progress"));
        }
    }
    Ok(())
}

async fn not_after(bench: &Bench<'_>) -> Checked {
    let pick = |sample: &Sample| sample.shows.clone().or_else(|| sample.long.clone());
    for (tool, input) in bench.samples("no sample shows progress or runs long", |sample, _| pick(sample)).await? {
        let subject = bench.open().await?;
        let (stopped, ended) = (Host::new(0), Host::new(1));
        let mut run = Box::pin(subject.run(&tool, &input, &stopped));
        // A run that only shows progress may have ended by now: that is an end like any other.
        let _under_way_or_over = subject.started(&mut run, &stopped).await;
        stopped.cancel.cancel();
        drop(run);
        let shown = stopped.progress_shown().len();
        ended.cancel.cancel();
        ends(bench, &tool, subject.run(&tool, &input, &ended)).await?;
        tokio::time::sleep(MOMENT * 5).await;
        let late = ended.progress_too_late() + stopped.progress_shown().len() - shown;
        if late > 0 {
            return broken(format!("`{tool}` showed progress {late} times after its run had ended"));
        }
    }
    Ok(())
}
