//! The catalog: every tool that can be proposed, as one snapshot that is replaced whole.
//!
//! A catalog is made of sources: the built-in tools, and later one for each skill. Replacing a source makes the next
//! snapshot, puts it in place of this one and announces it. The next snapshot does not disturb
//! a listing or a call that began with this one: a call keeps the tool that it was resolved with
//! ([`crate::work::Work`]).
//!
//! A tool's definition is checked, its schemas compiled and its alias made when it enters; what can go wrong with it
//! goes wrong there and never with a call. A source has names of its own ([`ToolSource`]), so that none can take
//! another's.

use crate::tools::{Preparing, Tool, builtin};
use jsonschema::PatternOptions;
use palyra_protocol::tool::ToolNameError;
use palyra_protocol::{
    Problem, RiskLevel, ToolAlias, ToolCapability, ToolDefinition, ToolMetadata, ToolName, ToolSource,
};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use tokio::sync::watch;

/// How many violations of a schema are told at once.
const MAX_VIOLATIONS: usize = 3;
/// How alike an unknown name and a known one are at least, of 1, if the one is suggested for the other.
const NEAR: f64 = 0.6;

/// A source, and the tools that it brings.
pub type SourceTools = (ToolSource, Vec<Arc<dyn Tool>>);

/// The tools that can be proposed: an immutable snapshot.
#[derive(Debug, Default)]
pub struct ToolCatalog {
    tools: BTreeMap<ToolName, Arc<CatalogTool>>,
    aliases: HashMap<String, ToolName>,
}

/// A tool in a catalog, with what follows from its definition.
#[derive(Debug)]
pub struct CatalogTool {
    tool: Arc<dyn Tool>,
    source: ToolSource,
    alias: ToolAlias,
    metadata: ToolMetadata,
    validator: jsonschema::Validator,
}

/// Why a tool cannot enter the catalog.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// A built-in tool's name is malformed.
    #[error("a built-in tool has a malformed name")]
    Name(#[from] ToolNameError),
    /// A source brings a tool under a name that is not its own.
    #[error("{source_name} may not bring a tool called `{tool}`")]
    Foreign {
        /// The tool.
        tool: ToolName,
        /// Who brings it.
        source_name: ToolSource,
    },
    /// A source brings two tools of one name, or of one alias.
    #[error("there is a tool called `{tool}`, or known to models as `{alias}`, already")]
    Taken {
        /// The tool.
        tool: ToolName,
        /// Its alias.
        alias: ToolAlias,
    },
    /// A tool's schema is no schema.
    #[error("the {which} schema of `{tool}` is not usable: {reason}")]
    Schema {
        /// The tool.
        tool: ToolName,
        /// Of its input, or of its output.
        which: &'static str,
        /// Why.
        reason: String,
    },
}

impl CatalogError {
    /// The stable name of this fault, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Name(_) => "tool_name_malformed",
            Self::Foreign { .. } => "tool_name_foreign",
            Self::Taken { .. } => "tool_name_taken",
            Self::Schema { .. } => "tool_schema_unusable",
        }
    }
}

impl ToolCatalog {
    /// The built-in tools.
    ///
    /// # Errors
    /// A definition is malformed, which the tests rule out.
    pub fn builtin() -> Result<Self, CatalogError> {
        Self::default().with_source(&ToolSource::Builtin, builtin()?)
    }

    /// The next snapshot: the same tools, but of this source exactly these. Without any, the source is gone.
    ///
    /// # Errors
    /// A tool cannot enter; there is no next snapshot then.
    pub fn with_source(&self, source: &ToolSource, tools: Vec<Arc<dyn Tool>>) -> Result<Self, CatalogError> {
        self.with_sources(vec![(source.clone(), tools)])
    }

    /// The same for several sources at once: the cost does not grow with their number times that of all tools.
    ///
    /// # Errors
    /// A tool cannot enter; there is no next snapshot then.
    pub fn with_sources(&self, replaced: Vec<SourceTools>) -> Result<Self, CatalogError> {
        let sources: HashSet<&ToolSource> = replaced.iter().map(|(source, _)| source).collect();
        let mut next = Self::default();
        for entry in self.tools.values().filter(|entry| !sources.contains(&entry.source)) {
            next.enter(Arc::clone(entry))?;
        }
        for (source, tools) in &replaced {
            for tool in tools {
                let kept = self.tools.get(&tool.definition().name).filter(|entry| Arc::ptr_eq(&entry.tool, tool));
                let entry = match kept {
                    Some(entry) => Arc::clone(entry),
                    None => Arc::new(CatalogTool::new(Arc::clone(tool), source)?),
                };
                next.enter(entry)?;
            }
        }
        Ok(next)
    }

