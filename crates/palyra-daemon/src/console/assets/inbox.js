// The inbox: what waits, one question with everything that a person needs to know, and the answer that this browser signs.
// New questions come at the end. Allowing works only in an opened question whose end was on screen, by a key or a click that
// came after its content had stood still.

import { $, confirmed, content, elements, fill, failed, make, onKey, run, say, text } from "./page.js";
import { confirm } from "./passkey.js";
import { Refusal, post, said, sign } from "./session.js";
import { unhex } from "./digest.js";

/** How long content must have stood still before an answer counts. */
const QUIET = 350;

const list = make("div", "", { class: "list" });
const pane = make("div", "", { class: "pane", "aria-live": "polite" });
const seen = new Map();
let opened = null;
let stoodStill = 0;
let endSeen = false;
let observer;
let answering = false;

const items = () => [...list.querySelectorAll("[data-approval]")];
const article = () => $("article.review", pane);

async function refresh() {
  const fresh = elements(await text("/console/api/inbox"));
  const wanted = new Map([...fresh.querySelectorAll("[data-approval]")].map((item) => [item.dataset.approval, item.closest("li")]));
  const ol = list.querySelector("ol");
  if (!ol) {
    fill(list, fresh);
  } else {
    // What is there stays where it is; what was answered elsewhere goes; what is new comes at the end.
    for (const item of items()) if (!wanted.delete(item.dataset.approval)) item.closest("li").remove();
    ol.append(...wanted.values());
    const none = fresh.querySelector("[data-none]");
    list.querySelector("[data-none]")?.remove();
    if (none && !items().length) list.prepend(none);
  }
  mark();
}

function mark() {
  for (const item of items()) item.setAttribute("aria-current", String(item.dataset.approval === opened));
}

function gate() {
  const [shown, button] = [article(), $("[data-decide=allow]", pane)];
  if (!shown || !button) return;
  const whole = shown.dataset.whole === "true";
  button.disabled = !(endSeen && whole);
  const note = $("[data-gate]", pane);
  if (!whole) note.textContent = "Not all of it can be shown here, so it cannot be allowed here. `palyra effects diff` shows the rest.";
  else if (!endSeen) note.textContent = "Read to the end to allow it.";
  else note.textContent = shown.dataset.passkeyallow === "true" ? "A rule wants a yes confirmed with your passkey." : "Your answer is signed by this browser.";
  if (endSeen) seen.set(shown.dataset.approval, shown.dataset.digest);
  alike();
}

function watchEnd() {
  observer?.disconnect();
  endSeen = false;
  stoodStill = performance.now();
  const end = $("[data-end]", pane);
  if (!end) return;
  observer = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) { endSeen = true; observer.disconnect(); gate(); }
  });
  observer.observe(end);
  gate();
}

async function show(id) {
  opened = id;
  mark();
  const fresh = elements(await text(`/console/api/inbox/${id}`));
  // Meanwhile another was opened, or this one closed.
  if (opened !== id) return;
  fill(pane, fresh);
  const back = make("button", "← All that waits", { type: "button", class: "back quiet" });
  back.addEventListener("click", close);
  pane.prepend(back);
  document.body.classList.add("reading");
  $("#headline", pane)?.focus({ preventScroll: false });
  watchEnd();
}

function close() {
  opened = null;
  document.body.classList.remove("reading");
  fill(pane, hint());
  mark();
}

const hint = () => make("p", "Open a question to read and answer it.", { class: "empty" });

/** What is decided, as it is signed and as it is sent. */
async function decision(shown, answer, fields) {
  const reason = fields.reason.trim() ? fields.reason : "";
  const { approval, digest, policy } = shown.dataset;
  const words = await said({ approval, shown: unhex(digest), policy: unhex(policy), decision: answer, scope: fields.scope, matcher: fields.matcher, reason });
  const [name, ms] = fields.scope.split(":");
  const assertion = shown.dataset[`passkey${answer}`] === "true" ? await confirm(words) : undefined;
  return {
    decision: answer, scope: ms ? { window: { ms: Number(ms) } } : name, matcher: JSON.parse(fields.matcher),
    reason: reason || undefined, digest, signature: await sign(words), assertion,
  };
}

