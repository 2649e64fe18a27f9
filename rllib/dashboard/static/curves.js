// Charts of some results of some runs, with one set of controls; they follow the runs.

import { Chart, swatch } from "./chart.js";
import { getJson, h } from "./dom.js";
import { onChange, runs } from "./store.js";

const AXES = { timesteps_total: "steps", training_iteration: "iterations", time_total_s: "training time" };
const REFRESH_MS = 1000;
// Results that are dicts, of which one chart shows all entries.
const GROUPS = ["policy_reward_mean"];
const MOST_MEMBERS = 24; // of a league there may be hundreds

/** The entries of a group, "policy_reward_mean/main" and so on; of any other result itself. */
function members(key, metrics) {
  const below = GROUPS.includes(key) ? metrics.filter((each) => each.startsWith(`${key}/`)) : [];
  return below.length ? below.slice(0, MOST_MEMBERS) : [key];
}

/** What a chart can show: groups of more than one entry, and all single results. */
export function choices(metrics) {
  return [...GROUPS.filter((key) => members(key, metrics).length > 1), ...metrics];
}

// Kept while the page is open, for the charts of the next run, too.
const settings = { x: "timesteps_total", smoothing: 0, log: false, seeds: true };

export class Curves {
  /**
   * @param {string[]} ids of the runs
   * @param {{keys: string[], metrics: string[], names?: object, height?: number, large?: boolean, onKeys?: Function}} options
   *   `keys` are drawn first, of the `choices` that there are among `metrics`; `names` are of `runs` and `groups`, by id.
   */
  constructor(ids, { keys, metrics, names, height, large, onKeys }) {
    Object.assign(this, { ids, height, metrics, names, onKeys, keys: [], charts: new Map(), fetched: new Map() });
    this.message = h("p", { class: "error", role: "alert", hidden: true });
    this.legend = h("ul", { class: "legend" });
    this.grid = h("div", { class: large ? "charts large" : "charts" });
    this.element = h("div", { dataset: { testid: "curves" } }, this.controls(), this.legend, this.message, this.grid);
    for (const key of keys) this.add(key, false);
    this.load();
    this.end = onChange((changed) => ids.some((id) => changed.has(id)) && this.loadSoon());
  }

  controls() {
    const axis = h("select", { "aria-label": "Horizontal axis", dataset: { testid: "axis" }, onchange: (event) => { settings.x = event.target.value; this.load(); } },
      Object.entries(AXES).map(([key, text]) => h("option", { value: key, selected: key === settings.x }, `by ${text}`)));
    const amount = h("output", {}, settings.smoothing.toFixed(2));
    const smoothing = h("input", { type: "range", min: 0, max: 0.99, step: 0.01, dataset: { testid: "smoothing" }, oninput: (event) => {
      settings.smoothing = +event.target.value;
      amount.textContent = settings.smoothing.toFixed(2);
      this.draw();
    } });
    smoothing.value = settings.smoothing;
    const log = h("input", { type: "checkbox", checked: settings.log, dataset: { testid: "log" }, onchange: (event) => { settings.log = event.target.checked; this.draw(); } });
    const seeds = h("input", { type: "checkbox", checked: settings.seeds, dataset: { testid: "seeds" }, onchange: (event) => { settings.seeds = event.target.checked; this.load(); } });
    const together = this.ids.length > 1 && h("label", { title: "One curve for the seeds of a folder: interquartile mean and 95 % interval" }, seeds, "seeds as one");
    this.more = h("select", { "aria-label": "Add a chart", dataset: { testid: "add-metric" }, onchange: (event) => { this.add(event.target.value, true); } });
    return h("div", { class: "bar" }, axis, h("label", {}, "smoothing", smoothing, amount), h("label", {}, log, "logarithmic"), together, this.more);
  }

  add(key, isNew) {
    if (!this.keys.includes(key)) {
      this.keys.push(key);
      const close = h("button", { type: "button", title: "Remove this chart", "aria-label": `Remove the chart of ${key}`, onclick: () => this.drop(key) }, "✕");
      const chart = new Chart(key, { height: this.height, tools: [close] });
      this.charts.set(key, chart);
      if (GROUPS.includes(key)) chart.element.append((chart.names = h("ul", { class: "legend" })));
      this.grid.append(chart.element);
      if (isNew) this.load().then(() => chart.element.scrollIntoView({ block: "nearest" }));
    }
    this.listMore();
    if (isNew) this.onKeys?.(this.keys);
  }

  /** Offers these results, and draws the first of them if there were none before. */
  follow(metrics, metric, most = Infinity) {
    this.metrics = metrics;
    if (!this.keys.length && !this.isEmptied) {
      for (const key of worthDrawing(metrics, metric).slice(0, most)) this.add(key, false);
      this.load();
    }
    this.listMore();
  }

