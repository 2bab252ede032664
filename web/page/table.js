// Table whose rows and cells stay the same elements while their text changes, so that selections
// and the scroll position survive. All content is set as text, never as markup.

import { make, place, setHref, setLinks } from "./dom.js";

// Rows that are shown at first, and added by the button for more: the work of an update is bounded,
// however many items there are.
const ROWS = 50;

export class Table {
  #body = document.createElement("tbody");
  #columns;
  #rows = new Map();
  #headings;
  // Column that the reader sorted by, or null.
  #sorted = null;
  #shown = ROWS;
  #more = make("button", { type: "button", className: "more" });

  // A column is { title, help, text(item), value(item), detail(item), hint(item), tone(item),
  // href(item), node(item), ... }.
  //
  // * `detail`: second, smaller line
  // * `hint`: tooltip
  // * `tone`: makes the text a badge
  // * `href`: makes the text a link unless it is null; in the first column, the row clickable
  // * `links`: list of { text, href } below the text
  // * `node`: element instead of text
  // * `chart`: the cell is a drawing
  // * `number`: aligned right
  // * `wraps`: several lines
  // * `rare`, `minor`, `spare`: hidden on narrower screens, in this order
  // * `known(item)`: whether it is counted; the column is hidden while it is of no item
  //
  // With `onSort`, columns with a `value` are sortable: those with `named` ascending, others
  // descending. It is called with the title of the column to sort by, or null.
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
          onSort(this.#sorted === column ? null : column.title);
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

  // Sorts by the column with this title, from the next update on; null restores the items' order.
  sortBy(title) {
    const column = this.#columns.find((column) => column.title === title && column.value !== undefined) ?? null;
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

  // Shows `items` in this order, unless the reader sorted the table. `key` identifies an item
  // across updates; `rowClasses` are the classes of its row.
  update(items, key, rowClasses = () => ({})) {
    const rows = new Map();
    const hidden = this.#columns.map(({ known }) => known !== undefined && items.length > 0 && !items.some(known));
    this.#headings.forEach((heading, at) => (heading.hidden = hidden[at]));
    for (const item of this.#inOrder(items).slice(0, this.#shown)) {
      const row = this.#rows.get(key(item)) ?? this.#newRow();
      for (const [name, on] of Object.entries(rowClasses(item))) row.element.classList.toggle(name, on);
      this.#columns.forEach((column, at) => {
        const { cell, text, detail, links } = row.cells[at];
        cell.hidden = hidden[at];
        if (column.node) {
          const node = column.node(item);
          if (cell.firstChild !== node) cell.replaceChildren(node);
        } else {
          set(text, column.text(item));
        }
        if (column.detail) set(detail, column.detail(item));
        if (column.hint) text.title = column.hint(item);
        if (column.tone) text.dataset.tone = column.tone(item);
        if (column.href) setHref(text, column.href(item));
        if (column.links) setLinks(links, column.links(item));
      });
      rows.set(key(item), row);
    }
    this.#rows = rows;
    place(this.#body, [...rows.values()].map((row) => row.element));
    this.element.hidden = items.length === 0;
    this.#offerMore(items.length - rows.size, () => this.update(items, key, rowClasses));
  }

  // Offers the rows that are not shown.
  #offerMore(count, again) {
    if (count > 0 && !this.#more.isConnected) this.element.after(this.#more);
    this.#more.hidden = count <= 0;
    const text = `Show ${Math.min(ROWS, count)} more of ${count}`;
    if (this.#more.textContent !== text) this.#more.textContent = text;
    this.#more.onclick = () => {
      this.#shown += ROWS;
      again();
    };
  }

  #newRow() {
    const element = document.createElement("tr");
    const cells = this.#columns.map((column, at) => {
      const cell = document.createElement(at === 0 ? "th" : "td");
      if (at === 0) cell.scope = "row";
      // Narrow screens show it above the figure.
      else cell.dataset.title = column.title;
      style(cell, column);
      const text = document.createElement(column.href ? "a" : "span");
      const [detail, links] = [document.createElement("small"), document.createElement("small")];
      cell.append(text);
      if (column.detail) cell.append(detail);
      if (column.links) cell.append(links);
      if (column.href && at === 0) follow(element, text);
      element.append(cell);
      return { cell, text, detail, links };
    });
    return { element, cells };
  }
}

// Follows the link on a click anywhere in the row, unless it ends a selection of text.
function follow(row, link) {
  row.classList.add("linked");
  row.addEventListener("click", (event) => {
    if (event.target.closest("a") === null && String(getSelection()) === "") link.click();
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
