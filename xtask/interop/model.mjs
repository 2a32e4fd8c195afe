// A model that follows a script, on loopback: it speaks enough of the Messages API and of the Responses API for real agents to
// complete a loop of tool calls. Usage: model.mjs LOG; prints its address. Each turn calls the next tool of the script, found
// among the tools that the client offers; what the tools answered is in the log, and in the model's last words.
import http from 'node:http';
import fs from 'node:fs';

const log = process.argv[2];
// Another script may stand in `SCRIPT`, as JSON.
const SCRIPT = process.env.SCRIPT ? JSON.parse(process.env.SCRIPT) : [
  ['palyra_echo', { text: 'allowed' }],
  ['palyra_fs_read', { path: '../secret.txt' }],
  ['palyra_process_run', { argv: ['echo', 'approved'] }],
];
const note = (kind, what) => fs.appendFileSync(log, `${JSON.stringify({ kind, what })}\n`);
const read = (request) => new Promise((done) => {
  let body = '';
  request.on('data', (piece) => (body += piece)).on('end', () => done(body));
});
const send = (response, type, data) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
const flat = (content) => (typeof content === 'string' ? content : JSON.stringify(content));

function anthropic(body, response) {
  const results = body.messages.flatMap((m) => (Array.isArray(m.content) ? m.content : [])).filter((c) => c.type === 'tool_result');
  for (const result of results.slice(-1)) note('result', { text: flat(result.content), error: result.is_error ?? false });
  const step = SCRIPT[results.length];
  const tool = step && (body.tools ?? []).find((t) => t.name.endsWith(step[0]));
  note('turn', { offered: (body.tools ?? []).map((t) => t.name), calls: tool?.name ?? null });
  const block = tool
    ? { type: 'tool_use', id: `toolu_${results.length}`, name: tool.name, input: {} }
    : { type: 'text', text: '' };
  const delta = tool
    ? { type: 'input_json_delta', partial_json: JSON.stringify(step[1]) }
    : { type: 'text_delta', text: `done after ${results.length} results` };
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model: body.model, content: [], stop_reason: null,
    stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } };
  if (!body.stream) {
    const content = tool ? [{ ...block, input: step[1] }] : [{ type: 'text', text: delta.text }];
    response.writeHead(200, { 'content-type': 'application/json' });
    return response.end(JSON.stringify({ ...message, content, stop_reason: tool ? 'tool_use' : 'end_turn' }));
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  send(response, 'message_start', { message });
  send(response, 'content_block_start', { index: 0, content_block: block });
  send(response, 'content_block_delta', { index: 0, delta });
  send(response, 'content_block_stop', { index: 0 });
  send(response, 'message_delta', { delta: { stop_reason: tool ? 'tool_use' : 'end_turn', stop_sequence: null }, usage: { output_tokens: 1 } });
  send(response, 'message_stop', {});
  response.end();
}

// A tool as the Responses API offers it: by itself, or in a namespace.
function offered(tools) {
  return (tools ?? []).flatMap((t) => (t.type === 'namespace' ? t.tools.map((inner) => ({ ...inner, namespace: t.name })) : [t]));
}

function responses(body, response) {
  const results = (body.input ?? []).filter((item) => /_output$/.test(item.type ?? ''));
  for (const result of results.slice(-1)) note('result', { text: flat(result.output) });
  const tools = offered(body.tools);
  const step = SCRIPT[results.length];
  const tool = step && tools.find((t) => (t.name ?? '').endsWith(step[0]));
  note('turn', { offered: tools.map((t) => `${t.namespace ? `${t.namespace}.` : ''}${t.name ?? t.type}`), calls: tool?.name ?? null });
  const item = tool
    ? { type: 'function_call', id: `fc_${results.length}`, call_id: `call_${results.length}`, name: tool.name,
        ...(tool.namespace ? { namespace: tool.namespace } : {}), arguments: JSON.stringify(step[1]) }
    : { type: 'message', id: 'msg_1', role: 'assistant', content: [{ type: 'output_text', text: `done after ${results.length} results` }] };
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  send(response, 'response.created', { response: { id: 'resp_1' } });
  send(response, 'response.output_item.done', { output_index: 0, item });
  send(response, 'response.completed', { response: { id: 'resp_1', output: [item],
    usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2, input_tokens_details: null, output_tokens_details: null } } });
  response.end();
}

const server = http.createServer(async (request, response) => {
  const text = await read(request);
  const path = new URL(request.url, 'http://x').pathname;
  note('request', { method: request.method, path });
  try {
    if (request.method === 'POST' && path.endsWith('/messages')) return anthropic(JSON.parse(text), response);
    if (request.method === 'POST' && path.endsWith('/responses')) return responses(JSON.parse(text), response);
    if (path.endsWith('/count_tokens')) return response.end('{"input_tokens":1}');
    if (path.endsWith('/models')) return response.end('{"data":[],"models":[]}');
  } catch (error) {
    note('error', String(error));
  }
  response.writeHead(404).end('{}');
});
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
