// Small helpers. Everything that comes from the server or from files becomes text nodes, never markup.

export const $ = (id) => document.getElementById(id);

// An element with properties and children; strings become text.
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name in element && !name.includes('-')) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Sets text only when it changes, so that screen readers and selections are left alone.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Brings the children of `list` in the order of `items`. `make(item)` builds one, `update(element, item)` fills it in;
// elements stay as long as their key does, so that focus does.
export function sync(list, items, key, make, update) {
  const known = new Map([...list.children].map((child) => [child.dataset.key, child]));
  let at = list.firstElementChild;
  for (const item of items) {
    const id = String(key(item));
    let element = known.get(id);
    if (!element) {
      element = make(item);
      element.dataset.key = id;
    }
    known.delete(id);
    update(element, item);
    if (element === at) at = at.nextElementSibling;
    else list.insertBefore(element, at);
  }
  for (const element of known.values()) element.remove();
}

export function notice(text) {
  const element = h('p', {className: 'notice'}, text,
    h('button', {type: 'button', className: 'quiet', 'aria-label': 'Dismiss', onclick: () => element.remove()}, '×'));
  $('notices').replaceChildren(element);
}

export function clearNotice() { $('notices').replaceChildren(); }

export function bytesText(bytes) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0, value = bytes;
  for (; value >= 1000 && unit + 1 < units.length; ++unit) value /= 1000;
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toPrecision(3)} ${units[unit]}`;
}

export function secondsText(seconds) {
  if (seconds < 60) return `${Math.ceil(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;
}

export function numberText(value) {
  return value >= 100 ? String(Math.round(value)) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
