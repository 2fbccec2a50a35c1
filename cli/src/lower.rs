//! `settled lower`: the body that a request of a scenario becomes on a wire.

use std::io::{self, Write};

use settled_provider_api::{ProviderError, Request};

use crate::args::{Lower, On, Protocol};
use crate::decode::not_supported;
use crate::exit::{Exit, Failure};
use crate::scenario;

/// Runs the scenario and prints the body of one of its requests.
///
/// It must not be called in an asynchronous context: a scenario has a runtime of its own.
pub(crate) fn lower(args: &Lower) -> Result<Exit, Failure> {
    let lower: fn(&Request) -> Result<serde_json::Value, ProviderError> = match args.protocol {
        Protocol::OpenaiChat => |request| settled_provider_openai::chat::lower(request, &Default::default()),
        Protocol::OpenaiResponses => |request| settled_provider_openai::responses::lower(request, &Default::default()),
        Protocol::AnthropicMessages => |request| settled_provider_anthropic::lower(request, &Default::default()),
        Protocol::Gemini => |request| settled_provider_gemini::lower(request, &Default::default()),
        other => return Err(not_supported(other)),
    };
    let result = scenario::run(&args.scenario, On::Memory)?;
    let name = args.scenario.display();
    let request = result.requests.get(args.request.get() - 1).ok_or_else(|| {
        let requests = crate::text::count(result.requests.len(), "request");
        Failure::usage(format!("`{name}` has no request {}: it sends {requests}", args.request))
    })?;
    let body =
        lower(request).map_err(|error| Failure::failed(format!("`{name}`, request {}: {error}", args.request)))?;
    writeln!(io::stdout(), "{body}")?;
    Ok(Exit::Completed)
}