async function decide(answer) {
  const shown = article();
  const form = $("form[data-answer]", pane);
  if (!form || !shown || shown.dataset.state !== "pending") return;
  if (performance.now() - stoodStill < QUIET) return;
  if (answer === "allow" && $("[data-decide=allow]", pane).disabled) return say("Read to the end first.", "", "warn");
  const fields = Object.fromEntries(new FormData(form));
  if (answer === "allow" && fields.scope === "once") fields.matcher = '"exact_call"';
  if (answer === "deny" && fields.scope === "once") fields.matcher = '"exact_call"';
  for (const button of pane.querySelectorAll("[data-decide]")) button.disabled = true;
  answering = true;
  try {
    await post(`/console/api/inbox/${shown.dataset.approval}/decide`, await decision(shown, answer, fields));
    say(answer === "allow" ? "Allowed." : "Denied.", "", "good");
    await after(shown.dataset.approval);
  } catch (error) {
    // A passkey that was not shown is no fault of the daemon's.
    if (error instanceof Refusal || error instanceof TypeError) await failed(error);
    else say(error.message, "Nothing was answered.", "warn");
    if (error.status === 409 && opened) await show(opened);
    else gate();
  } finally {
    answering = false;
  }
}

/** Goes back to the list. The next question is not opened by itself: nothing is answered that was not chosen. */
async function after(id) {
  const next = items().find((item) => item.dataset.approval !== id);
  close();
  await refresh();
  next?.isConnected && next.focus();
}

/** Questions like the opened one can be answered together once each of them was read to its end. */
function alike() {
  const here = items().find((item) => item.dataset.approval === opened);
  const same = here ? items().filter((item) => item.dataset.group === here.dataset.group) : [];
  $("[data-together]", pane)?.remove();
  if (same.length < 2) return;
  const read = same.filter((item) => seen.get(item.dataset.approval) === item.dataset.digest);
  const all = read.length === same.length;
  const words = all ? `Allow these ${same.length} alike, each once` : `${same.length} are alike; ${read.length} of them were read to the end`;
  const button = make("button", words, { type: "button", "data-together": "" });
  button.disabled = !all;
  button.addEventListener("click", () => together(same.map((item) => item.dataset.approval)));
  $("form[data-answer]", pane)?.append(button);
}

async function together(ids) {
  if (!(await confirmed(`Allow ${ids.length} calls, each once?`, "Allow them"))) return;
  try {
    for (const id of ids) {
      const shown = elements(await text(`/console/api/inbox/${id}`)).querySelector("article");
      // One that changed since it was read is left for another look.
      if (shown.dataset.state !== "pending" || seen.get(id) !== shown.dataset.digest || shown.dataset.whole !== "true") continue;
      const fields = { scope: "once", matcher: '"exact_call"', reason: "" };
      await post(`/console/api/inbox/${id}/decide`, await decision(shown, "allow", fields));
    }
    say("Allowed.", "", "good");
  } catch (error) {
    await failed(error);
  }
  close();
  await refresh();
}

function move(by) {
  const all = items();
  const at = all.indexOf(document.activeElement);
  all[Math.max(0, Math.min(all.length - 1, at + by))]?.focus();
}

document.addEventListener("click", (event) => {
  const item = event.target.closest("[data-approval].item");
  if (item) show(item.dataset.approval).catch(failed);
  const button = event.target.closest("[data-decide]");
  if (button) decide(button.dataset.decide);
});
onKey("j", () => move(1));
onKey("k", () => move(-1));
onKey("o", () => document.activeElement.dataset?.approval && show(document.activeElement.dataset.approval).catch(failed));
onKey("y", () => decide("allow"));
onKey("d", () => decide("deny"));
onKey("r", () => $("input[name=reason]", pane)?.focus());
onKey("Escape", close);

async function first() {
  await refresh();
  if (!list.isConnected) {
    const both = make("div", "", { class: "inbox" });
    both.append(list, pane);
    fill(content(), both);
    fill(pane, hint());
  }
  const wanted = new URLSearchParams(location.search).get("approval");
  if (wanted && !opened) await show(wanted).catch(failed);
}

async function news(event, again) {
  if (!again && !event.kind?.startsWith("approval.")) return;
  try {
    await refresh();
    const gone = opened && !items().some((item) => item.dataset.approval === opened);
    // It was answered elsewhere, or has ended: what became of it is shown, without a way to answer.
    if (gone && !answering && article()?.dataset.state === "pending") await show(opened);
  } catch (error) {
    await failed(error);
  }
}

run(first, news);
