// The page of nunspark web, as people use it. Tests run in their order: each goes on from the one before.

import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import {existsSync, readFileSync} from 'node:fs';
import {checkAccessible, demo, openPage, shoot, startBrowser, startHub, startServer, textFile, unzip} from './browser.mjs';

let hub, server, browser;

before(async () => {
  hub = await startHub();
  server = await startServer('web', {HF_ENDPOINT: hub.url, HF_TOKEN: '', no_proxy: '*', NO_PROXY: '*'});
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  await server?.stop();
  hub?.stop();
});

const stories = ['A cat and a ball.', 'A dog in the rain.', 'The sun is warm.', 'A small boat.', 'Two friends.',
  'A red bird.', 'The old tree.', 'A little house.'];

async function fill(page, names, {maxTokens = 60, output = server.path('out')} = {}) {
  await page.setInputFiles('#files', names.map((name, i) => textFile(name, stories[i % stories.length])));
  await page.fill('#instruction', 'Tell me a story about this.');
  await page.fill('#output', output);
  await page.fill('#max-tokens', String(maxTokens));
}

const job = (page, name) => page.locator('#jobs .job', {has: page.locator('.name', {hasText: name})});
const ended = (page, name, status) =>
  job(page, name).locator('.chip', {hasText: status}).waitFor();

