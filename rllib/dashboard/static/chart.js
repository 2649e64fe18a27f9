// Curves as SVG: lines with gaps, bands of least and greatest, a logarithmic axis, a cursor that reads all curves.

import { duration, exact, h, short, shortNames } from "./dom.js";

const MARGIN = { left: 52, right: 12, top: 8, bottom: 24 };
const DASHES = ["", "7 4", "2 3", "10 3 2 3"];
const COLOURS = 8;
// More bands on top of each other show nothing.
const MOST_BANDS = 4;
// Relative difference of numbers that are drawn as equal: their digits are used up.
const NARROWEST = 1e-9;
const DAY = 86400; // seconds
const TIME_STEPS = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY];

/** Charts that are shown, by their key, for tests: window.charts.get(key).series. */
window.charts = new Map();

/** The look of the n-th curve: a colour, and a kind of line, so that neighbours differ without colours as well. */
export const look = (number) => ({
  colour: `c${number % COLOURS}`,
  dash: DASHES[(number + Math.floor(number / COLOURS)) % DASHES.length],
});

export const swatch = (number) => {
  const { colour, dash } = look(number);
  return h("svg", { class: `key ${colour}`, viewBox: "0 0 26 10", "aria-hidden": "true" },
    h("path", { d: "M0 5H26", "stroke-width": 2.4, "stroke-dasharray": dash || null }));
};

/** Round numbers that divide [low, high], about `count` of them. */
export function ticks(low, high, count) {
  if (!(high - low > NARROWEST * Math.max(Math.abs(low), Math.abs(high)))) return [low];
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  return multiples([1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) * power, low, high);
}

/** The same of seconds: whole minutes, hours or days where these are far enough apart. */
function timeTicks(low, high, count) {
  const rough = (high - low) / count;
  if (rough <= 5) return ticks(low, high, count);
  const step = TIME_STEPS.find((each) => each >= rough * 0.999);
  return step ? multiples(step, low, high) : ticks(low / DAY, high / DAY, count).map((days) => days * DAY);
}

function multiples(step, low, high) {
  const found = [];
  const last = Math.floor(high / step + 1e-9);
  for (let n = Math.ceil(low / step - 1e-9); n <= last; n++) found.push(+(n * step).toPrecision(12));
  return found;
}

function logTicks(low, high) {
  const found = [];
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const step = Math.max(1, Math.ceil((to - from) / 6));
  for (let power = from; power <= to; power += step) {
    for (const factor of to - from <= 2 ? [1, 2, 5] : [1]) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  }
  return found.length > 1 ? found : [low, high];
}

/** Exponential moving average without the bias of its beginning; gaps stay gaps. */
export function smoothed(values, weight) {
  if (!weight) return values;
  let mean = 0;
  let sum = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    sum = weight * sum + (1 - weight);
    return mean / sum;
  });
}

/** Index of the point nearest to a place; x ascends. */
function nearest(x, place) {
  let [low, high] = [0, x.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] < place) low = middle; else high = middle;
  }
  return Math.abs(x[low] - place) <= Math.abs(x[high] - place) ? low : high;
}

/** "a/b/kl" as "kl", and where it comes from in small. */
function heading(key) {
  const parts = key.split("/");
  return h("h3", { title: key }, parts.pop(), parts.length > 0 && h("span", { class: "muted" }, parts.join("/")));
}

