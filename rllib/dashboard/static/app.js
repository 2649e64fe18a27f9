// The page: which view the address asks for, and the views.

import { frontOf, parallel, sparkline, swatch, Chart } from "./chart.js";
import { choices, Curves, worthDrawing } from "./curves.js";
import { age, bytes, duration, exact, fill, getJson, h, short, shortNames, shown, status } from "./dom.js";
import { filtered } from "./filter.js";
import { seedsAsOne } from "./seeds.js";
import { connect, experiments, onChange, runs, state } from "./store.js";
import { Table } from "./table.js";

const main = document.getElementById("main");
const MOST_COMPARED = 20;
const MOST_CHARTS = 2; // of a comparison, at first
const MOST_SEARCHED = 8; // settings of trials that are columns
const MOST_IN_COLUMN = 36; // letters of a name
// What was chosen, sorted and typed in each table, while the page is open.
const memory = new Map();
const remembered = (name) => memory.get(name) || memory.set(name, { filter: "" }).get(name);

const link = (route, id) => `#/${route}?${new URLSearchParams({ id })}`;
const compareLink = (ids, keys = []) => `#/compare?${new URLSearchParams([...ids.map((id) => ["id", id]), ...keys.map((key) => ["key", key])])}`;
const crumb = () => h("p", { class: "crumb" }, h("a", { href: "#/runs" }, "← All runs"));
const problem = (text) => h("p", { class: "problem" }, text);

// ---------------------------------------------------------------------- tables of runs

function flags(row) {
  const problems = [...row.problems, row.damage].filter(Boolean);
  return problems.length ? h("span", { class: "flag", title: problems.join("\n"), "aria-label": `Damaged: ${problems.join("; ")}` }, " ⚠") : null;
}

const COLUMNS = [
  { key: "name", title: "Name", class: "name", value: (row) => row.name, cell: (row) => [h("a", { href: row.members ? compareLink(row.members.map((each) => each.id)) : link("run", row.id) }, row.name), flags(row),
    h("span", { class: "sub" }, [row.algorithm, row.env].filter(Boolean).join(" · "))] },
  { key: "status", title: "Status", value: (row) => row.status, cell: (row) => status(row.status, row.reason) },
  { key: "algorithm", title: "Algorithm", class: "medium", value: (row) => row.algorithm, cell: (row) => row.algorithm || "–" },
  { key: "env", title: "Environment", class: "medium", value: (row) => row.env, cell: (row) => row.env || "–" },
  { key: "steps", title: "Steps", class: "num medium", first: -1, value: (row) => row.steps, cell: (row) => h("span", { title: exact(row.steps) }, short(row.steps)) },
  { key: "rate", title: "Mean steps/s", class: "num wide", first: -1, value: (row) => row.rate, cell: (row) => short(row.rate) },
  { key: "best", title: "Best", class: "num medium", first: -1, value: (row) => row.best, cell: (row) => h("span", { title: measure(row) }, short(row.best)) },
  { key: "last", title: "Last", class: "num", first: -1, value: (row) => row.last, cell: (row) => h("span", { title: measure(row) }, short(row.last)) },
  { key: "spark", title: "Curve", value: (row) => row.results, first: -1, cell: (row) => sparkline(row.spark, row.metric || "") },
  { key: "seed", title: "Seed", class: "num wide", value: (row) => row.seed, cell: (row) => (row.seed === null ? "–" : String(row.seed)) },
  { key: "updated", title: "Updated", class: "num wide", first: -1, value: (row) => row.updated, cell: (row) => h("span", { dataset: { age: row.updated || "" }, title: row.updated ? new Date(row.updated * 1000).toLocaleString() : "" }, age(row.updated)) },
];
const measure = (row) => (row.metric ? `${row.metric}, ${row.mode === "min" ? "least" : "greatest"} is best${row.members ? "; interquartile mean of the seeds" : ""}` : "no return has been reported");

