// The form of a batch, the list of jobs, and the text of one of them.

import {eventsOf, explain, get, post, request} from './api.js';
import {$, bytesText, clearNotice, h, notice, numberText, setText, sync} from './dom.js';
import {makeZip, save} from './zip.js';

const kRefreshEvery = 4000;
const kPreview = 160;  // characters of a running job's text in the list
const kEnded = ['done', 'error', 'cancelled'];

const kMetrics = [
  ['tok_per_s', 'Tokens per second', numberText], ['tokens', 'Tokens', String],
  ['prompt_tokens', 'Prompt tokens', String], ['finish_reason', 'Ended by', endText],
  ['peak_mem_gb', 'Peak memory', gbText], ['weight_peak_gb', 'Weights, peak', gbText],
  ['kv_peak_gb', 'Keys and values, peak', gbText], ['multiplier', 'Tokens per pass', numberText],
  ['deviation_rate', 'Deviation', (rate) => rate.toFixed(3)],
  ['expert_hit_pct', 'Experts found in memory', (share) => `${share.toFixed(1)} %`],
  ['mb_per_token', 'Read per token', (mb) => bytesText(mb * 1e6)], ['batch_size', 'Decoded together', String]];

function gbText(gb) { return bytesText(gb * 1e9); }
function endText(reason) { return {stop: 'the model', length: 'longest answer'}[reason] ?? reason; }

const jobs = new Map();   // by id, in the order of submission
const texts = new Map();  // of jobs that run, and of the selected one
let files = [];
let selected = null;
let models = [];

export function startBatch(stats) {
  $('output').value = localStorage.getItem('nunspark-output') ?? stats.outputs ?? '';
  startFiles();
  $('model').addEventListener('change', showBadge);
  $('batch-form').addEventListener('submit', run);
  $('show-metrics').addEventListener('change', showSelected);
  $('clear').addEventListener('click', clear);
  $('save').addEventListener('click', saveSelected);
  $('save-all').addEventListener('click', saveAll);
  for (const id of ['draft', 'preset-lossless', 'preset-fast']) $(id).addEventListener('input', showPreset);
  refresh();
  setInterval(refresh, kRefreshEvery);
  listen();
  return {setModels, choose};
}

// ---- the form

function setModels(list) {
  models = list;
  const before = $('model').value;
  const packed = list.filter((model) => model.kind === 'packed');
  $('model').replaceChildren(...packed.map((model) => h('option', {value: model.path}, model.name)));
  if (packed.length === 0) $('model').append(h('option', {value: ''}, 'No packed model yet: see Models'));
  if (packed.some((model) => model.path === before)) $('model').value = before;
  $('draft-list').replaceChildren(...list.map((model) => h('option', {value: model.path}, model.name)));
  showBadge();
}

function choose(path) {
  $('model').value = path;
  showBadge();
}

function showBadge() {
  const model = models.find((candidate) => candidate.path === $('model').value);
  setText($('model-badge'), model?.badge ? `${model.badge.text}: ${model.badge.reason}` : '');
}

// The preset is one of a draft model: without it there is nothing to be fast with.
function showPreset() {
  $('fast-note').hidden = !$('preset-fast').checked || $('draft').value.trim() !== '';
}

function startFiles() {
  const input = $('files'), drop = $('drop');
  input.addEventListener('change', () => {
    add(input.files);
    input.value = '';
  });
  for (const type of ['dragenter', 'dragover']) {
    drop.addEventListener(type, (event) => {
      event.preventDefault();
      drop.classList.add('over');
    });
  }
  for (const type of ['dragleave', 'drop']) drop.addEventListener(type, () => drop.classList.remove('over'));
  drop.addEventListener('drop', (event) => {
    event.preventDefault();
    add(event.dataTransfer.files);
  });
}

function add(list) {
  clearNotice();
  files.push(...list);
  showFiles();
}

function showFiles() {
  $('file-list').replaceChildren(...files.map((file, i) => h('li', {},
    h('span', {className: 'name'}, file.name), h('span', {className: 'hint'}, bytesText(file.size)),
    h('button', {type: 'button', className: 'quiet', 'aria-label': `Remove ${file.name}`, onclick: () => {
      files.splice(i, 1);
      showFiles();
      ($('file-list').querySelectorAll('button')[i] ?? $('files')).focus();
    }}, '×'))));
  setText($('run'), files.length > 1 ? `Run ${files.length} files` : 'Run');
}

const numberOf = (id) => $(id).value === '' ? null : Number($(id).value);

