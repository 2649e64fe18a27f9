// The filter of the table: words, key:part, key>number, key<number, key=value; all of them must hold.

const NAMES = { algo: "algorithm", return: "last", state: "status", sps: "rate" };
const TERM = /^([\w/.-]+)(:|>=|<=|>|<|=)(.+)$/;

function valueOf(row, key) {
  const name = NAMES[key] || key;
  if (row[name] !== undefined && name !== "params") return row[name];
  const path = Object.keys(row.params || {}).find((each) => each === key || each.split("/").at(-1) === key);
  return path === undefined ? undefined : row.params[path];
}

function holds(row, term) {
  const match = TERM.exec(term);
  if (!match) return `${row.name} ${row.algorithm} ${row.env} ${row.status}`.toLowerCase().includes(term.toLowerCase());
  const [, key, sign, wanted] = match;
  const value = valueOf(row, key.toLowerCase()) ?? valueOf(row, key);
  if (value === undefined || value === null) return false;
  if (sign === ":") return String(value).toLowerCase().includes(wanted.toLowerCase());
  if (sign === "=") return String(value).toLowerCase() === wanted.toLowerCase() || Number(value) === Number(wanted);
  const [left, right] = [Number(value), Number(wanted)];
  return { ">": left > right, "<": left < right, ">=": left >= right, "<=": left <= right }[sign];
}

export function filtered(rows, text) {
  const terms = text.trim().split(/\s+/).filter(Boolean);
  return rows.filter((row) => terms.every((term) => holds(row, term)));
}
