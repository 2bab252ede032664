// Strip of a memory range's cells: activity above, residency below.

import { draw } from "./dom.js";
import * as format from "./format.js";
import { Picker } from "./picker.js";

// Measures of a strip.
export const MEASURES = {
  refetched_bytes: ["refetched", format.bytes],
  evicted_bytes: ["evicted", format.bytes],
  fetched_bytes: ["copied to GPUs", format.bytes],
  bytes_dtoh: ["copied to the host", format.bytes],
  fault_entries: ["GPU faults", format.count],
  cpu_faults: ["CPU faults", format.count],
};

// Whether a measure is counted in a heat map.
export const isCounted = (map, measure) => map.ranges.every(({ cells }) => cells.every((cell) => cell[measure] !== null));

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

  // Shows the cells of a heat range. `most` is the highest value of all ranges, for a common scale.
  show({ begin, end, cell_bytes, cells }, measure, most) {
    if (this.#cells.length !== cells.length) this.#lay(cells.length);
    const [of, show] = MEASURES[measure];
    const first = BigInt(begin);
    // The last cell may be shorter.
    const length = (at) => Math.min(cell_bytes, Number(BigInt(end) - first) - at * cell_bytes);
    cells.forEach((cell, at) => {
      // Square root, so that a hot spot does not make all others invisible; any activity is
      // visible.
      const value = cell[measure];
      heat(this.#cells[at].above, value === 0 ? 0 : 0.12 + 0.88 * Math.sqrt(value / Math.max(most, 1)));
      heat(this.#cells[at].below, Math.min((cell.resident?.bytes ?? 0) / Math.max(length(at), 1), 1));
    });
    const describe = (at) => {
      const cell = cells[at];
      const address = `0x${(first + BigInt(at) * BigInt(cell_bytes)).toString(16)}`;
      const idle = cell.idle_seconds === null ? "no events" : `last event ${format.duration(cell.idle_seconds)} ago`;
      return `${address}, ${format.bytes(length(at))}: ${show(cell[measure])} ${of}; ${format.resident(cell.resident)} in GPU memory; ${idle}`;
    };
    const hottest = cells.reduce((best, cell, at) => (cell[measure] > cells[best][measure] ? at : best), 0);
    const isEmpty = cells.every((cell) => cell[measure] === 0);
    const where = isEmpty ? `none ${of}` : `most ${of} at ${describe(hottest)}`;
    this.#picker.offer(cells.length, describe, `${cells.length} cells of ${format.bytes(cell_bytes)}; ${where}`);
  }

  #lay(count) {
    this.element.setAttribute("viewBox", `0 0 ${Math.max(count, 1)} ${HEIGHT}`);
    // Slightly wider than the cell, to leave no gap between two.
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