async function run(event) {
  event.preventDefault();
  if (files.length === 0) {
    notice('Add at least one text file.');
    return $('files').focus();
  }
  clearNotice();
  $('run').disabled = true;
  try {
    const ids = [];
    for (const [i, file] of files.entries()) {
      setText($('run'), `Sending ${i + 1} of ${files.length}…`);
      const body = new FormData();
      body.append('files', file, file.name);
      ids.push((await (await request('api/files', {method: 'POST', body})).json()).files[0].id);
    }
    const answer = await post('api/batch', {
      model: $('model').value,
      draft: $('draft').value.trim() || null,
      preset: document.querySelector('input[name=preset]:checked').value,
      instruction: $('instruction').value,
      use_chat_template: $('template').checked,
      max_tokens: numberOf('max-tokens'),
      temperature: numberOf('temperature'),
      output_dir: $('output').value.trim(),
      file_ids: ids,
      advanced: {
        kv_bits: numberOf('kv-bits'), budget: $('budget').value.trim() || 'auto',
        accept_top_k: numberOf('accept-top-k'), num_draft_tokens: numberOf('draft-tokens'),
        max_prompt_tokens: numberOf('max-prompt'), batch: $('together').checked},
    });
    localStorage.setItem('nunspark-output', $('output').value.trim());
    files = [];
    for (const job of answer.jobs) take(job);
    select(answer.jobs[0].id);
    showJobs();
    $('jobs-title').scrollIntoView({block: 'nearest'});
  } catch (error) {
    notice(explain(error));
  } finally {
    $('run').disabled = false;
    showFiles();
  }
}

// ---- jobs

// What ended stays ended, whatever an older answer says.
function take(job) {
  const known = jobs.get(job.id);
  if (known && kEnded.includes(known.status) && !kEnded.includes(job.status)) return;
  jobs.set(job.id, job);
}

async function refresh() {
  try {
    const list = (await get('api/jobs')).jobs;
    const ids = new Set(list.map((job) => job.id));
    for (const id of jobs.keys()) if (!ids.has(id)) jobs.delete(id);
    for (const job of list) take(job);
    if (selected === null && list.length > 0) select(listedJobs()[0].id);
    showJobs();
  } catch {
    // The figures say that the server is gone.
  }
}

async function listen() {
  for (;;) {
    try {
      for await (const data of eventsOf(await request('api/events'))) onEvent(JSON.parse(data));
    } catch {
      // As above.
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
    refresh();
  }
}

function onEvent(event) {
  const id = event.job_id ?? event.job.id;
  if (event.job) take(event.job);
  // Its text comes from the beginning.
  if (event.type === 'started') texts.set(id, '');
  if (event.type === 'token') {
    texts.set(id, (texts.get(id) ?? '') + event.text);
    if (id === selected) append(event.text);
  }
  if (event.type === 'metrics' && jobs.has(id)) {
    const job = jobs.get(id);
    job.metrics = event.metrics;
    job.tokens_done = event.metrics.tokens;
  }
  if (kEnded.includes(event.type)) {
    if (id !== selected) texts.delete(id);
    // For those who hear the page.
    setText($('jobs-status'), `${event.job.file_name}: ${kStatus[event.job.status]}`);
  }
  scheduleShow(event.type === 'started' && id === selected);
}

// At most once a frame, however fast tokens come.
let scheduled = false, wholeText = false;
function scheduleShow(whole) {
  wholeText ||= whole;
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    showJobs();
    if (wholeText) showText();
    wholeText = false;
  });
}

const kStatus = {queued: 'Waiting', running: 'Running', done: 'Done', error: 'Failed', cancelled: 'Cancelled'};

function progressText(job) {
  if (job.status === 'error') return job.error;
  if (job.status === 'queued') return '';
  const rate = job.metrics?.tok_per_s ? `, ${numberText(job.metrics.tok_per_s)} tok/s` : '';
  return `${job.tokens_done} tokens${rate}`;
}

// The newest batch first, its files in the order in which they were given.
function listedJobs() {
  const batches = new Map();
  for (const job of jobs.values()) {
    if (!batches.has(job.batch_id)) batches.set(job.batch_id, []);
    batches.get(job.batch_id).push(job);
  }
  return [...batches.values()].reverse().flat();
}

function showJobs() {
  const list = listedJobs();
  $('jobs-empty').hidden = list.length > 0;
  $('clear').hidden = !list.some((job) => kEnded.includes(job.status));
  $('save-all').hidden = !list.some(hasAnswer);
  sync($('jobs'), list, (job) => job.id, makeJob, updateJob);
  showSelected();
}

