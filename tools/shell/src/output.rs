//! What a command has said: the pipe it comes from, what is kept of it, and what is shown as progress.

use std::future::Future;
use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::Duration;

use serde_json::json;
use settled_tools_api::ToolContext;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{Instant, sleep_until};

use crate::clean::Cleaner;

/// How much is kept of the beginning, and how much of the end.
const KEPT: usize = 256 * 1024;

/// The most lines, and bytes, that progress shows.
const SHOWN_LINES: usize = 10;
const SHOWN_BYTES: usize = 2 * 1024;

/// The shortest time between two signs of progress.
const PROGRESS: Duration = Duration::from_millis(100);

/// The output of a running command.
pub(crate) struct Output<'a> {
    pipe: Receiver,
    context: &'a ToolContext,
    cleaner: Cleaner,
    kept: Kept,
    buffer: Vec<u8>,
    open: bool,
    /// There is output that progress has not shown.
    news: bool,
    next_progress: Instant,
}

impl<'a> Output<'a> {
    /// The output that comes out of a pipe.
    pub(crate) fn new(pipe: PipeReader, context: &'a ToolContext) -> io::Result<Self> {
        Ok(Self {
            pipe: Receiver::from_owned_fd(OwnedFd::from(pipe))?,
            context,
            cleaner: Cleaner::default(),
            kept: Kept::default(),
            buffer: vec![0; 16 * 1024],
            open: true,
            news: false,
            next_progress: Instant::now(),
        })
    }

    /// Takes output in, and shows progress, until something has happened.
    pub(crate) async fn until<T>(&mut self, happened: impl Future<Output = T>) -> T {
        let mut happened = pin!(happened);
        loop {
            tokio::select! {
                biased;
                done = &mut happened => return done,
                () = sleep_until(self.next_progress), if self.news => self.progress(),
                read = self.pipe.read(&mut self.buffer), if self.open => self.take(read),
            }
        }
    }

    /// Takes output in until nobody holds the pipe any more, or the time is over.
    pub(crate) async fn until_closed(&mut self, deadline: Instant) {
        let mut over = pin!(sleep_until(deadline));
        while self.open {
            tokio::select! {
                biased;
                () = &mut over => return,
                read = self.pipe.read(&mut self.buffer) => self.take(read),
            }
        }
    }

    /// The text that was kept; the last of it is shown as progress too.
    pub(crate) fn finish(mut self) -> String {
        if self.news {
            self.progress();
        }
        let kept = &mut self.kept;
        self.cleaner.finish(&mut |piece| kept.push(piece));
        self.kept.text()
    }

    fn take(&mut self, read: io::Result<usize>) {
        match read {
            Ok(0) | Err(_) => self.open = false,
            Ok(count) => {
                let kept = &mut self.kept;
                self.cleaner.push(&self.buffer[..count], &mut |piece| kept.push(piece));
                self.news = true;
            }
        }
    }

    fn progress(&mut self) {
        let unfinished = self.cleaner.unfinished();
        self.context.progress(json!({ "text": self.kept.latest(&unfinished) }));
        self.news = false;
        self.next_progress = Instant::now() + PROGRESS;
    }
}

/// The beginning and the end of a long text.
#[derive(Default)]
struct Kept {
    head: String,
    /// At most twice what is kept of the end, so that it is cut seldom.
    tail: String,
    head_full: bool,
    left_out: usize,
}

impl Kept {
    fn push(&mut self, piece: &str) {
        self.head_full |= self.head.len() + piece.len() > KEPT;
        if !self.head_full {
            self.head.push_str(piece);
            return;
        }
        self.tail.push_str(piece);
        if self.tail.len() > 2 * KEPT {
            self.cut();
        }
    }

    /// Shortens the tail to what is kept of it, between lines where it has lines.
    fn cut(&mut self) {
        let mut at = self.tail.len().saturating_sub(KEPT);
        while !self.tail.is_char_boundary(at) {
            at += 1;
        }
        if at > 0 && let Some(end) = self.tail[at..].find('\n')
            // The line feed that ends the whole text ends no line that would be left out.
            && at + end + 1 < self.tail.len()
        {
            at += end + 1;
        }
        self.left_out += at;
        self.tail.drain(..at);
    }

    /// The latest lines, the unfinished one included.
    fn latest(&self, unfinished: &str) -> String {
        let end = if self.tail.is_empty() { &self.head } else { &self.tail };
        let mut from = end.len().saturating_sub(SHOWN_BYTES);
        while !end.is_char_boundary(from) {
            from += 1;
        }
        let text = format!("{}{unfinished}", &end[from..]);
        let lines: Vec<&str> = text.lines().collect();
        let mut shown = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n");
        let mut from = shown.len().saturating_sub(SHOWN_BYTES);
        while !shown.is_char_boundary(from) {
            from += 1;
        }
        shown.drain(..from);
        shown
    }

    fn text(mut self) -> String {
        self.cut();
        if self.left_out == 0 {
            self.head.push_str(&self.tail);
            return self.head;
        }
        let line_feed = if self.head.ends_with('\n') { "" } else { "\n" };
        format!("{}{line_feed}[{} bytes of output are left out here]\n{}", self.head, self.left_out, self.tail)
    }
}