export class Chart {
  /**
   * A figure; put `element` into the page.
   * @param {string} title result key
   * @param {{height?: number, tools?: Element[], onHover?: Function}} options
   */
  constructor(title, { height = 190, tools = [] } = {}) {
    this.title = title;
    this.height = height;
    this.series = [];
    this.isRead = false; // whether the series have arrived
    this.settings = { x: "timesteps_total", smoothing: 0, log: false };
    this.plot = h("svg", { class: "chart", role: "img", height });
    this.note = h("p", { class: "muted" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.element = h("figure", { class: "panel", dataset: { testid: `chart-${title}` } },
      h("figcaption", {}, heading(title), h("span", {}, tools)), this.plot, this.note, this.tip);
    this.plot.addEventListener("pointermove", (event) => this.hover(event));
    this.plot.addEventListener("pointerdown", (event) => this.hover(event));
    this.plot.addEventListener("pointerleave", () => this.leave());
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.element);
    window.charts.set(title, this);
  }

  /**
   * @param {{name: string, number: number, x: number[], y: number[], low?: number[], high?: number[]}[]} series
   * @param {{x: string, smoothing: number, log: boolean}} settings
   */
  show(series, settings) {
    this.series = series;
    this.isRead = true;
    this.settings = settings;
    this.draw();
  }

  remove() {
    this.watch.disconnect();
    if (window.charts.get(this.title) === this) window.charts.delete(this.title);
    this.element.remove();
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width) return;
    const { log, smoothing, x } = this.settings;
    this.lines = this.series.filter((each) => each.x.length)
      .map((each) => ({ ...each, drawn: smoothed(each.y, smoothing) }));
    const usable = (value) => value !== null && (!log || value > 0);
    const extent = { x: [Infinity, -Infinity], y: [Infinity, -Infinity] };
    const widen = (range, value) => { range[0] = Math.min(range[0], value); range[1] = Math.max(range[1], value); };
    for (const line of this.lines) {
      widen(extent.x, line.x[0]);
      widen(extent.x, line.x[line.x.length - 1]);
      for (const values of [line.drawn, smoothing ? [] : line.y, line.low || [], line.high || []])
        for (const value of values) if (usable(value)) widen(extent.y, value);
    }
    const isEmpty = !(extent.y[1] >= extent.y[0]);
    this.plot.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.plot.setAttribute("aria-label", isEmpty ? `${this.title}: no numbers` : this.describe());
    this.note.textContent = !isEmpty ? "" : !this.isRead ? "Loading …" : log && this.lines.length
      ? "No number above 0 for a logarithmic axis." : "No numbers yet.";
    this.note.hidden = !isEmpty;
    if (isEmpty) {
      this.scale = null;
      this.plot.replaceChildren();
      return;
    }
    this.scale = this.makeScale(extent, width, log);
    const parts = [...this.axes(width, x)];
    for (const line of this.lines) parts.push(...this.drawLine(line, usable, smoothing));
    this.cursor = h("g", {});
    this.plot.replaceChildren(...parts, this.cursor);
  }

  describe() {
    const ends = this.lines.map((line) => `${line.name} ends at ${short(line.y.findLast((value) => value !== null))}`);
    return `${this.title} by ${this.settings.x}: ${ends.slice(0, 8).join(", ")}`;
  }