/** A filter, a button that compares, and a table of the rows that `select()` gives; it follows them. */
class RunTable {
  constructor(name, columns, select, sort) {
    this.select = select;
    this.memory = remembered(name);
    this.filter = h("input", { type: "search", class: "grow", value: this.memory.filter, placeholder: "Filter: words, algo:PPO env:Cart status:running return>100", "aria-label": "Filter", title: "Keys: name algo env status seed steps iteration return best rate, and settings of trials; : contains, = > < compare. The key / leads here.",
      dataset: { testid: "filter" }, oninput: () => { this.memory.filter = this.filter.value; this.show(); } });
    this.compare = h("button", { type: "button", class: "primary", dataset: { testid: "compare" }, onclick: () => { location.hash = compareLink(this.chosen()); } });
    this.clear = h("button", { type: "button", onclick: () => { this.table.chosen.clear(); this.show(); } }, "Choose none");
    this.count = h("span", { class: "muted", role: "status" });
    this.memory.seedsAsOne ??= true;
    const box = h("input", { type: "checkbox", checked: this.memory.seedsAsOne, dataset: { testid: "seeds-as-one" }, onchange: (event) => { this.memory.seedsAsOne = event.target.checked; this.show(); } });
    this.seeds = h("label", { title: "One row for the seeds of a folder, with their interquartile means", hidden: true }, box, "seeds as one");
    this.sort = sort;
    this.element = h("div", {}, h("div", { class: "bar" }, this.filter, this.count, this.seeds, this.clear, this.compare));
    this.setColumns(columns);
    this.end = onChange(() => this.show());
    this.show();
  }

  /** Makes the table with these columns; filter and buttons stay the same elements, and keep the focus. */
  setColumns(columns) {
    this.table?.element.remove();
    this.table = new Table(columns, { sort: this.sort, label: "Runs", memory: this.memory, onChoose: () => this.showButton() });
    this.element.append(this.table.element);
  }

  chosen() { return [...this.table.chosen].filter((id) => runs.has(id)); }

  show() {
    const all = this.select();
    const found = filtered(all, this.memory.filter);
    this.count.textContent = found.length === all.length ? `${all.length} run${all.length === 1 ? "" : "s"}` : `${found.length} of ${all.length}`;
    const together = seedsAsOne(found);
    this.seeds.hidden = together.length === found.length;
    this.table.show(this.memory.seedsAsOne ? together : found);
    this.showButton();
  }

  showButton() {
    const count = this.chosen().length;
    this.compare.textContent = count > MOST_COMPARED ? `Compare: ${MOST_COMPARED} at most` : count ? `Compare ${count}` : "Compare";
    this.compare.disabled = count < 2 || count > MOST_COMPARED;
    this.compare.title = count < 2 ? "Choose two or more runs" : "";
    this.clear.hidden = !count;
    this.onShow?.();
  }
}

// ---------------------------------------------------------------------- views: each fills `main` and returns what ends it

function viewRuns() {
  const empty = h("div", { class: "panel empty", hidden: true, dataset: { testid: "empty" } },
    h("p", {}, "No runs here yet. Start one in a terminal; it appears here by itself:"), h("code", {}, "rllib train PPO CartPole-v1"));
  const cards = h("div", { class: "cards" });
  const heading = h("h2", {}, "Experiments");
  const table = new RunTable("runs", COLUMNS, () => [...runs.values()], "updated");
  const heading2 = h("h2", {}, "Runs and trials");
  fill(main, h("h1", {}, "Runs"), empty, heading, cards, heading2, table.element);
  const show = () => {
    const found = [...experiments.values()].sort((a, b) => (b.created || 0) - (a.created || 0));
    cards.replaceChildren(...found.map((each) => h("div", { class: "panel card" }, h("a", { href: link("tune", each.id) }, each.name), " ", status(each.status),
      h("div", { class: "muted" }, `${each.trainable || "?"}: ${counts(each)}`))));
    heading.hidden = heading2.hidden = !found.length;
    empty.hidden = !state.loaded || runs.size + experiments.size > 0;
    table.element.hidden = !runs.size;
  };
  show();
  const end = onChange(show);
  if (state.loaded) document.documentElement.dataset.ready = "1";
  return () => { end(); table.end(); };
}

