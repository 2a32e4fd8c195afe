// A door in front of the door, for clients that cannot show a token: it adds one, and lets everything else through as it is.
// Usage: bearer.mjs URL TOKEN_FILE; prints its own address. Requests that name this proxy name the daemon instead, so that its
// own checks of Host and Origin still see what a client sent.
import http from 'node:http';
import fs from 'node:fs';

const [target, tokenFile] = process.argv.slice(2);
const { hostname, port } = new URL(target);
const token = fs.readFileSync(tokenFile, 'utf8').trim();
const server = http.createServer((request, response) => {
  const own = server.address().port;
  const rename = (text) => text?.replace(new RegExp(`(127\\.0\\.0\\.1|localhost):${own}$`), `$1:${port}`);
  const headers = { ...request.headers, authorization: `Bearer ${token}` };
  for (const name of ['host', 'origin']) if (headers[name]) headers[name] = rename(headers[name]);
  const onward = http.request({ hostname, port, method: request.method, path: request.url, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  onward.on('error', () => response.destroy());
  response.on('close', () => onward.destroy());
  request.pipe(onward);
});
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
