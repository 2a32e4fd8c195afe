"""The skill `{{name}}`."""

from palyra_skill import ToolError, Tools, tool


@tool(
    "greet",
    "Greets somebody by name.",
    input={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    output={"type": "object", "properties": {"greeting": {"type": "string"}}, "required": ["greeting"]},
)
def greet(input):
    if not input["name"]:
        raise ToolError("empty_name", "there is nobody to greet")
    return {"greeting": f"Hello, {input['name']}!"}
