//! The `settled` command; see the library of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    settled_cli::main()
}
