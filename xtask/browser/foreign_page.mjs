// A page of another origin, in a real browser, tries to reach every route of the HTTP door. It must not read an answer,
// and no request of it may be answered with anything but a refusal.
//
// Usage: node foreign_page.mjs CHROMIUM DOOR_URL TOKEN

import { createServer } from "node:http";
import { Chromium } from "./chromium.mjs";

const [executable, door, token] = process.argv.slice(2);

const described = await (await fetch(`${door}/openapi.json`)).json();
const described_routes = Object.entries(described.paths).flatMap(([path, item]) =>
  Object.keys(item).map((verb) => [
    verb.toUpperCase(),
    path.replace(/\{call_id\}/, "call_01ARZ3NDEKTSV4RRFFQ69G5FAV").replace(/\{approval_id\}/, "apr_01ARZ3NDEKTSV4RRFFQ69G5FAV"),
  ]),
);
const REFUSALS = [403, 405, 421];
// MCP describes itself.
const console_routes = [["GET", "/"], ["GET", "/console/"], ["GET", "/console/calls"], ["GET", "/console/assets/page.js"], ["POST", "/console/session"],
  ["GET", "/console/api/me"], ["GET", "/console/api/stream"], ["GET", "/console/api/inbox"]];
const routes = [...described_routes, ...console_routes, ["POST", "/mcp"], ["GET", "/mcp"], ["DELETE", "/mcp"]];
if (routes.length < 13) throw new Error(`too few routes: ${routes.length}`);

const page_server = createServer((_, response) => {
  response.setHeader("content-type", "text/html");
  response.end("<!doctype html><title>elsewhere</title><body></body>");
});
await new Promise((listening) => page_server.listen(0, "127.0.0.1", listening));
const port = page_server.address().port;

// One name is rebound to this machine.
const browser = new Chromium(executable, ["--host-resolver-rules=MAP rebound.example 127.0.0.1"]);
const failures = [];
let tried = 0;
let refused = 0;

// Every route under one name, from one page, in every way a page has.
async function attack(home, name) {
  const target = door.replace("127.0.0.1", name);
  const page = await browser.page();
  await page.goto(home);
  const read = await page.evaluate(everything, { target, routes, token });
  tried += routes.length * 8;
  for (const got of read) failures.push([home, name, ...got]);
  for (const { method, url, status } of page.answered.filter(({ url }) => url.startsWith(target))) {
    refused += 1;
    if (!REFUSALS.includes(status)) failures.push([home, method, url, status]);
  }
  // A form leaves the page: what it leads to is a refusal too.
  for (const method of ["get", "post"]) {
    await page.goto(home);
    const status = await page.leave(() => page.evaluate(submit, { action: `${target}/v1/tools/invoke`, method }));
    if (!REFUSALS.includes(status)) failures.push([home, "form", method, status]);
  }
  await page.close();
}

// These two run in the page.
async function everything({ target, routes, token }) {
  const read = [];
  const attempts = [];
  for (const [verb, path] of routes) {
    const call = path === "/mcp"
      ? { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "palyra_echo", arguments: { text: "stolen" } } }
      : { tool: "palyra.echo", input: { text: "stolen" } };
    const body = verb === "POST" ? JSON.stringify(call) : undefined;
    const authorization = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    for (const [what, init] of [
      ["plain", { method: verb, body }],
      ["no-cors", { method: verb === "DELETE" ? "GET" : verb, body, mode: "no-cors" }],
      ["with a token", { method: verb, body, headers: authorization }],
      ["with cookies", { method: verb, body, credentials: "include" }],
    ]) {
      attempts.push(fetch(target + path, init).then(
        async (answer) => { if (answer.type !== "opaque") read.push([what, verb, path, answer.status, await answer.text()]); },
        () => {},
      ));
    }
    for (const element of ["img", "script", "iframe", "link"]) {
      attempts.push(new Promise((end) => {
        const tag = document.createElement(element);
        tag.onload = () => end(element === "iframe" ? undefined : read.push([element, verb, path]));
        tag.onerror = () => end();
        if (element === "link") { tag.rel = "stylesheet"; tag.href = target + path; } else { tag.src = target + path; }
        document.body.append(tag);
        setTimeout(end, 3000);
      }));
    }
  }
  await Promise.all(attempts);
  return read;
}

function submit({ action, method }) {
  const form = document.createElement("form");
  Object.assign(form, { action, method, enctype: "text/plain" });
  document.body.append(form);
  form.submit();
}
try {
  // That the browser can reach the door at all is what makes the rest mean something.
  const own = await browser.page();
  const health = await own.goto(`${door}/healthz`);
  if (health !== 200) throw new Error(`the browser does not reach the door: ${health}`);
  await own.close();
  // Another port is another origin of the same site, another name another site, and a data page has no origin at all.
  const homes = [`http://127.0.0.1:${port}/`, `http://localhost:${port}/`, `http://rebound.example:${port}/`, "data:text/html,x"];
  const names = ["127.0.0.1", "localhost", "rebound.example"];
  for (const home of homes) await Promise.all(names.map((name) => attack(home, name)));
} finally {
  await browser.close();
  page_server.close();
  page_server.closeAllConnections();
}
if (failures.length > 0) {
  console.error("a page of another origin got through:");
  for (const failure of failures) console.error(" ", JSON.stringify(failure));
  process.exit(1);
}
if (refused === 0) throw new Error("no request of a page came to the door");
console.log(`${tried} attempts from pages of other origins: ${refused} came to the door, none got through`);
