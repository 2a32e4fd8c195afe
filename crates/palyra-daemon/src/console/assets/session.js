// The browser's key, the session that it opened, and requests that it signs. The key cannot be taken out of the browser, and
// belongs to this origin with its port. There is no cookie.

import { digest, hex, number, sha256, utf8 } from "./digest.js";

const DATABASE = "palyra-console";
let known;
let skew = 0;
/** What nonces begin with until the daemon ends: it says so when it was started anew. */
let epoch = localStorage.getItem("palyra-epoch") ?? "";

/** A refusal of the daemon: what happened, and what to do next. */
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `the daemon answered ${status}`);
    this.status = status;
    this.code = problem.code ?? "";
    this.hint = problem.hint ?? "";
  }
}

function database() {
  return new Promise((done, fail) => {
    const opening = indexedDB.open(DATABASE, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("session");
    opening.onsuccess = () => done(opening.result);
    opening.onerror = () => fail(opening.error);
  });
}

async function stored(mode, ask) {
  const opened = await database();
  try {
    return await new Promise((done, fail) => {
      const transaction = opened.transaction("session", mode);
      const request = ask(transaction.objectStore("session"));
      transaction.oncomplete = () => done(request.result);
      transaction.onerror = () => fail(transaction.error);
    });
  } finally {
    opened.close();
  }
}

async function makeKey() {
  try {
    const pair = await crypto.subtle.generateKey({ name: "Ed25519" }, false, ["sign", "verify"]);
    const raw = await crypto.subtle.exportKey("raw", pair.publicKey);
    return { pair, algorithm: { name: "Ed25519" }, name: `ed25519:${hex(raw)}` };
  } catch {
    const curve = { name: "ECDSA", namedCurve: "P-256" };
    const pair = await crypto.subtle.generateKey(curve, false, ["sign", "verify"]);
    const raw = await crypto.subtle.exportKey("raw", pair.publicKey);
    return { pair, algorithm: { name: "ECDSA", hash: "SHA-256" }, name: `p256:${hex(raw)}` };
  }
}

function browserName() {
  const brands = navigator.userAgentData?.brands?.filter(({ brand }) => !/not.*brand/i.test(brand)) ?? [];
  const name = brands.at(-1)?.brand ?? navigator.userAgent.split(" ").at(-1);
  return `${name} on ${navigator.userAgentData?.platform || navigator.platform || "this machine"}`;
}

async function refused(answer) {
  const problem = await answer.json().catch(() => ({}));
  return new Refusal(answer.status, problem);
}

async function register(code) {
  const key = await makeKey();
  const body = JSON.stringify({ code: code ?? undefined, key: key.name, label: browserName() });
  const answer = await fetch("/console/session", { method: "POST", body, headers: { "content-type": "application/json" } });
  if (!answer.ok) throw await refused(answer);
  const session = await answer.json();
  known = { id: session.session, principal: session.principal, key: key.name, pair: key.pair, algorithm: key.algorithm };
  await stored("readwrite", (store) => store.put(known, "current"));
  return known;
}

/** The session: opened by the code in the address, or the one that this browser has. */
export async function open() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    history.replaceState(null, "", location.pathname + location.search);
    return register(code);
  }
  known = await stored("readonly", (store) => store.get("current"));
  // A paired device is known by its certificate.
  if (!known && location.protocol === "https:") return register(null);
  if (!known) throw new Refusal(401, { code: "console_closed", detail: "This browser has no console session.", hint: "Run `palyra console` in a terminal: it opens one." });
  return known;
}

export async function forget() {
  known = undefined;
  await stored("readwrite", (store) => store.delete("current"));
}

async function signature(bytes) {
  return hex(await crypto.subtle.sign(known.algorithm, known.pair.privateKey, bytes));
}

/** What a person decided: exactly this approval, as it was shown, under these rules. */
export const said = ({ approval, shown, policy, decision, scope, matcher, reason }) =>
  digest("palyra.decision.v1", approval, shown, policy, decision, scope, matcher, reason);

/** Signs a digest with this browser's key. */
export const sign = (digest) => signature(digest);

async function attempt(method, path, body, signal) {
  const bytes = utf8(body ?? "");
  const [at, nonce] = [Math.round(Date.now() + skew), epoch + hex(crypto.getRandomValues(new Uint8Array(16)))];
  const content = await sha256(bytes);
  const signed = await digest("palyra.console-request.v1", known.id, method, path, content, number(at), nonce);
  const headers = {
    "x-palyra-session": known.id, "x-palyra-time": String(at), "x-palyra-nonce": nonce,
    "x-palyra-body": hex(content), "x-palyra-signature": await signature(signed),
  };
  if (body !== undefined) headers["content-type"] = "application/json";
  return fetch(path, { method, headers, body, signal, cache: "no-store", credentials: "omit", redirect: "error" });
}

/** Sends a signed request. A clock that is off, and a daemon that was started anew, are put right by what the daemon says. */
export async function ask(method, path, document, signal) {
  const body = document === undefined ? undefined : JSON.stringify(document);
  for (let tries = 0; ; tries += 1) {
    const answer = await attempt(method, path, body, signal);
    if (answer.ok) return answer;
    const refusal = await refused(answer);
    const said = refusal.message.match(/\w+$/)?.[0] ?? "";
    if (tries > 2) throw refusal;
    if (refusal.code === "console_clock") skew = Number(said) - Date.now();
    else if (refusal.code === "console_epoch") localStorage.setItem("palyra-epoch", (epoch = said));
    else throw refusal;
  }
}

export const text = async (path) => (await ask("GET", path)).text();
export const json = async (path) => (await ask("GET", path)).json();
export const post = async (path, document = {}) => ask("POST", path, document);
