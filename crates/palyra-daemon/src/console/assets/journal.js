// The journal's events, and its chain: this page fetches every event and hashes it by itself, so that its reader need not take
// the daemon's word. It remembers the last head that fitted, and notices a journal that was cut or rewritten since.

import { $, content, elements, failed, fill, make, run, text } from "./page.js";
import { digest, hex, number, unhex } from "./digest.js";
import { json, post } from "./session.js";
import { news, show as table } from "./listing.js";

const KEPT = "palyra-journal-head";

async function recompute(progress) {
  let [prev, next, head] = ["0".repeat(64), 1, null];
  const kept = JSON.parse(localStorage.getItem(KEPT) ?? "null");
  for (;;) {
    const page = await json(`/console/api/journal/links?first=${next}&most=500`);
    head ??= page.head;
    for (const event of page.events) {
      if (event.seq > head.size) break;
      if (event.seq !== next) return [`Event ${event.seq} stands where event ${next} should.`, "bad"];
      if (event.prev !== prev) return [`Event ${event.seq} does not follow the event before it.`, "bad"];
      const found = hex(await digest("palyra.journal-event.v1", unhex(prev), number(event.seq), number(event.at), event.kind, event.call_id, event.body));
      if (found !== event.hash) return [`Event ${event.seq} was changed after it was recorded.`, "bad"];
      if (kept && event.seq === kept.size && event.hash !== kept.hash) return [`This is not the journal that this browser checked before: event ${event.seq} is another.`, "bad"];
      prev = event.hash;
      next += 1;
    }
    progress(next - 1, head.size);
    if (next > head.size) break;
    if (!page.events.length) return [`The journal says that it has ${head.size} events, and gives ${next - 1}.`, "bad"];
  }
  if (prev !== head.hash) return ["The last event is not the one that the journal says is its head.", "bad"];
  if (kept && kept.size > head.size) return [`This browser has checked ${kept.size} events before; now there are ${head.size}.`, "bad"];
  localStorage.setItem(KEPT, JSON.stringify({ size: head.size, hash: head.hash }));
  return [`${head.size} events fit, recomputed in this browser. Head: ${head.hash}`, "good"];
}

function chain() {
  const section = make("section", "", { class: "card" });
  const [verdict, bar] = [make("p", "", { role: "status" }), make("progress", "", { hidden: "", "aria-label": "events checked" })];
  const [check, seal] = [make("button", "Recompute the chain here", { type: "button" }), make("button", "Sign a checkpoint", { type: "button" })];
  check.addEventListener("click", async () => {
    check.disabled = true;
    bar.hidden = false;
    verdict.className = "";
    try {
      const [words, tone] = await recompute((done, all) => { bar.max = all; bar.value = done; verdict.textContent = `${done} of ${all} events`; });
      verdict.textContent = words;
      verdict.className = `verdict ${tone}`;
    } catch (error) {
      await failed(error);
    }
    bar.hidden = true;
    check.disabled = false;
  });
  const signed = make("pre", "", { hidden: "", tabindex: "0" });
  seal.addEventListener("click", async () => {
    try {
      signed.textContent = JSON.stringify(await (await post("/console/api/journal/checkpoint")).json(), null, 2);
      signed.hidden = false;
    } catch (error) {
      await failed(error);
    }
  });
  const about = "Every event's hash covers the one before it. A checkpoint, kept where this machine cannot change it, also shows a journal whose end was cut off: `palyra journal verify --against FILE`.";
  section.append(make("h2", "Chain"), make("p", about, { class: "about" }), check, " ", seal, bar, verdict, signed);
  return section;
}

async function show() {
  const place = content();
  await table();
  if (!$("[data-chain]")) { const section = chain(); section.dataset.chain = ""; place.before(section); }
}

run(show, (event, again) => { if (event.seq && event.kind) news({ kind: "" }, true); else if (again) news(event, false); });