const counts = (experiment) => Object.entries(experiment.counts).map(([name, count]) => `${count} ${name}`).join(", ") || "no trials yet";

function facts(row) {
  const pairs = [["algorithm", row.algorithm], ["environment", row.env], ["steps", row.steps === null ? "" : exact(row.steps)], ["iterations", row.iteration === null ? "" : exact(row.iteration)],
    ["mean steps/s", row.rate === null ? "" : short(row.rate)], ["training time", row.time_s === null ? "" : duration(row.time_s)], ["last", row.last === null ? "" : exact(row.last)], ["best", row.best === null ? "" : exact(row.best)],
    ["of", row.metric], ["seed", row.seed === null ? "" : String(row.seed)], ["updated", age(row.updated)]];
  return listed(pairs.filter(([, value]) => value), "facts");
}

// Entries of result["external"] -> their names on the page.
const TRAFFIC = [["clients", "clients"], ["open_episodes", "open episodes"], ["episodes_lost", "episodes lost"], ["requests_per_s", "requests/s"], ["act_ms_p50", "wait for an action, median ms"],
  ["act_ms_p99", "99 % within ms"], ["rows_waiting", "rows waiting"], ["weights_lag", "weights behind by updates"], ["untrained_episode_reward_mean", "return without training"]];

const listed = (pairs, testid) => h("dl", { class: "facts", dataset: { testid } }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

/** The policy that `rllib serve --learn` serves, and its candidate, in the newest result; nothing for other runs. */
function serving(newest) {
  const of = (key) => newest[`serving/${key}`];
  if (typeof of("version") !== "number") return [];
  const mean = (key, episodes) => (typeof of(key) === "number" ? `${short(of(key))}${episodes ? ` in ${exact(of(episodes))} episodes` : ""}` : "none yet");
  const pairs = [["served version", exact(of("version"))], ["served since", h("span", { dataset: { age: of("served_since") }, title: new Date(of("served_since") * 1000).toLocaleString() }, age(of("served_since")))],
    ["its mean return", mean("return_mean")]];
  if (typeof of("candidate_version") === "number") pairs.push(["canary version", exact(of("candidate_version"))], ["canary share", `${short(100 * of("candidate_share"))} %`],
    ["canary return", mean("candidate_return_mean", "candidate_episodes")], ["served meanwhile", mean("beside_return_mean", "beside_episodes")]);
  else pairs.push(["canary", "none on trial"]);
  pairs.push(["steps waiting for the learner", exact(of("rows_waiting"))], ["steps held by the vetting", exact(of("rows_held"))], ["updates behind the learner", exact(of("lag_updates"))],
    ["promoted", exact(of("promoted"))], ["dropped", exact(of("dropped"))], ["learning", of("paused") ? "paused" : "running"]);
  return [h("h2", {}, "Serving"), listed(pairs, "serving")];
}

/** Traffic of clients and of loops outside, in the newest result; nothing for runs that step their environments. */
function traffic(newest) {
  const pairs = TRAFFIC.map(([key, name]) => [name, newest[`external/${key}`]]).filter(([, value]) => typeof value === "number");
  return pairs.length ? [h("h2", {}, "Clients"), listed(pairs.map(([name, value]) => [name, short(value)]), "traffic")] : [];
}

async function viewRun(query, isCurrent) {
  const id = query.get("id") || "";
  const details = await getJson(`/api/run?id=${encodeURIComponent(id)}`);
  if (!isCurrent()) return null;
  const row = () => runs.get(id) || details.row;
  const head = h("div", {});
  const keys = worthDrawing(details.metrics, details.row.metric);
  const curves = new Curves([id], { keys, metrics: details.metrics });
  const parts = { traffic: h("div", {}), config: h("div", {}), checkpoints: h("div", {}), newest: h("div", {}), logs: h("div", {}) };
  const logsPart = [h("h2", {}, "Logs"), parts.logs];
  const isFailed = details.row.status === "failed"; // then why is what people look for
  fill(main, crumb(), head, ...(isFailed ? logsPart : []), parts.traffic, h("h2", {}, "Curves"), curves.element,
    h("div", { class: "columns" }, h("section", {}, h("h2", {}, "Settings"), parts.config), h("section", {}, h("h2", {}, "Checkpoints"), parts.checkpoints, h("h2", {}, "Newest result"), parts.newest)),
    ...(isFailed ? [] : logsPart));
  const showHead = () => {
    const now = row();
    fill(head, h("h1", {}, now.name), h("p", {}, status(now.status, now.reason), h("span", { class: "muted" }, ` · ${now.reason}`),
      now.experiment && [" · trial of ", h("a", { href: link("tune", now.experiment) }, now.experiment === "." ? "the experiment" : now.experiment)]),
      ...[...now.problems, now.damage].filter(Boolean).map(problem), facts(now));
  };
  showHead();
  let configShown = null;
  const logs = logsView(id, isFailed);
  parts.logs.replaceChildren(logs.element);
  const newest = pairsTable("Newest result", "No result yet.");
  parts.newest.replaceChildren(newest.element);
  const showRest = (fresh) => {
    const config = JSON.stringify(fresh.config); // the box of the table keeps its state while the settings do
    if (config !== configShown) parts.config.replaceChildren(settingsTable(fresh));
    configShown = config;
    parts.checkpoints.replaceChildren(checkpointTable(fresh));
    newest.show(fresh.newest);
    parts.traffic.replaceChildren(...serving(fresh.newest), ...traffic(fresh.newest));
    logs.show(fresh.logs);
    curves.follow(fresh.metrics, fresh.row.metric);
  };
  showRest(details);
  let timer = null;
  const end = onChange((changed) => {
    if (!changed.has(id)) return;
    if (!runs.has(id)) return fill(head, h("h1", {}, details.row.name), problem("The directory of this run is gone."));
    showHead();
    timer ??= setTimeout(async () => {
      timer = null;
      try { showRest(await getJson(`/api/run?id=${encodeURIComponent(id)}`)); } catch { /* the next change tries again */ }
    }, 1500);
  });
  return () => { end(); clearTimeout(timer); curves.remove(); };
}

function settingsTable({ config, stop, row }) {
  if (!config.length) return h("p", { class: "muted" }, "There is no params.json yet.");
  const known = config.some((each) => each.differs !== null);
  const body = h("tbody", {});
  const all = h("input", { type: "checkbox", dataset: { testid: "all-settings" }, onchange: () => show() });
  const show = () => {
    const rows = config.filter((each) => all.checked || each.differs !== false);
    body.replaceChildren(...rows.map((each) => h("tr", {}, h("td", { class: each.differs ? "wrap differs" : "wrap" }, each.key), h("td", { class: "wrap mono" }, shown(each.value)),
      known && h("td", { class: "wrap mono muted" }, each.differs ? shown(each.default) : ""))));
  };
  show();
  const goal = Object.entries(stop).map(([key, value]) => `${key} ≥ ${exact(value)}`).join(" or ");
  return h("div", {}, goal && h("p", {}, `Stops at ${goal}.`),
    known ? h("label", {}, all, `show all ${config.length}, not only what differs from the defaults of ${row.algorithm}`) : h("p", { class: "muted" }, "The defaults of this trainable are not known, so all is shown."),
    h("div", { class: "panel scroll" }, h("table", { dataset: { testid: "settings" } }, h("thead", {}, h("tr", {}, h("th", {}, "Setting"), h("th", {}, "Value"), known && h("th", {}, "Default"))), body)));
}

function checkpointTable({ checkpoints, path, row }) {
  if (!checkpoints.length) return h("p", { class: "muted" }, "No checkpoint yet. Runs save after their first iteration, then ever more rarely, every five minutes at last, and at their end; --checkpoint-freq N saves every N iterations.");
  const rows = checkpoints.map((each) => h("tr", {}, h("td", {}, each.name), h("td", { class: "num" }, exact(each.iteration)), h("td", { class: "num" }, bytes(each.size)), h("td", { class: "num" }, age(each.time))));
  const place = `${path}/${checkpoints[0].name}`;
  const quoted = /[^\w@%+=:,./-]/.test(place) ? `'${place.replaceAll("'", "'\\''")}'` : place;
  return h("div", {}, h("div", { class: "panel scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Checkpoint"), h("th", { class: "num" }, "Iteration"), h("th", { class: "num" }, "Size"), h("th", { class: "num" }, "Saved"))), h("tbody", {}, rows))),
    row.algorithm && row.env && h("pre", {}, `rllib evaluate ${quoted}`));
}

