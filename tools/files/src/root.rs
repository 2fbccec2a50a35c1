//! The root folder: what every path is resolved beneath, and how its failures are told.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;
use rustix::io::Errno;
use settled_tools_api::{CancelSignal, ToolContext, ToolError};

/// The root folder, held open.
pub(crate) struct Root {
    /// All file work goes through this handle, which cannot lead out of the folder.
    pub(crate) dir: Dir,
    /// The root as it was given, made absolute.
    given: PathBuf,
    /// The root without symbolic links; a model may have learnt either from a shell.
    real: PathBuf,
}

impl Root {
    /// Opens the folder.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let real = path.canonicalize()?;
        Ok(Self { dir: Dir::open_ambient_dir(&real, ambient_authority())?, given: std::path::absolute(path)?, real })
    }

    /// The root as it was given, made absolute.
    pub(crate) fn path(&self) -> &Path {
        &self.given
    }

    /// The path that a model wrote, relative to the root.
    pub(crate) fn relative(&self, shown: &str) -> Result<PathBuf, ToolError> {
        if shown.is_empty() {
            return Err(ToolError::failed("the path is empty"));
        }
        if shown.contains('\0') {
            return Err(ToolError::failed("the path has a NUL character"));
        }
        let path = Path::new(shown);
        let inside = if path.is_absolute() {
            path.strip_prefix(&self.given)
                .or_else(|_| path.strip_prefix(&self.real))
                .map_err(|_| self.outside(shown))?
        } else {
            path
        };
        Ok(if inside.as_os_str().is_empty() { PathBuf::from(".") } else { inside.to_owned() })
    }

    /// Opens a regular file to read.
    pub(crate) fn open_file(&self, path: &Path, shown: &str) -> Result<(File, Metadata), ToolError> {
        // Without `NONBLOCK`, opening a named pipe would wait for its other end, possibly for ever.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = self.dir.open_with(path, &options).map_err(|error| self.explain("read", shown, error))?;
        let metadata = file.metadata().map_err(|error| self.explain("read", shown, error))?;
        only_regular(shown, &metadata)?;
        Ok((file, metadata))
    }

    /// What to tell about an error of the operating system.
    pub(crate) fn explain(&self, action: &str, shown: &str, error: io::Error) -> ToolError {
        let why = match error.kind() {
            // The resolver's own refusal; the operating system's has a number.
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => return self.outside(shown),
            io::ErrorKind::NotFound => "it does not exist".to_owned(),
            io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            io::ErrorKind::NotADirectory => "it, or a part of its path, is not a folder".to_owned(),
            io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
            _ => error.to_string(),
        };
        let text = format!("cannot {action} `{shown}`: {why}");
        if is_host_failure(&error) { ToolError::infra(text) } else { ToolError::failed(text) }
    }

    fn outside(&self, shown: &str) -> ToolError {
        ToolError::failed(format!(
            "`{shown}` leads out of the root folder `{}`: only files inside it can be used",
            self.given.display()
        ))
    }
}

/// Whether work on a blocking thread should go on.
pub(crate) struct Stop {
    cancel: CancelSignal,
    /// Dead once the future that waits for the work was dropped.
    waiter: Weak<()>,
}

impl Stop {
    /// Fails once the call was cancelled or dropped.
    pub(crate) fn check(&self) -> Result<(), ToolError> {
        if self.cancel.is_cancelled() || self.waiter.strong_count() == 0 {
            Err(ToolError::failed("the call was cancelled before it had changed a file"))
        } else {
            Ok(())
        }
    }
}

/// Runs file work on a blocking thread; the work looks at [`Stop`] and ends soon after a cancel or a drop.
pub(crate) async fn blocking<T: Send + 'static>(
    context: &ToolContext,
    work: impl FnOnce(&Stop) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let waiting = Arc::new(());
    let stop = Stop { cancel: context.cancel().clone(), waiter: Arc::downgrade(&waiting) };
    let done = tokio::task::spawn_blocking(move || {
        stop.check()?;
        work(&stop)
    })
    .await;
    drop(waiting);
    match done {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(ToolError::infra("the runtime is shutting down")),
        },
    }
}

/// Refuses what is not a regular file.
pub(crate) fn only_regular(shown: &str, metadata: &Metadata) -> Result<(), ToolError> {
    if metadata.is_file() {
        Ok(())
    } else if metadata.is_dir() {
        Err(ToolError::failed(format!("`{shown}` is a folder, not a file")))
    } else {
        Err(ToolError::failed(format!("`{shown}` is neither a file nor a folder, but a device, a pipe or a socket")))
    }
}

/// Whether the host, and not the file that was asked for, is what failed.
fn is_host_failure(error: &io::Error) -> bool {
    error.raw_os_error().map(Errno::from_raw_os_error).is_some_and(|errno| {
        [Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&errno)
    })
}
