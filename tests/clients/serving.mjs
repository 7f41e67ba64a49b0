// A running `nunspark serve` and models for it.
import assert from 'node:assert/strict';
import { File } from 'node:buffer';
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after } from 'node:test';

globalThis.File ??= File; // a global from Node 20 on; the clients upload files with it

export const program = process.env.NUNSPARK_PROGRAM;
export const demo = process.env.NUNSPARK_DEMO;
assert.ok(program && demo, 'tests/node_run sets NUNSPARK_PROGRAM and NUNSPARK_DEMO');

const folders = [];
const children = new Set();
after(() => {
  for (const child of children) child.kill('SIGKILL');
  for (const folder of folders) rmSync(folder, { recursive: true });
});

export function newFolder() {
  const folder = mkdtempSync(path.join(tmpdir(), 'nunspark-clients-'));
  folders.push(folder);
  return folder;
}

// The demo model with a template that knows tools, as Qwen's do.
export function toolDemo() {
  const folder = newFolder();
  cpSync(demo, folder, { recursive: true });
  writeFileSync(path.join(folder, 'chat_template.jinja'), `{%- if tools -%}
{{- '<|im_start|>system\\n<tools>' -}}
{%- for tool in tools -%}{{- '\\n' + (tool | tojson) -}}{%- endfor -%}
{{- '\\n</tools>\\nCall them as <tool_call>{"name": .., "arguments": ..}</tool_call><|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') -}}
{%- for call in message.tool_calls or [] -%}
{{- '<tool_call>' + (call.function | tojson) + '</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
`);
  return folder;
}

// Resolves to {port, pid, stop}: a server on a free port.
export function serve({ model = demo, flags = [] } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, ['serve', model, '--port', '0', '--model-name', 'demo', ...flags],
      { stdio: ['ignore', 'ignore', 'pipe'] });
    children.add(child);
    const ended = new Promise((done) => child.on('exit', (code) => { children.delete(child); done(code); }));
    let log = '';
    child.on('error', reject);
    child.on('exit', (code) => reject(new Error(`serve ended with ${code}: ${log}`)));
    child.stderr.on('data', (text) => {
      log += text;
      const match = /http:\/\/127\.0\.0\.1:(\d+)\/v1/.exec(log);
      if (match) resolve({ port: Number(match[1]), pid: child.pid, stop: () => { child.kill('SIGTERM'); return ended; } });
    });
  });
}

// What `nunspark generate` writes for the same prompt.
export function generated(prompt, ...flags) {
  const run = spawnSync(program, ['generate', demo, '--prompt', prompt, ...flags], { encoding: 'utf8' });
  assert.equal(run.status, 0, run.stderr);
  return run.stdout.replace(/\n$/, '');
}

export async function metric(server, name) {
  const text = await (await fetch(`http://127.0.0.1:${server.port}/metrics`)).text();
  return Number(new RegExp(`^nunspark_${name}\\{.*\\} (.*)$`, 'm').exec(text)[1]);
}

// Waits for what() to hold; fails after a minute, many times what the slowest machine takes.
export async function until(what) {
  const start = Date.now();
  while (!(await what())) {
    if (Date.now() - start > 60000) throw new Error(`not so after a minute: ${what}`);
    await new Promise((next) => setTimeout(next, 10));
  }
}

export const weather = {
  name: 'get_weather',
  description: 'The weather of a town',
  parameters: {
    type: 'object',
    properties: { town: { enum: ['Paris', 'Rome'] }, days: { type: 'integer', minimum: 1, maximum: 7 } },
    required: ['town', 'days'],
    additionalProperties: false,
  },
};

export function checkWeather(input) {
  assert.deepEqual(Object.keys(input).sort(), ['days', 'town']);
  assert.ok(['Paris', 'Rome'].includes(input.town));
  assert.ok(Number.isInteger(input.days) && input.days >= 1 && input.days <= 7);
}
