// What the server has said of the runs so far. One stream of events; it comes back by itself when the server does.

import { h } from "./dom.js";

export const runs = new Map();
export const experiments = new Map();
export const state = { root: "", loaded: false, version: 0 };

const listeners = new Set();

/** Calls `listener(changed ids)` after every change; returns what ends that. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let source = null;
let retry = null;

export function connect() {
  clearTimeout(retry);
  source?.close();
  source = new EventSource("/api/stream");
  source.onopen = () => sayLive("live", false);
  source.onmessage = (event) => take(JSON.parse(event.data));
  source.onerror = () => {
    sayLive("not connected, trying again", true);
    // The browser tries again by itself, unless the server has refused.
    if (source.readyState === EventSource.CLOSED) {
      retry = setTimeout(connect, 2000);
      explainRefusal();
    }
  };
}

async function explainRefusal() {
  try {
    const answer = await fetch("/api/runs");
    if (answer.status === 401) sayLive((await answer.text()).trim(), true);
  } catch { /* it is not there */ }
}

function sayLive(text, isLost) {
  const live = document.getElementById("live");
  live.classList.toggle("lost", isLost);
  live.replaceChildren(isLost ? text : h("span", { title: "This page follows the files as they grow." }, text));
}

function take(news) {
  const changed = new Set();
  if (news.whole) {
    const kept = new Set([...news.runs, ...news.experiments].map((each) => each.id));
    for (const known of [runs, experiments]) for (const id of [...known.keys()]) if (!kept.has(id)) known.delete(id);
  }
  for (const id of news.removed) {
    changed.add(id);
    runs.delete(id);
    experiments.delete(id);
  }
  for (const row of news.runs) runs.set(row.id, row), changed.add(row.id);
  for (const each of news.experiments) experiments.set(each.id, each), changed.add(each.id);
  Object.assign(state, { root: news.root, loaded: true, version: news.version });
  const root = document.getElementById("root");
  root.textContent = `\u2066${news.root}\u2069`;
  root.title = news.root;
  for (const listener of [...listeners]) listener(changed);
}
