// What every page shares: opening the session, putting rendered content in place, times, keys, questions and messages.

import { Refusal, forget, json, open, post, text } from "./session.js";
import { listen, start } from "./stream.js";

const policy = (window.trustedTypes ?? { createPolicy: (_, rules) => rules }).createPolicy("palyra", { createHTML: (markup) => markup });
const $ = (selector, within = document) => within.querySelector(selector);
export const content = () => $("[data-content]");

const formats = { dateStyle: "medium", timeStyle: "medium" };
const clock = new Intl.DateTimeFormat(undefined, formats);
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });

/** How long ago, or until when. */
export function ago(ms) {
  const seconds = (ms - Date.now()) / 1000;
  const [unit, size] = [["day", 86400], ["hour", 3600], ["minute", 60]].find(([, size]) => Math.abs(seconds) >= size) ?? ["second", 1];
  return relative.format(Math.trunc(seconds / size), unit);
}

function localTimes(within) {
  for (const time of within.querySelectorAll("time[data-ms]")) {
    const ms = Number(time.dataset.ms);
    time.title = time.title || `${clock.format(ms)} (${time.textContent})`;
    time.textContent = Math.abs(ms - Date.now()) < 86_400_000 ? ago(ms) : clock.format(ms);
    time.dateTime = new Date(ms).toISOString();
  }
}

/** Markup that the daemon rendered, as elements. The one place where markup becomes elements. */
export function elements(markup) {
  const parsed = new DOMParser().parseFromString(policy.createHTML(markup), "text/html");
  const fragment = document.createDocumentFragment();
  fragment.append(...parsed.body.childNodes);
  localTimes(fragment);
  return fragment;
}

