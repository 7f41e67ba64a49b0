// The models of this machine, and packing.

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
  $('pack-form').addEventListener('submit', pack);
  $('pack-cancel').addEventListener('click', async () => {
    try {
      await post('api/pack/cancel');
    } catch (error) {
      notice(explain(error));
    }
  });
  refresh();
  watchPack();
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
}

async function pack(event) {
  event.preventDefault();
  const body = {source: $('pack-source').value.trim()};
  if ($('pack-out').value.trim()) body.out_dir = $('pack-out').value.trim();
  // Answers when the pack is done; how far it is comes from GET api/pack.
  post('api/pack', body).catch((error) => {
    if (error.status !== 500) notice(explain(error));
  });
  await new Promise((resolve) => setTimeout(resolve, 100));
  watchPack();
}

let watching = false;
async function watchPack() {
  if (watching) return;
  watching = true;
  for (;;) {
    let state;
    try {
      state = await get('api/pack');
    } catch {
      break;
    }
    showPack(state);
    if (state.state !== 'running') break;
    await new Promise((resolve) => setTimeout(resolve, kLookEvery));
  }
  watching = false;
}

function showPack(state) {
  const running = state.state === 'running';
  if (wasRunning && !running) refresh();
  else if (state.state === 'done' && !running && !wasRunning && $('pack-state').hidden) refresh();
  wasRunning = running;
  $('pack-state').hidden = state.state === 'idle';
  $('pack-run').disabled = running;
  $('pack-cancel').hidden = !running;
  $('pack-progress').hidden = !running;
  $('pack-progress').value = state.total > 0 ? state.done / state.total : 0;
  const texts = {
    running: `Packing ${state.source}`, done: `Packed into ${state.out_dir}`,
    cancelled: 'Cancelled. Packing it again goes on from there.', error: `Failed: ${state.error}`, idle: ''};
  setText($('pack-text'), texts[state.state]);
  $('pack-text').className = state.state === 'error' ? 'error' : '';
  const eta = state.eta_s === null ? '' : `, ${secondsText(state.eta_s)} left`;
  setText($('pack-figures'), running && state.total > 0
    ? `${bytesText(state.done)} of ${bytesText(state.total)}, ${bytesText(state.rate)}/s${eta}` : '');
}
