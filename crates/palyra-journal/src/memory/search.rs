//! Finding entries: two full-text indexes, fused by reciprocal rank.
//!
//! `porter unicode61` knows words and their forms; `trigram` finds parts of words, code identifiers and text without
//! spaces, such as Chinese. A query has to match with all of its terms; where nothing does, any of them will do. Terms
//! below three characters have no trigram: a query of only such terms is looked for as plain text.

use super::{MemoryEntry, MemoryStore, entry};
use crate::error::JournalError;
use palyra_protocol::MemoryScope;
use rusqlite::{Connection, params_from_iter};
use std::collections::HashMap;

/// The longest query, in bytes.
pub const MAX_QUERY: usize = 1024;
/// The most terms that are looked at.
const MAX_TERMS: usize = 16;
/// How many the two indexes give each.
const CANDIDATES: u32 = 100;
/// The constant of reciprocal rank fusion.
const RANK_BIAS: f64 = 60.0;
/// The shortest term that has a trigram.
const GRAM: usize = 3;

/// What is looked for.
#[derive(Debug, Clone)]
pub struct MemoryQuery {
    /// The words.
    pub text: String,
    /// Only in these scopes; in all where none is named.
    pub scopes: Option<Vec<MemoryScope>>,
}

/// How the terms of a query are joined.
#[derive(Clone, Copy)]
enum Joined {
    All,
    Any,
}

impl MemoryStore {
    /// The entries that fit best, the best first. A query without a word finds nothing.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn search(&self, query: &MemoryQuery) -> Result<Vec<MemoryEntry>, JournalError> {
        let terms: Vec<&str> = terms(&query.text);
        let scopes: Option<Vec<String>> =
            query.scopes.as_ref().map(|scopes| scopes.iter().map(ToString::to_string).collect());
        if terms.is_empty() || scopes.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Vec::new());
        }
        self.read(|connection| {
            let found = if terms.iter().all(|term| term.chars().count() < GRAM) {
                as_plain_text(connection, &terms, scopes.as_deref())?
            } else {
                let all = ranked(connection, &terms, Joined::All, scopes.as_deref())?;
                if all.is_empty() { ranked(connection, &terms, Joined::Any, scopes.as_deref())? } else { all }
            };
            let mut statement = connection.prepare_cached("SELECT record, text FROM entries WHERE n = ?1")?;
            let mut entries = Vec::with_capacity(found.len());
            for n in found {
                let mut rows = statement.query([n])?;
                if let Some(row) = rows.next()? {
                    entries.push(entry(row)?);
                }
            }
            Ok(entries)
        })
    }
}

/// The words of a query: what a letter or a digit is part of. Everything else, operators of the index included, only
/// separates.
fn terms(text: &str) -> Vec<&str> {
    let end = (0..=text.len().min(MAX_QUERY)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text[..end].split(|c: char| !part(c)).filter(|term| !term.is_empty()).take(MAX_TERMS).collect()
}

/// The terms as a query of the index: each is quoted, so that none is an operator.
fn expression<'t>(terms: impl Iterator<Item = &'t &'t str>, joined: Joined) -> String {
    let terms: Vec<String> = terms.map(|term| format!("\"{term}\"")).collect();
    terms.join(match joined {
        Joined::All => " AND ",
        Joined::Any => " OR ",
    })
}

fn ranked(
    connection: &Connection,
    terms: &[&str],
    joined: Joined,
    scopes: Option<&[String]>,
) -> Result<Vec<i64>, JournalError> {
    let mut scores: HashMap<i64, f64> = HashMap::new();
    let long: Vec<&&str> = terms.iter().filter(|term| term.chars().count() >= GRAM).collect();
    for (index, expression) in
        [("words", expression(terms.iter(), joined)), ("grams", expression(long.into_iter(), joined))]
    {
        for (rank, n) in matches(connection, index, &expression, scopes)?.into_iter().enumerate() {
            *scores.entry(n).or_default() += 1.0 / (RANK_BIAS + rank as f64 + 1.0);
        }
    }
    let mut found: Vec<(i64, f64)> = scores.into_iter().collect();
    // Of two that fit equally well, the newer.
    found.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
    Ok(found.into_iter().map(|(n, _)| n).collect())
}

fn in_scopes(scopes: Option<&[String]>, column: &str) -> String {
    match scopes {
        None => String::new(),
        Some(scopes) => {
            let places: Vec<String> = (0..scopes.len()).map(|n| format!("?{}", n + 2)).collect();
            format!(" AND {column} IN ({})", places.join(", "))
        }
    }
}

fn matches(
    connection: &Connection,
    index: &str,
    expression: &str,
    scopes: Option<&[String]>,
) -> Result<Vec<i64>, JournalError> {
    let query = format!(
        "SELECT e.n FROM {index} JOIN entries e ON e.n = {index}.rowid
         WHERE {index} MATCH ?1{} AND e.pending = 0 ORDER BY {index}.rank LIMIT {CANDIDATES}",
        in_scopes(scopes, "e.scope")
    );
    let values = std::iter::once(expression).chain(scopes.into_iter().flatten().map(String::as_str));
    let mut statement = connection.prepare_cached(&query)?;
    Ok(statement.query_map(params_from_iter(values), |r| r.get(0))?.collect::<Result<_, _>>()?)
}

/// The newest entries that contain every term.
fn as_plain_text(connection: &Connection, terms: &[&str], scopes: Option<&[String]>) -> Result<Vec<i64>, JournalError> {
    // Terms are letters, digits and underscores; the last is a wildcard of LIKE.
    let like: Vec<String> = terms.iter().map(|term| format!("%{}%", term.replace('_', "\\_"))).collect();
    let places = scopes.map_or(0, <[String]>::len) + 2;
    let more: String = (1..like.len()).map(|n| format!(" AND text LIKE ?{} ESCAPE '\\'", places + n - 1)).collect();
    let query = format!(
        "SELECT n FROM entries WHERE text LIKE ?1 ESCAPE '\\'{}{more} AND pending = 0 ORDER BY n DESC LIMIT {CANDIDATES}",
        in_scopes(scopes, "scope")
    );
    let (first, rest) = like.split_at(1);
    let values = first.iter().chain(scopes.into_iter().flatten()).chain(rest);
    let mut statement = connection.prepare_cached(&query)?;
    Ok(statement.query_map(params_from_iter(values), |r| r.get(0))?.collect::<Result<_, _>>()?)
}
