// A table whose columns sort, whose rows are chosen and stay in place while their content changes.

import { h } from "./dom.js";

const MOST_ROWS = 1000;

const idsOf = (row) => (row.members ? row.members.map((each) => each.id) : [row.id]);

/** Comparison of cells: numbers by size, text by its parts, what is missing last. */
function compare(a, b, sign) {
  const [missingA, missingB] = [a, b].map((value) => value === null || value === undefined || value === "" || Number.isNaN(value));
  if (missingA || missingB) return missingA - missingB;
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return sign * order;
}

export class Table {
  /**
   * @param {{key: string, title: string, value: Function, cell: Function, class?: string, first?: number}[]} columns
   *   `first` is the direction of the first click: 1 ascending, -1 descending.
   * @param {{sort: string, label: string, onChoose: Function, memory: object}} options `memory` outlives the table.
   */
  constructor(columns, { sort, label, onChoose, memory }) {
    this.columns = columns;
    this.memory = memory;
    this.memory.chosen ??= new Set();
    this.memory.sort ??= [sort, columns.find((column) => column.key === sort).first || 1];
    this.onChoose = onChoose;
    this.cells = new Map();
    this.all = h("input", { type: "checkbox", "aria-label": "Choose all rows shown", onchange: () => this.chooseAll() });
    this.headers = columns.map((column) => h("th", { scope: "col", class: column.class || "" },
      h("button", { type: "button", dataset: { testid: `sort-${column.key}` }, onclick: () => this.sortBy(column) }, column.title)));
    this.body = h("tbody", {});
    this.more = h("p", { class: "muted" });
    this.element = h("div", {}, h("div", { class: "panel scroll" }, h("table", { "aria-label": label },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, this.all), ...this.headers)), this.body)), this.more);
    this.limit = MOST_ROWS;
    this.rows = [];
  }

  /** Ids of the chosen runs; a row of several represents all of its members. */
  get chosen() { return this.memory.chosen; }

  isChosen(row) { return idsOf(row).every((id) => this.chosen.has(id)); }

  choose(row, isChosen) { for (const id of idsOf(row)) if (isChosen) this.chosen.add(id); else this.chosen.delete(id); }

  sortBy(column) {
    const [key, sign] = this.memory.sort;
    this.memory.sort = [column.key, key === column.key ? -sign : column.first || 1];
    this.show(this.rows);
  }

  chooseAll() {
    for (const row of this.rows) this.choose(row, this.all.checked);
    this.show(this.rows);
    this.onChoose();
  }

  show(rows) {
    this.rows = rows;
    const [key, sign] = this.memory.sort;
    const column = this.columns.find((each) => each.key === key) || this.columns[0];
    const keyed = rows.map((row) => [column.value(row), row]).sort((a, b) => compare(a[0], b[0], sign) || compare(a[1].name, b[1].name, 1));
    const shown = keyed.slice(0, this.limit).map(([, row]) => this.rowOf(row));
    for (const [index, header] of this.headers.entries()) {
      const isSorted = this.columns[index] === column;
      header.setAttribute("aria-sort", isSorted ? (sign > 0 ? "ascending" : "descending") : "none");
      header.firstChild.textContent = this.columns[index].title + (isSorted ? (sign > 0 ? " ↑" : " ↓") : "");
    }
    this.all.checked = rows.length > 0 && rows.every((row) => this.isChosen(row));
    if (shown.length !== this.body.children.length || shown.some((row, index) => row !== this.body.children[index])) {
      const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
      this.body.replaceChildren(...shown);
      if (focused && this.body.contains(focused)) focused.focus({ preventScroll: true });
    }
    const left = rows.length - shown.length;
    this.more.replaceChildren(...(left > 0 ? [h("button", { type: "button", onclick: () => { this.limit = Infinity; this.show(this.rows); } }, `Show ${left} more`)] : []));
  }

  rowOf(row) {
    let known = this.cells.get(row.id);
    if (!known) {
      const box = h("input", { type: "checkbox", "aria-label": `Choose ${row.name}`, onchange: (event) => {
        this.choose(known.row, event.target.checked);
        this.all.checked = this.rows.every((each) => this.isChosen(each));
        this.onChoose();
      } });
      known = { element: h("tr", { dataset: { id: row.id } }, h("td", {}, box)), box };
      this.cells.set(row.id, known);
    }
    known.box.checked = this.isChosen(row);
    known.box.indeterminate = !known.box.checked && idsOf(row).some((id) => this.chosen.has(id));
    if (known.row !== row) {
      known.row = row;
      const cells = this.columns.map((column) => h("td", { class: column.class || "" }, column.cell(row)));
      const before = [...known.element.children].slice(1);
      if (!before.length) known.element.append(...cells);
      // A cell that has the focus stays the same element.
      for (const [index, cell] of before.entries()) if (!cell.contains(document.activeElement)) cell.replaceWith(cells[index]);
    }
    return known.element;
  }
}
