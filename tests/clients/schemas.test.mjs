// A thousand answers over fifty schemas, judged by a validator that knows nothing of how they were made.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Ajv from 'ajv';
import { serve } from './serving.mjs';

const schemas = 50;
const generations = 1000;
const clients = 8;

// Mulberry32: the same schemas every time.
let state = 1;
function random() {
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
}
const from = (low, high) => low + Math.floor(random() * (high - low));
const choice = (list) => list[from(0, list.length)];
function sample(list, count) {
  const left = [...list];
  return Array.from({ length: count }, () => left.splice(from(0, left.length), 1)[0]);
}

const kinds = {
  string: () => ({ type: 'string', minLength: from(0, 3), maxLength: from(4, 24) }),
  integer: () => {
    const low = from(-1000, 1000);
    return { type: 'integer', minimum: low, maximum: low + from(0, 2000) };
  },
  number: () => ({ type: 'number', minimum: from(-5, 5), maximum: from(5, 500) }),
  boolean: () => ({ type: 'boolean' }),
  null: () => ({ type: 'null' }),
  enum: () => ({ enum: sample(['red', 'green', 'blue', 1, 2.5, null, true, 'two words', 'ä'], from(1, 6)) }),
  const: () => ({ const: choice(['yes', 7, false, { a: [1, 2] }]) }),
  pattern: () => ({
    type: 'string',
    pattern: choice(['^[A-Z]{2}-\\d{3}$', '^(cat|dog)s?$', '^\\d{4}-\\d{2}-\\d{2}$', '^[a-f0-9]{8}$']),
  }),
};
const nested = {
  array: (depth) => {
    const least = from(0, 3);
    return { type: 'array', items: schema(depth + 1), minItems: least, maxItems: least + from(0, 4) };
  },
  anyOf: (depth) => ({ anyOf: Array.from({ length: from(2, 4) }, () => schema(depth + 1)) }),
  object: (depth) => {
    const names = sample(['name', 'age', 'kind', 'list', 'place', 'when', 'some words', 'ünï'], from(1, 5));
    return {
      type: 'object',
      properties: Object.fromEntries(names.map((name) => [name, schema(depth + 1)])),
      required: names.filter(() => random() < 0.7),
      additionalProperties: false,
    };
  },
};

function schema(depth = 0) {
  if (depth === 0) return nested.object(0);
  const names = depth < 3 ? [...Object.keys(kinds), 'object', 'object', 'array', 'anyOf'] : Object.keys(kinds);
  const name = choice(names);
  return (kinds[name] ?? nested[name])(depth);
}

test('a thousand answers over fifty schemas are all valid', async () => {
  const ajv = new Ajv({ strict: false });
  const forms = Array.from({ length: schemas }, () => schema());
  const validators = forms.map((form) => ajv.compile(form));
  const server = await serve({ flags: ['--parallel', String(clients)] });
  let next = 0;
  const client = async () => {
    while (next < generations) {
      const seed = next++;
      const form = forms[seed % schemas];
      const reply = await fetch(`http://127.0.0.1:${server.port}/v1/chat/completions`, {
        method: 'POST',
        body: JSON.stringify({
          messages: [{ role: 'user', content: `Tell me a story about number ${seed}.` }],
          max_tokens: 1500,
          temperature: 1,
          seed,
          response_format: { type: 'json_schema', json_schema: { name: 'x', schema: form } },
        }),
      });
      const { choices: [{ message, finish_reason }] } = await reply.json();
      assert.equal(finish_reason, 'stop', message.content);
      const validate = validators[seed % schemas];
      assert.ok(validate(JSON.parse(message.content)),
        `${JSON.stringify(form)}\n${message.content}\n${JSON.stringify(validate.errors)}`);
    }
  };
  await Promise.all(Array.from({ length: clients }, client));
  assert.equal(next, generations);
  assert.equal(await server.stop(), 0);
});
