// One call: its timeline, what it writes while it runs, and its attestation, which this page checks by itself.

import { $, content, elements, fill, run, text, visible } from "./page.js";
import { ask, json } from "./session.js";
import { digest, hex, sha256, unhex, utf8 } from "./digest.js";

const id = new URLSearchParams(location.search).get("id") ?? "";
let following = false;

async function check(evidence) {
  const { attestation: said, statement, output, problem, daemon_key: key } = evidence;
  if (!said) return ["It ended without having run, so there is nothing to attest.", "plain"];
  if (hex(await sha256(utf8(output ?? ""))) !== said.output_sha256) return ["The output is not the one that was attested.", "bad"];
  if (said.problem_sha256 && hex(await sha256(utf8(problem ?? ""))) !== said.problem_sha256) return ["What went wrong is not what was attested.", "bad"];
  const stated = JSON.parse(statement);
  if (stated.output_sha256 !== said.output_sha256 || stated.call_id !== id) return ["The statement is about another call.", "bad"];
  const execution = await digest("palyra.execution.v1", utf8(statement));
  if (hex(execution) !== said.execution_sha256) return ["The statements do not fit their own digest.", "bad"];
  const signed = await digest("palyra.attestation-signature.v1", execution);
  try {
    const theirs = await crypto.subtle.importKey("raw", unhex(said.public_key), { name: "Ed25519" }, false, ["verify"]);
    if (!(await crypto.subtle.verify({ name: "Ed25519" }, theirs, unhex(said.signature), signed))) return ["The signature does not fit.", "bad"];
  } catch {
    return ["This browser cannot check Ed25519 signatures; `palyra attest verify` does.", "warn"];
  }
  const same = key === said.public_key ? "the key that the daemon signs with" : `another key than the daemon signs with now: ${said.public_key}`;
  return [`Checked in this browser: output, statement and signature fit, by ${same}.`, key === said.public_key ? "good" : "warn"];
}

function readable(output) {
  const value = JSON.parse(output ?? "null");
  const streams = ["stdout", "stderr"].filter((name) => typeof value?.[name] === "string" && value[name]);
  const parts = streams.map((name) => `${name}:\n${value[name]}`);
  return visible(parts.length ? `${parts.join("\n")}\n\n${JSON.stringify({ ...value, stdout: undefined, stderr: undefined }, null, 2)}` : JSON.stringify(value, null, 2));
}

async function result() {
  const evidence = await json(`/console/api/calls/${id}/evidence`);
  if (!evidence.ended) return;
  $("[data-result]").hidden = !evidence.attestation;
  $("[data-final]").textContent = readable(evidence.output);
  $("[data-attestation]").textContent = visible(JSON.stringify(evidence.attestation, null, 2));
  const [verdict, tone] = await check(evidence);
  $("[data-verdict]").textContent = verdict;
  $("[data-verdict]").className = `verdict ${tone}`;
}

// Pieces of output as they come. What was dropped meanwhile shows as a gap in the offsets.
async function follow() {
  if (following) return;
  following = true;
  const answer = await ask("GET", `/console/api/calls/${id}/events`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.match(/^data: ?(.*)$/m)?.[1];
      if (!/^event: ?output$/m.test(block) || !data) continue;
      const { stream, base64 } = JSON.parse(data);
      const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
      $("[data-live]").hidden = false;
      $("[data-output]").append(visible(decoders[stream].decode(bytes, { stream: true })));
    }
  }
  following = false;
  await show();
}

async function show() {
  fill(content(), elements(await text(`/console/api/calls/${encodeURIComponent(id)}`)));
  await result();
  if ($("article.call").dataset.state === "executing") follow().catch(() => {});
}

run(show, (event, again) => { if (again || event.call === id) show().catch(() => {}); });
