//! Cases of what goes wrong: refusals, cuts, noise, silence, cancels; and that nothing is tried again.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use settled_provider_api::{ErrorClass, ProviderError, ProviderEvent};

use super::bench::{
    Answer, Bench, Checked, Details, ask, broken, closed, next, request, same, shown, skipped, stream, until_text,
};
use super::named_cases;
use crate::{Script, script};

named_cases! {
    "error.class", "The class of a refusal is told." => class;
    "error.message", "What the provider says of a failure is in its message." => message;
    "error.retry_after", "How long the provider asks to wait is told." => retry_after;
    "error.in_stream", "A failure inside the stream is told with its class, and nothing finishes behind it." => in_stream;
    "error.transport", "A connection that breaks before the answer is a failure of the transport." => transport;
    "cut.told", "A connection that breaks in the answer fails it, with what came before delivered, and nothing finishes." => cut;
    "noise.told", "What does not decode fails the answer, and is never skipped." => noise;
    "error.last", "Behind an error the stream ends." => last;
    "attempt.one", "An answer is one request." => one_request;
    "attempt.no_retry", "Whatever fails is not tried again." => no_retry;
    "attempt.lazy", "The provider sends nothing before it is asked." => lazy;
    "silence.patient", "However long nothing comes, it is not the adapter that ends it." => patient;
    "drop.stream", "Dropping the stream closes its connection." => drop_stream;
    "drop.opening", "Dropping the future that opens the stream, at whatever await, closes its connection." => drop_opening;
    "drop.goes_on", "After a stream was dropped the provider answers as before." => goes_on;
    "secret.hidden", "No key is in an error, even where the provider repeats it." => hidden;
    "secret.placed", "The key is neither in the body nor in the address of a request." => placed;
}

/// The case that lets an hour pass.
pub(super) const SILENCE: &str = "silence.patient";

fn refused(error: ProviderError) -> Script {
    script().fail(error)
}

async fn failure(bench: &Bench<'_>, script: Script) -> Result<ProviderError, Details> {
    let subject = bench.open(script).await?;
    let answer = ask(&subject, request(&subject.model)).await;
    error_of(answer)
}

/// How an answer failed, at its end or inside.
fn error_of(answer: Answer) -> Result<ProviderError, Details> {
    let inside = answer.events.iter().find_map(|event| match event {
        ProviderEvent::Error(error) => Some(error.clone()),
        _ => None,
    });
    match inside.or(answer.error) {
        Some(error) => Ok(error),
        None => broken(format!("it should have failed, and gave {}", shown(&answer.events))),
    }
}

async fn class(bench: &Bench<'_>) -> Checked {
    for class in bench.abilities().refusals {
        same("the class", failure(bench, refused(ProviderError::new(class, ""))).await?.class, class)?;
    }
    Ok(())
}

async fn message(bench: &Bench<'_>) -> Checked {
    let words = "The moon is in the seventh house";
    let error = failure(bench, refused(ProviderError::new(ErrorClass::InvalidRequest, words))).await?;
    match error.message.contains(words) {
        true => Ok(()),
        false => broken(format!("the message is `{}`, and the provider said `{words}`", error.message)),
    }
}

async fn retry_after(bench: &Bench<'_>) -> Checked {
    let limited = ProviderError::new(ErrorClass::RateLimit, "").retry_after(Duration::from_secs(20));
    let error = failure(bench, refused(limited)).await?;
    same("the time to wait", error.retry.after_ms, Some(20_000))?;
    let error = failure(bench, refused(ProviderError::new(ErrorClass::RateLimit, ""))).await?;
    same("the time to wait where none was said", error.retry.after_ms, None)
}

async fn in_stream(bench: &Bench<'_>) -> Checked {
    let Some(class) = bench.abilities().error_in_stream else {
        return skipped("the wire has no errors inside the stream");
    };
    let answer = bench.answer(|s| s.text("So far.").error(ProviderError::new(class, ""))).await?;
    same("the text before", answer.text(), "So far.".to_owned())?;
    same("how often it finished", answer.finishes().len(), 0)?;
    same("the class", error_of(answer)?.class, class)
}

async fn transport(bench: &Bench<'_>) -> Checked {
    let error = failure(bench, refused(ProviderError::new(ErrorClass::Transport, ""))).await?;
    same("the class", error.class, ErrorClass::Transport)
}

fn broke() -> ProviderError {
    ProviderError::new(ErrorClass::Transport, "")
}

async fn cut(bench: &Bench<'_>) -> Checked {
    let answer = bench.answer(|s| s.text_start("t").text_delta("t", "So far").throw(broke())).await?;
    same("the text before", answer.text(), "So far".to_owned())?;
    same("how often it finished", answer.finishes().len(), 0)?;
    match answer.error {
        Some(error) if matches!(error.class, ErrorClass::Transport | ErrorClass::IncompleteStream) => Ok(()),
        other => broken(format!("the stream should end with the cut, and ended with {}", shown(&other))),
    }
}

async fn noise(bench: &Bench<'_>) -> Checked {
    let subject = bench.open_noisy(script().step(|s| s.text("Hi.").text("Ho.").finish())).await?;
    let answer = ask(&subject, request(&subject.model)).await;
    same("how often it finished", answer.finishes().len(), 0)?;
    same("the class", error_of(answer)?.class, ErrorClass::InvalidOutput)
}

