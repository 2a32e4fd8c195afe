// Pages that are tables: fetched once, filtered by their address, and fetched again when the reader asks.

import { $, content, elements, fill, make, run, text } from "./page.js";

const page = document.body.dataset.page;
/** The events after which a page may show something else. */
const ABOUT = { calls: /^tool\./, grants: /^grant\./, access: /^(access|console)\./, devices: /^devices\./, effects: /^effect\./,
  runs: /^run\.(opened|ended)/, skills: /^skill\./, skill: /^skill\./, memory: /^memory\./, routines: /^routine\./ };

function address() {
  const id = new URLSearchParams(location.search).get("id");
  if (page === "skill") return `/console/api/skills/${encodeURIComponent(id ?? "")}${location.search}`;
  const one = page === "vault" && new URLSearchParams(location.search).has("secret");
  return `/console/api/${page}${one ? "/blame" : ""}${location.search}`;
}

export async function show() {
  const fresh = elements(await text(address()));
  const [body, old] = [fresh.querySelector("[data-body]"), content().querySelector("[data-body]")];
  // A filter that somebody is typing into stays as it is.
  if (body && old && content().contains(document.activeElement)) old.replaceWith(body);
  else fill(content(), fresh);
  offer.remove();
}

const offer = make("button", "There is something new: show it", { type: "button", class: "fresh" });
offer.addEventListener("click", show);

document.addEventListener("submit", (event) => {
  if (!("filters" in event.target.dataset)) return;
  event.preventDefault();
  const fields = new URLSearchParams([...new FormData(event.target)].filter(([, value]) => value));
  location.assign(`${location.pathname}?${fields}`);
});

/** Says that there is something new; what is being read does not move. */
export function news(event, again) {
  if (again || ABOUT[page]?.test(event.kind ?? "")) if (!offer.isConnected) $("main h1").after(offer);
}

if (!["journal", "access"].includes(page)) run(show, (event, again) => !event.connected && news(event, again && content().dataset.told));
