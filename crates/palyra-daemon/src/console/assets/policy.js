// Rules, and a candidate that the daemon checks and replays, and that somebody with the right to adopts.

import { $, confirmed, content, elements, fill, make, run, say, text } from "./page.js";
import { post } from "./session.js";

function load() {
  const form = $("form[data-candidate]");
  const file = document.querySelector(`[data-file="${CSS.escape(form.elements.name.value)}"]`);
  form.elements.text.value = file?.value ?? "";
}

async function show() {
  fill(content(), elements(await text("/console/api/policy")));
  load();
  $("form[data-candidate]").elements.name.addEventListener("change", load);
  if (location.hash.startsWith("#rule-")) document.getElementById(location.hash.slice(1))?.setAttribute("open", "");
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-try]");
  if (!button) return;
  const form = button.closest("form");
  const tried = $("[data-tried]", form);
  tried.replaceChildren(make("p", "Trying it…", { class: "dim" }));
  if (button.dataset.try === "adopt" && !(await confirmed(`Write ${form.elements.name.value} into the directory? It decides at once.`, "Adopt it"))) return tried.replaceChildren();
  button.disabled = true;
  try {
    const answer = await post(`/console/api/policy/${button.dataset.try}`, { name: form.elements.name.value, text: form.elements.text.value });
    if (button.dataset.try === "adopt") { say("It is adopted.", "", "good"); await show(); return; }
    fill(tried, elements(await answer.text()));
  } catch (error) {
    const problem = make("p", "", { class: "problem" });
    problem.append(make("strong", "It may not run. "), error.message);
    tried.replaceChildren(problem);
  }
  button.disabled = false;
});

run(show);
