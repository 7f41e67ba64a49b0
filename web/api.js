// Requests to the server that this page came from.

import {$} from './dom.js';

const kKey = 'nunspark-key';
let asking = null;

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function withKey(options) {
  const key = sessionStorage.getItem(kKey);
  return key ? {...options, headers: {...options.headers, Authorization: `Bearer ${key}`}} : options;
}

// One dialog, however many requests wait for it.
function askForKey() {
  asking ??= new Promise((resolve) => {
    const dialog = $('key-dialog');
    dialog.addEventListener('close', () => {
      sessionStorage.setItem(kKey, $('key').value.trim());
      asking = null;
      resolve();
    }, {once: true});
    dialog.showModal();
  });
  return asking;
}

async function messageOf(response) {
  try {
    const body = await response.json();
    return body.detail ?? body.error?.message ?? response.statusText;
  } catch {
    return response.statusText;
  }
}

// A response that is ok. Errors: ApiError with the server's own words; TypeError when it cannot be reached.
export async function request(path, options = {}) {
  for (;;) {
    const response = await fetch(path, withKey(options));
    if (response.ok) return response;
    if (response.status !== 401) throw new ApiError(response.status, await messageOf(response));
    await askForKey();
  }
}

export const get = async (path) => (await request(path)).json();

export const post = async (path, body = {}, options = {}) => (await request(path, {
  ...options, method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)})).json();

// The data of a response's events, one by one.
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      const data = event.split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6)).join('\n');
      if (data) yield data;
    }
  }
}

export const explain = (error) =>
  error instanceof ApiError ? error.message : 'The server cannot be reached. Is nunspark still running?';
