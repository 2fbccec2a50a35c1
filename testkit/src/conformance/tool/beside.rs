//! Cases of runs beside each other: in one session, and in many.

use serde_json::Value;

use super::bench::{Bench, Checked, Details, End, Host, all, broken, same};
use super::named_cases;

named_cases! {
    "beside.answers", "Two runs at once each answer what they answer alone." => answers;
    "beside.effects", "Two runs at once do what they do one after another." => effects;
    "beside.cancel", "The cancel of one run stops no other." => cancel;
    "beside.drop", "Dropping one run stops no other." => dropping;
}

/// The pairs of inputs that have nothing to do with each other.
async fn pairs(bench: &Bench<'_>) -> Result<Vec<(String, (Value, Value))>, Details> {
    bench.samples("no sample has two inputs apart", |sample, _| sample.apart.clone()).await
}

async fn answers(bench: &Bench<'_>) -> Checked {
    for (tool, (one, other)) in pairs(bench).await? {
        let mut alone = Vec::new();
        for (input, key) in [(&one, 0), (&other, 1)] {
            let subject = bench.open().await?;
            alone.push(subject.run(&tool, input, &Host::new(key)).await.output(&tool)?);
        }
        if alone[0] == alone[1] {
            return broken(format!(
                "the inputs of `{tool}` that are apart answer the same: nothing can be seen by them"
            ));
        }
        let subject = bench.open().await?;
        let (first, second) = (Host::new(0), Host::new(1));
        let ends =
            all(vec![Box::pin(subject.run(&tool, &one, &first)), Box::pin(subject.run(&tool, &other, &second))]).await;
        let together: Result<Vec<_>, _> = ends.into_iter().map(|end| end.output(&tool)).collect();
        same(&format!("the answers of `{tool}` at once"), together?, alone)?;
    }
    Ok(())
}

async fn effects(bench: &Bench<'_>) -> Checked {
    for (tool, (one, other)) in pairs(bench).await? {
        let subject = bench.open().await?;
        for (input, key) in [(&one, 0), (&other, 1)] {
            subject.run(&tool, input, &Host::new(key)).await.output(&tool)?;
        }
        let should = subject.look()?;
        let subject = bench.open().await?;
        let (first, second) = (Host::new(0), Host::new(1));
        let _ends =
            all(vec![Box::pin(subject.run(&tool, &one, &first)), Box::pin(subject.run(&tool, &other, &second))]).await;
        same(&format!("the world after two runs of `{tool}` at once"), subject.look()?, should)?;
    }
    Ok(())
}

/// A long run is stopped beside every run that succeeds, which must answer as it does alone.
async fn stopped_beside(bench: &Bench<'_>, stop: impl Fn(&Host, &mut Option<Run<'_>>) + Send) -> Checked {
    let long = bench.samples("no sample runs long", |sample, _| sample.long.clone()).await?;
    let short = bench.samples("no sample succeeds", |sample, _| sample.working_input().cloned()).await?;
    for (tool, input) in long {
        for (other, other_input) in &short {
            let subject = bench.open().await?;
            let should = subject.run(other, other_input, &Host::new(1)).await.output(other)?;
            let subject = bench.open().await?;
            let (stopped, kept) = (Host::new(0), Host::new(1));
            let mut run: Run<'_> = Box::pin(subject.run(&tool, &input, &stopped));
            subject.started(&mut run, &stopped).await?;
            // The other has begun when the long one is stopped, and goes on beside its end.
            let mut beside: Run<'_> = Box::pin(subject.run(other, other_input, &kept));
            let first = poll_once(&mut beside).await;
            let mut run = Some(run);
            stop(&stopped, &mut run);
            let (end, _) = match (first, run) {
                (Some(end), _) => (end, None),
                (None, None) => (beside.await, None),
                (None, Some(run)) => both(beside, run).await,
            };
            let seen = end.output(&format!("`{other}` beside `{tool}`"))?;
            same(&format!("what `{other}` answers while `{tool}` is stopped"), seen, should)?;
        }
    }
    Ok(())
}

type Run<'a> = std::pin::Pin<Box<dyn Future<Output = End> + Send + 'a>>;

async fn poll_once(run: &mut Run<'_>) -> Option<End> {
    std::future::poll_fn(|cx| match run.as_mut().poll(cx) {
        std::task::Poll::Ready(end) => std::task::Poll::Ready(Some(end)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

/// Waits for the first run, and polls the second as long.
async fn both(mut one: Run<'_>, mut other: Run<'_>) -> (End, Option<End>) {
    let mut ended = None;
    let end = std::future::poll_fn(|cx| {
        if ended.is_none()
            && let std::task::Poll::Ready(end) = other.as_mut().poll(cx)
        {
            ended = Some(end);
        }
        one.as_mut().poll(cx)
    })
    .await;
    (end, ended)
}

async fn cancel(bench: &Bench<'_>) -> Checked {
    stopped_beside(bench, |host, _| host.cancel.cancel()).await
}

async fn dropping(bench: &Bench<'_>) -> Checked {
    stopped_beside(bench, |_, run| drop(run.take())).await
}
