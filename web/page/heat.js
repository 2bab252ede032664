// A range of memory as a strip of cells: what happened there above, what of it is in GPU memory below.

import { draw } from "./dom.js";
import * as format from "./format.js";
import { Picker } from "./picker.js";

// What a strip may show.
export const MEASURES = {
  refetched_bytes: ["fetched again", format.bytes],
  evicted_bytes: ["evicted", format.bytes],
  fetched_bytes: ["copied to GPUs", format.bytes],
  bytes_dtoh: ["copied to the host", format.bytes],
  fault_entries: ["GPU faults", format.count],
  cpu_faults: ["CPU faults", format.count],
};

const HEIGHT = 10;
const ABOVE = 7;

export class Strip {
  element = draw("svg", { class: "strip", preserveAspectRatio: "none" });
  #cells = [];
  #cursor = draw("rect", { class: "cursor", width: 1, height: HEIGHT, visibility: "hidden" });
  #picker;

  constructor(readout) {
    this.#picker = new Picker(this.element, "Memory of this range, by address", readout, (at) => {
      this.#cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
      if (at !== null) this.#cursor.setAttribute("x", at);
    });
  }

  // The cells of a heat range. `most` is the highest value of any range, so that strips can be compared.
  show({ begin, end, cell_bytes, cells }, measure, most) {
    if (this.#cells.length !== cells.length) this.#lay(cells.length);
    const [of, show] = MEASURES[measure];
    const first = BigInt(begin);
    // The last cell may be cut short.
    const length = (at) => Math.min(cell_bytes, Number(BigInt(end) - first) - at * cell_bytes);
    cells.forEach((cell, at) => {
      // By the root, or a hot spot would leave all else blank; what happened at all can be seen.
      const value = cell[measure];
      heat(this.#cells[at].above, value === 0 ? 0 : 0.12 + 0.88 * Math.sqrt(value / Math.max(most, 1)));
      heat(this.#cells[at].below, Math.min((cell.resident?.bytes ?? 0) / Math.max(length(at), 1), 1));
    });
    const tell = (at) => {
      const cell = cells[at];
      const address = `0x${(first + BigInt(at) * BigInt(cell_bytes)).toString(16)}`;
      const idle = cell.idle_seconds === null ? "never seen" : `last seen ${format.duration(cell.idle_seconds)} ago`;
      return `${address}, ${format.bytes(length(at))}: ${show(cell[measure])} ${of}; ${format.resident(cell.resident)} in GPU memory; ${idle}`;
    };
    const hottest = cells.reduce((best, cell, at) => (cell[measure] > cells[best][measure] ? at : best), 0);
    const nothing = cells.every((cell) => cell[measure] === 0);
    const where = nothing ? `nothing ${of}` : `most ${of} at ${tell(hottest)}`;
    this.#picker.offer(cells.length, tell, `${cells.length} cells of ${format.bytes(cell_bytes)}; ${where}`);
  }

  #lay(count) {
    this.element.setAttribute("viewBox", `0 0 ${Math.max(count, 1)} ${HEIGHT}`);
    // A hair's breadth more than the cell, or light shines through between two.
    const rect = (at, y, height, name) => draw("rect", { x: at, y, width: 1.02, height, class: name });
    this.#cells = Array.from({ length: count }, (_, at) => ({
      above: rect(at, 0, ABOVE, "heat"),
      below: rect(at, ABOVE + 1, HEIGHT - ABOVE - 1, "resident"),
    }));
    this.element.replaceChildren(...this.#cells.flatMap(({ above, below }) => [above, below]), this.#cursor);
  }
}

function heat(rect, share) {
  rect.setAttribute("fill-opacity", share.toFixed(3));
}