    /// Whether these are the very same tools.
    fn is_same(&self, other: &Self) -> bool {
        let same = |(one, other): (&Arc<CatalogTool>, &Arc<CatalogTool>)| Arc::ptr_eq(one, other);
        self.tools.len() == other.tools.len() && self.tools.values().zip(other.tools.values()).all(same)
    }

    fn enter(&mut self, entry: Arc<CatalogTool>) -> Result<(), CatalogError> {
        let (name, alias) = (entry.name().clone(), entry.alias.clone());
        if self.tools.contains_key(&name) || self.aliases.contains_key(alias.as_str()) {
            return Err(CatalogError::Taken { tool: name, alias });
        }
        self.aliases.insert(alias.as_str().to_owned(), name.clone());
        self.tools.insert(name, entry);
        Ok(())
    }

    /// Every tool, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CatalogTool>> + Clone {
        self.tools.values()
    }

    /// Finds a tool by what a caller wrote.
    ///
    /// # Errors
    /// There is no such tool; the answer names the built-in one that comes nearest.
    pub fn find(&self, text: &str) -> Result<&Arc<CatalogTool>, Problem> {
        let known = text.parse::<ToolName>().ok().and_then(|name| self.tools.get(&name));
        // Which other tools there are is for those who may list them.
        let public = self.iter().filter(|entry| entry.source == ToolSource::Builtin);
        known.ok_or_else(|| unknown_tool(text, public.map(|entry| entry.name().as_str())))
    }

    /// The tool that models know by this alias. A text that could be both a name and an alias is the alias, since that
    /// is what doors publish.
    #[must_use]
    pub fn by_alias(&self, text: &str) -> Option<&ToolName> {
        self.aliases.get(text)
    }

    /// Whether this very tool is in the catalog, and not only one of its name.
    #[must_use]
    pub fn holds(&self, tool: &Arc<CatalogTool>) -> bool {
        self.tools.get(tool.name()).is_some_and(|entry| Arc::ptr_eq(entry, tool))
    }

    /// What decisions need to know about a tool. One that is not here counts as having every capability.
    #[must_use]
    pub fn metadata(&self, tool: &ToolName) -> &ToolMetadata {
        static WORST: LazyLock<ToolMetadata> =
            LazyLock::new(|| ToolMetadata { capabilities: ToolCapability::ALL.into(), risk: RiskLevel::Critical });
        self.tools.get(tool).map_or(&WORST, |entry| &entry.metadata)
    }
}

impl CatalogTool {
    fn new(tool: Arc<dyn Tool>, source: &ToolSource) -> Result<Self, CatalogError> {
        let definition = tool.definition();
        let name = definition.name.clone();
        if !source.owns(&name) {
            return Err(CatalogError::Foreign { tool: name, source_name: source.clone() });
        }
        let compiled = |which, schema| {
            // Patterns are matched in linear time, whatever a source writes into its schemas.
            let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
            options.build(schema).map_err(|error| {
                let reason = error.to_string();
                CatalogError::Schema { tool: name.clone(), which, reason }
            })
        };
        let validator = compiled("input", &definition.input_schema)?;
        compiled("output", &definition.output_schema)?;
        let (alias, metadata) = (ToolAlias::of(&name), definition.metadata());
        Ok(Self { source: source.clone(), alias, metadata, validator, tool })
    }

    /// What everybody may know about it.
    #[must_use]
    pub fn definition(&self) -> &ToolDefinition {
        self.tool.definition()
    }

    /// Its canonical name.
    #[must_use]
    pub fn name(&self) -> &ToolName {
        &self.definition().name
    }

    /// Its name as models know it.
    #[must_use]
    pub fn alias(&self) -> &ToolAlias {
        &self.alias
    }

    /// Who brought it.
    #[must_use]
    pub fn source(&self) -> &ToolSource {
        &self.source
    }

    /// What decisions depend on.
    #[must_use]
    pub fn metadata(&self) -> &ToolMetadata {
        &self.metadata
    }

    pub(crate) fn tool(&self) -> &dyn Tool {
        &*self.tool
    }

    pub(crate) fn preparing(&self) -> Preparing {
        self.tool.preparing()
    }

    /// Checks an input against the tool's schema.
    ///
    /// # Errors
    /// What does not fit, and where.
    pub fn validate(&self, input: &Value) -> Result<(), Problem> {
        if self.validator.is_valid(input) {
            return Ok(());
        }
        let violations: Vec<String> = self
            .validator
            .iter_errors(input)
            .take(MAX_VIOLATIONS)
            .map(|error| {
                let place = error.instance_path().to_string();
                let place = if place.is_empty() { "the input".to_owned() } else { format!("`{}`", shorten(&place)) };
                format!("{place}: {}", shorten(&error.masked_with("the value").to_string()))
            })
            .collect();
        let name = self.name();
        Err(Problem::new(
            "schema_violation",
            format!("the input does not fit the schema of `{name}`: {}", violations.join("; ")),
            format!("see what it takes: `palyra tools show {name}`"),
        ))
    }
}