/** Somebody else's text with every character visible that hides or reorders. Rendered fragments are so already. */
export const visible = (words) => words.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e0fff}]/gu,
  (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

/** Puts elements in the place of what an element holds. */
export function fill(element, fragment) {
  element.replaceChildren(fragment);
  if (!element.hasAttribute("aria-busy")) return;
  element.removeAttribute("aria-busy");
  // The frame that shows the content: what benchmarks look at.
  requestAnimationFrame(() => performance.mark("palyra-content"));
}

/** An element with text: whatever the text is, it stays text. */
export function make(name, words = "", attributes = {}) {
  const element = document.createElement(name);
  element.textContent = words;
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  return element;
}

/** Says something above the page; nothing takes it away again. */
export function say(message, hint = "", tone = "plain") {
  const strip = $("[data-strip]");
  strip.hidden = !message;
  strip.className = `strip ${tone}`;
  strip.replaceChildren(message, ...(hint ? [document.createElement("br"), make("span", hint, { class: "dim" })] : []));
}

/** Tells what went wrong. Where the session is over, the page shows nothing more. */
export async function failed(error) {
  if (!(error instanceof Refusal)) {
    return say("The daemon does not answer.", "Is it running? `palyra status` shows it, `palyra up` starts it. This page tries again.", "bad");
  }
  if (error.status === 401) {
    await forget();
    const empty = make("div", "", { class: "empty" });
    empty.append(make("p", error.message), make("p", error.hint, { class: "dim" }));
    fill(content(), empty);
    document.title = "Palyra";
    return say("The console is closed in this browser.", "", "bad");
  }
  return say(error.message, error.hint, "bad");
}

/** Asks before something is done; the answer is whether to do it, or the reason where one is wanted. */
export function confirmed(question, label, why) {
  const dialog = $("[data-dialog]");
  const form = make("form", "", { method: "dialog" });
  const no = make("button", "Cancel", { value: "no", type: "button" });
  no.addEventListener("click", () => dialog.close("no"));
  form.append(make("h2", question, { id: "dialog-title" }));
  const reason = make("input", "", { maxlength: "240", autocomplete: "off" });
  if (why) { const field = make("label"); field.append(make("span", why), reason); form.append(field); }
  form.append(no, make("button", label, { value: "yes", class: "danger" }));
  dialog.replaceChildren(form);
  dialog.returnValue = "no";
  dialog.showModal();
  (why ? reason : no).focus();
  return new Promise((done) => dialog.addEventListener("close", () => {
    done(dialog.returnValue === "yes" && (why ? { reason: reason.value } : true));
  }, { once: true }));
}

/** Which letter leads where, as the navigation says it. */
const pages = () => [...document.querySelectorAll("nav [data-key]")].map((link) => `${link.dataset.key} ${link.firstChild.textContent.trim().toLowerCase()}`).join(", ");

const HELP = () => [["?", "this help"], ["g then a letter", pages()],
  ["j / k", "next and previous in the inbox"], ["Enter or o", "open what is selected"], ["y", "allow what is open, once its end was on screen"],
  ["d", "deny what is open"], ["r", "say why"], ["Escape", "leave a field or a question"]];

function help() {
  const dialog = $("[data-dialog]");
  const list = make("dl", "", { class: "keys" });
  for (const [key, what] of HELP()) list.append(make("dt", key), make("dd", what));
  const form = make("form", "", { method: "dialog" });
  const notify = make("button", "Notify me of questions", { type: "button" });
  notify.addEventListener("click", async () => { notify.textContent = `Notifications: ${await Notification.requestPermission()}`; });
  form.append(make("h2", "Keys", { id: "dialog-title" }), list, notify, make("button", "Close", { value: "no" }));
  dialog.replaceChildren(form);
  dialog.showModal();
}

const typing = (target) => target.closest?.("input, textarea, select, dialog");
let going = false;
const keys = new Map();
export const onKey = (key, action) => keys.set(key, action);

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && typing(event.target) && !event.target.closest("dialog")) return event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || typing(event.target)) return;
  if (going) {
    going = false;
    const link = document.querySelector(`nav [data-key="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); location.assign(link.href); }
    return;
  }
  if (event.key === "g") return void (going = true);
  if (event.key === "?") return help();
  const action = keys.get(event.key);
  if (action) { event.preventDefault(); action(event); }
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if ("help" in button.dataset) return help();
  if (!button.dataset.post) return;
  const sure = await confirmed(button.dataset.asks, button.textContent.trim(), button.dataset.reason);
  if (!sure) return;
  button.disabled = true;
  try {
    await post(button.dataset.post, sure === true ? {} : sure);
    say("Done.", "", "good");
    await shown?.();
  } catch (error) {
    button.disabled = false;
    await failed(error);
  }
});

// A form of the page: its fields as one document of texts, ticked values as lists.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.form) return;
  event.preventDefault();
  const said = {};
  for (const field of form.elements) {
    if (!field.name) continue;
    if (!("list" in field.dataset)) said[field.name] = field.value;
    else if (field.checked) (said[field.name] ??= []).push(field.value);
  }
  const button = $("button[type=submit]", form);
  const answer = $("[data-answer-of-form]", form);
  button.disabled = true;
  answer.replaceChildren();
  try {
    const told = await post(form.dataset.form, said);
    if (told.headers.get("content-type").startsWith("text/html")) return fill(answer, elements(await told.text()));
    const { go } = await told.json();
    if (go) return location.assign(go);
    say("Done.", "", "good");
    form.reset();
    await shown?.();
  } catch (error) {
    if (error.status === 401) return failed(error);
    const problem = make("p", "", { class: "problem" });
    problem.append(make("strong", error.message), ...(error.hint ? [make("br"), make("span", error.hint, { class: "dim" })] : []));
    answer.replaceChildren(problem);
  } finally {
    button.disabled = false;
  }
});

let title = document.title;
let waitingNow = 0;
export const waiting = () => waitingNow;

function count(waits) {
  const more = waits > waitingNow;
  waitingNow = waits;
  document.title = waits ? `(${waits}) ${title}` : title;
  for (const badge of document.querySelectorAll("[data-waiting]")) {
    badge.hidden = !waits;
    badge.textContent = String(waits);
    badge.setAttribute("aria-label", `${waits} wait`);
  }
  return more;
}

async function standing() {
  const me = await json("/console/api/me");
  $("[data-who]").textContent = me.role ? `${me.principal} · ${me.role}` : me.principal;
  return count(me.waiting ?? 0);
}

function notified() {
  if (document.visibilityState === "visible" || window.Notification?.permission !== "granted") return;
  new Notification("Palyra", { body: waitingNow === 1 ? "One question waits for you." : `${waitingNow} questions wait for you.`, tag: "palyra" });
}

let shown;

/** Opens the session, shows the page, and keeps it told. `news` hears every event. */
export async function run(show, news = () => {}) {
  try {
    await open();
    shown = show;
    await standing();
    await show();
    start();
  } catch (error) {
    return failed(error);
  }
  let away = false;
  listen(async (event) => {
    if (event.lost) {
      away = true;
      if (event.code) return failed(new Refusal(401, { code: event.code, detail: event.detail, hint: event.hint }));
      return say(event.detail, "", "warn");
    }
    if (event.end === "daemon_ending") return say("The daemon is ending.", "This page goes on when it is back, if its session is.", "warn");
    if (event.end) return failed(new Refusal(401, { code: event.end, detail: "This console session is over.", hint: "Run `palyra console` to open another." }));
    if (event.connected && away) { away = false; say(""); }
    const again = event.head !== undefined && !event.resumed;
    if (event.kind?.startsWith("approval.") || again) if (await standing().catch(() => false)) notified();
    news(event, again);
  });
  setInterval(() => localTimes(document), 30_000);
}

export { $, text };
