//! Pages that are tables: sections, each with its rows, or with what to do where there are none.

use super::rendered::{When, fragment, seen};
use crate::http::Refused;
use askama::Template;
use axum::response::Response;
use palyra_protocol::Timestamp;

/// What a cell holds.
#[derive(Debug)]
pub(super) enum Cell {
    /// Text. Whoever makes it has made it visible.
    Text(String),
    /// Text that is compared by its letters: ids, commands, paths.
    Code(String),
    /// A time; nothing where there is none.
    Time(Option<When>),
    /// A word with a colour: `good`, `bad`, `warn` or `plain`.
    Badge(String, &'static str),
    /// A way to another page of the console.
    Link {
        /// Where.
        href: String,
        /// What it says.
        text: String,
    },
    /// Things to do. The page asks before each.
    Acts(Vec<Act>),
    /// Text of several lines that is opened by whoever wants it.
    More {
        /// What it says closed.
        summary: String,
        /// The rest.
        text: String,
    },
}

/// A button that posts.
#[derive(Debug)]
pub(super) struct Act {
    /// What it says.
    pub(super) label: &'static str,
    /// Where it posts to.
    pub(super) path: String,
    /// What the page asks first.
    pub(super) asks: String,
    /// What the page wants to be told, where a reason is needed.
    pub(super) reason: &'static str,
}

impl Act {
    pub(super) fn new(label: &'static str, path: String, asks: String) -> Self {
        Self { label, path, asks, reason: "" }
    }

    /// The same, with a reason that the person types.
    pub(super) fn because(self, reason: &'static str) -> Self {
        Self { reason, ..self }
    }
}

/// A form whose fields are posted as one document of texts.
#[derive(Debug)]
pub(super) struct Form {
    /// The heading.
    pub(super) title: &'static str,
    /// What it does.
    pub(super) about: &'static str,
    /// Where it posts to.
    pub(super) path: String,
    /// What its button says.
    pub(super) submit: &'static str,
    /// The fields.
    pub(super) fields: Vec<Field>,
    /// Whether it is shown at once; otherwise whoever wants it opens it.
    pub(super) open: bool,
}

/// One field of a form.
#[derive(Debug)]
pub(super) struct Field {
    /// The name in the document.
    pub(super) name: &'static str,
    /// What it says.
    pub(super) label: String,
    /// How it is filled in.
    pub(super) kind: FieldKind,
    /// An example.
    pub(super) example: &'static str,
}

/// How a field is filled in.
#[derive(Debug)]
pub(super) enum FieldKind {
    /// One line.
    Line,
    /// Several lines.
    Lines,
    /// One of these.
    Choice(Vec<String>),
    /// Taken or not: this value is put into a list where it is.
    Tick(String),
    /// Always this.
    Fixed(String),
}

impl Field {
    pub(super) fn new(name: &'static str, label: impl Into<String>, kind: FieldKind, example: &'static str) -> Self {
        Self { name, label: label.into(), kind, example }
    }

    pub(super) fn fixed(name: &'static str, value: impl ToString) -> Self {
        Self::new(name, "", FieldKind::Fixed(value.to_string()), "")
    }
}

impl Cell {
    pub(super) fn text(text: impl ToString) -> Self {
        Self::Text(seen(text.to_string()))
    }

    pub(super) fn code(text: impl ToString) -> Self {
        Self::Code(seen(text.to_string()))
    }

    pub(super) fn time(at: Timestamp) -> Self {
        Self::Time(Some(When(at)))
    }

    pub(super) fn maybe(at: Option<Timestamp>) -> Self {
        Self::Time(at.map(When))
    }

    pub(super) fn call(id: &str) -> Self {
        Self::Link { href: format!("/console/call?id={id}"), text: id.to_owned() }
    }

    pub(super) fn nothing() -> Self {
        Self::Text(String::new())
    }
}

/// A table with its heading.
#[derive(Debug, Default)]
pub(super) struct Section {
    /// The heading.
    pub(super) title: &'static str,
    /// What it shows, and what to do with it.
    pub(super) about: String,
    /// The names of the columns.
    pub(super) columns: &'static [&'static str],
    /// The rows.
    pub(super) rows: Vec<Vec<Cell>>,
    /// What is said where there are none.
    pub(super) empty: &'static str,
    /// The query that leads to older rows.
    pub(super) older: Option<String>,
}

impl Section {
    /// Each row with its columns' names, for narrow screens.
    fn labelled<'a>(&'a self, row: &'a [Cell]) -> impl Iterator<Item = (&'static str, &'a Cell)> {
        self.columns.iter().copied().zip(row)
    }
}

#[derive(Template)]
#[template(path = "console/tables.html")]
struct Tables<'a> {
    sections: &'a [Section],
    filters: &'a [Filter],
    forms: &'a [Form],
}

/// A field that narrows a listing. Its name and value stand in the page's address.
#[derive(Debug)]
pub(super) struct Filter {
    /// The name in the query.
    pub(super) name: &'static str,
    /// What it says.
    pub(super) label: &'static str,
    /// What it is set to.
    pub(super) value: String,
    /// What can be chosen; free text where nothing is listed.
    pub(super) choices: &'static [&'static str],
    /// An example.
    pub(super) example: &'static str,
}

/// A page of tables.
pub(super) fn page(sections: &[Section], filters: &[Filter]) -> Result<Response, Refused> {
    page_with(sections, filters, &[])
}

/// A page of tables with forms after them.
pub(super) fn page_with(sections: &[Section], filters: &[Filter], forms: &[Form]) -> Result<Response, Refused> {
    fragment(&Tables { sections, filters, forms })
}

/// The address of a page with fields of a query; those that are empty are left out.
pub(super) fn address(path: &str, fields: &[(&str, &str)]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~:".contains(&byte);
    let escape = |text: &str| -> String {
        text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
    };
    let fields = fields.iter().filter(|(_, value)| !value.is_empty());
    let fields: Vec<_> = fields.map(|(name, value)| format!("{name}={}", escape(value))).collect();
    format!("{path}?{}", fields.join("&"))
}
