// The models of this machine, packing and downloads.

import {explain, get, post} from './api.js';
import {$, bytesText, h, notice, secondsText, setText, sync} from './dom.js';

const kLookEvery = 500;
const kKinds = {packed: 'packed', unpacked: 'checkpoint', gguf: 'GGUF file'};

let handlers;
let wasRunning = false;

export function startModels(stats, its) {
  handlers = its;
  setText($('packed-root'), `Packs are in ${stats.packed_root}`);
  $('models-refresh').addEventListener('click', refresh);
  $('pack-form').addEventListener('submit', (event) => {
    const body = {source: $('pack-source').value.trim()};
    if ($('pack-out').value.trim()) body.out_dir = $('pack-out').value.trim();
    begin(event, 'api/pack', body);
  });
  $('pull-form').addEventListener('submit', (event) => begin(event, 'api/pull', {repo: $('pull-repo').value.trim()}));
  $('task-cancel').addEventListener('click', async () => {
    try {
      await post('api/task/cancel');
    } catch (error) {
      notice(explain(error));
    }
  });
  refresh();
  watch();
}

async function refresh() {
  try {
    const {models} = await get('api/models');
    $('models-empty').hidden = models.length > 0;
    sync($('model-list'), models, (model) => `${model.kind} ${model.path}`, makeModel, updateModel);
    $('pack-list').replaceChildren(
      ...models.filter((model) => model.kind !== 'packed').map((model) => h('option', {value: model.name})));
    handlers.onModels(models);
    // Badges are being found.
    if (models.some((model) => model.badge === null)) setTimeout(refresh, kLookEvery);
  } catch (error) {
    notice(explain(error));
  }
}

function makeModel(model) {
  const packed = model.kind === 'packed';
  const use = packed
    ? h('button', {type: 'button', className: 'quiet', 'aria-label': `Use ${model.name}`,
      onclick: () => handlers.onUse(model.path)}, 'Use')
    : h('button', {type: 'button', className: 'quiet', 'aria-label': `Pack ${model.name}`, onclick: () => {
      $('pack-source').value = model.name;
      $('pack-source').focus();
    }}, 'Pack…');
  return h('li', {className: 'model'},
    h('div', {}, h('h3', {className: 'name'}), h('p', {className: 'hint facts'}), h('p', {className: 'hint reason'})),
    h('span', {className: 'badge'}), use);
}

function updateModel(element, model) {
  setText(element.querySelector('.name'), model.name);
  setText(element.querySelector('.facts'), `${kKinds[model.kind]}, ${bytesText(model.size)}`);
  const badge = element.querySelector('.badge');
  badge.className = `badge ${(model.badge?.state ?? '').replace(' ', '-')}`;
  setText(badge, model.badge?.text ?? 'looking…');
  setText(element.querySelector('.reason'), model.badge?.reason ?? '');
  element.querySelector('button').hidden = model.badge?.state === 'drafts';
}

async function begin(event, path, body) {
  event.preventDefault();
  // Answers when it is done; how far it is comes from GET api/task.
  post(path, body).catch((error) => {
    if (error.status !== 500) notice(explain(error));
  });
  await new Promise((resolve) => setTimeout(resolve, 100));
  // It may be over already.
  wasRunning = true;
  watch();
}

let watching = false;
async function watch() {
  if (watching) return;
  watching = true;
  for (;;) {
    try {
      const state = await get('api/task');
      showTask(state);
      if (state.state !== 'running') break;
    } catch {
      // The figures say that the server is gone; what it does when it is back is shown then.
    }
    await new Promise((resolve) => setTimeout(resolve, kLookEvery));
  }
  watching = false;
}

function showTask(state) {
  const running = state.state === 'running', pack = state.kind === 'pack';
  if (state.state === 'done' && (wasRunning || $('task').hidden)) refresh();
  wasRunning = running;
  $('task').hidden = state.state === 'idle';
  for (const id of ['pack-run', 'pull-run']) $(id).disabled = running;
  $('task-cancel').hidden = !running;
  $('task-progress').hidden = !running;
  $('task-progress').value = state.total > 0 ? state.done / state.total : 0;
  setText($('task-title'), pack ? 'Packing' : 'Download');
  const texts = {
    running: `${pack ? 'Packing' : 'Downloading'} ${state.source}`,
    done: pack ? `Packed into ${state.target}` : `Downloaded ${state.source}`,
    cancelled: 'Cancelled. It goes on from there when it is started again.', error: `Failed: ${state.error}`, idle: ''};
  setText($('task-text'), texts[state.state]);
  $('task-text').className = state.state === 'error' ? 'error' : '';
  const eta = state.eta_s === null ? '' : `, ${secondsText(state.eta_s)} left`;
  setText($('task-figures'), running && state.total > 0
    ? `${bytesText(state.done)} of ${bytesText(state.total)}, ${bytesText(state.rate)}/s${eta}` : '');
}
