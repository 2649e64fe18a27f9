// The seeds of a folder as one row of the table.

// The state of a folder is the first of these that one of its seeds has.
const STATES = ["failed", "running", "waiting", "stopped", "unknown", "finished"];

/** Interquartile mean: without the lowest and the highest quarter, rounded down; null without a number. */
function iqm(values) {
  const known = values.filter(Number.isFinite).sort((a, b) => a - b);
  const cut = Math.floor(known.length / 4);
  const inner = known.slice(cut, known.length - cut);
  return inner.length ? inner.reduce((sum, value) => sum + value, 0) / inner.length : null;
}

function asOne(folder, members) {
  const of = (key) => members.map((row) => row[key]).filter((value) => value !== null);
  const counts = STATES.map((state) => [members.filter((row) => row.status === state).length, state]).filter(([count]) => count);
  const ranked = members.filter((row) => row.last !== null).sort((a, b) => a.last - b.last);
  const middle = ranked[Math.floor(ranked.length / 2)] || members[0];
  return {
    ...members[0], id: `seeds of ${folder}`, name: folder, members,
    status: counts[0][1], reason: counts.map(([count, state]) => `${count} ${state}`).join(", "),
    steps: of("steps").length ? Math.min(...of("steps")) : null, rate: iqm(of("rate")), best: iqm(of("best")), last: iqm(of("last")),
    spark: middle.spark, seed: `${members.length} seeds`, updated: of("updated").length ? Math.max(...of("updated")) : null,
    problems: members.flatMap((row) => row.problems.map((text) => `${row.name}: ${text}`)), damage: members.filter((row) => row.damage).map((row) => `${row.name}: ${row.damage}`).join("\n"),
  };
}

const known = new Map(); // folder -> its row, which stays the same object while those of its seeds do

/** The rows, with one for the seeds of each folder that has several among them. */
export function seedsAsOne(rows) {
  const folders = new Map();
  for (const row of rows) if (row.folder) folders.set(row.folder, [...(folders.get(row.folder) || []), row]);
  const found = rows.filter((row) => !(folders.get(row.folder)?.length > 1));
  for (const [folder, members] of folders) {
    if (members.length < 2) continue;
    const before = known.get(folder);
    const isSame = before?.members.length === members.length && members.every((row, index) => row === before.members[index]);
    if (!isSame) known.set(folder, asOne(folder, members));
    found.push(known.get(folder));
  }
  return found;
}