function makeJob(job) {
  return h('li', {className: 'job'},
    h('button', {type: 'button', className: 'pick', onclick: () => select(job.id)},
      h('span', {className: 'name'}), h('span', {className: 'chip'}), h('span', {className: 'hint figures'})),
    h('p', {className: 'preview', hidden: true}),
    h('button', {type: 'button', className: 'quiet cancel', onclick: () => cancel(job.id)}, 'Cancel'));
}

function updateJob(element, job) {
  const find = (name) => element.querySelector(`.${name}`);
  setText(find('name'), job.file_name);
  setText(find('chip'), kStatus[job.status]);
  find('chip').className = `chip ${job.status}`;
  setText(find('figures'), progressText(job));
  find('pick').setAttribute('aria-current', String(job.id === selected));
  const text = texts.get(job.id) ?? '';
  const preview = job.status === 'running' && job.id !== selected ? text.slice(-kPreview) : '';
  find('preview').hidden = preview === '';
  setText(find('preview'), preview);
  find('cancel').hidden = kEnded.includes(job.status);
  find('cancel').setAttribute('aria-label', `Cancel ${job.file_name}`);
}

async function cancel(id) {
  try {
    await post(`api/jobs/${id}/cancel`);
    refresh();
  } catch (error) {
    notice(explain(error));
  }
}

async function clear() {
  try {
    await post('api/jobs/clear');
    selected = null;
    $('output-card').hidden = true;
    refresh();
  } catch (error) {
    notice(explain(error));
  }
}

// ---- answers

const hasAnswer = (job) => Boolean(job.output_path) && kEnded.includes(job.status);
const fileNameOf = (job) => job.output_path.slice(job.output_path.lastIndexOf('/') + 1);

async function saveSelected() {
  const job = jobs.get(selected);
  try {
    save(await (await request(`api/jobs/${job.id}/output`)).blob(), fileNameOf(job));
  } catch (error) {
    notice(explain(error));
  }
}

async function saveAll() {
  $('save-all').disabled = true;
  try {
    const files = [], taken = new Set();
    for (const job of listedJobs().filter(hasAnswer)) {
      let name = fileNameOf(job);
      // Two folders may hold files of one name.
      for (let i = 2; taken.has(name); ++i) name = `${i}/${fileNameOf(job)}`;
      taken.add(name);
      files.push({name, content: new Uint8Array(await (await request(`api/jobs/${job.id}/output`)).arrayBuffer())});
    }
    save(makeZip(files), 'answers.zip');
  } catch (error) {
    notice(explain(error));
  } finally {
    $('save-all').disabled = false;
  }
}

// ---- the selected one

async function select(id) {
  if (selected !== id && selected !== null && kEnded.includes(jobs.get(selected)?.status)) texts.delete(selected);
  selected = id;
  showJobs();
  if (!texts.has(id) && kEnded.includes(jobs.get(id)?.status)) {
    try {
      let text = '';
      for await (const data of eventsOf(await request(`api/jobs/${id}/events`))) {
        const event = JSON.parse(data);
        if (event.type === 'token') text += event.text;
      }
      texts.set(id, text);
    } catch (error) {
      notice(explain(error));
    }
  }
  if (selected === id) showText();
}

function showSelected() {
  const job = jobs.get(selected);
  $('output-card').hidden = !job;
  if (!job) return;
  setText($('output-title'), job.file_name);
  const none = kEnded.includes(job.status) ? 'No file was written' : 'Becomes a file at its end';
  setText($('output-path'), job.output_path ?? none);
  $('save').hidden = !hasAnswer(job);
  $('output-error').hidden = !job.error;
  setText($('output-error'), job.error ?? '');
  const known = kMetrics.filter(([name]) => job.metrics?.[name] !== undefined);
  $('metrics').hidden = !$('show-metrics').checked || known.length === 0;
  sync($('metrics'), known, ([name]) => name, () => h('div', {}, h('dt'), h('dd')), (element, [name, label, text]) => {
    setText(element.firstChild, label);
    setText(element.lastChild, text(job.metrics[name]));
  });
}

function showText() {
  const pre = $('text');
  setText(pre, texts.get(selected) ?? '');
  pre.scrollTop = pre.scrollHeight;
}

// Follows the text as long as its end is in sight.
function append(text) {
  const pre = $('text');
  const follows = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 40;
  pre.append(text);
  if (follows) pre.scrollTop = pre.scrollHeight;
}
