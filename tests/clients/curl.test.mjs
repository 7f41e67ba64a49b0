import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { generated, newFolder, serve } from './serving.mjs';

const server = await serve();
const url = `http://127.0.0.1:${server.port}`;
const body = JSON.stringify({ max_tokens: 12, stream: true, messages: [{ role: 'user', content: 'Tell me a story.' }] });

function curl(...flags) {
  const run = spawnSync('curl', ['-sS', '-m', '60', ...flags], { encoding: 'utf8', maxBuffer: 1 << 26 });
  assert.equal(run.status, 0, run.stderr);
  return run.stdout;
}
const textOf = (events) => events.split('\n').filter((line) => line.startsWith('data: {'))
  .map((line) => JSON.parse(line.slice(6)).choices[0]?.delta?.content ?? '').join('');

test('curl reads streams, also as HTTP/1.0', () => {
  const wanted = generated('Tell me a story.', '--max-tokens', '12');
  for (const version of ['--http1.1', '--http1.0']) {
    assert.equal(textOf(curl('-N', version, '-d', body, `${url}/v1/chat/completions`)), wanted, version);
  }
});

test('curl sends large bodies after asking whether it may', () => {
  const file = path.join(newFolder(), 'body');
  writeFileSync(file, JSON.stringify({ messages: [{ role: 'user', content: 'x '.repeat(2 << 20) }] }));
  const send = (...flags) => curl('-o', '/dev/null', '-w', '%{http_code}', ...flags, `${url}/v1/chat/completions`);
  assert.equal(send('-H', 'Expect: 100-continue', '--data-binary', `@${file}`), '400');
  assert.equal(send('-H', 'Transfer-Encoding: chunked', '--data-binary', `@${file}`), '400');
  assert.equal(send('-T', '/dev/null', '-X', 'POST'), '400');
});

test('curl keeps its connection and asks for heads', () => {
  const connects = curl('-o', '/dev/null', '-w', '%{num_connects} ', `${url}/v1/models`, '-o', '/dev/null',
    `${url}/health`);
  assert.equal(connects.trim(), '1 0');
  assert.match(curl('-I', `${url}/v1/models`), /^HTTP\/1\.1 200 OK/);
});

test('the server stops when asked', async () => {
  assert.equal(await server.stop(), 0);
});
