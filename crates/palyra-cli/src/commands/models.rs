//! `palyra models`: which there are, and whether they answer.

use super::read;
use crate::args::runs::Models;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, GOOD, note, say, styled};
use crate::text::safe;
use palyra_api::v1::{ListModelsRequest, TestModelRequest};
use serde_json::{Value, json};

pub async fn run(context: &Context, command: Models) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let told = connection.models().list(ListModelsRequest {}).await?.into_inner();
    let models: Vec<Value> = told.models_json.iter().map(|model| read(model)).collect::<Result<_, _>>()?;
    match command {
        Models::List if context.json() => output::json(&json!({ "default": told.default_model, "models": models })),
        Models::List => {
            if models.is_empty() {
                note!("no models are configured; `[models.providers.NAME]` in palyra.toml adds some");
            }
            let text = |value: &Value| safe(value.as_str().unwrap_or_default());
            let rows = models.iter().map(|model| {
                let targets: Vec<String> = model["targets"].as_array().into_iter().flatten().map(text).collect();
                let mark = if model["name"] == told.default_model.as_str() { " (default)" } else { "" };
                vec![format!("{}{mark}", text(&model["name"])), text(&model["kind"]), targets.join(", then ")]
            });
            output::table(&["MODEL", "KIND", "ASKS"], &rows.collect::<Vec<_>>());
            Ok(())
        }
        Models::Test { model } => {
            let model = model.unwrap_or(told.default_model);
            if model.is_empty() {
                return Err(Failure::usage("there is no default model", "name one: `palyra models test MODEL`"));
            }
            let reply = connection.models().test(TestModelRequest { model }).await?.into_inner();
            if context.json() {
                return output::json(&json!({
                    "answered": reply.answered, "text": reply.text, "took_ms": reply.took_ms, "tokens": reply.tokens,
                }));
            }
            let (answered, took) = (safe(&reply.answered), reply.took_ms);
            say!("{} {answered} answered in {took} ms: {}", styled(GOOD, "✔"), safe(reply.text.trim()));
            Ok(())
        }
    }
}