function pairsTable(label, nothing) {
  const body = h("tbody", {});
  const filter = h("input", { type: "search", placeholder: "Filter the keys", "aria-label": `Filter: ${label}`, oninput: () => show() });
  const table = h("div", { class: "panel scroll", style: null }, h("table", { "aria-label": label }, body));
  const note = h("p", { class: "muted" }, nothing);
  const more = h("button", { type: "button", onclick: () => { most = Infinity; show(); } });
  let pairs = {};
  let most = 15;
  const show = () => {
    const found = Object.entries(pairs).filter(([key]) => key.includes(filter.value.trim()));
    body.replaceChildren(...found.slice(0, most).map(([key, value]) => h("tr", {}, h("td", { class: "wrap" }, key), h("td", { class: "num" }, typeof value === "number" ? exact(value) : shown(value)))));
    more.hidden = found.length <= most;
    more.textContent = `Show ${found.length - most} more`;
    const isEmpty = !Object.keys(pairs).length;
    note.hidden = !isEmpty;
    filter.hidden = table.hidden = isEmpty;
  };
  return { element: h("div", {}, note, h("div", { class: "bar" }, filter), table, h("p", {}, more)), show: (fresh) => { pairs = fresh; show(); } };
}

function logsView(id, isFailed) {
  const names = h("div", { class: "bar" });
  const text = h("pre", { hidden: true, tabindex: 0, "aria-label": "End of the log", dataset: { testid: "log" } });
  const note = h("p", { class: "muted" });
  let current = isFailed ? "error.txt" : null;
  const sizes = new Map();
  const open = async (name) => {
    current = name;
    try {
      const answer = await getJson(`/api/log?${new URLSearchParams({ id, name })}`);
      text.textContent = answer.text || "(empty)";
      note.textContent = answer.skipped ? `${name}: its end; ${bytes(answer.skipped)} before it are not shown.` : name;
      text.hidden = false;
      text.scrollTop = text.scrollHeight;
    } catch (error) {
      note.textContent = `${name} cannot be read: ${error.message}`;
    }
  };
  const show = (fresh) => {
    names.replaceChildren(...fresh.map((log) => h("button", { type: "button", onclick: () => open(log.name) }, `${log.name} (${bytes(log.size)})`)));
    if (!fresh.length) note.textContent = "There are no logs: error.txt appears when a run fails, and trials of Tune write stdout and stderr with log_to_file=True.";
    const log = fresh.find((each) => each.name === current);
    if (log && sizes.get(current) !== log.size) open(current);
    for (const each of fresh) sizes.set(each.name, each.size);
  };
  return { element: h("div", {}, names, note, text), show };
}