test('a first visit shows what to do, and every section is accessible in both themes and on a phone', async () => {
  for (const [name, context] of [['light', {colorScheme: 'light'}], ['dark', {colorScheme: 'dark'}],
    ['phone', {viewport: {width: 390, height: 844}, isMobile: true}]]) {
    const page = await openPage(browser, server, {context});
    assert.equal(await page.title(), 'nunspark');
    for (const section of ['Batch', 'Chat', 'Models', 'Activity']) {
      await page.getByRole('tab', {name: section}).click();
      await checkAccessible(page, `${section}, ${name}`);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${section}, ${name}`);
    }
    await page.getByRole('tab', {name: 'Models'}).click();
    await page.getByText('No models found').waitFor();
    await page.checkAndClose();
  }
});

test('a model is packed and can be used', async () => {
  const page = await openPage(browser, server, {hash: '#models', expected: /status of 500/});
  await page.fill('#pack-source', '/no/such/model');
  await page.click('#pack-run');
  await page.getByText('Failed: ').waitFor();
  await page.fill('#pack-source', demo);
  await page.fill('#pack-out', 'demo');
  await page.click('#pack-run');
  await page.getByText('Packed into').waitFor();
  await page.locator('.badge.fits').waitFor();
  await shoot(page, 'models');
  await page.getByRole('button', {name: 'Use demo'}).click();
  assert.equal(await page.inputValue('#model'), server.path('packed/demo'));
  await page.checkAndClose();
});

test('a model is downloaded, cancelled in the middle, killed in the middle, and goes on from there', async () => {
  const page = await openPage(browser, server, {hash: '#models', expected: /status of (400|500)|net::ERR_/});
  await page.fill('#pull-repo', 'no id at all');
  await page.click('#pull-run');
  await page.locator('.notice', {hasText: 'no repository id'}).waitFor();
  await page.fill('#pull-repo', 'org/other');
  await page.click('#pull-run');
  await page.getByText(/Failed: .*org\/other/).waitFor();
  hub.held = 'model.safetensors';
  await page.fill('#pull-repo', 'org/model');
  await page.click('#pull-run');
  await page.getByText('Downloading org/model').waitFor();
  await page.locator('#task-figures', {hasText: / of .*\/s/}).waitFor();
  await checkAccessible(page, 'a download');
  await page.locator('#task').getByRole('button', {name: 'Cancel'}).click();
  await page.getByText('It goes on from there').waitFor();
  await page.click('#pull-run');
  await page.getByText('Downloading org/model').waitFor();
  await server.kill();
  await page.getByText('The server cannot be reached').waitFor();
  await server.start();
  hub.held = null;
  await page.click('#pull-run');
  await page.getByText('Downloaded org/model').waitFor();
  await page.locator('.model', {hasText: 'org/model'}).getByRole('button', {name: 'Pack org/model'}).click();
  assert.equal(await page.inputValue('#pack-source'), 'org/model');
  await page.checkAndClose();
});

test('a batch of eight files with one bad gives seven answers and one reason', async () => {
  const page = await openPage(browser, server);
  await fill(page, stories.map((_, i) => `story-${i}.txt`));
  await page.setInputFiles('#files', [{name: 'picture.txt', mimeType: 'text/plain', buffer: Buffer.from('\x89PNG\r\n', 'latin1')}]);
  await page.getByRole('button', {name: 'Remove story-7.txt'}).click();
  await shoot(page, 'form');
  await page.getByRole('button', {name: 'Run 8 files'}).click();
  for (let i = 0; i < 7; ++i) await ended(page, `story-${i}.txt`, 'Done');
  await ended(page, 'picture.txt', 'Failed');
  assert.deepEqual(await page.locator('#jobs .name').allInnerTexts(),
    [...Array(7).keys()].map((i) => `story-${i}.txt`).concat('picture.txt'));
  assert.match(await job(page, 'picture.txt').innerText(), /PNG picture/);
  await job(page, 'story-3.txt').locator('.pick').click();
  const output = readFileSync(server.path('out/story-3.txt.out.txt'), 'utf8');
  await page.waitForFunction((text) => document.querySelector('#text').textContent === text, output);
  await shoot(page, 'batch');
  await page.getByText('Metrics').click();
  await page.locator('#metrics dt', {hasText: 'Decoded together'}).waitFor();
  assert.ok(existsSync(server.path('out/picture.txt.meta.json')));
  await checkAccessible(page, 'a batch that has ended');
  await shoot(page, 'metrics');
  await page.setViewportSize({width: 390, height: 844});
  await checkAccessible(page, 'a batch on a phone');
  await shoot(page, 'batch-phone');
  await page.checkAndClose();
});

test('answers can be taken away, one and all', async () => {
  const page = await openPage(browser, server);
  const saved = async (button) => {
    const download = page.waitForEvent('download');
    await page.getByRole('button', {name: button, exact: true}).click();
    const file = await download;
    return {name: file.suggestedFilename(), path: await file.path()};
  };
  await job(page, 'story-3.txt').locator('.pick').click();
  const one = await saved('Save');
  assert.equal(one.name, 'story-3.txt.out.txt');
  assert.equal(readFileSync(one.path, 'utf8'), readFileSync(server.path('out/story-3.txt.out.txt'), 'utf8'));
  const all = await saved('Save all');
  assert.equal(all.name, 'answers.zip');
  assert.deepEqual(unzip(all.path), [...Array(7).keys()].map((i) => `story-${i}.txt.out.txt`)
    .map((name) => [name, readFileSync(server.path(`out/${name}`), 'utf8')]));
  await job(page, 'picture.txt').locator('.pick').click();
  assert.ok(await page.locator('#save').isHidden());
  await page.checkAndClose();
});

test('Fast without a draft model says that it changes nothing', async () => {
  const page = await openPage(browser, server);
  const note = page.getByText('No draft model is chosen');
  assert.ok(await note.isHidden());
  await page.getByLabel('Fast').check();
  await note.waitFor();
  await page.getByText('Advanced', {exact: true}).click();
  await page.fill('#draft', 'models/demo-draft-4bit');
  await note.waitFor({state: 'hidden'});
  await page.fill('#draft', '');
  await page.getByLabel('Lossless').check();
  assert.ok(await note.isHidden());
  await page.checkAndClose();
});

test('what files and models say is text and never markup', async () => {
  const page = await openPage(browser, server);
  await fill(page, ['<img src=x onerror=alert(1)>.txt'], {maxTokens: 5});
  await page.click('#run');
  await ended(page, '<img src=x onerror=alert(1)>.txt', 'Done');
  assert.equal(await page.locator('main img').count(), 0);
  await page.checkAndClose();
});

test('one that waits is cancelled, so is one that runs, the others go on', async () => {
  const page = await openPage(browser, server);
  const names = [...Array(8).keys()].map((i) => `cancel-${i}.txt`);
  await fill(page, names, {maxTokens: 1800});
  await page.fill('#temperature', '1.5');
  await page.getByText('Advanced', {exact: true}).click();
  await page.getByText('Decode files together').click();
  await page.click('#run');
  await page.getByRole('button', {name: 'Cancel cancel-7.txt'}).click();
  await ended(page, 'cancel-7.txt', 'Cancelled');
  for (let i = 0; i < 7; ++i) {
    // Whichever runs now; it may end by itself before the click arrives.
    await job(page, `cancel-${i}.txt`).locator('.chip', {hasText: /Running|Done/}).waitFor();
    await job(page, `cancel-${i}.txt`).locator('.cancel').click({timeout: 300}).catch(() => {});
    await ended(page, `cancel-${i}.txt`, /Done|Cancelled/);
  }
  assert.ok(existsSync(server.path('out/cancel-7.txt.meta.json')));
  await page.checkAndClose();
});

test('a reload in the middle shows the same jobs, and their text goes on', async () => {
  const page = await openPage(browser, server);
  const names = [...Array(8).keys()].map((i) => `reload-${i}.txt`);
  await fill(page, names, {maxTokens: 1500});
  await page.click('#run');
  await job(page, 'reload-0.txt').locator('.chip', {hasText: /Running|Done/}).waitFor();
  await page.reload();
  for (const name of names) await ended(page, name, 'Done');
  await job(page, 'reload-5.txt').locator('.pick').click();
  const output = readFileSync(server.path('out/reload-5.txt.out.txt'), 'utf8');
  await page.waitForFunction((text) => document.querySelector('#text').textContent === text, output);
  await page.checkAndClose();
});

test('a server that is killed and started again in the middle loses nothing, and the page finds it', async () => {
  const page = await openPage(browser, server, {expected: /net::ERR_/});
  const names = [...Array(8).keys()].map((i) => `restart-${i}.txt`);
  await fill(page, names, {maxTokens: 1500});
  await page.click('#run');
  await job(page, 'restart-0.txt').locator('.chip', {hasText: /Running|Done/}).waitFor();
  await server.kill();
  await page.getByText('The server cannot be reached').waitFor();
  await server.start();
  for (const name of names) await ended(page, name, 'Done');
  await page.getByText('The server cannot be reached').waitFor({state: 'detached'});
  assert.ok(!existsSync(server.path('out/restart-3.txt.1.out.txt')));
  await page.checkAndClose();
});

test('a chat answers, is stopped, and starts anew', async () => {
  const page = await openPage(browser, server, {hash: '#chat'});
  await page.selectOption('#chat-model', {label: 'demo'});
  await page.fill('#chat-temperature', '0');
  await page.fill('#chat-tokens', '60');
  await page.fill('#chat-text', 'Tell me a story about a cat.');
  await page.keyboard.press('Enter');
  await page.locator('#chat-status', {hasText: 'tokens'}).waitFor();
  const first = await page.locator('.message.assistant .words').last().innerText();
  assert.ok(first.length > 20, first);
  await page.fill('#chat-tokens', '1200');
  await page.fill('#chat-text', 'And then?');
  await page.click('#chat-send');
  await page.locator('#chat-status', {hasText: /Writing|tokens/}).waitFor();
  // It may end by itself before the click arrives.
  await page.getByRole('button', {name: 'Stop'}).click({timeout: 1000}).catch(() => {});
  await page.getByRole('button', {name: 'Send'}).waitFor();
  await checkAccessible(page, 'a chat');
  await shoot(page, 'chat');
  await page.click('#chat-new');
  assert.equal(await page.locator('.message').count(), 0);
  // In the middle of an answer: nothing of it is said in the new chat.
  await page.fill('#chat-text', 'Go on.');
  await page.click('#chat-send');
  await page.locator('#chat-status', {hasText: /Writing|tokens/}).waitFor();
  await page.click('#chat-new');
  assert.equal(await page.locator('.message').count(), 0);
  await page.getByRole('button', {name: 'Send'}).waitFor();
  assert.equal(await page.locator('#chat-status').innerText(), '');
  await page.fill('#chat-tokens', '10');
  await page.fill('#chat-text', 'Hello.');
  const asked = page.waitForRequest(/chat\/completions/);
  await page.click('#chat-send');
  assert.deepEqual((await asked).postDataJSON().messages, [{role: 'user', content: 'Hello.'}]);
  await page.locator('#chat-status', {hasText: 'tokens'}).waitFor();
  await page.checkAndClose();
});

test('the plots move while the engine works, and the bound is named', async () => {
  const page = await openPage(browser, server, {hash: '#activity'});
  const second = await openPage(browser, server);
  await fill(second, ['plot-0.txt', 'plot-1.txt', 'plot-2.txt', 'plot-3.txt'], {maxTokens: 1500});
  await second.click('#run');
  await page.waitForFunction(() => document.querySelector('#plot-rate .line').getAttribute('d')?.includes('L'));
  await page.locator('#bound', {hasText: 'bound'}).waitFor();
  await page.locator('#memory-parts', {hasText: 'Weights'}).waitFor();
  for (let i = 0; i < 4; ++i) await ended(second, `plot-${i}.txt`, 'Done');
  await checkAccessible(page, 'plots');
  await shoot(page, 'activity');
  await second.checkAndClose();
  await page.checkAndClose();
});

test('everything can be done with the keyboard alone', async () => {
  const page = await openPage(browser, server);
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.className);
  const tabTo = async (id) => {
    for (let i = 0; i < 60 && await focused() !== id; ++i) await page.keyboard.press('Tab');
    assert.equal(await focused(), id);
  };
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'skip');
  await tabTo('tab-batch');
  await page.keyboard.press('ArrowRight');
  assert.equal(await focused(), 'tab-chat');
  await page.keyboard.press('Home');
  await tabTo('files');
  const chooser = page.waitForEvent('filechooser');
  await page.keyboard.press('Space');
  await (await chooser).setFiles([textFile('keys.txt', 'A frog.')]);
  await tabTo('instruction');
  await page.keyboard.type('Tell me a story about this.');
  await tabTo('output');
  await page.keyboard.press('Control+A');
  await page.keyboard.type(server.path('keys'));
  await tabTo('max-tokens');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('20');
  await tabTo('run');
  await page.keyboard.press('Enter');
  await ended(page, 'keys.txt', 'Done');
  await page.getByRole('status').filter({hasText: 'keys.txt: Done'}).waitFor();
  assert.ok(readFileSync(server.path('keys/keys.txt.out.txt'), 'utf8').length > 0);
  await page.checkAndClose();
});

test('serve --ui shows chat and plots alone', async () => {
  const serving = await startServer('serve');
  try {
    const page = await openPage(browser, serving);
    assert.equal(await page.getByRole('tab').count(), 2);
    await page.fill('#chat-text', 'Tell me a story about a dog.');
    await page.keyboard.press('Enter');
    await page.locator('#chat-status', {hasText: 'tokens'}).waitFor();
    await page.getByRole('tab', {name: 'Activity'}).click();
    await page.locator('#memory-parts', {hasText: 'Weights'}).waitFor();
    await page.checkAndClose();
  } finally {
    await serving.stop();
  }
});