/// The snapshot in force, and how another takes its place.
#[derive(Debug)]
pub(crate) struct CurrentCatalog {
    current: watch::Sender<Arc<ToolCatalog>>,
    /// One replacement at a time: each is made from the one before it.
    replacing: Mutex<()>,
}

impl CurrentCatalog {
    pub(crate) fn new(catalog: ToolCatalog) -> Self {
        Self { current: watch::Sender::new(Arc::new(catalog)), replacing: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Arc<ToolCatalog> {
        Arc::clone(&self.current.borrow())
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Arc<ToolCatalog>> {
        self.current.subscribe()
    }

    pub(crate) fn replace(&self, sources: Vec<SourceTools>) -> Result<(), CatalogError> {
        let _one_at_a_time = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        // Made beside the one in force: schemas are compiled while calls go on.
        let now = self.now();
        let next = now.with_sources(sources)?;
        // Clients are told of changes alone.
        if !next.is_same(&now) {
            self.current.send_replace(Arc::new(next));
        }
        Ok(())
    }
}

/// There is no such tool; names the nearest of those that may be named, if one is near.
pub(crate) fn unknown_tool<'n>(text: &str, known: impl Iterator<Item = &'n str>) -> Problem {
    let hint = match nearest(text, known) {
        Some(name) => format!("did you mean `{name}`? `palyra tools list` shows them all"),
        None => "`palyra tools list` shows them all".to_owned(),
    };
    Problem::new("unknown_tool", format!("there is no tool `{}`", shorten(text)), hint)
}

/// The name that somebody may have meant. The first word does not count, because most names share it.
#[must_use]
pub fn nearest<'n>(text: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let text = shorten(text);
    let likeness = |name: &str| {
        let own = name.split_once('.').map_or(name, |(_, own)| own);
        let first = name.strip_suffix(own).unwrap_or_default();
        strsim::normalized_damerau_levenshtein(own, text.strip_prefix(first).unwrap_or(&text))
    };
    let near = known.map(|name| (likeness(name), name)).filter(|(likeness, _)| *likeness >= NEAR);
    near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

fn shorten(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::execute::Running;
    use crate::flow::resolve::Refusal;
    use crate::tools::{Executing, Input, Job, Place, Prepared, names};
    use serde_json::json;

    /// A tool that a skill might bring.
    #[derive(Debug)]
    struct Foreign(ToolDefinition);

    #[derive(Debug)]
    struct Never;

    impl Job for Never {
        fn execute<'r>(self: Box<Self>, _run: &'r Running<'_>) -> Executing<'r> {
            Box::pin(std::future::pending())
        }
    }

    impl Tool for Foreign {
        fn definition(&self) -> &ToolDefinition {
            &self.0
        }

        fn prepare(&self, _input: Input<'_>, _place: &Place<'_>) -> Result<Prepared, Refusal> {
            Ok(Prepared::new(Default::default(), Never))
        }
    }

    fn foreign(name: &str) -> Arc<dyn Tool> {
        defined(name, json!({ "type": "object" }))
    }

    fn defined(name: &str, input_schema: Value) -> Arc<dyn Tool> {
        let echo = builtin().unwrap().remove(0);
        Arc::new(Foreign(ToolDefinition { name: name.parse().unwrap(), input_schema, ..echo.definition().clone() }))
    }

    fn weather() -> ToolSource {
        ToolSource::skill("acme.weather").unwrap()
    }

    fn all(catalog: &ToolCatalog) -> Vec<&str> {
        catalog.iter().map(|entry| entry.name().as_str()).collect()
    }

    #[test]
    fn every_definition_is_whole_and_its_example_valid() {
        let catalog = ToolCatalog::builtin().unwrap();
        let mut known: Vec<_> = names().collect();
        known.sort_unstable();
        assert_eq!(all(&catalog), known, "a tool goes by the name that it is entered under");
        for entry in catalog.iter() {
            let tool = entry.definition();
            assert_eq!(entry.validate(&tool.example), Ok(()), "{}", tool.name);
            let risky = tool.risk > RiskLevel::Low;
            assert_eq!(entry.metadata().is_sensitive(), risky, "{}: risk and capabilities disagree", tool.name);
        }
    }

    #[test]
    fn violations_say_where_and_do_not_repeat_the_value() {
        let catalog = ToolCatalog::builtin().unwrap();
        let run = catalog.find("palyra.process.run").unwrap();
        let problem = run.validate(&json!({"argv": [1], "shell": true})).unwrap_err();
        assert!(problem.message.contains("`/argv/0`"), "{}", problem.message);
        assert_eq!(problem.code, "schema_violation");
        let secret = run.validate(&json!({"argv": "hunter2"})).unwrap_err();
        assert!(!secret.message.contains("hunter2"), "{}", secret.message);
    }

    #[test]
    fn unknown_tools_get_the_nearest_if_one_is_near() {
        let catalog = ToolCatalog::builtin().unwrap();
        let catalog = catalog.with_source(&weather(), vec![foreign("skill.acme.weather.forecast")]).unwrap();
        let hint = |text: &str| catalog.find(text).unwrap_err().hint.unwrap();
        for (text, meant) in [
            ("palyra.fs.raed", "palyra.fs.read"),
            ("fs.read", "palyra.fs.read"),
            ("process.run", "palyra.process.run"),
            ("palyra.ehco", "palyra.echo"),
        ] {
            assert!(hint(text).contains(&format!("`{meant}`")), "{text}: {}", hint(text));
        }
        for far in ["palyra.nope", "palyra.x", "palyra", "bash", "rm -rf /", "", "skill.acme.weather.forcast"] {
            assert!(!hint(far).contains("did you mean"), "{far}: {}", hint(far));
        }
        assert_eq!(
            nearest("skill.acme.weather.forcast", all(&catalog).into_iter()),
            Some("skill.acme.weather.forecast")
        );
        assert_eq!(catalog.find(&"x".repeat(1 << 20)).unwrap_err().code, "unknown_tool");
    }

    #[test]
    fn a_source_is_replaced_whole_and_leaves_the_others_as_they_are() {
        let first = ToolCatalog::builtin().unwrap();
        let read = first.find("palyra.fs.read").unwrap();
        let (forecast, history) = (foreign("skill.acme.weather.forecast"), foreign("skill.acme.weather.history"));
        let second = first.with_source(&weather(), vec![Arc::clone(&forecast), history]).unwrap();
        assert_eq!(second.iter().count(), first.iter().count() + 2);
        assert!(second.holds(read), "what did not change is the same tool");
        let third = second.with_source(&weather(), vec![forecast]).unwrap();
        let entry = second.find("skill.acme.weather.forecast").unwrap();
        assert!(third.holds(entry) && !first.holds(entry));
        assert!(!third.holds(second.find("skill.acme.weather.history").unwrap()));
        let other = third.with_source(&weather(), vec![foreign("skill.acme.weather.forecast")]).unwrap();
        assert!(!other.holds(entry), "another tool of that name is another tool");
        let last = other.with_source(&weather(), vec![]).unwrap();
        assert_eq!(all(&last), all(&first));
        let gone = "skill.acme.weather.forecast".parse().unwrap();
        assert_eq!(last.metadata(&gone).risk, RiskLevel::Critical, "what is unknown counts as the worst");
        assert_eq!(other.metadata(&gone).risk, RiskLevel::Low);
    }

    #[test]
    fn no_source_takes_the_names_of_another() {
        let catalog = ToolCatalog::builtin().unwrap();
        let code =
            |source: &ToolSource, tools: Vec<Arc<dyn Tool>>| catalog.with_source(source, tools).unwrap_err().code();
        for name in ["palyra.fs.read", "palyra.new", "skill.acme.x.forecast", "skill.acme.weather.a.b", "forecast"] {
            assert_eq!(code(&weather(), vec![foreign(name)]), "tool_name_foreign", "{name}");
        }
        assert_eq!(code(&ToolSource::Builtin, vec![foreign("skill.acme.weather.forecast")]), "tool_name_foreign");
        let twice = || foreign("skill.acme.weather.forecast");
        assert_eq!(code(&weather(), vec![twice(), twice()]), "tool_name_taken");
        for bad in [
            json!({ "type": "nonsense" }),
            json!(7),
            json!({ "$ref": "https://example.org/schema" }),
            json!({ "pattern": "(a)\\1" }),
        ] {
            assert_eq!(code(&weather(), vec![defined("skill.acme.weather.x", bad)]), "tool_schema_unusable");
        }
    }

    #[test]
    fn aliases_lead_to_their_tools() {
        let catalog = ToolCatalog::builtin().unwrap();
        let word = "w".repeat(40);
        let long = format!("skill.acme.{word}.{word}");
        let skill = ToolSource::skill(&format!("acme.{word}")).unwrap();
        let catalog = catalog.with_source(&skill, vec![foreign(&long)]).unwrap();
        for entry in catalog.iter() {
            assert_eq!(catalog.by_alias(entry.alias().as_str()), Some(entry.name()));
            assert_eq!(catalog.by_alias(entry.name().as_str()), None, "a name with a dot is no alias");
        }
        assert_eq!(catalog.by_alias("palyra_fs_apply-patch").unwrap().as_str(), "palyra.fs.apply_patch");
        assert_eq!(catalog.by_alias("palyra_fs_apply_patch"), None);
    }
}
