// A table whose rows and cells stay the same elements while their text changes: selections and the scroll position survive.
// Everything shown is set as text, never as markup.

import { place } from "./dom.js";

export class Table {
  #body = document.createElement("tbody");
  #columns;
  #rows = new Map();
  #headings;
  // The column sorted by, if the reader chose one.
  #sorted = null;

  // A column is { title, help, text(item), value(item), detail(item), hint(item), tone(item), href(item), node(item), ... }: `detail` is a second, smaller
  // line, `hint` shows when pointed at, `tone` makes the text a badge, `href` makes it a link that its whole row follows, `node` is an element shown instead of text.
  // Of its flags `chart` says that it is a drawing, `number` aligns right, `wraps` takes several lines; `rare` leaves first where the screen is narrow, then `minor`, then `spare`.
  // With `onSort` a reader can sort by the columns that have a `value`, those that are `named` upwards and the others downwards; it is called when one does.
  constructor(table, columns, onSort = null) {
    this.#columns = columns;
    this.#headings = columns.map((column) => {
      const heading = document.createElement("th");
      heading.scope = "col";
      heading.title = column.help ?? "";
      style(heading, column);
      const sorts = onSort !== null && column.value !== undefined;
      const text = sorts ? document.createElement("button") : heading;
      text.textContent = column.title;
      if (sorts) {
        text.type = "button";
        text.addEventListener("click", () => {
          this.#sortBy(this.#sorted === column ? null : column);
          onSort();
        });
        heading.append(text);
      }
      return heading;
    });
    const row = document.createElement("tr");
    row.append(...this.#headings);
    const head = document.createElement("thead");
    head.append(row);
    table.append(head, this.#body);
    this.element = table;
    table.hidden = true;
  }

  #sortBy(column) {
    this.#sorted = column;
    this.#headings.forEach((heading, at) => {
      if (this.#columns[at] === column) heading.ariaSort = column.named ? "ascending" : "descending";
      else heading.removeAttribute("aria-sort");
    });
  }

  #inOrder(items) {
    if (this.#sorted === null) return items;
    const { value, named } = this.#sorted;
    const compare = named ? (a, b) => value(a).localeCompare(value(b)) : (a, b) => (value(b) ?? -1) - (value(a) ?? -1);
    return items.toSorted(compare);
  }

  // Shows `items`, in this order unless the reader chose another; `key` names an item from one update to the next. `look` tells the classes of
  // its row.
  update(items, key, look = () => ({})) {
    const rows = new Map();
    for (const item of this.#inOrder(items)) {
      const row = this.#rows.get(key(item)) ?? this.#newRow();
      for (const [name, on] of Object.entries(look(item))) row.element.classList.toggle(name, on);
      this.#columns.forEach((column, at) => {
        const { cell, text, detail } = row.cells[at];
        if (column.node) {
          const node = column.node(item);
          if (cell.firstChild !== node) cell.replaceChildren(node);
        } else {
          set(text, column.text(item));
        }
        if (column.detail) set(detail, column.detail(item));
        if (column.hint) text.title = column.hint(item);
        if (column.tone) text.dataset.tone = column.tone(item);
        if (column.href && text.getAttribute("href") !== column.href(item)) text.href = column.href(item);
      });
      rows.set(key(item), row);
    }
    this.#rows = rows;
    place(this.#body, [...rows.values()].map((row) => row.element));
    this.element.hidden = items.length === 0;
  }

  #newRow() {
    const element = document.createElement("tr");
    const cells = this.#columns.map((column, at) => {
      const cell = document.createElement(at === 0 ? "th" : "td");
      if (at === 0) cell.scope = "row";
      style(cell, column);
      const text = document.createElement(column.href ? "a" : "span");
      const detail = document.createElement("small");
      cell.append(text);
      if (column.detail) cell.append(detail);
      if (column.href) follow(element, text);
      element.append(cell);
      return { cell, text, detail };
    });
    return { element, cells };
  }
}

// A click anywhere in the row, unless it ends a selection of text there.
function follow(row, link) {
  row.classList.add("linked");
  row.addEventListener("click", (event) => {
    if (event.target !== link && String(getSelection()) === "") link.click();
  });
}

function style(cell, column) {
  for (const name of ["number", "chart", "wraps", "spare", "minor", "rare"]) cell.classList.toggle(name, column[name] ?? false);
}

function set(element, text) {
  if (element.textContent === text) return;
  element.textContent = text;
  element.classList.toggle("zero", /^(0|0 B|0\u2009%|–)$/.test(text));
}
