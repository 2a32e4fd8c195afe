// News of the journal: one stream for each browser, however many tabs. The tab that holds the lock reads it and tells the others.
// A stream that is lost is resumed after the last event that was heard.

import { ask } from "./session.js";

const LOCK = "palyra-console-stream";
const channel = new BroadcastChannel(LOCK);
const listeners = new Set();
let last = null;

function tell(news) {
  if (typeof news.seq === "number") last = news.seq;
  else if (typeof news.head === "number" && !news.resumed) last = news.head;
  for (const listener of listeners) listener(news);
}

channel.onmessage = ({ data }) => tell(data);

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function read(share) {
  const answer = await ask("GET", `/console/api/stream${last === null ? "" : `?after=${last}`}`);
  share({ connected: true });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) share(JSON.parse(line));
  }
}

async function lead() {
  const share = (news) => { channel.postMessage(news); tell(news); };
  for (let wait = 250; ; wait = Math.min(wait * 2, 5000)) {
    try {
      await read((news) => { wait = 250; share(news); });
    } catch (error) {
      share({ lost: true, code: error.code ?? "", detail: error.message, hint: error.hint ?? "" });
      if (error.status === 401) return;
    }
    share({ lost: true, code: "", detail: "The connection to the daemon was lost; trying again.", hint: "" });
    await pause(wait);
  }
}

/** Listens from now on. */
export function listen(listener) {
  listeners.add(listener);
}

/** Takes part: leads if nobody does, and takes over when the leader's tab is closed. */
export function start() {
  navigator.locks.request(LOCK, lead);
}
