// A daemon of the test's own, at a port that stays the same over a restart, and a model that says what is written down.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";

// Ports that nobody has now.
async function free(count) {
  const servers = await Promise.all(Array.from({ length: count }, () => new Promise((done) => {
    const server = createServer();
    server.listen(0, "127.0.0.1", () => done(server));
  })));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((done) => server.close(done))));
  return ports;
}

export class Daemon {
  constructor(programs, place) {
    Object.assign(this, { programs, state: join(place, "state"), workspace: join(place, "workspace"), rules: join(place, "rules") });
    rmSync(place, { recursive: true, force: true });
    for (const directory of [this.workspace, this.rules]) mkdirSync(directory, { recursive: true });
    this.env = { ...process.env, PALYRA_STATE_DIR: this.state, PALYRA_LOG: "error" };
  }

  async configure(text) {
    // The pairing door is the one after that of devices.
    [this.port, this.remote] = await free(2);
    this.config = join(this.state, "..", "palyra.toml");
    writeFileSync(this.config, `${text}\n[remote]\nlisten = "127.0.0.1:${this.remote}"\n`);
  }

  start() {
    const words = ["--state-dir", this.state, "--workspace", this.workspace, "--config", this.config];
    this.process = spawn(join(this.programs, "palyrad"), words, { env: { ...this.env, PALYRA_HTTP_PORT: String(this.port) }, stdio: ["ignore", "pipe", "inherit"] });
    return new Promise((done, fail) => {
      this.process.stdout.once("data", (said) => (String(said).startsWith("ready") ? done() : fail(new Error(`palyrad: ${said}`))));
      this.process.once("exit", (code) => fail(new Error(`palyrad ended: ${code}`)));
    });
  }

  stop(signal = "SIGTERM") {
    if (!this.process || this.process.exitCode !== null) return undefined;
    const ended = new Promise((done) => this.process.once("exit", done));
    this.process.kill(signal);
    return ended;
  }

  cli(...words) {
    return execFileSync(join(this.programs, "palyra"), words, { env: this.env, encoding: "utf8", cwd: this.workspace });
  }

  told(...words) {
    return JSON.parse(this.cli("--output", "json", ...words));
  }

  // A call that waits for a person; its end is awaited.
  propose(path, content) {
    const words = ["--output", "json", "call", "palyra.fs.write", "--input", JSON.stringify({ path, content })];
    const child = spawn(join(this.programs, "palyra"), words, { env: this.env, cwd: this.workspace });
    let output = "";
    child.stdout.on("data", (bytes) => (output += bytes));
    return new Promise((done) => child.on("close", (code) => done({ code, output })));
  }
}

// A provider in the dialect of chat completions. Each request takes the next thing to say; then it says `done`.
export class Model {
  script = [];

  async start() {
    this.server = createServer(async (request, response) => {
      for await (const _ of request);
      const said = this.script.shift() ?? { content: "done" };
      const delta = typeof said === "string" ? { content: said } : said;
      response.writeHead(200, { "content-type": "text/event-stream" });
      const piece = (choice) => response.write(`data: ${JSON.stringify({ id: "x", object: "chat.completion.chunk", model: "m", choices: [{ index: 0, ...choice }] })}\n\n`);
      piece({ delta, finish_reason: null });
      piece({ delta: {}, finish_reason: delta.tool_calls ? "tool_calls" : "stop" });
      response.end(`data: ${JSON.stringify({ id: "x", choices: [], usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 } })}\n\ndata: [DONE]\n\n`);
    });
    await new Promise((done) => this.server.listen(0, "127.0.0.1", done));
    return this.server.address().port;
  }

  calls(name, input) {
    return { tool_calls: [{ index: 0, id: "id_0", type: "function", function: { name, arguments: JSON.stringify(input) } }] };
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }
}
