// A table whose rows and cells stay the same elements while their text changes: selections and the scroll position survive.
// Everything shown is set as text, never as markup.

export class Table {
  #body = document.createElement("tbody");
  #columns;
  #rows = new Map();

  // A column is { title, help, text(item), detail(item), number, minor, total }: `detail` is a second, smaller line, `number` aligns right,
  // `minor` goes where the screen is narrow, `total` is set back.
  constructor(table, columns) {
    this.#columns = columns;
    const row = document.createElement("tr");
    for (const column of columns) {
      const heading = document.createElement("th");
      heading.scope = "col";
      heading.textContent = column.title;
      heading.title = column.help ?? "";
      style(heading, column);
      row.append(heading);
    }
    const head = document.createElement("thead");
    head.append(row);
    table.append(head, this.#body);
    this.element = table;
  }

  // Shows `items` in this order; `key` names an item from one update to the next.
  update(items, key, faded = () => false) {
    const rows = new Map();
    for (const item of items) {
      const row = this.#rows.get(key(item)) ?? this.#newRow();
      row.element.classList.toggle("faded", faded(item));
      this.#columns.forEach((column, at) => {
        set(row.texts[at], column.text(item));
        if (column.detail) set(row.details[at], column.detail(item));
      });
      rows.set(key(item), row);
    }
    this.#rows = rows;
    const wanted = [...rows.values()].map((row) => row.element);
    const shown = this.#body.children;
    if (wanted.length !== shown.length || wanted.some((row, at) => row !== shown[at])) {
      this.#body.replaceChildren(...wanted);
    }
    this.element.hidden = items.length === 0;
  }

  #newRow() {
    const element = document.createElement("tr");
    const texts = [];
    const details = [];
    for (const [at, column] of this.#columns.entries()) {
      const cell = document.createElement(at === 0 ? "th" : "td");
      if (at === 0) cell.scope = "row";
      style(cell, column);
      const text = document.createElement("span");
      const detail = document.createElement("small");
      cell.append(text);
      if (column.detail) cell.append(detail);
      texts.push(text);
      details.push(detail);
      element.append(cell);
    }
    return { element, texts, details };
  }
}

function style(cell, column) {
  cell.classList.toggle("number", column.number ?? false);
  cell.classList.toggle("minor", column.minor ?? false);
  cell.classList.toggle("total", column.total ?? false);
}

function set(element, text) {
  if (element.textContent === text) return;
  element.textContent = text;
  element.classList.toggle("zero", text === "0" || text === "0 B" || text === "–");
}
