// The console in a real browser: every page at two widths, light and dark; questions decided by mouse and by keyboard; hostile
// text; a replayed request; a session that is revoked; a daemon that is gone. Screenshots are kept.
//
// Usage: node console.mjs CHROMIUM PROGRAMS KEPT AXE

import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Chromium } from "./chromium.mjs";
import { Daemon, Model } from "./daemon.mjs";

const [executable, programs, kept, axePath] = process.argv.slice(2);
const pictures = join(kept, "screenshots");
rmSync(pictures, { recursive: true, force: true });
mkdirSync(pictures, { recursive: true });
const axe = readFileSync(axePath, "utf8");
const model = new Model();
const daemon = new Daemon(programs, join(kept, "console"));
await daemon.configure(`policy_dir = "${daemon.rules}"
[models]
default = "main"
[models.providers.local]
dialect = "chat_completions"
base_url = "http://127.0.0.1:${await model.start()}/v1"
models = ["scripted"]
[models.aliases]
main = ["local/scripted"]`);
await daemon.start();
const cli = (...words) => daemon.cli(...words);
const told = (...words) => daemon.told(...words);
const propose = (path, content) => daemon.propose(path, content);
const checks = [];
function check(what, holds) {
  checks.push(what);
  if (!holds) throw new Error(`does not hold: ${what}`);
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
const PAGES = ["", "calls", "runs", "effects", "grants", "policy", "skills", "memory", "routines", "vault", "devices", "access", "journal", "health"];

// What axe finds that people would be hindered by.
async function accessible(page, name) {
  // What axe itself does to the page breaks no rule of ours.
  const before = violations.length;
  await page.send("Runtime.evaluate", { expression: axe });
  const found = await page.evaluate(async () => {
    const { violations } = await window.axe.run(document, { resultTypes: ["violations"] });
    return violations.filter(({ impact }) => ["serious", "critical"].includes(impact))
      .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
  });
  violations.length = before;
  check(`axe finds nothing serious on ${name}: ${found.join("\n")}`, found.length === 0);
}

// Fills a form's fields as a person would, and sends it.
async function fillIn(page, path, fields) {
  await until(page, `the form of ${path}`, (path) => document.querySelector(`form[data-form="${path}"]`), path);
  await page.evaluate(({ path, fields }) => {
    const form = document.querySelector(`form[data-form="${path}"]`);
    form.closest("details")?.setAttribute("open", "");
    for (const [name, value] of Object.entries(fields)) form.elements[name].value = value;
  }, { path, fields });
  await click(page, `form[data-form="${path}"] button[type=submit]`);
}

// Presses a button of the page and says yes, with a reason where one is wanted.
async function act(page, path, reason) {
  await click(page, `[data-post="${path}"]`);
  if (reason) {
    await until(page, "the reason is asked", () => document.activeElement.matches("dialog input"));
    for (const letter of reason) await key(page, letter);
  }
  await click(page, "dialog button[value=yes]");
}

const says = (page, words) => until(page, words, (words) => document.body.innerText.includes(words), words);
const STEP_UP = `@id("critical_takes_a_passkey")
@reason("A yes needs a passkey here.")
forbid (principal, action == Action::"approval.decide", resource)
when { context has answer && context.answer == "allow" && !context.approver_verified };
`;
const HOSTILE = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>\u202egnp.exe\u001b[2J`;

const violations = [];
const browser = new Chromium(executable, []);
try {
  const page = await browser.page();
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

  // A run: started on the page, asks, is answered in another tab, and shows the call inline; then it is gone on with, and ended.
  await look(page, "desktop", "light");
  model.script.push(model.calls("palyra_fs_write", { path: "run.txt", content: HOSTILE }), `I wrote it. ${HOSTILE}`);
  await page.goto(`${home}runs`);
  await fillIn(page, "/console/api/runs", { prompt: "Write run.txt, please." });
  await until(page, "the run waits", () => document.querySelector("article.run .under-way a.more"));
  await picture(page, "run-waiting");
  const run = await page.evaluate(() => document.querySelector("article.run").dataset.run);
  cli("approvals", "decide", told("approvals", "list")[0].approval_id, "allow");
  await says(page, "I wrote it.");
  await until(page, "the run is over", () => document.querySelector("article.run").dataset.live === "false");
  check("the call stands in the transcript", await page.evaluate(() => document.querySelector(".chat .inline code").textContent.includes("fs_write")));
  check("what the model says is inert", await page.evaluate(() => !document.querySelector(".chat img, .chat script") && document.title !== "owned" && document.body.innerText.includes("\\u{202e}")));
  model.script.push("Gladly.");
  await fillIn(page, "/console/api/runs", { prompt: "And thank you." });
  await says(page, "Gladly.");
  model.script.push(model.calls("palyra_fs_write", { path: "never.txt", content: "x" }));
  await fillIn(page, "/console/api/runs", { prompt: "Once more." });
  await until(page, "it waits again", () => document.querySelector("article.run .under-way"));
  await act(page, `/console/api/runs/${await page.evaluate(() => document.querySelector("article.run").dataset.run)}/cancel`);
  await until(page, "it is cancelled", () => document.querySelector("article.run").dataset.live === "false");
  check("what was ended asks nobody", told("approvals", "list").length === 0);

  // Memory: retained, found, forgotten.
  await page.goto(`${home}memory`);
  await fillIn(page, "/console/api/memory", { text: `Releases are on Thursdays. ${HOSTILE}`, scope: "workspace", source: "the handbook" });
  await says(page, "Releases are on Thursdays.");
  check("a memory is inert", await page.evaluate(() => !document.querySelector("main img")));
  await page.goto(`${home}memory?words=thursdays`);
  await says(page, "Releases are on Thursdays.");
  await click(page, "[data-post$='/forget']");
  await click(page, "dialog button[value=yes]");
  await says(page, "Nothing fits.");
  await page.goto(`${home}memory`);
  await fillIn(page, "/console/api/memory", { text: "The staging database is read-only on Sundays.", scope: "workspace", source: "" });
  await says(page, "read-only on Sundays");

  // Routines: added, paused with a reason, run, resumed.
  await page.goto(`${home}routines`);
  await fillIn(page, "/console/api/routines", { name: "nightly", pattern: "30 2 * * *", zone: "Europe/Prague", agent: "agent:reporter", tool: "palyra.echo", input: '{"text":"good night"}' });
  await says(page, "nightly");
  const nightly = told("routines", "list")[0].routine_id;
  await act(page, `/console/api/routines/${nightly}/pause`, "holidays");
  await says(page, "paused: holidays");
  await act(page, `/console/api/routines/${nightly}/resume`);
  await until(page, "it is on", () => !/paused/.test(document.body.innerText));
  await act(page, `/console/api/routines/${nightly}/run`);
  await page.goto(`${home}routines?slots=nightly`);
  await until(page, "the slot", () => /manual/.test(document.body.innerText));

  // Skills: quarantined and released with reasons; what an update changes.
  const key = join(daemon.state, "..", "publisher.key");
  const greeter = join(daemon.state, "..", "greeter");
  cli("skills", "package", "keygen", "--out", key);
  cli("skills", "new", "--lang", "wat", greeter);
  for (const version of ["0.1.0", "0.2.0"]) {
    const manifest = join(greeter, "skill.toml");
    writeFileSync(manifest, readFileSync(manifest, "utf8").replace(/version = "[0-9.]+"/, `version = "${version}"`));
    cli("skills", "package", "build", greeter, "--key", key, "--out", `${greeter}-${version}.palyra-skill`);
    cli("skills", "install", `${greeter}-${version}.palyra-skill`, "--allow-tofu");
  }
  await page.goto(`${home}skill?id=local.greeter&version=0.2.0`);
  await says(page, "Compared with 0.1.0");
  await fillIn(page, "/console/api/skills/local.greeter/quarantine", { reason: "looks odd" });
  await says(page, "quarantined");
  check("it is quarantined", told("skills", "list").skills.some((skill) => skill.version === "0.2.0" && skill.runtime_status === "quarantined"));
  await fillIn(page, "/console/api/skills/local.greeter/release", { reason: "looked again" });
  await until(page, "it is released", () => document.querySelector("form[data-form$='/quarantine']"));

  // A device: the code as a picture, on this page alone.
  await page.goto(`${home}devices`);
  await fillIn(page, "/console/api/devices/code", { role: "operator" });
  await until(page, "the QR code", () => document.querySelector(".qr svg path")?.getAttribute("d").length > 500);
  check("the code can be typed as well", await page.evaluate(() => /palyra pair --code/.test(document.body.innerText)));
  await picture(page, "devices-pairing");

  // Step-up: a rule wants a passkey; without one nothing is answered, with one it is, and the journal can prove it.
  await page.goto(`${home}policy`);
  await loaded(page);
  await page.evaluate((text) => { const form = document.querySelector("form[data-candidate]"); form.elements.name.value = "console.cedar"; form.elements.text.value = text; }, STEP_UP);
  await click(page, "[data-try=adopt]");
  await click(page, "dialog button[value=yes]");
  await says(page, "It is adopted.");
  check("the rule stands in the directory", readFileSync(join(daemon.rules, "console.cedar"), "utf8") === STEP_UP);
  await page.goto(home);
  await loaded(page);
  const verified = propose("critical.txt", "x");
  await click(page, "[data-approval].item");
  const yes = async () => {
    await until(page, "the end was seen", () => { document.querySelector("[data-end]")?.scrollIntoView(); return document.querySelector("[data-decide=allow]")?.disabled === false; });
    await until(page, "it stood still", () => new Promise((done) => setTimeout(() => done(true), 400)));
    await click(page, "[data-decide=allow]");
  };
  await yes();
  await says(page, "you have none");
  check("a yes without a passkey is none", told("approvals", "list").length === 1);
  await page.send("WebAuthn.enable");
  const options = { protocol: "ctap2", transport: "internal", hasUserVerification: true, hasResidentKey: true, isUserVerified: true, automaticPresenceSimulation: true };
  const { authenticatorId } = await page.send("WebAuthn.addVirtualAuthenticator", { options });
  await page.goto(`${home}access`);
  await loaded(page);
  const addPasskey = async () => {
    await page.evaluate(() => [...document.querySelectorAll("button")].find((button) => button.textContent === "Add a passkey").setAttribute("data-passkey", ""));
    await click(page, "[data-passkey]");
  };
  await addPasskey();
  await says(page, "The passkey is added.");
  await picture(page, "access-passkey");
  check("it is listed", told("console", "passkeys", "list").length === 1);
  // Its user is not verified: refused.
  await page.send("WebAuthn.setUserVerified", { authenticatorId, isUserVerified: false });
  await page.goto(home);
  await loaded(page);
  await click(page, "[data-approval].item");
  await yes();
  await until(page, "refused", () => document.querySelector("[data-strip].warn:not([hidden])"));
  check("an unverified user confirms nothing", told("approvals", "list").length === 1);
  await page.send("WebAuthn.setUserVerified", { authenticatorId, isUserVerified: true });
  await page.goto(home);
  await loaded(page);
  await click(page, "[data-approval].item");
  await yes();
  const confirmed = JSON.parse((await verified).output);
  check("a confirmed yes counts", confirmed.state === "succeeded");
  check("the approval shows it", cli("approvals", "show", told("approvals", "list", "--all")[0].approval_id).includes("confirmed with a passkey"));
  check("the journal with the confirmation fits", told("journal", "verify").intact === true);
  rmSync(join(daemon.rules, "console.cedar"));
  cli("policy", "reload");

  // The daemon is started anew under the open page: it says so, comes back, and goes on in the same session.
  await page.goto(home);
  await loaded(page);
  await daemon.stop("SIGKILL");
  await until(page, "the page says that the daemon is gone", () => document.querySelector("[data-strip]:not([hidden])"));
  await picture(page, "daemon-gone");
  await daemon.start();
  await until(page, "it is back", () => document.querySelector("[data-strip]").hidden);
  const after = propose("after.txt", "x");
  await until(page, "news again", () => document.querySelector("[data-approval].item"));
  check("the session is the same", told("console", "sessions", "list").some(({ session }) => session === sessions[0].session));
  cli("approvals", "decide", told("approvals", "list")[0].approval_id, "deny");
  await after;

  // Every page, at both sizes, light and dark.
  for (const size of ["desktop", "phone"]) {
    for (const scheme of size === "desktop" ? ["light", "dark"] : ["light"]) {
      await look(page, size, scheme);
      for (const name of [...PAGES, `run?id=${run}`, "skill?id=local.greeter", "routines?slots=nightly", `call?id=${allowed.call_id}`]) {
        await page.goto(`${home}${name}`);
        await loaded(page);
        const strip = await page.evaluate(() => document.querySelector("[data-strip].bad:not([hidden])")?.textContent);
        check(`${name || "inbox"} loads (${size}, ${scheme})`, !strip);
        check(`${name || "inbox"} fits (${size})`, await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth + 1));
        const bare = await page.evaluate(() => [...document.querySelectorAll("button, a, input, select, textarea:not([hidden])")]
          .filter((e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length || e.title)).map((e) => e.outerHTML));
        check(`everything has a name on ${name || "inbox"}: ${bare}`, bare.length === 0);
        await accessible(page, `${name || "inbox"} (${size}, ${scheme})`);
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
  await until(page, "the page is closed", () => /console is closed/.test(document.body.innerText) && /palyra console/.test(document.body.innerText));
  await picture(page, "revoked");
} finally {
  await browser.close();
  model.stop();
  await daemon.stop();
}
console.log(`${checks.length} checks of the console hold; screenshots are in ${pictures}`);
