// A Chromium, driven over a pipe by the protocol that its own developer tools speak. Nothing to install but the browser.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const LONGEST = 60_000;

export class Chromium {
  #process;
  #profile = mkdtempSync(join(tmpdir(), "palyra-chromium-"));
  #next = 1;
  #waiting = new Map();
  #listeners = new Set();

  constructor(executable, further) {
    const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
      "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
      `--user-data-dir=${this.#profile}`, "--remote-debugging-pipe", ...further, "about:blank"];
    this.#process = spawn(executable, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"], detached: true });
    const gone = (why) => {
      for (const { fail } of this.#waiting.values()) fail(new Error(`Chromium is gone: ${why}`));
      this.#waiting.clear();
    };
    this.#process.on("error", (error) => gone(error.message));
    this.#process.on("exit", (code, signal) => gone(signal ?? `exit code ${code}`));
    this.#process.stdio[3].on("error", () => {});
    let pending = Buffer.alloc(0);
    this.#process.stdio[4].on("data", (bytes) => {
      pending = Buffer.concat([pending, bytes]);
      for (let end = pending.indexOf(0); end >= 0; end = pending.indexOf(0)) {
        this.#hear(JSON.parse(pending.subarray(0, end).toString()));
        pending = pending.subarray(end + 1);
      }
    });
  }

  #hear(message) {
    const waiting = this.#waiting.get(message.id);
    if (!waiting) return this.#listeners.forEach((listener) => listener(message));
    this.#waiting.delete(message.id);
    if (message.error) waiting.fail(new Error(message.error.message));
    else waiting.done(message.result);
  }

  send(method, params = {}, sessionId = undefined) {
    const id = this.#next++;
    return this.#before(method, new Promise((done, fail) => {
      this.#waiting.set(id, { done, fail });
      this.#process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    }));
  }

  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  // No wait is for ever.
  #before(what, promise) {
    let timer;
    const late = new Promise((_, fail) => (timer = setTimeout(() => fail(new Error(`Chromium does not answer: ${what}`)), LONGEST)));
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
  }

  async page() {
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, targetId, sessionId, (what, promise) => this.#before(what, promise));
    await page.send("Page.enable");
    await page.send("Network.enable");
    return page;
  }

  async close() {
    const ended = new Promise((end) => this.#process.once("exit", end));
    try { process.kill(-this.#process.pid, "SIGKILL"); } catch { /* It has ended by itself. */ }
    if (this.#process.exitCode === null && this.#process.signalCode === null) await ended;
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
}

class Page {
  // What came back from the network, with the method it was asked by.
  answered = [];
  #browser;
  #target;
  #session;
  #before;
  #stop;
  #methods = new Map();

  constructor(browser, target, session, before) {
    [this.#browser, this.#target, this.#session, this.#before] = [browser, target, session, before];
    this.#stop = browser.listen(({ method, params, sessionId }) => {
      if (sessionId !== session) return;
      if (method === "Network.requestWillBeSent") this.#methods.set(params.requestId, params.request.method);
      if (method === "Network.responseReceived") {
        const { url, status } = params.response;
        this.answered.push({ method: this.#methods.get(params.requestId), url, status, type: params.type, frame: params.frameId });
      }
    });
  }

  send(method, params) {
    return this.#browser.send(method, params, this.#session);
  }

  // Does something that leaves the page, and waits until another one is there; returns the status it came with.
  async leave(action) {
    const since = this.answered.length;
    let stop;
    const loaded = new Promise((done) => {
      stop = this.#browser.listen(({ method, sessionId }) => {
        if (sessionId === this.#session && method === "Page.loadEventFired") done();
      });
    });
    try {
      const before = action();
      await this.#before("a page", loaded);
      await before;
    } finally {
      stop();
    }
    return this.answered.slice(since).find(({ type, frame }) => type === "Document" && frame === this.#target)?.status;
  }

  goto(url) {
    return this.leave(async () => {
      const { errorText } = await this.send("Page.navigate", { url });
      if (errorText) throw new Error(`${url}: ${errorText}`);
    });
  }

  async evaluate(script, argument) {
    const expression = `(${script})(${JSON.stringify(argument)})`;
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  async close() {
    this.#stop();
    await this.#browser.send("Target.closeTarget", { targetId: this.#target });
  }
}
