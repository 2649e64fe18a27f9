// Elements and the forms of numbers. Text is always set as text, so nothing in a result can become markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line", "text", "g", "circle", "rect", "title", "polyline"]);

/** An element: h("a", {href: "#", class: "x", onclick: f, dataset: {...}}, "text", element, ...). */
export function h(tag, attributes, ...children) {
  const element = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "dataset") Object.assign(element.dataset, value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "checked" || key === "value" || key === "disabled") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...given(children));
  return element;
}

/** Replaces what is in an element. */
export const fill = (element, ...children) => element.replaceChildren(...given(children));

// Without those that a condition has left out: null and false would become text.
const given = (children) => children.flat(9).filter((child) => child !== null && child !== undefined && child !== false);

const HUGE = 1e15; // from here on numbers have an exponent
const UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** 1234567 -> "1.23M": at most four characters of digits. */
export function short(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= HUGE) return value.toExponential(2).replace(/\.?0*e\+/, "e");
  for (const [unit, letter] of UNITS) if (size >= unit * 0.9995) return trim(value / unit) + letter;
  if (size !== 0 && size < 0.001) return value.toExponential(2).replace(/\.?0+e/, "e");
  return trim(value);
}

const trim = (value) => String(+value.toPrecision(Math.abs(value) >= 100 ? Math.max(3, String(Math.trunc(Math.abs(value))).length) : 3));

/** A number with all the digits that matter. */
export function exact(value) {
  if (!Number.isFinite(value)) return "–";
  return Number.isInteger(value) && Math.abs(value) < HUGE ? value.toLocaleString("en-US") : String(+value.toPrecision(6));
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 60) return `${+seconds.toPrecision(2)} s`;
  if (seconds < 3600) return inTwo(seconds, 60, "min", 1, "s");
  if (seconds < 86400) return inTwo(seconds, 3600, "h", 60, "min");
  return inTwo(seconds, 86400, "d", 3600, "h");
}

function inTwo(seconds, unit, name, below, nameBelow) {
  const rest = Math.floor((seconds % unit) / below);
  return `${Math.floor(seconds / unit)} ${name}${rest ? ` ${rest} ${nameBelow}` : ""}`;
}

export function age(unix) {
  if (!unix) return "–";
  const seconds = Math.max(0, Date.now() / 1000 - unix);
  if (seconds < 10) return "now";
  return (seconds < 60 ? `${Math.floor(seconds)} s` : duration(seconds).replace(/(?<=[a-z]) \d+ [a-z]+$/, "")) + " ago";
}

export function bytes(count) {
  if (!Number.isFinite(count)) return "–";
  if (count < 1000) return `${count} B`;
  const power = Math.min(3, Math.floor(Math.log10(count) / 3));
  return `${+(count / 1000 ** power).toPrecision(3)} ${["B", "kB", "MB", "GB"][power]}`;
}

/** Settings by "a/b" path -> their last part, or the whole path where several share it. */
export function shortNames(paths) {
  const last = (path) => path.split("/").at(-1);
  return new Map(paths.map((path) => [path, paths.some((each) => each !== path && last(each) === last(path)) ? path : last(path)]));
}

export const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));

export const status = (state, reason) =>
  h("span", { class: `status ${state}`, title: reason }, h("span", { class: "word" }, state));

export async function getJson(address) {
  let answer;
  try {
    answer = await fetch(address, { headers: { Accept: "application/json" } });
  } catch {
    throw new Error("the server does not answer; is rllib dashboard still running?");
  }
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text);
  let message = text.trim();
  try { message = JSON.parse(text).error; } catch { /* plain text */ }
  throw new Error(`${message} (${answer.status})`);
}