async function viewCompare(query, isCurrent) {
  const asked = [...new Set(query.getAll("id"))];
  const first = asked.slice(0, MOST_COMPARED);
  if (!first.length) return fill(main, crumb(), h("h1", {}, "Compare"), h("p", {}, "Choose two or more runs in the table of all runs."));
  const answers = await Promise.allSettled(first.map((id) => getJson(`/api/run?id=${encodeURIComponent(id)}`)));
  const isThere = (_, index) => answers[index].status === "fulfilled";
  const missing = answers.filter((each) => each.status === "rejected").map((each) => each.reason);
  const [ids, all] = [first.filter(isThere), answers.filter(isThere).map((each) => each.value)];
  if (!ids.length) throw missing[0];
  const names = await getJson(`/api/names?${new URLSearchParams(ids.map((id) => ["id", id]))}`);
  if (!isCurrent()) return null;
  const given = [...ids, ...asked.slice(first.length)];
  const allMetrics = () => [...new Set(all.flatMap((details) => details.metrics))];
  const metrics = allMetrics();
  const wanted = query.getAll("key").filter((key) => choices(metrics).includes(key));
  const keys = wanted.length ? wanted : worthDrawing(metrics, all[0].row.metric).slice(0, MOST_CHARTS);
  const curves = new Curves(ids, { keys, metrics, names, height: 300, large: true, onKeys: (drawn) => { history.replaceState(null, "", compareLink(given, drawn)); show(); } });
  const body = h("tbody", {});
  fill(main, crumb(), h("h1", {}, `Compare ${ids.length} run${ids.length === 1 ? "" : "s"}`),
    missing.map((error) => problem(error.message)),
    given.length > ids.length && problem(`These are the first ${ids.length} of ${given.length} runs: more are not compared.`), h("h2", {}, "Curves"), curves.element,
    h("h2", {}, "Where they are"), h("div", { class: "panel scroll" }, h("table", { "aria-label": "Compared runs" },
      h("thead", {}, h("tr", {}, ["Run", "Status", "Steps", "Mean steps/s", "Best", "Last"].map((name, index) => h("th", { class: index > 1 ? "num" : "" }, name)), h("th", {}, ""))), body)),
    h("h2", {}, "Settings that differ"), differences(all, ids.map((id) => names.runs[id])));
  const show = () => body.replaceChildren(...ids.map((id, number) => {
    const row = runs.get(id) || all[number].row;
    const rest = given.filter((each) => each !== id);
    return h("tr", {}, h("td", { class: "name" }, h("span", { class: "keyed" }, swatch(number), h("a", { href: link("run", id), title: row.name }, names.runs[id]))), h("td", {}, status(row.status, row.reason)), h("td", { class: "num" }, short(row.steps)), h("td", { class: "num" }, short(row.rate)),
      h("td", { class: "num" }, short(row.best)), h("td", { class: "num" }, short(row.last)), h("td", {}, rest.length > 0 && h("a", { href: compareLink(rest, curves.keys), "aria-label": `Take ${names.runs[id]} out` }, "take out")));
  }));
  show();
  let timer = null;
  const stale = new Set();
  const readAgain = async () => {
    timer = null;
    const again = [...stale];
    stale.clear();
    const fresh = await Promise.allSettled(again.map((id) => getJson(`/api/run?id=${encodeURIComponent(id)}`)));
    if (!isCurrent()) return;
    const configs = JSON.stringify(all.map((details) => details.config));
    for (const [index, each] of fresh.entries()) if (each.status === "fulfilled") all[ids.indexOf(again[index])] = each.value;
    if (JSON.stringify(all.map((details) => details.config)) !== configs) return route(); // names and settings are others
    curves.follow(allMetrics(), all.find((details) => details.metrics.length)?.row.metric, MOST_CHARTS);
  };
  const end = onChange((changed) => {
    if (first.some((id) => changed.has(id) && ids.includes(id) !== runs.has(id))) return route();
    show();
    for (const id of ids) if (changed.has(id)) stale.add(id);
    if (stale.size) timer ??= setTimeout(readAgain, 3000);
  });
  return () => { end(); clearTimeout(timer); curves.remove(); };
}

