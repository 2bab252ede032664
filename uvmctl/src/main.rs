//! Entry point; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    uvmctl::main()
}
