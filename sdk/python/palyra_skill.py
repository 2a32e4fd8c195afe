"""Write skills for Palyra in Python.

    from palyra_skill import Tools, ToolError, tool

    @tool("shout", "Writes a text in capital letters.",
          input={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
    def shout(input):
        return {"shouted": input["text"].upper()}

`Tools` must be a name of the module `app`: the component is made from it. What a tool returns is written as JSON. The host's interfaces are
`from palyra_skill import log, http, secrets, storage`; import only what you use, because each has to be granted.
"""

import importlib
import json

from componentize_py_types import Err
from wit_world.exports import Tools as _World
from wit_world.exports.tools import Tool as _Tool
from wit_world.exports.tools import ToolError as _ToolError

_INTERFACES = ("log", "http", "secrets", "storage")
_tools = {}


class ToolError(Exception):
    """Why a tool did not do what it was asked: a short stable name, and a sentence for a person."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
        self.message = message


def tool(name, description, input=None, output=None):
    """Makes a tool of a function that takes the input and returns the output."""

    def register(function):
        schemas = [None if schema is None else json.dumps(schema) for schema in (input or {"type": "object"}, output)]
        _tools[name] = (function, _Tool(name, description, *schemas))
        return function

    return register


class Tools(_World):
    """What the host calls."""

    def describe(self):
        return [described for _, described in _tools.values()]

    def invoke(self, tool, input_json):
        try:
            if tool not in _tools:
                raise ToolError("unknown_tool", f"this skill has no tool `{tool}`")
            function, _ = _tools[tool]
            return json.dumps(function(json.loads(input_json)))
        except ToolError as error:
            raise Err(_ToolError(error.code, error.message)) from error
        except (KeyError, TypeError, ValueError) as error:
            raise Err(_ToolError("invalid_input", f"{type(error).__name__}: {error}")) from error


def __getattr__(name):
    if name in _INTERFACES:
        return importlib.import_module(f"wit_world.imports.{name}")
    raise AttributeError(name)
