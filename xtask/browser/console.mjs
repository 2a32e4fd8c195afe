// The console in a real browser: every page at two widths, light and dark; questions decided by mouse and by keyboard; hostile
// text; a replayed request; a session that is revoked; a daemon that is gone. Screenshots are kept.
//
// Usage: node console.mjs CHROMIUM PALYRA STATE_DIR WORKSPACE SCREENSHOTS

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Chromium } from "./chromium.mjs";

const [executable, palyra, state, workspace, pictures] = process.argv.slice(2);
const env = { ...process.env, PALYRA_STATE_DIR: state };
mkdirSync(pictures, { recursive: true });
const cli = (...words) => execFileSync(palyra, words, { env, encoding: "utf8" });
const told = (...words) => JSON.parse(cli("--output", "json", ...words));
const checks = [];
function check(what, holds) {
  checks.push(what);
  if (!holds) throw new Error(`does not hold: ${what}`);
}

// A call that waits for a person; its end is awaited.
function propose(path, content) {
  const child = spawn(palyra, ["--output", "json", "call", "palyra.fs.write", "--input", JSON.stringify({ path, content })], { env, cwd: workspace });
  let output = "";
  child.stdout.on("data", (bytes) => (output += bytes));
  return new Promise((done) => child.on("close", (code) => done({ code, output })));
}

const SIZES = { phone: [390, 844, 3, true], desktop: [1280, 860, 1, false] };
async function look(page, size, scheme) {
  const [width, height, deviceScaleFactor, mobile] = SIZES[size];
  await page.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor, mobile });
  await page.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
}

async function picture(page, name) {
  const { data } = await page.send("Page.captureScreenshot", { format: "png", captureBeyondViewport: false });
  writeFileSync(join(pictures, `${name}.png`), Buffer.from(data, "base64"));
}

// Waits until a script in the page gives something.
async function until(page, what, script, argument) {
  for (const end = Date.now() + 20_000; Date.now() < end; ) {
    const value = await page.evaluate(script, argument).catch(() => undefined);
    if (value) return value;
    await page.evaluate(() => new Promise((next) => requestAnimationFrame(next))).catch(() => {});
  }
  await picture(page, "failure");
  throw new Error(`the page never came to it: ${what}\n${await page.evaluate(() => document.body.innerText)}`);
}

async function key(page, text) {
  const named = { Enter: ["\r", 13], Tab: ["", 9], Escape: ["", 27] }[text];
  const event = { key: text, text: named ? named[0] || undefined : text, windowsVirtualKeyCode: named?.[1] };
  await page.send("Input.dispatchKeyEvent", { type: "keyDown", ...event });
  await page.send("Input.dispatchKeyEvent", { type: "keyUp", ...event, text: undefined });
}

async function click(page, selector) {
  const at = await until(page, `${selector} is there`, (selector) => {
    const element = document.querySelector(selector);
    if (!element || element.disabled) return null;
    element.scrollIntoView({ block: "center" });
    const { x, y, width, height } = element.getBoundingClientRect();
    return { x: x + width / 2, y: y + height / 2 };
  }, selector);
  for (const type of ["mousePressed", "mouseReleased"]) await page.send("Input.dispatchMouseEvent", { type, ...at, button: "left", clickCount: 1 });
}

