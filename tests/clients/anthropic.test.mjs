import assert from 'node:assert/strict';
import test from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { checkWeather, generated, metric, serve, toolDemo, until, weather } from './serving.mjs';

const story = [{ role: 'user', content: 'Tell me a story.' }];
const clientOf = (server) => new Anthropic({ baseURL: `http://127.0.0.1:${server.port}`, apiKey: 'any', maxRetries: 0 });

const server = await serve();
const client = clientOf(server);

test('a message is what generate writes', async () => {
  const message = await client.messages.create({
    model: 'any', max_tokens: 20, messages: story, system: [{ type: 'text', text: 'Be kind.' }] });
  assert.equal(message.content[0].text, generated('Tell me a story.', '--system', 'Be kind.', '--max-tokens', '20'));
  assert.equal(message.stop_reason, 'max_tokens');
  assert.equal(message.usage.output_tokens, 20);
});

test('a stream adds up to the whole', async () => {
  const options = { model: 'any', max_tokens: 40, messages: story, temperature: 0.8 };
  const whole = await client.messages.create({ ...options, seed: 3 });
  let text = '';
  const stream = client.messages.stream({ ...options, seed: 3 }).on('text', (delta) => { text += delta; });
  const final = await stream.finalMessage();
  assert.equal(text, whole.content[0].text);
  assert.deepEqual(final.content, whole.content);
  assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
});

test('a stop sequence ends a message, and is named', async () => {
  const message = await client.messages.create(
    { model: 'any', max_tokens: 80, messages: story, stop_sequences: ['. '] });
  assert.equal(message.stop_reason, 'stop_sequence');
  assert.equal(message.stop_sequence, '. ');
});

test('tokens are counted', async () => {
  const count = await client.messages.countTokens({ model: 'any', messages: story });
  const message = await client.messages.create({ model: 'any', max_tokens: 1, messages: story });
  const { input_tokens, cache_read_input_tokens } = message.usage;
  assert.equal(count.input_tokens, input_tokens + (cache_read_input_tokens ?? 0));
});

test('tools are called, streamed, and answered', async () => {
  const tooled = await serve({ model: toolDemo() });
  const its = clientOf(tooled);
  const options = {
    model: 'any', max_tokens: 200, messages: story, temperature: 1, seed: 4,
    tools: [{ name: weather.name, description: weather.description, input_schema: weather.parameters }],
    tool_choice: { type: 'any' },
  };
  const message = await its.messages.create(options);
  assert.equal(message.stop_reason, 'tool_use');
  const use = message.content.find((block) => block.type === 'tool_use');
  assert.equal(use.name, 'get_weather');
  checkWeather(use.input);
  const streamed = await its.messages.stream(options).finalMessage();
  assert.deepEqual(streamed.content.find((block) => block.type === 'tool_use').input, use.input);
  const next = await its.messages.create({
    ...options, tool_choice: { type: 'none' }, max_tokens: 10,
    messages: [...story, { role: 'assistant', content: message.content },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: use.id, content: 'Rain.' }] }],
  });
  assert.equal(next.content[0].type, 'text');
  assert.equal(await tooled.stop(), 0);
});

test('errors arrive as the errors they are', async () => {
  await assert.rejects(client.messages.create({ model: 'any', max_tokens: 5, messages: [] }), Anthropic.BadRequestError);
  await assert.rejects(client.messages.create({ model: 'any', max_tokens: 'x', messages: story }), (error) =>
    error instanceof Anthropic.BadRequestError && /max_tokens/.test(error.message) &&
    error.error.error.type === 'invalid_request_error');
  await assert.rejects(
    client.messages.create({ model: 'any', max_tokens: 1000000, messages: story, stream: true }), /context/);
});

test('a client that aborts frees its place', async () => {
  const before = await metric(server, 'requests_cancelled_total');
  const stream = client.messages.stream({ model: 'any', max_tokens: 1900, messages: story, temperature: 1, seed: 1 });
  let texts = 0;
  stream.on('text', () => { if (++texts === 3) stream.abort(); });
  await assert.rejects(stream.done(), Anthropic.APIUserAbortError);
  await until(async () => (await metric(server, 'requests_cancelled_total')) > before);
});

test('the server stops when asked', async () => {
  assert.equal(await server.stop(), 0);
});
