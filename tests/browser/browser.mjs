// A running nunspark and a browser that looks at it.

import {execFileSync, spawn} from 'node:child_process';
import {createHash} from 'node:crypto';
import {mkdtempSync, readdirSync, readFileSync, rmSync} from 'node:fs';
import {createServer as createHttpServer} from 'node:http';
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
export async function startServer(verb = 'web', environment = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'nunspark-browser-'));
  const port = await freePort();
  const server = {
    folder, url: `http://127.0.0.1:${port}/`,
    path: (name) => join(folder, name),
    async start() {
      const args = verb === 'web' ? ['web', '--packed-root', join(folder, 'packed'), '--state-dir', join(folder, 'state')]
        : ['serve', demo, '--ui'];
      server.child = spawn(process.env.NUNSPARK_PROGRAM, [...args, '--port', String(port)],
        {env: {...process.env, HOME: folder, HF_HUB_CACHE: join(folder, 'hub'), ...environment}, stdio: ['ignore', 'ignore', 'pipe']});
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

// A hub with the demo model as "org/model", on this machine. What is downloaded of a file comes in two halves; the second
// of `hub.held` is kept back until its name is changed.
export async function startHub() {
  const files = new Map(readdirSync(demo).map((name) => [name, readFileSync(join(demo, name))]));
  const hub = {held: null};
  const server = createHttpServer(async (request, response) => {
    const {pathname} = new URL(request.url, 'http://hub');
    if (pathname === '/api/models/org/model/revision/main') {
      const siblings = [...files].map(([rfilename, content]) => ({rfilename, size: content.length, lfs: {
        sha256: createHash('sha256').update(content).digest('hex'), size: content.length}}));
      return response.end(JSON.stringify({sha: 'c'.repeat(40), siblings}));
    }
    const name = pathname.split('/').pop(), content = files.get(name);
    if (!pathname.startsWith('/org/model/resolve/') || !content) return response.writeHead(404).end();
    const from = Number(/bytes=([0-9]+)-/.exec(request.headers.range ?? '')?.[1] ?? 0);
    response.writeHead(from > 0 ? 206 : 200, {'Content-Length': content.length - from,
      ...(from > 0 && {'Content-Range': `bytes ${from}-${content.length - 1}/${content.length}`})});
    const half = from + Math.floor((content.length - from) / 2);
    response.write(content.subarray(from, half));
    while (hub.held === name && !response.destroyed) await new Promise((resolve) => setTimeout(resolve, 10));
    response.end(content.subarray(half));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  hub.url = `http://127.0.0.1:${server.address().port}`;
  hub.stop = () => {
    server.closeAllConnections();
    server.close();
  };
  return hub;
}

// Names and contents of a ZIP archive, as Python reads it.
export const unzip = (path) => JSON.parse(execFileSync('python3', ['-c',
  'import json, sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\n' +
  'print(json.dumps([[i.filename, z.read(i).decode()] for i in z.infolist()]))', path]));

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
