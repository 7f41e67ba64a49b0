// The page: sections, theme, and what they share.

import {get, explain} from './api.js';
import {$, clearNotice, notice, setText} from './dom.js';
import {startBatch} from './batch.js';
import {startChat} from './chat.js';
import {startModels} from './models.js';
import {startActivity, showStats} from './activity.js';

const kStatsEvery = 1000;
const kThemes = ['auto', 'light', 'dark'];

function startTheme() {
  const apply = (theme) => {
    document.documentElement.dataset.theme = theme;
    setText($('theme'), `Theme: ${theme}`);
  };
  apply(localStorage.getItem('nunspark-theme') ?? 'auto');
  $('theme').addEventListener('click', () => {
    const now = document.documentElement.dataset.theme;
    const next = kThemes[(kThemes.indexOf(now) + 1) % kThemes.length];
    localStorage.setItem('nunspark-theme', next);
    apply(next);
  });
}

function startTabs(names) {
  const tabs = names.map((name) => $(`tab-${name}`));
  const show = (name) => {
    for (const other of names) {
      $(other).hidden = other !== name;
      $(`tab-${other}`).setAttribute('aria-selected', String(other === name));
      $(`tab-${other}`).tabIndex = other === name ? 0 : -1;
    }
  };
  const go = (name) => {
    show(name);
    history.replaceState(null, '', `#${name}`);
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener('click', () => go(names[i]));
    tab.addEventListener('keydown', (event) => {
      const steps = {ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1};
      if (!(event.key in steps)) return;
      event.preventDefault();
      const next = (steps[event.key] + tabs.length) % tabs.length;
      go(names[next]);
      tabs[next].focus();
    });
  });
  const wanted = location.hash.slice(1);
  show(names.includes(wanted) ? wanted : names[0]);
  return go;
}

function showEngine(stats) {
  const engine = stats.engine;
  $('engine').classList.toggle('busy', Boolean(engine && engine.running));
  if (!engine) return setText($('engine'), '');
  const waiting = engine.waiting > 0 ? `, ${engine.waiting} waiting` : '';
  setText($('engine'), engine.running > 0 ? `${engine.name}: ${engine.running} running${waiting}` : `${engine.name}: ready`);
}

async function watchStats() {
  let lost = false;
  for (;;) {
    try {
      const stats = await get('api/stats');
      if (lost) clearNotice();
      lost = false;
      showEngine(stats);
      showStats(stats.engine);
    } catch (error) {
      if (!lost) notice(explain(error));
      lost = true;
    }
    await new Promise((resolve) => setTimeout(resolve, kStatsEvery));
  }
}

async function start() {
  startTheme();
  let stats;
  for (;;) {
    try {
      stats = await get('api/stats');
      break;
    } catch (error) {
      notice(explain(error));
      await new Promise((resolve) => setTimeout(resolve, kStatsEvery));
    }
  }
  clearNotice();
  const web = stats.mode === 'web';
  const names = web ? ['batch', 'chat', 'models', 'activity'] : ['chat', 'activity'];
  for (const name of ['batch', 'models']) $(`tab-${name}`).hidden = !web;
  const go = startTabs(names);
  startActivity();
  const chat = startChat(stats);
  if (web) {
    const batch = startBatch(stats);
    startModels(stats, {
      onModels: (models) => {
        batch.setModels(models);
        chat.setModels(models);
      },
      onUse: (path) => {
        batch.choose(path);
        go('batch');
      },
    });
  }
  document.body.dataset.ready = 'true';
  watchStats();
}

start();
