// What the engine does: figures of the last two minutes, and where its memory goes.

import {$, bytesText, h, numberText, setText, sync} from './dom.js';

const kKept = 120;  // seconds
const kWidth = 300, kHeight = 90;
const kSvg = 'http://www.w3.org/2000/svg';

// Of what happened between two looks; null: nothing did.
const kPlots = [
  {id: 'rate', label: 'Tokens per second', text: numberText,
    value: (d) => d.tokens > 0 || d.busy ? d.tokens / d.seconds : 0},
  {id: 'hits', label: 'Weights found in memory', top: 100, text: (v) => `${v.toFixed(1)} %`,
    value: (d) => d.hits + d.misses > 0 ? 100 * d.hits / (d.hits + d.misses) : null},
  {id: 'bytes', label: 'Read per token', text: bytesText,
    value: (d) => d.tokens > 0 ? d.bytes_read / d.tokens : null},
  {id: 'stall', label: 'Time waiting for the drive', top: 100, text: (v) => `${v.toFixed(1)} %`,
    value: (d) => d.pass_us > 0 ? 100 * d.stall_us / d.pass_us : null}];

const kParts = [['weights', 'Weights'], ['kv', 'Keys and values'], ['drafter', 'Draft model'], ['rest', 'Program, buffers, prompts kept']];
const kCounters = ['tokens', 'hits', 'misses', 'bytes_read', 'pass_us', 'stall_us'];

const samples = new Map(kPlots.map((plot) => [plot.id, []]));
let last = null, lastTime = 0;

export function startActivity() {
  $('plots').append(...kPlots.map((plot) => {
    const svg = document.createElementNS(kSvg, 'svg');
    svg.setAttribute('viewBox', `0 0 ${kWidth} ${kHeight}`);
    svg.setAttribute('preserveAspectRatio', 'none');
    svg.setAttribute('role', 'img');
    svg.setAttribute('aria-label', `${plot.label}: nothing yet`);
    svg.append(...['area', 'line'].map((name) => {
      const path = document.createElementNS(kSvg, 'path');
      path.setAttribute('class', name);
      return path;
    }));
    return h('figure', {id: `plot-${plot.id}`}, h('figcaption', {}, h('span', {}, plot.label), h('strong', {}, '–')), svg,
      h('p', {className: 'hint scale'}, ''));
  }));
}

export function showStats(engine) {
  const now = performance.now();
  if (engine && last && last.model === engine.model && engine.steps >= last.steps) {
    const difference = {seconds: (now - lastTime) / 1000, busy: engine.running > 0};
    for (const name of kCounters) difference[name] = engine[name] - last[name];
    for (const plot of kPlots) {
      const list = samples.get(plot.id);
      list.push(plot.value(difference));
      if (list.length > kKept) list.shift();
    }
  }
  showBound(engine, last);
  last = engine;
  lastTime = now;
  if (!$('activity').hidden) {
    for (const plot of kPlots) draw(plot);
    showMemory(engine);
  }
}

// What would have to be faster.
function showBound(engine, before) {
  if (!engine) return setText($('bound'), 'No engine is open. It opens with the first job or chat.');
  const since = before && before.model === engine.model ? before : {pass_us: 0, stall_us: 0, tokens: 0, bytes_read: 0};
  const pass = engine.pass_us - since.pass_us;
  if (pass <= 0) return;
  const share = (engine.stall_us - since.stall_us) / pass;
  const tokens = engine.tokens - since.tokens;
  const read = tokens > 0 ? ` (${bytesText((engine.bytes_read - since.bytes_read) / tokens)} a token)` : '';
  const percent = `${Math.round(100 * share)} % of the time is spent waiting for it`;
  setText($('bound'), share > 0.5 ? `The drive is the bound: ${percent}${read}. More memory for weights would help.`
    : share > 0.1 ? `Processor and memory are the bound, the drive is close: ${percent}${read}.`
      : 'Processor and memory are the bound: hardly any time is spent waiting for the drive.');
}

function draw(plot) {
  const list = samples.get(plot.id);
  const figure = $(`plot-${plot.id}`);
  const known = list.filter((value) => value !== null);
  const top = plot.top ?? Math.max(...known, 1e-9) * 1.1;
  const newest = known.length > 0 ? plot.text(known[known.length - 1]) : '–';
  setText(figure.querySelector('strong'), newest);
  setText(figure.querySelector('.scale'), known.length > 0 ? `0 to ${plot.text(top)}, last ${list.length} s` : 'nothing yet');
  figure.querySelector('svg').setAttribute('aria-label', `${plot.label}: now ${newest}, ${list.length} seconds shown`);
  let line = '', area = '', open = -1, x = 0;
  list.forEach((value, i) => {
    x = (kWidth * (i + kKept - list.length)) / (kKept - 1);
    if (value === null) {
      if (open >= 0) area += `L${x.toFixed(1)} ${kHeight}Z`;
      open = -1;
      return;
    }
    const y = kHeight - 1 - (kHeight - 2) * Math.min(value / top, 1);
    // A second alone, between two without any token, is a dot.
    line += open < 0 ? `M${x.toFixed(1)} ${y.toFixed(1)}h.01` : `L${x.toFixed(1)} ${y.toFixed(1)}`;
    area += open < 0 ? `M${x.toFixed(1)} ${kHeight}L${x.toFixed(1)} ${y.toFixed(1)}` : `L${x.toFixed(1)} ${y.toFixed(1)}`;
    if (open < 0) open = x;
  });
  if (open >= 0) area += `L${x.toFixed(1)} ${kHeight}Z`;
  figure.querySelector('.line').setAttribute('d', line);
  figure.querySelector('.area').setAttribute('d', area);
}

function showMemory(engine) {
  $('memory-card').hidden = !engine;
  if (!engine) return;
  const {weights, kv, drafter, total, ceiling, resident, process_peak: peak} = engine.memory;
  const bytes = {weights, kv, drafter, rest: Math.max(0, total - weights - kv - drafter)};
  const parts = kParts.filter(([id]) => bytes[id] > 0);
  setText($('memory-text'), `Planned: ${bytesText(total)}${ceiling > 0 ? ` of ${bytesText(ceiling)} that this machine leaves` : ''}. ` +
    `Weights in memory now: ${bytesText(resident)}. Most this process has used: ${bytesText(peak)}.`);
  if (!$('memory-bar').firstChild) {
    const svg = document.createElementNS(kSvg, 'svg');
    svg.setAttribute('viewBox', '0 0 1000 24');
    svg.setAttribute('preserveAspectRatio', 'none');
    svg.setAttribute('role', 'img');
    svg.setAttribute('aria-labelledby', 'memory-title memory-parts');
    $('memory-bar').append(svg);
  }
  let x = 0;
  $('memory-bar').firstChild.replaceChildren(...parts.map(([id]) => {
    const rect = document.createElementNS(kSvg, 'rect');
    const width = 1000 * bytes[id] / total;
    for (const [name, value] of Object.entries({x, y: 0, width, height: 24, class: `part ${id}`})) rect.setAttribute(name, value);
    x += width;
    return rect;
  }));
  sync($('memory-parts'), parts, ([id]) => id,
    ([id, label]) => h('li', {}, h('span', {className: `swatch ${id}`}), h('span', {}, label), h('strong', {})),
    (element, [id]) => setText(element.lastChild, bytesText(bytes[id])));
}
