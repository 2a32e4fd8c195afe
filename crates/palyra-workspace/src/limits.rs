//! The numbers that bound every file tool.
//!
//! They exist so that one call of an untrusted caller can exhaust neither memory nor time, however large or hostile the
//! tree is. None of them may be raised by a caller; what a caller asks beyond them is cut, and the answer says so.

/// The longest path text that is looked at, in bytes (Linux' own `PATH_MAX`).
pub const MAX_PATH_BYTES: usize = 4096;
/// The deepest path, in components after resolution. Resolution holds one descriptor for each of them.
pub const MAX_PATH_DEPTH: usize = 128;
/// How many symbolic links one path may go through (Linux' own limit).
pub const MAX_SYMLINKS: usize = 40;

/// The most bytes that one read returns; also what a read without a limit gets.
pub const MAX_READ_BYTES: usize = 1024 * 1024;
/// The largest file whose digest a read computes: the digest covers the whole file, not only the part returned.
pub const MAX_DIGEST_BYTES: u64 = 64 * 1024 * 1024;
/// The most bytes that one write accepts.
pub const MAX_WRITE_BYTES: usize = 16 * 1024 * 1024;

/// The most entries that one listing returns.
pub const MAX_LIST_ENTRIES: usize = 10_000;
/// The deepest that listings and searches descend below where they start.
pub const MAX_WALK_DEPTH: usize = 64;
/// The most names that are read of one directory before it is cut (unsorted beyond that point).
pub const MAX_DIRECTORY_NAMES: usize = 100_000;

/// The most files that one search opens.
pub const MAX_SEARCH_FILES: usize = 10_000;
/// The most bytes that one search reads in all.
pub const MAX_SEARCH_BYTES: u64 = 64 * 1024 * 1024;
/// The largest single file that a search reads.
pub const MAX_SEARCH_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// The most matches that one search returns.
pub const MAX_SEARCH_MATCHES: usize = 1000;
/// The most lines of context around a match.
pub const MAX_CONTEXT_LINES: usize = 5;
/// The most entries of any kind that one search walks past.
pub const MAX_SEARCH_ENTRIES: usize = 200_000;
/// The longest excerpt of a line, in characters.
pub const MAX_EXCERPT_CHARS: usize = 500;
/// The most text that one search or listing returns, in bytes: outputs are kept in the journal.
pub const MAX_FOUND_BYTES: usize = 1024 * 1024;
/// The largest ignore file that has an effect.
pub const MAX_IGNORE_FILE_BYTES: u64 = 64 * 1024;
/// The longest line of an ignore file that has an effect.
pub const MAX_IGNORE_LINE_BYTES: usize = 1024;
/// The most bytes of ignore files that one search or listing reads.
pub const MAX_IGNORE_BYTES: u64 = 1024 * 1024;
/// The longest pattern or glob, in bytes.
pub const MAX_PATTERN_BYTES: usize = 4096;
/// The most memory that a compiled pattern may take.
pub const MAX_REGEX_BYTES: usize = 1024 * 1024;
/// The most memory that matching may take for its lazily built automaton.
pub const MAX_REGEX_CACHE_BYTES: usize = 2 * 1024 * 1024;

/// The longest patch text.
pub const MAX_PATCH_BYTES: usize = 1024 * 1024;
/// The most files that one patch touches.
pub const MAX_PATCH_FILES: usize = 200;
/// The largest file that a patch may change, before or after.
pub const MAX_PATCHED_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// The most bytes of all files that one patch may change, taken together.
pub const MAX_PATCHED_BYTES: u64 = 64 * 1024 * 1024;
/// The most lines of a file that are compared in search of hunks which are not at the line they name.
pub const MAX_RELOCATION_LINES: usize = 20_000_000;