async fn last(bench: &Bench<'_>) -> Checked {
    let subject = bench.open(script().step(|s| s.text("So far.").throw(broke()))).await?;
    let mut stream = stream(&subject).await?;
    while let Some(item) = next(&mut stream).await {
        if item.is_err() {
            let after = next(&mut stream).await;
            return same("what comes behind the error", after, None);
        }
    }
    broken("the stream has ended without an error")
}

async fn one_request(bench: &Bench<'_>) -> Checked {
    let subject = bench.open(script().step(|s| s.text("Hi.").finish())).await?;
    ask(&subject, request(&subject.model)).await.whole()?;
    same("how many requests", subject.far.sent().len(), 1)
}

async fn no_retry(bench: &Bench<'_>) -> Checked {
    let refusals = bench.abilities().refusals.into_iter().map(|class| refused(ProviderError::new(class, "")));
    let cuts =
        [script().step(|s| s.throw(broke())), script().step(|s| s.text("So far.").throw(broke())), refused(broke())];
    for script in refusals.chain(cuts) {
        // A second answer is there for whoever asks twice.
        let subject = bench.open(script.step(|s| s.text("Again.").finish())).await?;
        let answer = ask(&subject, request(&subject.model)).await;
        same("how many requests", subject.far.sent().len(), 1)?;
        error_of(answer)?;
    }
    Ok(())
}

async fn lazy(bench: &Bench<'_>) -> Checked {
    let subject = bench.open(script().step(|s| s.text("Hi.").finish())).await?;
    tokio::time::sleep(super::bench::MOMENT).await;
    same("how many requests", subject.far.sent().len(), 0)
}

async fn patient(bench: &Bench<'_>) -> Checked {
    let subject = bench.open(script().step(|s| s.text_start("t").text_delta("t", "First").hang())).await?;
    let mut stream = stream(&subject).await?;
    until_text(&mut stream, "First").await?;
    let mut hour = bench.fixture.hour();
    poll_fn(|cx| {
        while let Poll::Ready(item) = stream.as_mut().poll_next(cx) {
            if item != Some(Ok(ProviderEvent::Alive)) {
                return Poll::Ready(broken(format!("within an hour of silence the stream gave {}", shown(&item))));
            }
        }
        hour.as_mut().poll(cx).map(Ok)
    })
    .await
}

async fn drop_stream(bench: &Bench<'_>) -> Checked {
    let subject = bench.open(script().step(|s| s.text_start("t").text_delta("t", "First").hang())).await?;
    let mut stream = stream(&subject).await?;
    until_text(&mut stream, "First").await?;
    drop(stream);
    closed(&subject).await
}

async fn drop_opening(bench: &Bench<'_>) -> Checked {
    for poll in 1..=20 {
        let subject = bench.open(script().step(|s| s.hang())).await?;
        let mut opening = subject.provider.stream(Arc::new(request(&subject.model)));
        let mut polls = 0;
        let opened = poll_fn(|cx| {
            polls += 1;
            match opening.as_mut().poll(cx) {
                Poll::Ready(opened) => Poll::Ready(Some(opened)),
                Poll::Pending if polls >= poll => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        drop(opening);
        let done = opened.is_some();
        drop(opened);
        closed(&subject).await?;
        if done {
            break;
        }
    }
    Ok(())
}

async fn goes_on(bench: &Bench<'_>) -> Checked {
    let script =
        script().step(|s| s.text_start("t").text_delta("t", "First").hang()).step(|s| s.text("Second.").finish());
    let subject = bench.open(script).await?;
    let mut dropped = stream(&subject).await?;
    until_text(&mut dropped, "First").await?;
    drop(dropped);
    let answer = ask(&subject, request(&subject.model)).await.whole()?;
    same("the text", answer.text(), "Second.".to_owned())
}

/// The key that the provider was given.
fn secret(bench: &Bench<'_>) -> Result<String, Details> {
    match bench.abilities().secret {
        Some(secret) => Ok(secret),
        None => skipped("the provider was given no key"),
    }
}

async fn hidden(bench: &Bench<'_>) -> Checked {
    let secret = secret(bench)?;
    for class in [ErrorClass::Auth, ErrorClass::InvalidRequest, ErrorClass::RateLimit] {
        let words = format!("Incorrect API key provided: {secret}.");
        let error = failure(bench, refused(ProviderError::new(class, words))).await?;
        if format!("{error} {error:?}").contains(&secret) {
            return broken("the key is in the error of a refusal");
        }
    }
    let error = failure(bench, refused(broke())).await?;
    match format!("{error} {error:?}").contains(&secret) {
        true => broken("the key is in the error of a connection that broke"),
        false => Ok(()),
    }
}

async fn placed(bench: &Bench<'_>) -> Checked {
    let secret = secret(bench)?;
    let sent = bench.sent(|_| {}).await?;
    if !sent.headers.iter().any(|(_, value)| value.contains(&secret)) {
        return broken("the key is in no header");
    }
    match sent.target.contains(&secret) || sent.body.to_string().contains(&secret) {
        true => broken("the key is in the body or in the address"),
        false => Ok(()),
    }
}
