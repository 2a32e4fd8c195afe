"""OpenAI's Python SDK, openai-agents, langchain-openai and Codex against the compat door, with a scripted provider on loopback.

Usage: openai_clients.py DIRECTORY-OF-BINARIES WORK CODEX
Each client completes a call that is allowed, one that is denied and one that a person approves.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import openai_schema

BINARIES, WORK, CODEX = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
SCOPES = "compat.chat.create,compat.models.list,model.invoke,run.read,run.cancel,tool.list,tool.execute"


class Provider(BaseHTTPRequestHandler):
    """Says what the last message of the user asks for: a tool call, and a word when its result is there."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        messages = body["messages"]
        asked = [m for m in messages if m["role"] == "user"][-1]["content"]
        asked = asked if isinstance(asked, str) else "".join(part.get("text", "") for part in asked)
        wants = {
            "allowed": ("palyra_echo", {"text": "hello"}),
            "denied": ("palyra_fs_read", {"path": "../secret"}),
            "approved": ("palyra_process_run", {"argv": ["tee", "-a", "log"], "stdin": "once\n"}),
            "mine": ("weather", {"city": "Brno"}),
        }.get(asked.split()[0])
        if messages[-1]["role"] == "tool":
            told = messages[-1]["content"]
            deltas = [{"content": "result: "}, {"content": told if isinstance(told, str) else json.dumps(told)}]
            finish = "stop"
        elif wants:
            name, arguments = wants
            call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            deltas, finish = [{"tool_calls": [call]}], "tool_calls"
        else:
            deltas, finish = [{"content": "plain "}, {"content": "words"}], "stop"
        chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        chunks.append({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
        text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        try:
            self.wfile.write(text.encode())
        except BrokenPipeError:
            pass  # the run was cancelled

    def log_message(self, *_):
        pass


def palyra(*words):
    env = {**os.environ, "PALYRA_STATE_DIR": str(WORK / "s"), "PALYRA_WORKSPACE": str(WORK / "w"), "PALYRA_HTTP_PORT": "0", "HOME": str(WORK)}
    return subprocess.run([BINARIES / "palyra", *words], env=env, check=True, capture_output=True, text=True).stdout.strip()


def ok(what):
    print(f"ok: {what}", flush=True)


def approve_next():
    """Approves what waits, in the person's own terminal."""
    env = {**os.environ, "PALYRA_STATE_DIR": str(WORK / "s"), "PALYRA_WORKSPACE": str(WORK / "w"), "HOME": str(WORK)}
    watch = subprocess.Popen([BINARIES / "palyra", "approvals", "watch", "--output", "json"], env=env, stdout=subprocess.PIPE, text=True)

    def answer():
        for line in watch.stdout:
            approval = json.loads(line)
            approval = approval.get("record", approval)
            if approval["state"] == "pending":
                palyra("approvals", "decide", approval["approval_id"], "allow")
                watch.terminate()
                return

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def attested(metadata):
    call, state, digest = metadata["palyra_call_0"].split(" ")
    shown = json.loads(palyra("calls", "show", call, "--output", "json"))
    assert digest == "sha256:" + shown["attestation"]["execution_sha256"], (digest, shown)
    file = WORK / "call.json"
    file.write_text(json.dumps(shown))
    palyra("attest", "verify", str(file))


def sdk(url, token):
    from openai import OpenAI, BadRequestError, PermissionDeniedError

    client = OpenAI(base_url=url, api_key=token)
    assert {model.id for model in client.models.list()} >= {"palyra/coder", "main"}
    user = lambda text: [{"role": "user", "content": text}]

    done = client.chat.completions.create(model="palyra/coder", messages=user("allowed"))
    assert "hello" in done.choices[0].message.content, done
    attested(done.metadata)
    denied = client.chat.completions.create(model="palyra/coder", messages=user("denied"))
    assert "path_outside_workspace" in denied.choices[0].message.content, denied
    thread = approve_next()
    approved = client.chat.completions.create(model="palyra/coder", messages=user("approved"))
    thread.join()
    assert "exit_code" in approved.choices[0].message.content or "once" in approved.choices[0].message.content, approved
    ok("openai, chat: allowed, denied, approved")

    said, usage = "", None
    options = {"include_usage": True}
    for chunk in client.chat.completions.create(model="palyra/coder", messages=user("allowed"), stream=True, stream_options=options):
        if chunk.choices:
            said += chunk.choices[0].delta.content or ""
        usage = chunk.usage or usage
    assert "hello" in said and usage.total_tokens == 20, (said, usage)
    palyras = [{"type": "mcp", "server_label": "palyra", "allowed_tools": ["palyra.echo"]}]
    asked_for = client.chat.completions.create(model="main", messages=user("allowed"), tools=palyras)
    attested(asked_for.metadata)
    ok("openai, chat: a plain model with Palyra's tools, because the request asks for them")
    weather = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    mine = client.chat.completions.create(model="main", messages=user("mine"), tools=[weather])
    call = mine.choices[0].message.tool_calls[0]
    assert (call.function.name, mine.choices[0].finish_reason) == ("weather", "tool_calls"), mine
    with client.chat.completions.stream(model="palyra/coder", messages=user("mine"), tools=[weather]) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "weather", final
    ok("openai, chat: streams, and the caller's tools")

    response = client.responses.create(model="palyra/coder", input="allowed")
    assert "hello" in response.output_text, response
    attested(response.metadata)
    assert client.responses.retrieve(response.id).output_text == response.output_text
    assert "path_outside" in client.responses.create(model="palyra/coder", input="denied").output_text
    thread = approve_next()
    kinds, asked = [], []
    with client.responses.stream(model="palyra/coder", input="approved") as stream:
        for event in stream:
            kinds.append(event.type)
            if event.type == "response.output_item.done" and event.item.type == "mcp_approval_request":
                asked.append(event.item.id)
        final = stream.get_final_response()
    thread.join()
    assert asked and kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    assert final.status == "completed", final
    background = client.responses.create(model="palyra/coder", input="approved", background=True)
    assert client.responses.cancel(background.id).status == "cancelled"
    plain = client.responses.create(model="main", input="something", store=False)
    assert plain.output_text == "plain words", plain
    for refused, error in [
        (lambda: client.responses.create(model="main", input="x", store=True), BadRequestError),
        (lambda: client.responses.create(model="palyra/coder", previous_response_id=response.id, input=[
            {"type": "mcp_approval_response", "approval_request_id": asked[0], "approve": True}]), PermissionDeniedError),
    ]:
        try:
            refused()
        except error as seen:
            assert seen.body["message"], seen
        else:
            raise AssertionError("it was not refused")
    ok("openai, responses: allowed, denied, approved, background, cancel, refusals")


def agents(url, token):
    from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)

    async def all_of_it():
        client = AsyncOpenAI(base_url=url, api_key=token)
        for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
            agent = Agent(name="a", model=kind(model="palyra/coder", openai_client=client))
            assert "hello" in (await Runner.run(agent, "allowed")).final_output
            assert "path_outside_workspace" in (await Runner.run(agent, "denied")).final_output
        agent = Agent(name="a", model=OpenAIChatCompletionsModel(model="palyra/coder", openai_client=client))
        thread = approve_next()
        assert (await Runner.run(agent, "approved")).final_output.startswith("result:")
        thread.join()

    asyncio.run(all_of_it())
    ok("openai-agents: allowed, denied, approved")


def langchain(url, token):
    from langchain_openai import ChatOpenAI

    for responses in (False, True):
        model = ChatOpenAI(model="palyra/coder", base_url=url, api_key=token, use_responses_api=responses)
        text = lambda message: message.content if isinstance(message.content, str) else json.dumps(message.content)
        assert "hello" in text(model.invoke("allowed"))
        assert "path_outside_workspace" in text(model.invoke("denied"))
        thread = approve_next()
        assert "result:" in text(model.invoke("approved"))
        thread.join()
        assert "hello" in "".join(text(chunk) for chunk in model.stream("allowed"))
    ok("langchain-openai: allowed, denied, approved, streamed")


def codex(url, token):
    home = WORK / "codex"
    home.mkdir()
    provider = {"name": "palyra", "wire_api": "responses", "base_url": url, "env_key": "PALYRA_KEY"}
    words = [CODEX, "exec", "--skip-git-repo-check", "-c", "model=palyra/coder", "-c", "model_provider=palyra"]
    for key, value in provider.items():
        words += ["-c", f"model_providers.palyra.{key}={value}"]

    def says(text):
        env = {**os.environ, "CODEX_HOME": str(home), "HOME": str(WORK), "PALYRA_KEY": token}
        ran = subprocess.run([*words, text], env=env, cwd=WORK / "w", capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert "hello" in says("allowed")
    assert "path_outside_workspace" in says("denied")
    thread = approve_next()
    assert "result:" in says("approved")
    thread.join()
    ok("Codex, responses: allowed, denied, approved")


def main():
    (WORK / "w").mkdir(parents=True)
    provider = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    (WORK / "palyra.toml").write_text(f"""
[models]
default = "main"
[models.aliases]
main = ["p/m"]
[models.providers.p]
dialect = "chat_completions"
base_url = "http://127.0.0.1:{provider.server_port}/v1"
models = ["m"]
[models.agents.coder]
model = "main"
""")
    palyra("up", "--workspace", str(WORK / "w"), "--config", str(WORK / "palyra.toml"))
    try:
        palyra("access", "agent", "add", "agent:coder")
        token = json.loads(palyra("access", "token", "create", "agent:coder", "--scope", SCOPES, "--output", "json"))["token"]
        url = (WORK / "s/http.url").read_text().strip() + "/v1"
        sdk(url, token)
        ok(f"OpenAI's published schema: {openai_schema.check(url + '/', token)} answers and chunks")
        agents(url, token)
        langchain(url, token)
        codex(url, token)
        assert json.loads(palyra("journal", "verify", "--output", "json"))["intact"]
        ok("the journal is intact")
    finally:
        palyra("down")


main()