function differences(all, called) {
  const tables = all.map(({ config }) => new Map(config.map((each) => [each.key, shown(each.value)])));
  const keys = [...new Set(tables.flatMap((table) => [...table.keys()]))].filter((key) => new Set(tables.map((table) => table.get(key))).size > 1);
  if (!keys.length) return h("p", { class: "muted" }, all.length > 1 ? "None: all settings are equal, the seed included." : "There is only one run.");
  const isShared = (key) => tables.every((table) => table.has(key));
  const isShort = new Set(called.map((name) => name.slice(0, MOST_IN_COLUMN))).size === called.length;
  const names = h("tr", {}, h("th", {}, "Setting"), all.map((details, number) => h("th", { title: details.row.name }, swatch(number), " ", isShort ? called[number].slice(0, MOST_IN_COLUMN) : called[number])));
  const table = (rows, testid) => h("div", { class: "panel scroll" }, h("table", { dataset: { testid } }, h("thead", {}, names.cloneNode(true)),
    h("tbody", {}, rows.map((key) => h("tr", {}, h("td", { class: "wrap" }, key), tables.map((values) => h("td", { class: "wrap mono" }, values.get(key) ?? h("span", { class: "muted" }, "–"))))))));
  const [shared, others] = [keys.filter(isShared), keys.filter((key) => !isShared(key))];
  return h("div", {}, shared.length ? table(shared, "differences") : h("p", { class: "muted" }, "None of those that all of them have."),
    others.length > 0 && h("details", {}, h("summary", {}, `${others.length} settings that only some of them have`), table(others, "one-sided")));
}

