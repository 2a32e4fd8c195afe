"""Answers and chunks held to OpenAI's published schema: the types of the `openai` package, which are generated from it.

Strict: no type is converted, what is required must be there, and a field that the schema does not have is refused.
"""

import json

import httpx
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

# A streamed chat completion has no place for the calls' digests in the schema; clients ignore a field that they do not know.
OWN_FIELDS = {(ChatCompletionChunk, "metadata")}


def unknown(value, path="$"):
    """Every field that the schema does not have."""
    if isinstance(value, BaseModel):
        for name in value.model_extra or {}:
            if (type(value), name) not in OWN_FIELDS:
                yield f"{path}.{name}"
        for name in value.model_fields_set:
            yield from unknown(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown(item, f"{path}[{index}]")


def held_to(kind, text):
    value = TypeAdapter(kind).validate_json(text, strict=True)
    found = list(unknown(value))
    assert not found, (found, text)
    return value


def check(url, token):
    """Asks in every way, and counts what was held to the schema."""
    client = httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=120)
    seen = 0
    weather = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    mine = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}

    def events(path, body):
        with client.stream("POST", path, json={**body, "stream": True}) as answer:
            assert answer.status_code == 200, answer.read()
            yield from (line[6:] for line in answer.iter_lines() if line.startswith("data: "))

    for model, text, tools in [("palyra/coder", "allowed", []), ("palyra/coder", "denied", []), ("main", "words", []),
                               ("main", "mine", [weather]), ("palyra/coder", "mine", [weather])]:
        body = {"model": model, "messages": [{"role": "user", "content": text}], "tools": tools}
        whole = client.post("chat/completions", json=body)
        assert whole.status_code == 200, whole.text
        held_to(ChatCompletion, whole.text)
        chunks = list(events("chat/completions", {**body, "stream_options": {"include_usage": True}}))
        assert chunks.pop() == "[DONE]"
        for chunk in chunks:
            held_to(ChatCompletionChunk, chunk)
        seen += 1 + len(chunks)

        body = {"model": model, "input": text, "tools": [mine] if tools else []}
        whole = client.post("responses", json=body)
        assert whole.status_code == 200, whole.text
        response = held_to(Response, whole.text)
        if model == "palyra/coder":
            held_to(Response, client.get(f"responses/{response.id}").text)
        streamed = list(events("responses", body))
        for number, event in enumerate(streamed):
            assert held_to(ResponseStreamEvent, event).sequence_number == number, event
        seen += 2 + len(streamed)

    waits = held_to(Response, client.post("responses", json={"model": "palyra/coder", "input": "approved", "background": True}).text)
    assert waits.status in ("queued", "in_progress") and waits.background, waits
    assert held_to(Response, client.post(f"responses/{waits.id}/cancel").text).status == "cancelled"
    for model in client.get("models").json()["data"]:
        held_to(Model, json.dumps(model))
        seen += 1
    for refused in [client.post("responses", json={"model": "nothing", "input": "x"}),
                    client.post("chat/completions", json={"model": "main", "messages": "x"}),
                    client.get("responses/resp_x"),
                    httpx.post(f"{url}responses", json={})]:
        assert refused.status_code >= 400 and set(refused.json()) == {"error"}, refused.text
        error = refused.json()["error"]
        assert set(error) == {"code", "message", "param", "type"}, error
        assert isinstance(error["message"], str) and isinstance(error["type"], str), error
        seen += 1
    return seen + 2