  makeScale({ x: [x0, x1], y: [low, high] }, width, log) {
    if (log) {
      if (high - low <= NARROWEST * high) [low, high] = [low / 2, high * 2];
    } else {
      const isFlat = high - low <= NARROWEST * Math.max(Math.abs(low), Math.abs(high));
      const room = isFlat ? Math.abs(high) * 0.05 || 1 : (high - low) * 0.05;
      [low, high] = [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
    }
    if (x0 === x1) [x0, x1] = [x0 - (Math.abs(x0) * 0.5 || 1), x1 + (Math.abs(x1) * 0.5 || 1)];
    const transform = log ? Math.log : (value) => value;
    const [bottom, span] = [transform(low), transform(high) - transform(low)];
    const [inner, tall] = [width - MARGIN.left - MARGIN.right, this.height - MARGIN.top - MARGIN.bottom];
    return {
      x0, x1, low, high, log,
      x: (value) => MARGIN.left + ((value - x0) / (x1 - x0)) * inner,
      y: (value) => MARGIN.top + tall * (1 - (transform(value) - bottom) / span),
      place: (pixel) => x0 + ((pixel - MARGIN.left) / inner) * (x1 - x0),
    };
  }

  *axes(width, xName) {
    const { x, y, x0, x1, low, high, log } = this.scale;
    const floor = this.height - MARGIN.bottom;
    for (const value of log ? logTicks(low, high) : ticks(low, high, this.height / 42)) {
      const place = y(value).toFixed(1);
      yield h("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: place, y2: place });
      yield h("text", { x: MARGIN.left - 6, y: +place + 4, "text-anchor": "end" }, short(value));
    }
    const isTime = xName === "time_total_s";
    const text = isTime ? duration : short;
    const most = Math.max(4, Math.floor(width / 90));
    for (const value of isTime ? timeTicks(x0, x1, most) : ticks(x0, x1, most).filter(Number.isInteger)) {
      const place = x(value).toFixed(1);
      const anchor = width - place < 30 ? "end" : "middle";
      yield h("line", { class: "grid", x1: place, x2: place, y1: floor, y2: floor + 4 });
      yield h("text", { x: place, y: floor + 17, "text-anchor": anchor }, text(value));
    }
    yield h("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: floor, y2: floor });
  }

  *drawLine(line, usable, smoothing) {
    const { colour, dash } = look(line.number);
    if (line.low && !smoothing && this.lines.length <= MOST_BANDS) yield h("path", { class: `band ${colour}`, d: this.area(line, usable) });
    if (smoothing) yield h("path", { class: `line raw ${colour}`, d: this.path(line.x, line.y, usable) });
    yield h("path", { class: `line ${colour}`, d: this.path(line.x, line.drawn, usable), "stroke-dasharray": dash || null });
    const isUsable = line.drawn.map(usable);
    for (const [index, value] of line.drawn.entries()) {
      const isAlone = !isUsable[index - 1] && !isUsable[index + 1]; // between gaps, where no line reaches it
      if (isUsable[index] && (isAlone || line.x.length <= 30)) {
        yield h("circle", { class: colour, fill: "currentColor", r: 2, cx: this.scale.x(line.x[index]).toFixed(1), cy: this.scale.y(value).toFixed(1) });
      }
    }
  }

  path(x, values, usable) {
    let pen = false;
    let path = "";
    for (let index = 0; index < values.length; index++) {
      if (!usable(values[index])) { pen = false; continue; }
      path += `${pen ? "L" : "M"}${this.scale.x(x[index]).toFixed(1)} ${this.scale.y(values[index]).toFixed(1)}`;
      pen = true;
    }
    return path;
  }

  area(line, usable) {
    const known = [...line.x.keys()].filter((index) => usable(line.low[index]) && usable(line.high[index]));
    const point = (index, value) => `${this.scale.x(line.x[index]).toFixed(1)} ${this.scale.y(value).toFixed(1)}`;
    const upper = known.map((index) => point(index, line.high[index]));
    const lower = known.reverse().map((index) => point(index, line.low[index]));
    return upper.length ? `M${[...upper, ...lower].join("L")}Z` : "";
  }

  hover(event) {
    if (!this.scale) return;
    const box = this.plot.getBoundingClientRect();
    const place = this.scale.place(event.clientX - box.left);
    const read = this.lines.map((line) => ({ line, index: nearest(line.x, place) }))
      .filter(({ line, index }) => line.drawn[index] !== null);
    if (!read.length) return this.leave();
    const at = read.reduce((best, each) => (Math.abs(each.line.x[each.index] - place) < Math.abs(best.line.x[best.index] - place) ? each : best));
    const where = at.line.x[at.index];
    const pixel = this.scale.x(where);
    this.cursor.replaceChildren(
      h("line", { class: "cursor", x1: pixel, x2: pixel, y1: MARGIN.top, y2: this.height - MARGIN.bottom }),
      ...read.filter(({ line, index }) => !this.scale.log || line.drawn[index] > 0).map(({ line, index }) => h("circle", {
        class: look(line.number).colour, fill: "currentColor", r: 3.2, cx: this.scale.x(line.x[index]), cy: this.scale.y(line.drawn[index]) })));
    const sorted = read.sort((a, b) => b.line.drawn[b.index] - a.line.drawn[a.index]).slice(0, 12);
    const xText = this.settings.x === "time_total_s" ? duration(where) : exact(Math.round(where));
    this.tip.replaceChildren(
      h("div", { class: "muted" }, `${this.settings.x} ${xText}`),
      ...sorted.map(({ line, index }) => h("div", { class: look(line.number).colour }, swatch(line.number),
        h("span", { class: "name what" }, line.name), h("b", { class: "name" }, exact(line.drawn[index])))));
    this.tip.hidden = false;
    const left = pixel + 16 + this.tip.offsetWidth < box.width ? pixel + 26 : Math.max(2, pixel - this.tip.offsetWidth - 4);
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${MARGIN.top + 28}px`;
  }

  leave() {
    this.tip.hidden = true;
    this.cursor?.replaceChildren();
  }
}

/** A small curve for a table. */
export function sparkline(values, label) {
  const [width, height] = [110, 26];
  if (!values?.length) return h("span", { class: "muted" }, "–");
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (index) => (values.length > 1 ? 2 + (index / (values.length - 1)) * (width - 4) : width / 2);
  const y = (value) => (high > low ? height - 3 - ((value - low) / (high - low)) * (height - 6) : height / 2);
  const points = values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`);
  const svg = h("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}: from ${short(values[0])} to ${short(values.at(-1))}` });
  svg.append(values.length > 1
    ? h("polyline", { points: points.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" })
    : h("circle", { cx: width / 2, cy: height / 2, r: 2, fill: "currentColor" }));
  return svg;
}

/** Parallel coordinates: an axis for each setting, a line for each trial; `chosen` ids are drawn above the others. */
export function parallel(axes, ids, names, chosen, width) {
  const [height, top, bottom] = [260, 34, 14];
  const room = width < 500 ? 34 : 70;
  const x = (index) => room + (index / Math.max(1, axes.length - 1)) * (width - 2 * room);
  const y = (place) => top + (1 - place) * (height - top - bottom);
  const svg = h("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `Parallel coordinates of ${axes.map((axis) => axis.name).join(", ")}` });
  const order = [...ids.keys()].sort((a, b) => chosen.has(ids[a]) - chosen.has(ids[b]));
  for (const number of order) {
    const points = axes.map((axis, index) => `${x(index).toFixed(1)},${y(axis.places[number]).toFixed(1)}`).join(" ");
    const isChosen = chosen.has(ids[number]);
    svg.append(h("polyline", { points, fill: "none", class: isChosen ? "c1" : "c0", "stroke-width": isChosen ? 2.6 : 1.2, opacity: isChosen || !chosen.size ? 0.85 : 0.3 },
      h("title", {}, names[number])));
  }
  const titles = shortNames(axes.map((axis) => axis.name));
  for (const [index, axis] of axes.entries()) {
    const isLast = index === axes.length - 1;
    svg.append(h("line", { class: "grid", x1: x(index), x2: x(index), y1: top, y2: height - bottom }));
    const name = titles.get(axis.name);
    const half = 3.5 * name.length; // about half of its width
    svg.append(h("text", { x: Math.max(half, Math.min(width - half, x(index))), y: 14, "text-anchor": "middle" }, name));
    for (const [place, text] of axis.labels) svg.append(h("text", { x: x(index) + (isLast ? -5 : 5), y: y(place) + 4, "text-anchor": isLast ? "end" : "start" }, text));
  }
  return svg;
}

/** Scatter of the first metric against each other one, and links to the trials on the Pareto front. */
export function frontOf(found, linkTo, nameOf, width) {
  if (!found?.front.length) return [h("p", { class: "empty muted" }, "Two trials with all metrics are needed.")];
  const pictures = found.metrics.slice(1).map((_, index) => scatter(found, index + 1, nameOf, width));
  const entries = found.front.map((id) => h("li", {}, h("a", { href: linkTo(id) }, nameOf(id)), `: ${found.metrics.map((metric, index) => `${metric} ${short(found.values[id][index])}`).join(", ")}`));
  return [...pictures, h("ul", {}, entries)];
}

function scatter(found, other, nameOf, width) {
  const [height, left, right, top, bottom] = [240, 56, 16, 20, 34];
  const place = (index, low, high) => {
    const all = Object.values(found.values).map((values) => values[index]);
    const [least, most] = [Math.min(...all), Math.max(...all)];
    return { least, most, at: (value) => (most > least ? low + ((value - least) / (most - least)) * (high - low) : (low + high) / 2) };
  };
  const [x, y] = [place(0, left, width - right), place(other, height - bottom, top)];
  const svg = h("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `${found.metrics[other]} against ${found.metrics[0]}, with the Pareto front` });
  svg.append(h("line", { class: "grid", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }), h("line", { class: "grid", x1: left, x2: left, y1: top, y2: height - bottom }));
  const points = found.front.map((id) => `${x.at(found.values[id][0]).toFixed(1)},${y.at(found.values[id][other]).toFixed(1)}`);
  svg.append(h("polyline", { points: points.join(" "), fill: "none", class: "c1", "stroke-width": 1.2, opacity: 0.6 }));
  for (const [id, values] of Object.entries(found.values)) {
    const isOn = found.front.includes(id);
    svg.append(h("circle", { cx: x.at(values[0]).toFixed(1), cy: y.at(values[other]).toFixed(1), r: isOn ? 4 : 2.5, fill: "currentColor", class: isOn ? "c1" : "c0", opacity: isOn ? 1 : 0.5 }, h("title", {}, nameOf(id))));
  }
  svg.append(h("text", { x: left, y: height - 18, "text-anchor": "start" }, short(x.least)), h("text", { x: width - right, y: height - 18, "text-anchor": "end" }, short(x.most)), h("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, found.metrics[0]),
    h("text", { x: left - 5, y: height - bottom, "text-anchor": "end" }, short(y.least)), h("text", { x: left - 5, y: top + 4, "text-anchor": "end" }, short(y.most)), h("text", { x: left, y: 10, "text-anchor": "start" }, found.metrics[other]));
  return svg;
}
