// Measures the console in a real browser, and prints one document: times in milliseconds, sizes in bytes.
//
// Usage: node bench.mjs CHROMIUM PROGRAMS PLACE CALLS

import { execFileSync, spawn } from "node:child_process";
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { Agent, request } from "node:http";
import { join } from "node:path";
import { Chromium } from "./chromium.mjs";
import { Daemon } from "./daemon.mjs";

const [executable, programs, place, calls] = process.argv.slice(2);
const FEW = 100;
const ROUNDS = 30;
const PAGES = ["", "calls", "runs", "effects", "grants", "policy", "skills", "memory", "routines", "vault", "devices", "access", "journal", "health"];
const daemon = new Daemon(programs, place);
await daemon.configure("");
await daemon.start();
const token = daemon.told("access", "token", "create", "user:local", "--role", "owner", "--rate", "1000000",
  "--scope", "tool.list,tool.execute,call.read,call.cancel,approval.list,approval.decide").token;
const agent = new Agent({ keepAlive: true, maxSockets: 64 });
const median = (list) => list.toSorted((a, b) => a - b)[Math.floor((list.length - 1) / 2)];
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// A request of a token's, over a connection that stays.
function http(method, path, document, headers = { authorization: `Bearer ${token}` }) {
  return new Promise((done, fail) => {
    const body = document === undefined ? undefined : JSON.stringify(document);
    const sent = request({ agent, host: "127.0.0.1", port: daemon.port, method, path, headers: { ...headers, ...(body ? { "content-type": "application/json", "content-length": Buffer.byteLength(body) } : {}) } },
      (answer) => { let text = ""; answer.on("data", (part) => (text += part)); answer.on("end", () => done({ status: answer.statusCode, text })); });
    sent.on("error", fail);
    sent.end(body);
  });
}

async function echo(count) {
  let left = count;
  const work = async () => {
    while (left-- > 0) {
      const { status, text } = await http("POST", "/v1/tools/invoke", { tool: "palyra.echo", input: { text: "x" } });
      if (status !== 200) throw new Error(`${status}: ${text}`);
    }
  };
  await Promise.all(Array.from({ length: 64 }, work));
}

async function loaded(page) {
  for (const end = Date.now() + 60_000; Date.now() < end; ) {
    if (await page.evaluate(() => !document.querySelector("[data-content][aria-busy]") && performance.getEntriesByName("palyra-content").length > 0).catch(() => false)) return;
    await pause(5);
  }
  throw new Error(`no content: ${await page.evaluate(() => document.body.innerText)}`);
}

// From the navigation to the first frame that has the page's content.
async function paints(page, home) {
  const times = {};
  for (const name of PAGES) {
    const runs = [];
    for (let n = 0; n < 5; n += 1) {
      await page.goto(`${home}${name}`);
      await loaded(page);
      runs.push(await page.evaluate(() => performance.getEntriesByName("palyra-content")[0].startTime));
    }
    times[name || "inbox"] = median(runs);
  }
  return times;
}

// How long after it was asked a question is on screen, and on a line of `approvals watch`.
async function appears(page) {
  const watch = spawn(join(programs, "palyra"), ["--output", "json", "approvals", "watch"], { env: daemon.env, stdio: ["ignore", "pipe", "ignore"] });
  const lines = new Map();
  let rest = "";
  watch.stdout.on("data", (bytes) => {
    const now = Date.now();
    const parts = (rest + bytes).split("\n");
    rest = parts.pop();
    for (const part of parts) { const id = part.match(/apr_\w+/)?.[0]; if (id && !lines.has(id)) lines.set(id, now); }
  });
  await page.evaluate(() => {
    window.seen = new Map();
    new MutationObserver(() => {
      const now = performance.timeOrigin + performance.now();
      for (const item of document.querySelectorAll("[data-approval].item")) if (!window.seen.has(item.dataset.approval)) window.seen.set(item.dataset.approval, now);
    }).observe(document.body, { childList: true, subtree: true });
  });
  await pause(500);
  const [onScreen, onLine] = [[], []];
  for (let n = 0; n < ROUNDS; n += 1) {
    const { status, text } = await http("POST", "/v1/tools/invoke", { tool: "palyra.fs.write", input: { path: `f${n}.txt`, content: "x" }, wait_ms: 0 });
    if (status !== 202) throw new Error(`${status}: ${text}`);
    let record;
    while (!record) [record] = JSON.parse((await http("GET", "/v1/approvals")).text).approvals;
    for (const end = Date.now() + 5000; Date.now() < end && !lines.has(record.approval_id); ) await pause(2);
    let shown;
    for (const end = Date.now() + 5000; Date.now() < end && !shown; ) { shown = await page.evaluate((id) => window.seen.get(id), record.approval_id); await pause(2); }
    onScreen.push(shown - record.requested_at);
    onLine.push(lines.get(record.approval_id) - record.requested_at);
    await http("POST", `/v1/approvals/${record.approval_id}/decide`, { decision: "deny" });
  }
  watch.kill();
  return { onScreen: median(onScreen), onLine: median(onLine) };
}

