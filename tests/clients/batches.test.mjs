import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI, { toFile } from 'openai';
import { newFolder, serve, until } from './serving.mjs';

const server = await serve({ flags: ['--data-dir', newFolder()] });
const client = new OpenAI({ baseURL: `http://127.0.0.1:${server.port}/v1`, apiKey: 'any', maxRetries: 0 });
const lineOf = (id, fields) => JSON.stringify({
  custom_id: id, method: 'POST', url: '/v1/chat/completions',
  body: { model: 'demo', messages: [{ role: 'user', content: `Tell me about ${id}.` }], max_tokens: 10, ...fields },
});
const upload = async (lines) =>
  client.files.create({ file: await toFile(Buffer.from(lines.join('\n') + '\n'), 'in.jsonl'), purpose: 'batch' });
const linesOf = async (id) => (await (await client.files.content(id)).text()).trim().split('\n').map((line) => JSON.parse(line));
const start = async (lines) => client.batches.create({
  input_file_id: (await upload(lines)).id, endpoint: '/v1/chat/completions', completion_window: '24h',
  metadata: { of: 'test' } });
const ended = async (batch) => {
  await until(async () => ['completed', 'failed', 'expired', 'cancelled'].includes((await client.batches.retrieve(batch.id)).status));
  return client.batches.retrieve(batch.id);
};

test('files are kept, listed, given back and deleted', async () => {
  const lines = [lineOf('a'), lineOf('b')];
  const file = await upload(lines);
  assert.equal(file.object, 'file');
  assert.equal(file.purpose, 'batch');
  assert.equal(file.filename, 'in.jsonl');
  assert.equal(file.bytes, Buffer.byteLength(lines.join('\n')) + 1);
  assert.equal((await client.files.retrieve(file.id)).id, file.id);
  assert.equal(await (await client.files.content(file.id)).text(), lines.join('\n') + '\n');
  const ids = [];
  for await (const one of client.files.list()) ids.push(one.id);
  assert.ok(ids.includes(file.id));
  assert.equal((await client.files.delete(file.id)).deleted, true);
  await assert.rejects(client.files.retrieve(file.id), OpenAI.NotFoundError);
});

test('a batch answers each line as a request alone would be', async () => {
  const names = ['cats', 'dogs', 'the sea'];
  const batch = await ended(await start([...names.map((name) => lineOf(name)), lineOf('hot', { temperature: 'hot' })]));
  assert.equal(batch.status, 'completed');
  assert.equal(batch.metadata.of, 'test');
  assert.deepEqual({ ...batch.request_counts }, { total: 4, completed: 3, failed: 1 });
  const results = new Map((await linesOf(batch.output_file_id)).map((line) => [line.custom_id, line]));
  assert.equal(results.size, 3);
  for (const name of names) {
    const alone = await client.chat.completions.create(JSON.parse(lineOf(name)).body);
    assert.equal(results.get(name).response.status_code, 200);
    assert.equal(results.get(name).response.body.choices[0].message.content, alone.choices[0].message.content);
  }
  const errors = await linesOf(batch.error_file_id);
  assert.deepEqual(errors.map((line) => line.custom_id), ['hot']);
  const ids = [];
  for await (const one of client.batches.list()) ids.push(one.id);
  assert.ok(ids.includes(batch.id));
});

test('a batch is cancelled', async () => {
  const batch = await start(Array.from({ length: 50 }, (_, i) => lineOf(`number ${i}`, { max_tokens: 500, ignore_eos: true })));
  await client.batches.cancel(batch.id);
  assert.equal((await ended(batch)).status, 'cancelled');
});

test('the server stops when asked', async () => {
  assert.equal(await server.stop(), 0);
});
