//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use settled_tools_api::{CallKey, SessionId};

use crate::exit;

/// Runs agent sessions that settle: whatever happens, each step ends once, each call has one outcome, and the session can go on.
#[derive(Debug, Parser)]
#[command(name = "settled", version, about, after_help = exit::TABLE, max_term_width = 100)]
pub(crate) struct Args {
    /// Where sessions are kept [default: SETTLED_DATA, else the user's data folder]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Trace what happens to standard error; twice for everything. RUST_LOG chooses more finely
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ask a model, run the tools it calls, stream its answer
    Run(Run),
    /// Show a session's timeline: steps, calls, times, the settlement of each
    Log(Log),
    /// Check a session's log, or a file of `export` or `log --json`; exits 1 on a breach
    Check(Check),
    /// List the sessions
    Sessions(Sessions),
    /// Allow a call that waits for approval
    Approve(ACall),
    /// Refuse a call that waits; with feedback the model goes on, without it the run stops
    Decline(Decline),
    /// Answer a tool's question
    Answer(Answer),
    /// Close a tool's question unanswered; the run stops
    Dismiss(ACall),
    /// Interrupt what another process runs
    Interrupt(Interrupt),
    /// Run scenario files on the real runner, in virtual time; exits 1 where one does not come out as it expects
    Scenario(Scenario),
    /// Write a session to a file, whole: JSON lines with a checksum
    Export(Export),
    /// Take a session from a file that `export` has written; one that is there already is left alone
    Import(Import),
    /// Decode a provider's raw response body, and print what it says
    Decode(Decode),
    /// Print the body that a request of a scenario becomes on a wire
    Lower(Lower),
    /// Run a whole session against a scripted server: no key, no network
    Demo(Demo),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// What to say; `-` reads it from standard input. Without, the session goes on with what it has left
    pub(crate) prompt: Option<String>,

    /// The model [default: the session's, else SETTLED_MODEL, else a small one of the provider]
    #[arg(long, short)]
    pub(crate) model: Option<String>,

    /// Who is asked [default: the session's, else OPENAI_BASE_URL or its like, else the provider]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// The session to go on with, or to make under this name [default: a new one]
    #[arg(long, short, value_name = "ID")]
    pub(crate) session: Option<SessionId>,

    /// The tools to offer; `none` for none [default: the session's, else none]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) tools: Option<Vec<ToolSet>>,

    /// The folder that the tools work in [default: the session's, else this one]
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,

    /// Tools whose calls wait for your approval: `shell,write_file`, or `all`, or `none` [default: the session's, else none]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) ask: Option<Vec<String>>,

    /// A system prompt; the session that is made with it remembers it
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,

    /// The wire to speak [default: the session's, else openai-chat]
    #[arg(long, value_enum)]
    pub(crate) provider: Option<Wire>,

    /// How often a failed request may be tried again
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) retries: u32,

    /// Print each event as a JSON object on a line of its own
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a run can speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wire {
    /// Messages, of Anthropic
    Anthropic,
    /// Responses, of OpenAI
    Openai,
    /// Chat Completions, of OpenAI or any compatible server
    OpenaiChat,
    /// Gemini, of Google
    Gemini,
}

/// What can be decoded and lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    OpenaiChat,
    OpenaiResponses,
    AnthropicMessages,
    Gemini,
    /// Not supported yet
    BedrockConverse,
    /// Not supported yet
    BedrockInvokeAnthropic,
    /// Not supported yet
    Ollama,
}

/// How a body is cut into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    Whole,
    /// A byte in each chunk.
    Bytes,
    /// At random, from this seed.
    Random(u64),
}

impl std::str::FromStr for Split {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "whole" => Ok(Self::Whole),
            "bytes" => Ok(Self::Bytes),
            seed => seed.parse().map(Self::Random).map_err(|_| "it must be `whole`, `bytes` or a number"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum ToolSet {
    /// Read, list, search, edit and write files of the folder
    Files,
    /// Run commands in the folder, one at a time
    Shell,
    /// No tools
    None,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Log {
    /// The session
    pub(crate) session: SessionId,

    /// Print each event as a JSON object on a line of its own
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// A session, or a file of `settled export` or `settled log --json`; `-` for standard input
    #[arg(value_name = "ID|FILE")]
    pub(crate) what: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Sessions {
    /// Print each session as a JSON object on a line of its own
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ACall {
    /// The session
    pub(crate) session: SessionId,

    /// The call, as the run named it; may be left out where only one waits
    pub(crate) call: Option<CallKey>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Decline {
    #[command(flatten)]
    pub(crate) call: ACall,

    /// What the model should do instead
    #[arg(long, value_name = "TEXT")]
    pub(crate) feedback: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Answer {
    /// The session
    pub(crate) session: SessionId,

    /// What to answer
    pub(crate) text: String,

    /// The call, as the run named it; may be left out where only one waits
    #[arg(long)]
    pub(crate) call: Option<CallKey>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Interrupt {
    /// The session
    pub(crate) session: SessionId,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Keep the demo's folder, and say where it is
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Scenario {
    /// The files
    #[arg(required_unless_present = "from", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Instead of running anything: print the scenario that plays the session of a log again; `log --json` or an export, `-` for standard input
    #[arg(long, value_name = "LOG", conflicts_with_all = ["files", "store"])]
    pub(crate) from: Option<PathBuf>,

    /// The store they run on
    #[arg(long, value_enum, default_value_t = On::Memory)]
    pub(crate) store: On,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// The session
    pub(crate) session: SessionId,

    /// The file to write; `-` for standard output
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// The file; `-` for standard input
    pub(crate) file: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Decode {
    /// The wire it came on
    #[arg(value_enum)]
    pub(crate) protocol: Protocol,

    /// The file that has the body; `-` for standard input
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,

    /// How the body is cut into chunks: `whole`, `bytes`, or a seed for random cuts
    #[arg(long, value_name = "whole|bytes|SEED", default_value = "whole", allow_hyphen_values = true)]
    pub(crate) split: Split,

    /// The status it came with; the body of any but 200 to 299 is read as a failure
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(100..=599))]
    pub(crate) status: u16,

    /// The content type it came with
    #[arg(long, value_name = "T")]
    pub(crate) content_type: Option<String>,

    /// Print each event as a JSON object on a line of its own
    #[arg(long)]
    pub(crate) events: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Lower {
    /// The wire
    #[arg(value_enum)]
    pub(crate) protocol: Protocol,

    /// The scenario's file
    pub(crate) scenario: PathBuf,

    /// Which of the scenario's requests, from 1
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) request: NonZeroUsize,
}

/// A store that scenarios can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum On {
    Memory,
    Sqlite,
}
