//! What commands without a daemon print: answers on standard output, everything else beside them.

use std::io::Write as _;

/// Prints one line of an answer. A reader that has gone away ends the program quietly, as `head` expects.
pub fn say(line: &str) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}

/// Prints one line beside an answer.
pub fn tell(line: &str) {
    // There is nobody left to tell.
    drop(writeln!(std::io::stderr(), "{line}"));
}
