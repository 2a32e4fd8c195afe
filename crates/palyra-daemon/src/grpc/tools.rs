//! The tools that can be called.

use super::{Door, Reply, document, refused};
use palyra_api::v1::tools_server::Tools;
use palyra_api::v1::{GetToolRequest, ListToolsReply, ListToolsRequest, Tool};
use palyra_engine::CatalogTool;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl Tools for Door {
    async fn list(&self, request: Request<ListToolsRequest>) -> Reply<ListToolsReply> {
        let peer = self.peer(&request)?;
        let tools = self.engine.tools(&peer).map_err(refused)?;
        let tools = tools.into_iter().map(|(tool, allowlisted)| told(&tool, allowlisted)).collect::<Result<_, _>>()?;
        Ok(Response::new(ListToolsReply { tools }))
    }

    async fn get(&self, request: Request<GetToolRequest>) -> Reply<Tool> {
        let peer = self.peer(&request)?;
        let (tool, allowlisted) = self.engine.tool(&peer, &request.get_ref().name).map_err(refused)?;
        Ok(Response::new(told(&tool, allowlisted)?))
    }
}

fn told(tool: &CatalogTool, allowlisted: bool) -> Result<Tool, Status> {
    let definition = tool.definition();
    Ok(Tool {
        name: definition.name.to_string(),
        summary: definition.summary.clone(),
        risk: definition.risk.as_str().to_owned(),
        capabilities: definition.capabilities.iter().map(ToString::to_string).collect(),
        sensitive: tool.metadata().is_sensitive(),
        allowlisted,
        definition_json: document(definition)?,
    })
}
