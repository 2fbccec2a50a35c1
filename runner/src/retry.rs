//! The one retry layer: whether another attempt is made, and after how long.

use std::time::Duration;

use settled_ledger::{BudgetFold, Failure};
use settled_provider_api::{ErrorClass, RetryHint};

use crate::settings::RetrySettings;

/// How long to wait for another attempt after a failure; `None` if none is made.
///
/// `jitter` is drawn from 0 to 1.
pub(crate) fn delay(failure: &Failure, budget: &BudgetFold, settings: &RetrySettings, jitter: f64) -> Option<Duration> {
    let (retryable, class, hint) = match failure {
        Failure::Provider(error) => (is_retryable(error.class), error.class, error.retry),
        // A breach before any output is usually a gateway's fault: it is taken for a stream that broke, once.
        Failure::Violation(_) => (budget.retries == 0, ErrorClass::IncompleteStream, RetryHint::default()),
        _ => return None,
    };
    let spent = match class {
        ErrorClass::Timeout => budget.timeouts >= settings.max_timeouts,
        ErrorClass::Unknown => budget.unknowns >= settings.max_unknown,
        _ => false,
    };
    let allowed = hint.should_retry.unwrap_or(retryable) && !spent && budget.retries < settings.max;
    allowed.then(|| {
        let doubled = settings.base.saturating_mul(1_u32.checked_shl(budget.retries).unwrap_or(u32::MAX));
        let share = settings.jitter.clamp(0.0, 1.0).mul_add(jitter.mul_add(2.0, -1.0), 1.0);
        let own = doubled.min(settings.cap).mul_f64(share);
        // What the provider asks for is the least time, within reason.
        own.max(hint.after().unwrap_or_default().min(settings.hint_cap))
    })
}

fn is_retryable(class: ErrorClass) -> bool {
    match class {
        ErrorClass::RateLimit
        | ErrorClass::Overloaded
        | ErrorClass::Transport
        | ErrorClass::IncompleteStream
        | ErrorClass::Timeout
        | ErrorClass::Unknown => true,
        ErrorClass::InvalidOutput
        | ErrorClass::Auth
        | ErrorClass::Quota
        | ErrorClass::ContentPolicy
        | ErrorClass::ContextOverflow
        | ErrorClass::PayloadTooLarge
        | ErrorClass::InvalidRequest
        | ErrorClass::Unsupported => false,
        _ => false,
    }
}
