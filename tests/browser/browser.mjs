// A running nunspark and a browser that looks at it.

import {spawn} from 'node:child_process';
import {mkdtempSync, readFileSync, rmSync} from 'node:fs';
import {createServer} from 'node:net';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import {chromium} from 'playwright-core';

export const demo = process.env.NUNSPARK_DEMO;
const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const freePort = () => new Promise((resolve) => {
  const server = createServer().listen(0, '127.0.0.1', () => {
    const {port} = server.address();
    server.close(() => resolve(port));
  });
});

// A server with folders of its own. Stops with stop(), and can be started again where it was.
export async function startServer(verb = 'web') {
  const folder = mkdtempSync(join(tmpdir(), 'nunspark-browser-'));
  const port = await freePort();
  const server = {
    folder, url: `http://127.0.0.1:${port}/`,
    path: (name) => join(folder, name),
    async start() {
      const args = verb === 'web' ? ['web', '--packed-root', join(folder, 'packed'), '--state-dir', join(folder, 'state')]
        : ['serve', demo, '--ui'];
      server.child = spawn(process.env.NUNSPARK_PROGRAM, [...args, '--port', String(port)],
        {env: {...process.env, HOME: folder, HF_HUB_CACHE: join(folder, 'hub')}, stdio: ['ignore', 'ignore', 'pipe']});
      let log = '';
      await new Promise((resolve, reject) => {
        server.child.stderr.on('data', (data) => {
          log += data;
          if (log.includes(`http://127.0.0.1:${port}`)) resolve();
        });
        server.child.once('exit', () => reject(new Error(log)));
      });
    },
    async kill(signal = 'SIGKILL') {
      const ended = new Promise((resolve) => server.child.once('exit', resolve));
      server.child.kill(signal);
      await ended;
    },
    async stop() {
      if (server.child.exitCode === null && server.child.signalCode === null) await server.kill();
      rmSync(folder, {recursive: true, force: true});
    },
  };
  await server.start();
  return server;
}

export const startBrowser = () => chromium.launch({
  executablePath: process.env.NUNSPARK_CHROMIUM ?? '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});

// A page that fails its test when something is wrong behind the scenes: errors of scripts, words on the console, a
// request that goes elsewhere. `settings.expected`: words on the console that the test is about.
export async function openPage(browser, server, settings = {}) {
  const context = await browser.newContext({viewport: {width: 1280, height: 900}, ...settings.context});
  const page = await context.newPage();
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(error.stack));
  page.on('console', (message) => {
    if (message.type() !== 'error' && message.type() !== 'warning') return;
    if (settings.expected?.test(message.text())) return;
    wrong.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(server.url) && !request.url().startsWith('data:')) wrong.push(request.url());
  });
  page.setDefaultTimeout(60_000);
  await page.goto(server.url + (settings.hash ?? ''));
  await page.waitForSelector('body[data-ready=true]');
  page.checkAndClose = async () => {
    assert.deepEqual(wrong, []);
    await context.close();
  };
  return page;
}

// Nothing serious, by axe's rules.
export async function checkAccessible(page, what) {
  await page.evaluate(axeSource);
  const {violations} = await page.evaluate(() => globalThis.axe.run());
  const serious = violations.filter(({impact}) => impact === 'serious' || impact === 'critical');
  assert.deepEqual(serious.map(({id, nodes}) => `${id}: ${nodes.map(({html, failureSummary}) => `${html} ${failureSummary}`).join(' | ')}`), [], what);
}

export const textFile = (name, text) => ({name, mimeType: 'text/plain', buffer: Buffer.from(text)});

// A picture for a person to look at, where NUNSPARK_SHOTS names a folder.
export async function shoot(page, name) {
  if (!process.env.NUNSPARK_SHOTS) return;
  await page.evaluate(() => scrollTo(0, 0));
  await page.screenshot({path: join(process.env.NUNSPARK_SHOTS, `${name}.png`)});
}
