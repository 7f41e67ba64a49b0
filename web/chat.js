// A conversation with a model, streamed.

import {eventsOf, explain, request} from './api.js';
import {$, h, setText} from './dom.js';

let messages = [];
let running = null;  // an AbortController
let fixedModel = null;

export function startChat(stats) {
  fixedModel = stats.mode === 'web' ? null : stats.engine.model;
  if (fixedModel) $('chat-model').replaceChildren(h('option', {value: fixedModel}, fixedModel));
  $('chat-form').addEventListener('submit', (event) => {
    event.preventDefault();
    if (running) running.abort();
    else send();
  });
  $('chat-text').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!running) send();
  });
  $('chat-new').addEventListener('click', () => {
    running?.abort();
    messages = [];
    $('chat-log').replaceChildren();
    setText($('chat-status'), '');
    $('chat-text').focus();
  });
  return {setModels};
}

function setModels(list) {
  // What cannot answer here is in the list of models, with the reason.
  const models = list.filter(({badge}) => !badge || badge.state === 'fits' || badge.state === 'streams');
  const before = $('chat-model').value;
  $('chat-model').replaceChildren(...models.map((model) => h('option', {value: model.path}, model.name)));
  if (models.some((model) => model.path === before)) $('chat-model').value = before;
}

function show(role, text) {
  const body = h('p', {className: 'words'}, text);
  const thoughts = h('p', {className: 'words'});
  const reasoning = h('details', {hidden: true}, h('summary', {}, 'Reasoning'), thoughts);
  const element = h('article', {className: `message ${role}`},
    h('h3', {}, role === 'user' ? 'You' : 'Model'), reasoning, body);
  $('chat-log').append(element);
  $('chat-log').scrollTop = $('chat-log').scrollHeight;
  return {element, body, reasoning, thoughts};
}

function append(target, text) {
  const log = $('chat-log');
  const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  target.append(text);
  if (follows) log.scrollTop = log.scrollHeight;
}

async function send() {
  const text = $('chat-text').value.trim();
  if (text === '' || $('chat-model').value === '') return;
  $('chat-text').value = '';
  // A new chat may begin before this answer has ended.
  const conversation = messages;
  conversation.push({role: 'user', content: text});
  show('user', text);
  const answer = show('assistant', '');
  running = new AbortController();
  setText($('chat-send'), 'Stop');
  setText($('chat-status'), 'Waiting for the model…');
  let content = '', tokens = 0, began = 0, finish = null;
  try {
    const response = await request('v1/chat/completions', {
      method: 'POST', signal: running.signal, headers: {'Content-Type': 'application/json'},
      body: JSON.stringify({
        model: $('chat-model').value, messages: conversation, stream: true, stream_options: {include_usage: true},
        max_tokens: Number($('chat-tokens').value) || 512,
        temperature: Number($('chat-temperature').value) || 0})});
    for await (const data of eventsOf(response)) {
      if (data === '[DONE]') break;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      if (event.usage) tokens = event.usage.completion_tokens;
      const choice = event.choices?.[0];
      if (!choice) continue;
      finish = choice.finish_reason ?? finish;
      if (choice.delta.reasoning_content) {
        answer.reasoning.hidden = false;
        append(answer.thoughts, choice.delta.reasoning_content);
      }
      if (choice.delta.content) {
        if (!began) setText($('chat-status'), 'Writing…');
        began ||= performance.now();
        content += choice.delta.content;
        append(answer.body, choice.delta.content);
      }
    }
    const seconds = (performance.now() - began) / 1000;
    const rate = began && seconds > 0 && tokens > 1 ? `, ${((tokens - 1) / seconds).toFixed(1)} tok/s` : '';
    setText($('chat-status'), `${tokens} tokens${rate}${finish === 'length' ? '; the longest answer allowed was reached' : ''}`);
  } catch (error) {
    const stopped = error.name === 'AbortError';
    if (conversation === messages) {
      setText($('chat-status'), stopped ? 'Stopped.' : error instanceof TypeError ? explain(error) : error.message);
    }
    if (!stopped) answer.element.classList.add('failed');
  } finally {
    running = null;
    setText($('chat-send'), 'Send');
    if (content !== '') {
      conversation.push({role: 'assistant', content});
    } else {
      // As if it had not been asked.
      conversation.pop();
      answer.element.remove();
    }
  }
}
