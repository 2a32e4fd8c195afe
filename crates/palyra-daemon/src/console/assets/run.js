// One run: its transcript with the calls inline. While it goes on, what the model says appears as it comes; whatever else
// happens, the transcript is fetched anew.

import { $, content, elements, fill, run, text, visible } from "./page.js";
import { ask } from "./session.js";

const id = encodeURIComponent(new URLSearchParams(location.search).get("id") ?? "");
let following = false;
let asked = false;

async function show() {
  // What is open and what is typed stays as it is.
  const open = [...document.querySelectorAll(".chat details")].map((one) => one.open);
  const end = innerHeight + scrollY >= document.body.scrollHeight - 40;
  const typed = $("form textarea")?.value;
  fill(content(), elements(await text(`/console/api/runs/${id}`)));
  document.querySelectorAll(".chat details").forEach((one, at) => { one.open = open[at] ?? false; });
  if (typed && $("form textarea")) $("form textarea").value = typed;
  if (end) scrollTo(0, document.body.scrollHeight);
  if ($("article.run").dataset.live === "true") follow();
}

// Several pieces of news at once are one look.
function again() {
  if (asked) return;
  asked = true;
  setTimeout(() => { asked = false; show().catch(() => {}); }, 100);
}

function say(words) {
  const place = $("[data-saying]");
  if (!place) return;
  place.hidden = false;
  $("[data-words]", place).append(visible(words));
}

async function follow() {
  if (following) return;
  following = true;
  try {
    const answer = await ask("GET", `/console/api/runs/${id}/news`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line) continue;
        const news = JSON.parse(line);
        if (news.type === "text") say(news.text);
        else if (!["asking", "arguments", "output", "tool_call"].includes(news.type)) again();
      }
    }
  } catch { /* The stream of the journal brings the page back. */ }
  following = false;
  again();
}

run(show, (event, missed) => { if (missed || event.kind?.startsWith("run.")) again(); });