async function viewTune(query, isCurrent) {
  const id = query.get("id") || "";
  if (!state.loaded) await new Promise((resolve) => { const end = onChange(() => { end(); resolve(); }); });
  if (!isCurrent()) return null;
  if (!experiments.has(id)) throw new Error(`there is no experiment ${id}`);
  const trials = () => [...runs.values()].filter((row) => row.experiment === id);
  const head = h("div", {});
  const searched = () => [...new Set(trials().flatMap((row) => Object.keys(row.params)))].slice(0, MOST_SEARCHED);
  let params = searched();
  const titles = () => shortNames(params);
  const own = () => params.map((key) => ({ key: `param-${key}`, title: titles().get(key), class: "num", value: (row) => row.params[key], cell: (row) => { const value = row.params[key]; return value === undefined ? "–" : typeof value === "number" ? h("span", { title: String(value) }, short(value)) : shown(value); } }));
  const prefix = (row) => row.name.startsWith(`${id}/`) ? row.name.slice(id.length + 1) : row.name;
  const name = { ...COLUMNS[0], title: "Trial", cell: (row) => [h("a", { href: link("run", row.id) }, prefix(row)), flags(row)] };
  const keep = new Set(["status", "steps", "best", "last", "spark", "updated"]);
  const columns = () => [name, ...own(), ...COLUMNS.filter((column) => keep.has(column.key))];
  const table = new RunTable(`tune ${id}`, columns(), trials, "best");
  const best = new Chart("best so far", { height: 200 });
  const axes = h("div", { class: "panel scroll", dataset: { testid: "parallel" } });
  const front = h("div", { class: "panel scroll", dataset: { testid: "front" } });
  const isSeveral = experiments.get(id).objectives.length > 1;
  const course = isSeveral ? [h("h2", {}, "Pareto front"), front] : [h("h2", {}, "Best so far, by trial"), best.element];
  fill(main, crumb(), head, h("div", { class: "columns" }, h("section", {}, course), h("section", {}, h("h2", {}, "Settings and what they reached"), axes)), h("h2", {}, "Trials"), table.element);
  let coordinates = { ids: [], axes: [], front: null };
  const drawAxes = () => {
    const width = Math.max(320, axes.clientWidth || 640);
    axes.replaceChildren(coordinates.axes.length ? parallel(coordinates.axes, coordinates.ids, coordinates.ids.map((each) => runs.get(each)?.name || each), table.table.chosen, width) : h("p", { class: "empty muted" }, "Two trials with results are needed."));
    if (isSeveral) front.replaceChildren(...frontOf(coordinates.front, (each) => link("run", each), (each) => prefix(runs.get(each) || { name: each }), Math.max(320, front.clientWidth || 640)));
  };
  const loadAxes = async () => {
    try { coordinates = await getJson(`/api/tune?id=${encodeURIComponent(id)}`); drawAxes(); } catch (error) { axes.replaceChildren(h("p", { class: "error" }, error.message)); }
    document.documentElement.dataset.ready = "1";
  };
  const show = () => {
    const experiment = experiments.get(id);
    if (!experiment) return fill(head, problem("The directory of this experiment is gone."));
    const goals = experiment.objectives.map(({ metric, mode }) => `; ${metric}, ${mode === "min" ? "least" : "greatest"} is best`).join("");
    const sign = experiment.objectives[0]?.mode === "min" ? -1 : 1;
    const done = trials().filter((row) => row.best !== null);
    const top = done.reduce((winner, row) => (!winner || sign * row.best > sign * winner.best ? row : winner), null);
    fill(head, h("h1", {}, experiment.name), h("p", {}, status(experiment.status), h("span", { class: "muted" }, ` · ${experiment.trainable || ""}: ${counts(experiment)}${goals}`)),
      experiment.problem && problem(experiment.problem), top && !isSeveral && h("p", {}, "Best: ", h("a", { href: link("run", top.id) }, prefix(top)), ` with ${short(top.best)}`));
    const order = done.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
    let record = -Infinity;
    const y = order.map((row) => sign * (record = Math.max(record, sign * row.best)));
    best.show([{ name: "best so far", number: 0, x: y.map((_, index) => index + 1), y }], { x: "trials", smoothing: 0, log: false });
  };
  show();
  table.onShow = drawAxes;
  let timer = null;
  const end = onChange((changed) => {
    if (searched().length > params.length) {
      params = searched();
      table.setColumns(columns());
      table.show();
    }
    show();
    if ([...changed].some((each) => runs.get(each)?.experiment === id)) timer ??= setTimeout(() => { timer = null; loadAxes(); }, 2000);
  });
  addEventListener("resize", drawAxes);
  await loadAxes();
  return () => { end(); table.end(); best.remove(); clearTimeout(timer); removeEventListener("resize", drawAxes); };
}

