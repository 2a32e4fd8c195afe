"""The official Python SDK against Palyra, over both transports and in both revisions.

Usage: sdk.py PALYRA STATE_DIR TOKEN_FILE URL. The daemon runs, and the token is an agent's. A person's answers are given
by the owner, through the command line, as a person would give them.
"""

import asyncio
import json
import subprocess
import sys

import httpx2 as httpx
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

palyra, state_dir, token_file, url = sys.argv[1:5]


def owner(*words):
    ran = subprocess.run([palyra, "--state-dir", state_dir, "-o", "json", *words], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


answered = set()


def approve(question):
    if question not in answered:
        answered.add(question)
        owner("approvals", "decide", question, "allow")


async def exercise(client, name):
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools["palyra_fs_read"].annotations.read_only_hint is True, tools["palyra_fs_read"]
    allowed = await client.call_tool("palyra_echo", {"text": "hi"})
    assert allowed.structured_content == {"text": "hi"} and not allowed.is_error, allowed
    denied = await client.call_tool("palyra_fs_read", {"path": "../x"})
    assert denied.is_error and denied.structured_content["error"]["code"] == "path_outside_workspace", denied
    try:
        await client.call_tool("palyra_nothing", {})
        raise AssertionError("a tool that does not exist was called")
    except MCPError as error:
        assert error.error.code == -32602, error
    heard = []

    async def progress(done, total, message):
        heard.append(message)
        if "palyra approvals decide" in (message or ""):
            approve(message.split("decide ")[1].split(" ")[0])

    approved = await client.call_tool("palyra_process_run", {"argv": ["echo", name]}, progress_callback=progress)
    assert approved.structured_content["stdout"] == name + "\n" and heard, (approved, heard)
    print(f"ok: python SDK, {name}: listed {len(tools)}, allowed, denied, unknown, approved after {len(heard)} messages")


async def main():
    stdio = StdioServerParameters(command=palyra, args=["--state-dir", state_dir, "mcp", "serve", "--token-file", token_file])
    token = open(token_file).read().strip()
    for mode in ["legacy", "auto"]:
        async with Client(stdio, mode=mode) as client:
            await exercise(client, f"stdio {mode} {client.protocol_version}")
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
            async with Client(streamable_http_client(url + "/mcp", http_client=http), mode=mode) as client:
                await exercise(client, f"http {mode} {client.protocol_version}")


asyncio.run(main())
