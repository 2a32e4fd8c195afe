//! Lines for whoever reads about the call later.

use crate::bindings::palyra::skill::log::{Level, write};

/// A line for the author.
pub fn debug(message: &str) {
    write(Level::Debug, message);
}

/// A line for whoever reads along.
pub fn info(message: &str) {
    write(Level::Info, message);
}

/// Something is odd.
pub fn warning(message: &str) {
    write(Level::Warning, message);
}

/// Something failed.
pub fn error(message: &str) {
    write(Level::Error, message);
}