// ---------------------------------------------------------------------- routes

const ROUTES = { runs: [viewRuns, "runs"], run: [viewRun, "run"], compare: [viewCompare, "compare"], tune: [viewTune, "experiment"] };
let leave = null;
let turn = 0;

async function route() {
  const mine = ++turn;
  leave?.();
  leave = null;
  delete document.documentElement.dataset.ready;
  const [name, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, title] = ROUTES[name] || ROUTES.runs;
  const parameters = new URLSearchParams(query || "");
  document.title = `${parameters.getAll("id").length === 1 ? `${parameters.get("id")} · ` : ""}${title} · rllib`;
  const isCurrent = () => mine === turn;
  try {
    const end = await view(parameters, isCurrent);
    if (isCurrent()) leave = end || null;
    else end?.();
  } catch (error) {
    if (!isCurrent()) return;
    fill(main, crumb(), h("p", { class: "problem", role: "alert", dataset: { testid: "error" } }, error.message));
    leave = onChange((changed) => parameters.getAll("id").some((id) => changed.has(id)) && route()); // it has appeared
  }
}

addEventListener("hashchange", () => { route(); scrollTo(0, 0); main.focus({ preventScroll: true }); });
addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    const filter = main.querySelector("input[type=search]");
    if (filter) { event.preventDefault(); filter.focus(); }
  }
});
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
setInterval(() => {
  for (const each of document.querySelectorAll("[data-age]")) if (each.dataset.age) each.textContent = age(+each.dataset.age);
}, 10000);
onChange(() => { document.documentElement.dataset.version = state.version; if (/^(#\/?(runs(\?.*)?)?)?$/.test(location.hash)) document.documentElement.dataset.ready = "1"; });
connect();
route();