const loaded = (page) => until(page, "the content is there", () => !document.querySelector("[data-content][aria-busy]"));
const PAGES = ["", "calls", "grants", "policy", "effects", "vault", "devices", "access", "journal", "health"];
const HOSTILE = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>\u202egnp.exe\u001b[2J`;

const browser = new Chromium(executable, []);
try {
  const page = await browser.page();
  const violations = [];
  browser.listen(({ method, params }) => {
    if (method === "Log.entryAdded" && /Content Security|Trusted/i.test(params.entry.text)) violations.push(params.entry.text);
    if (method === "Runtime.exceptionThrown") violations.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
  });
  await page.send("Log.enable");
  await page.send("Runtime.enable");
  await look(page, "desktop", "light");

  // Opening: the code is taken out of the address, and opens once.
  const url = told("console").url;
  const home = url.split("#")[0];
  await page.goto(url);
  await loaded(page);
  check("the code is gone from the address", await page.evaluate(() => !location.hash));
  check("the page says who it acts for", (await until(page, "who", () => document.querySelector("[data-who]").textContent)).includes("user:local"));
  check("there is no cookie", await page.evaluate(() => document.cookie === ""));
  check("the inbox teaches", await page.evaluate(() => /Nothing waits/.test(document.body.innerText)));
  await picture(page, "inbox-empty");
  const used = await page.evaluate(async (code) => {
    const key = "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    const answer = await fetch("/console/session", { method: "POST", body: JSON.stringify({ code, key, label: "thief" }) });
    return [answer.status, (await answer.json()).code].join();
  }, url.split("=")[1]);
  check("a code opens once", used === "401,console_code_wrong");
  const sessions = told("console", "sessions", "list");
  check("the session is listed", sessions.length === 1 && sessions[0].key.startsWith("ed25519:"));

  // The key stays in the browser, and nobody else's request is taken for its own.
  const answers = await page.evaluate(async () => {
    const plain = (await fetch("/console/api/me")).status;
    const database = await new Promise((done) => { const o = indexedDB.open("palyra-console", 1); o.onsuccess = () => done(o.result); });
    const session = await new Promise((done) => { const r = database.transaction("session").objectStore("session").get("current"); r.onsuccess = () => done(r.result); });
    const taken = await crypto.subtle.exportKey("pkcs8", session.pair.privateKey).then(() => true, () => false);
    let sent;
    const own = window.fetch;
    window.fetch = (path, init) => { if (init?.headers?.["x-palyra-signature"]) sent ??= [path, init]; return own(path, init); };
    await (await import("/console/assets/session.js")).json("/console/api/me");
    window.fetch = own;
    const replayed = await own(...sent);
    const other = await own("/console/api/sessions", sent[1]);
    return { plain, taken, replayed: [replayed.status, (await replayed.json()).code], other: other.status };
  });
  check("an unsigned request is refused", answers.plain === 401);
  check("the key cannot be taken out", answers.taken === false);
  check("a replayed request is refused", answers.replayed.join() === "401,console_replayed");
  check("a signature fits no other path", answers.other === 401);

  // A question appears without being asked for, and is decided by mouse.
  const first = propose("notes.txt", "hello\n");
  await until(page, "the question", () => document.querySelector("[data-approval].item"));
  check("the title counts", (await page.evaluate(() => document.title)).startsWith("(1)"));
  await click(page, "[data-approval].item");
  await until(page, "the review", () => document.querySelector("article.review"));
  await picture(page, "inbox-review");
  await until(page, "the end was seen", () => { document.querySelector("[data-end]").scrollIntoView(); return !document.querySelector("[data-decide=allow]").disabled; });
  await until(page, "it stood still", () => new Promise((done) => setTimeout(() => done(true), 400)));
  await click(page, "[data-decide=allow]");
  check("what was allowed by mouse has run", JSON.parse((await first).output).state === "succeeded");
  await until(page, "it is gone", () => !document.querySelector("[data-approval].item"));

  // Hostile text, denied by keyboard at phone size, with a reason that the agent reads.
  await look(page, "phone", "dark");
  const second = propose(`evil.txt`, HOSTILE);
  await until(page, "the second question", () => document.querySelector("[data-approval].item"));
  await key(page, "j");
  await key(page, "o");
  await until(page, "the review", () => document.querySelector("article.review"));
  check("hostile text is inert", await page.evaluate(() => !document.querySelector("article img, article script") && document.title !== "owned" && document.body.innerText.includes("onerror")));
  check("hidden characters are visible", await page.evaluate(() => !document.body.innerText.includes("\u202e") && document.body.innerText.includes("\\u{202e}")));
  await picture(page, "inbox-phone-dark");
  check("nothing is wider than the phone", await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth + 1));
  await key(page, "Enter");
  await until(page, "it stood still", () => new Promise((done) => setTimeout(() => done(true), 400)));
  check("Enter allows nothing", told("approvals", "list").length === 1);
  await key(page, "r");
  for (const letter of "not like this") await key(page, letter);
  await key(page, "Escape");
  await key(page, "d");
  const denied = JSON.parse((await second).output);
  check("what was denied by keyboard has not run", denied.state === "denied" && JSON.stringify(denied).includes("not like this"));

  await until(page, "it is gone", () => !document.querySelector("[data-approval].item"));

  // Answered elsewhere: it disappears, and the opened one can no longer be answered.
  await look(page, "desktop", "dark");
  const third = propose("elsewhere.txt", "x");
  await click(page, "[data-approval].item");
  await until(page, "the review", () => document.querySelector("article.review [data-decide]"));
  cli("approvals", "decide", await page.evaluate(() => document.querySelector("article.review").dataset.approval), "deny");
  await third;
  await until(page, "it ended here too", () => !document.querySelector("[data-decide]") && !document.querySelector("[data-approval].item"));

  // Allowed by keyboard.
  await page.goto(home);
  await loaded(page);
  const fourth = propose("keys.txt", "by keyboard");
  await until(page, "the question", () => document.querySelector("[data-approval].item"));
  await key(page, "j");
  await key(page, "o");
  await until(page, "the end was seen", () => { document.querySelector("[data-end]")?.scrollIntoView(); return document.querySelector("[data-decide=allow]")?.disabled === false; });
  await until(page, "it stood still", () => new Promise((done) => setTimeout(() => done(true), 400)));
  await key(page, "y");
  const allowed = JSON.parse((await fourth).output);
  check("what was allowed by keyboard has run", allowed.state === "succeeded");
  check("the journal with its signed decisions fits", told("journal", "verify").intact === true);

  // Every page, at both sizes, light and dark.
  for (const size of ["desktop", "phone"]) {
    for (const scheme of size === "desktop" ? ["light", "dark"] : ["light"]) {
      await look(page, size, scheme);
      for (const name of [...PAGES, `call?id=${allowed.call_id}`]) {
        await page.goto(`${home}${name}`);
        await loaded(page);
        const strip = await page.evaluate(() => document.querySelector("[data-strip].bad:not([hidden])")?.textContent);
        check(`${name || "inbox"} loads (${size}, ${scheme})`, !strip);
        check(`${name || "inbox"} fits (${size})`, await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth + 1));
        const bare = await page.evaluate(() => [...document.querySelectorAll("button, a, input, select, textarea:not([hidden])")]
          .filter((e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length || e.title)).map((e) => e.outerHTML));
        check(`everything has a name on ${name || "inbox"}: ${bare}`, bare.length === 0);
        await picture(page, `${name.split("?")[0] || "inbox"}-${size}-${scheme}`);
      }
      await until(page, "the attestation was checked", () => /Checked in this browser/.test(document.querySelector("[data-verdict]").textContent));
    }
  }

  // The chain, recomputed in the page.
  await look(page, "desktop", "light");
  await page.goto(`${home}journal`);
  await loaded(page);
  await click(page, "[data-chain] button");
  await until(page, "the chain fits", () => /events fit, recomputed/.test(document.querySelector("[data-chain] .verdict")?.textContent ?? ""));
  await picture(page, "journal-chain");

  // A candidate for the rules: refused with its place, then checked and replayed.
  await page.goto(`${home}policy`);
  await loaded(page);
  for (const [text, way, wanted] of [
    ["permit (principal, action, resource) when { nonsense };", "check", "may not run"],
    [`@id("no_notes")\n@reason("Nobody writes notes.")\nforbid (principal, action == Action::"tool.execute", resource)\nwhen { context has facets && context.facets has paths_written && context.facets.paths_written.contains("notes.txt") };`, "check", "no_notes"],
    [`@id("no_notes")\n@reason("Nobody writes notes.")\nforbid (principal, action == Action::"tool.execute", resource);`, "simulate", "would be denied"],
  ]) {
    await page.evaluate((text) => { document.querySelector("textarea[name=text]").value = text; }, text);
    await click(page, `[data-try=${way}]`);
    await until(page, wanted, (wanted) => document.querySelector("[data-tried]").textContent.includes(wanted), wanted);
  }
  await picture(page, "policy-simulated");

  // Two tabs, one stream.
  const second_tab = await browser.page();
  await second_tab.goto(home);
  await loaded(second_tab);
  const streams = (tab) => tab.answered.filter(({ url }) => url.includes("/console/api/stream")).length;
  const before = streams(second_tab);
  const fifth = propose("tabs.txt", "x");
  await until(second_tab, "the other tab hears of it", () => document.querySelector("[data-approval].item"));
  check("the second tab has no stream of its own", before === 0 && streams(second_tab) === 0);
  cli("approvals", "decide", (await second_tab.evaluate(() => document.querySelector("[data-approval].item").dataset.approval)), "deny");
  await fifth;
  await second_tab.close();

  check(`no page broke its own policy: ${violations}`, violations.length === 0);
  // Revoked: the open page says so, and shows nothing more.
  cli("console", "sessions", "revoke", "--all");
  await until(page, "the page is closed", () => /console session is over/.test(document.body.innerText) && /palyra console/.test(document.body.innerText));
  await picture(page, "revoked");
} finally {
  await browser.close();
}
console.log(`${checks.length} checks of the console hold; screenshots are in ${pictures}`);
