import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI from 'openai';
import { checkWeather, generated, metric, newFolder, serve, toolDemo, until, weather } from './serving.mjs';
import { writeFileSync } from 'node:fs';
import path from 'node:path';

const story = [{ role: 'user', content: 'Tell me a story.' }];
const clientOf = (server, options = {}) =>
  new OpenAI({ baseURL: `http://127.0.0.1:${server.port}/v1`, apiKey: 'any', maxRetries: 0, ...options });

const server = await serve({ flags: ['--parallel', '4'] });
const client = clientOf(server);

test('a chat is what generate writes', async () => {
  const reply = await client.chat.completions.create({ model: 'demo', messages: story, max_tokens: 20 });
  assert.equal(reply.choices[0].message.content, generated('Tell me a story.', '--max-tokens', '20'));
  assert.equal(reply.choices[0].finish_reason, 'length');
  assert.equal(reply.usage.completion_tokens, 20);
  assert.equal(reply.usage.total_tokens, reply.usage.prompt_tokens + 20);
});

test('a stream adds up to the whole', async () => {
  const options = { model: 'demo', messages: story, max_tokens: 40, temperature: 0.8, seed: 11 };
  const whole = await client.chat.completions.create(options);
  let text = '', usage = null;
  for await (const chunk of await client.chat.completions.create(
    { ...options, stream: true, stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta?.content ?? '';
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  const helper = client.chat.completions.stream(options);
  assert.equal(await helper.finalContent(), text);
});

test('several answers, their probabilities, and completions', async () => {
  const reply = await client.chat.completions.create(
    { model: 'demo', messages: story, max_tokens: 8, n: 3, temperature: 1, seed: 2, logprobs: true, top_logprobs: 2 });
  assert.equal(reply.choices.length, 3);
  assert.equal(reply.choices[1].logprobs.content.length, 8);
  assert.equal(reply.choices[2].logprobs.content[0].top_logprobs.length, 2);
  const text = await client.completions.create({ model: 'demo', prompt: 'Once upon a time', max_tokens: 5, echo: true });
  assert.ok(text.choices[0].text.startsWith('Once upon a time'));
});

test('the models are listed', async () => {
  assert.deepEqual((await client.models.list()).data.map((model) => model.id), ['demo']);
  assert.equal((await client.models.retrieve('demo')).id, 'demo');
});

test('answers keep to a schema', async () => {
  const schema = {
    type: 'object',
    properties: {
      name: { type: 'string', maxLength: 12 },
      age: { type: 'integer', minimum: 0, maximum: 30 },
      toys: { type: 'array', items: { enum: ['ball', 'mouse'] }, maxItems: 3 },
    },
    required: ['name', 'age', 'toys'],
    additionalProperties: false,
  };
  for (let seed = 0; seed < 5; ++seed) {
    const reply = await client.chat.completions.create({
      model: 'demo', messages: story, max_tokens: 300, temperature: 1, seed,
      response_format: { type: 'json_schema', json_schema: { name: 'cat', strict: true, schema } },
    });
    const cat = JSON.parse(reply.choices[0].message.content);
    assert.deepEqual(Object.keys(cat), ['name', 'age', 'toys']);
    assert.ok([...cat.name].length <= 12 && Number.isInteger(cat.age) && cat.age >= 0 && cat.age <= 30);
    assert.ok(cat.toys.length <= 3 && cat.toys.every((toy) => ['ball', 'mouse'].includes(toy)));
  }
  const any = await client.chat.completions.create({
    model: 'demo', messages: story, max_tokens: 300, response_format: { type: 'json_schema', json_schema: { name: 'x',
      schema: { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'], additionalProperties: false } } } });
  assert.equal(typeof JSON.parse(any.choices[0].message.content).ok, 'boolean');
});

test('tools are called, streamed, and answered', async () => {
  const tooled = await serve({ model: toolDemo() });
  const its = clientOf(tooled);
  const options = {
    model: 'demo', messages: story, max_tokens: 200, temperature: 1, seed: 4,
    tools: [{ type: 'function', function: weather }], tool_choice: 'required',
  };
  const whole = await its.chat.completions.create(options);
  const call = whole.choices[0].message.tool_calls[0];
  assert.equal(whole.choices[0].finish_reason, 'tool_calls');
  assert.equal(call.function.name, 'get_weather');
  checkWeather(JSON.parse(call.function.arguments));

  const streamed = await its.chat.completions.stream(options).finalChatCompletion();
  assert.equal(streamed.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);

  const next = await its.chat.completions.create({
    ...options, tool_choice: 'none', max_tokens: 10,
    messages: [...story, whole.choices[0].message, { role: 'tool', tool_call_id: call.id, content: 'Rain.' }],
  });
  assert.equal(next.choices[0].message.tool_calls ?? null, null);
  assert.equal(typeof next.choices[0].message.content, 'string');

  let input = null;
  const runner = its.chat.completions.runTools({
    ...options, tool_choice: { type: 'function', function: { name: 'get_weather' } },
    tools: [{ type: 'function', function: { ...weather, parse: JSON.parse,
      function: (given) => { input = given; return 'Sun.'; } } }],
  });
  await runner.done();
  checkWeather(input);
  assert.equal(await tooled.stop(), 0);
});

test('errors arrive as the errors they are', async () => {
  const ask = (fields, options) => client.chat.completions.create({ model: 'demo', messages: story, ...fields }, options);
  await assert.rejects(ask({ model: 'other' }), (error) =>
    error instanceof OpenAI.NotFoundError && error.code === 'model_not_found');
  await assert.rejects(ask({ temperature: 'hot' }), (error) =>
    error instanceof OpenAI.BadRequestError && /temperature/.test(error.message));
  await assert.rejects(ask({ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] }),
    (error) => error instanceof OpenAI.BadRequestError && /image_url/.test(error.message));
  await assert.rejects(ask({ max_tokens: 1000000 }), /context/);
  await assert.rejects(ask({}, { timeout: 1 }), OpenAI.APIConnectionTimeoutError);

  const keys = path.join(newFolder(), 'keys');
  writeFileSync(keys, 'secret\n');
  const locked = await serve({ flags: ['--api-key-file', keys, '--parallel', '1', '--queue', '1'] });
  await assert.rejects(clientOf(locked).models.list(), OpenAI.AuthenticationError);
  const known = clientOf(locked, { apiKey: 'secret' });
  assert.equal((await known.models.list()).data.length, 1);
  // One runs, one waits; of the rest, at least one comes while both do.
  const asked = await Promise.allSettled(Array.from({ length: 8 }, () => known.chat.completions.create(
    { model: 'demo', messages: story, max_tokens: 1900, ignore_eos: true })));
  const refused = asked.filter((each) => each.status === 'rejected');
  assert.ok(refused.length > 0 && refused.length < asked.length);
  for (const { reason } of refused) assert.ok(reason instanceof OpenAI.RateLimitError, String(reason));
  await locked.stop();
});

test('a client that aborts frees its place', async () => {
  const before = await metric(server, 'requests_cancelled_total');
  const stream = await client.chat.completions.create(
    { model: 'demo', messages: story, max_tokens: 1900, stream: true, ignore_eos: true });
  let chunks = 0;
  for await (const chunk of stream) {
    assert.ok(chunk);
    if (++chunks === 3) stream.controller.abort();
  }
  assert.ok(chunks >= 3);
  await until(async () => (await metric(server, 'requests_cancelled_total')) > before);
  await until(async () => (await metric(server, 'requests_running')) === 0);
});

test('the server stops when asked', async () => {
  assert.equal(await server.stop(), 0);
});