  drop(key) {
    this.isEmptied = this.keys.length === 1;
    this.keys = this.keys.filter((each) => each !== key);
    this.charts.get(key).remove();
    this.charts.delete(key);
    this.listMore();
    this.onKeys?.(this.keys);
  }

  listMore() {
    const left = choices(this.metrics).filter((key) => !this.keys.includes(key));
    if (this.more.options.length === left.length + 1 && left.every((key, index) => this.more.options[index + 1].value === key)) {
      this.more.value = "";
      return; // an open list stays open
    }
    this.more.replaceChildren(h("option", { value: "", disabled: true, selected: true }, "add a chart …"), ...left.map((key) => h("option", { value: key }, key)));
    this.more.value = "";
  }

  loadSoon() {
    this.timer ??= setTimeout(() => { this.timer = null; this.load(); }, REFRESH_MS);
  }

  async load() {
    if (this.loading) return (this.again = true, this.loading);
    this.loading = this.fetch();
    await this.loading;
    this.loading = null;
    if (this.again) { this.again = false; await this.load(); }
  }

  async fetch() {
    if (!this.keys.length) {
      document.documentElement.dataset.ready = "1";
      return;
    }
    const query = new URLSearchParams([...this.ids.map((id) => ["id", id]), ...this.keys.flatMap((key) => members(key, this.metrics)).map((key) => ["key", key]), ["x", settings.x],
      ...(settings.seeds && this.ids.length > 1 ? [["group", "seeds"]] : [])]);
    try {
      const answer = await getJson(`/api/series?${query}`);
      this.fetched = Map.groupBy ? Map.groupBy(answer.series, (each) => each.key) : grouped(answer.series);
      this.message.hidden = true;
      this.draw();
    } catch (error) {
      this.message.textContent = `The curves cannot be read: ${error.message}`;
      this.message.hidden = false;
    }
    document.documentElement.dataset.ready = "1";
  }

  /** The runs, or folders of seeds, with the colours of their curves. */
  showLegend() {
    if (this.ids.length < 2) return;
    const heads = new Map([...this.fetched.values()].flat().map((each) => [each.group || each.id, each.id]));
    const known = heads.size ? [...heads] : this.ids.map((id) => [id, id]);
    this.legend.replaceChildren(...known.map(([name, id]) => h("li", {}, swatch(this.ids.indexOf(id)), h("span", {}, this.labelOf(name)))));
  }

  draw() {
    this.showLegend();
    for (const [key, chart] of this.charts) {
      const parts = members(key, this.metrics);
      const series = parts.flatMap((part, index) => (this.fetched.get(part) || []).map((each) => ({
        ...each, name: this.nameOf(each.group || each.id, part, key), number: this.ids.indexOf(each.id) * parts.length + index })));
      chart.show(series, { ...settings });
      chart.names?.replaceChildren(...series.map((each) => h("li", {}, swatch(each.number), h("span", {}, each.name))));
    }
  }

  /** Name of a run, or of a folder of seeds. */
  labelOf(id) {
    return (settings.seeds && this.names?.groups[id]) || this.names?.runs[id] || runs.get(id)?.name || id;
  }

  nameOf(id, part, key) {
    const run = this.labelOf(id);
    if (part === key) return run;
    const entry = part.slice(key.length + 1);
    return this.ids.length > 1 ? `${run} ${entry}` : entry;
  }

  remove() {
    this.end();
    clearTimeout(this.timer);
    for (const chart of this.charts.values()) chart.remove();
  }
}

function grouped(series) {
  const groups = new Map();
  for (const each of series) groups.set(each.key, [...(groups.get(each.key) || []), each]);
  return groups;
}

const FIRST = ["episode_reward_mean", "episode_cost_mean", "episode_len_mean"];
const LEARNER = ["total_loss", "policy_loss", "vf_loss", "qf_loss", "critic_loss", "actor_loss", "loss", "kl", "entropy", "mean_q"];
const SPEED = "num_env_steps_sampled_throughput_per_sec";
const BOOKKEEPING = /^(time|timestamp|timesteps|iterations|episodes|training_iteration|num_|pid|done|perf|timers|counters|info\/num|config)/;

/** The results that are most worth drawing: return, length, what the learner says of itself, speed. */
export function worthDrawing(metrics, metric) {
  const learner = LEARNER.map((name) => metrics.find((key) => key.endsWith(`/learner_stats/${name}`))).filter(Boolean);
  const known = choices(metrics);
  const found = [metric, ...FIRST, ...GROUPS, ...learner, SPEED].filter((key) => key && known.includes(key));
  const others = learner.length ? [] : metrics.filter((key) => !BOOKKEEPING.test(key));
  return [...new Set([...found, ...others])].slice(0, 9);
}