const field = (text) => { const bytes = Buffer.isBuffer(text) ? text : Buffer.from(text); const length = Buffer.alloc(8); length.writeBigUInt64BE(BigInt(bytes.length)); return Buffer.concat([length, bytes]); };
const digest = (...fields) => createHash("sha256").update(Buffer.concat(fields.map(field))).digest();

// A browser without a browser: registers a key and listens.
async function listener(epoch) {
  const code = daemon.told("console").url.split("#code=")[1];
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const key = `ed25519:${publicKey.export({ format: "der", type: "spki" }).subarray(-32).toString("hex")}`;
  const { session } = JSON.parse((await http("POST", "/console/session", { code, key, label: "bench" }, {})).text);
  const [path, at, nonce] = ["/console/api/stream", Date.now(), `${epoch}${"0".repeat(32)}`];
  const body = createHash("sha256").update("").digest();
  const time = Buffer.alloc(8);
  time.writeBigUInt64BE(BigInt(at));
  const said = digest("palyra.console-request.v1", session, "GET", path, body, time, nonce);
  const headers = { "x-palyra-session": session, "x-palyra-time": String(at), "x-palyra-nonce": nonce, "x-palyra-body": body.toString("hex"), "x-palyra-signature": sign(null, said, privateKey).toString("hex") };
  return new Promise((done, fail) => {
    request({ host: "127.0.0.1", port: daemon.port, path, headers, agent: false }, (answer) => {
      if (answer.statusCode === 200) { answer.resume(); return done(answer); }
      let text = "";
      answer.on("data", (part) => (text += part));
      answer.on("end", () => {
        const problem = JSON.parse(text);
        done(problem.code === "console_epoch" ? problem.detail.match(/\w+$/)[0] : fail(new Error(text)));
      });
    }).on("error", fail).end();
  });
}

const resident = (pid) => Number(readFileSync(`/proc/${pid}/status`, "utf8").match(/VmRSS:\s+(\d+)/)[1]) * 1024;

// What processor time the screen takes while nothing happens, of the time that passes.
async function idleScreen() {
  const words = ["-qfec", `${join(programs, "palyra")} tui`, "/dev/null"];
  const screen = spawn("script", words, { env: { ...daemon.env, TERM: "xterm" }, stdio: ["pipe", "ignore", "ignore"] });
  await pause(2000);
  const tui = readdirSync("/proc").filter((pid) => /^\d+$/.test(pid)).find((pid) => {
    try { return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("palyra\0tui\0") && readFileSync(`/proc/${pid}/environ`, "utf8").includes(daemon.state); } catch { return false; }
  });
  const ticks = () => readFileSync(`/proc/${tui}/stat`, "utf8").split(") ")[1].split(" ").slice(11, 13).reduce((sum, n) => sum + Number(n), 0);
  const before = ticks();
  await pause(5000);
  const used = (ticks() - before) / Number(execFileSync("getconf", ["CLK_TCK"])) / 5;
  screen.stdin.write("q");
  screen.kill();
  return used;
}

const browser = new Chromium(executable, []);
let result;
try {
  await echo(FEW);
  const page = await browser.page();
  const url = daemon.told("console").url;
  const home = url.split("#")[0];
  await page.goto(url);
  await loaded(page);
  const sizes = new Map();
  const urls = new Map();
  browser.listen(({ method, params }) => {
    if (method === "Network.responseReceived") urls.set(params.requestId, params.response.url);
    if (method === "Network.loadingFinished" && urls.has(params.requestId) && !/\/api\//.test(urls.get(params.requestId))) sizes.set(urls.get(params.requestId).split("?")[0], params.encodedDataLength);
  });
  const few = await paints(page, home);
  await page.goto(home);
  await loaded(page);
  const { onScreen, onLine } = await appears(page);
  await echo(Number(calls) - FEW);
  const many = await paints(page, home);
  const sum = (of) => [...sizes].filter(([url]) => of(url)).reduce((sum, [, size]) => sum + size, 0);
  const before = resident(daemon.process.pid);
  const epoch = await listener("");
  const open = [];
  for (let n = 0; n < 100; n += 1) open.push(await listener(epoch));
  const each = (resident(daemon.process.pid) - before) / 100;
  for (const answer of open) answer.destroy();
  result = { calls: Number(calls), few, many, onScreen, onLine, bytes: sum(() => true), scripts: sum((url) => url.endsWith(".js")), each, idle: await idleScreen() };
} finally {
  await browser.close();
  await daemon.stop();
}
agent.destroy();
console.log(JSON.stringify(result));
