// Evictions by victim and evictor: a table for each GPU, with victims as rows and evictors as
// columns.

import { element, make, place, processHref, setText } from "./dom.js";
import * as format from "./format.js";
import { Rates } from "./rates.js";
import * as words from "./words.js";

// Maximum size of a table; parties with the fewest bytes are combined.
const ROWS_MAX = 16;
const COLUMNS_MAX = 8;
const OTHERS = "others";

const rates = new Rates();
let tables = new Map();

const partyKey = (party) => (party.kind === "process" ? `${party.pid} ${party.start_ticks}` : party.kind);
const pairKey = (pair) => [pair.gpu_uuid, partyKey(pair.victim), partyKey(pair.evictor), pair.cause].join(" ");
const partyName = (party) =>
  party.kind === "process" ? words.name(party) : { forgotten: "forgotten processes", unknown: "unknown" }[party.kind] ?? format.printable(party.kind);

// Column of a pair. Evictions for device allocations and by tools have separate columns, since they
// are not for the evictor's managed memory.
function column({ evictor, cause }) {
  if (cause === "device_allocation") return { key: cause, name: "device allocations", help: "Unmanaged memory, as of cudaMalloc, of any process" };
  if (cause === "tool") return { key: cause, name: "tools", help: "Migrations that another process requested, such as uvmd" };
  return { key: partyKey(evictor), name: partyName(evictor), help: evictor.owner ? words.fullOwner(evictor.owner) : "", href: href(evictor) };
}
const row = ({ victim }) => ({ key: partyKey(victim), name: partyName(victim), help: victim.owner ? words.fullOwner(victim.owner) : "", href: href(victim) });
const href = (party) => (party.kind === "process" ? processHref(party) : null);

// Rows or columns in the order of the pairs, which have the most bytes first; those beyond `most`
// combined.
function heads(pairs, head, most) {
  const all = [...new Map(pairs.map(head).map((each) => [each.key, each])).values()];
  if (all.length <= most) return all;
  return [...all.slice(0, most - 1), { key: OTHERS, name: `${all.length - most + 1} others`, help: "", href: null }];
}

export function show({ inferred, pairs: counted, unavailable }) {
  const pairs = counted ?? [];
  rates.record(performance.now(), pairs.map((pair) => [pairKey(pair), { bytes: pair.bytes, evictions: pair.evictions }]));
  const gpus = [...new Set(pairs.map((pair) => pair.gpu_uuid))];
  tables = new Map(gpus.map((gpu) => [gpu, tables.get(gpu) ?? new Matrix()]));
  for (const [gpu, table] of tables) table.update(words.gpu(gpu), pairs.filter((pair) => pair.gpu_uuid === gpu));
  place(element("matrices"), [...tables.values()].map((table) => table.element));
  element("matrix-inferred").hidden = !inferred || pairs.length === 0;
  element("no-evictions").hidden = pairs.length > 0;
  setText(element("no-evictions"), unavailable === null ? "No evictions from any GPU." : `Victims and evictors are ${format.printable(unavailable)}.`);
}

class Matrix {
  #caption = make("caption");
  #table;
  #shape = "";
  #cells = new Map();
  element;

  constructor() {
    this.#table = make("table", { className: "matrix plain" });
    this.element = make("div", { className: "scroll", role: "region", tabIndex: 0 }, this.#table);
  }

  update(gpu, pairs) {
    const [rows, columns] = [heads(pairs, row, ROWS_MAX), heads(pairs, column, COLUMNS_MAX)];
    const shape = JSON.stringify([rows, columns]);
    if (shape !== this.#shape) this.#lay(rows, columns);
    this.#shape = shape;
    setText(this.#caption, `${gpu}: bytes evicted, by victim and evictor`);
    this.element.ariaLabel = `Evictions on ${gpu}`;
    const key = (heads, { key }) => (heads.some((head) => head.key === key) ? key : OTHERS);
    const sums = new Map();
    for (const pair of pairs) {
      const place = [key(rows, row(pair)), key(columns, column(pair))];
      for (const cell of [place, [place[0], "sum"]]) {
        const sum = sums.get(cell.join("/")) ?? { bytes: 0, rate: null };
        const rate = rates.of(pairKey(pair), "bytes");
        sums.set(cell.join("/"), { bytes: sum.bytes + pair.bytes, rate: rate === null ? sum.rate : (sum.rate ?? 0) + rate });
      }
    }
    for (const [at, { rate, total, cell }] of this.#cells) {
      const sum = sums.get(at);
      setText(rate, sum ? format.bytesRate(sum.rate) : "·");
      setText(total, sum ? format.bytes(sum.bytes) : "");
      cell.classList.toggle("zero", !sum || !(sum.rate >= 0.5));
    }
  }

  #lay(rows, columns) {
    const link = ({ name, help, href }) => (href ? make("a", { textContent: name, title: help, href }) : make("span", { textContent: name, title: help }));
    const head = (scope, each) => make("th", { scope }, link(each));
    const sum = { key: "sum", name: "all", help: "All evictions of the victim" };
    this.#cells = new Map();
    const cell = (victim, evictor) => {
      const [rate, total] = [make("span"), make("small")];
      const cell = make("td", {}, rate, total);
      if (victim.key === evictor.key && victim.key !== OTHERS) {
        cell.classList.add("self");
        cell.title = "Its own memory, evicted for itself";
        cell.append(make("small", { className: "own", textContent: "itself" }));
      }
      if (evictor.key === "device_allocation") cell.classList.add("device");
      if (evictor.key === "sum") cell.classList.add("sum");
      this.#cells.set(`${victim.key}/${evictor.key}`, { rate, total, cell });
      return cell;
    };
    const corner = make("td", { textContent: "victim ↓ evictor →", className: "corner" });
    const all = [...columns, sum];
    this.#table.replaceChildren(
      this.#caption,
      make("thead", {}, make("tr", {}, corner, ...all.map((each) => head("col", each)))),
      make("tbody", {}, ...rows.map((each) => make("tr", {}, head("row", each), ...all.map((column) => cell(each, column))))),
    );
  }
}
