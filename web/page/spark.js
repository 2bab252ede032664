// Chart: one or more lines over the shared time axis, on a common scale that begins at 0.

import { draw } from "./dom.js";
import * as marks from "./marks.js";

const HEIGHT = 100;

export class Chart {
  #lines;
  #samples = { times: [], values: [], slotMs: 0 };
  #done = [];
  #marks = draw("g", { class: "marks" });
  #cursor = draw("line", { class: "cursor", y1: 0, y2: HEIGHT, visibility: "hidden" });
  element;

  #pointed;
  // Time where the pointer was last.
  #pointedAt = null;

  // `series` names the lines, which determines their colours. `grid` draws quarters of the scale.
  // `pointed` is called with the time of the common cursor, or null; without it, the chart is small
  // and only follows the pointer.
  constructor(series, { className, grid = false, pointed = null }) {
    this.#pointed = pointed ?? (() => {});
    const viewBox = `0 0 ${marks.WIDTH} ${HEIGHT}`;
    this.element = draw("svg", { viewBox, preserveAspectRatio: "none", class: `chart-lines ${className}` });
    if (grid) this.element.append(...[25, 50, 75].map((y) => draw("line", { class: "grid", x1: 0, x2: marks.WIDTH, y1: y, y2: y })));
    this.#lines = series.map((name) => {
      const [area, line] = ["area", "line"].map((shape) => draw("path", { class: shape, "data-series": name }));
      this.element.append(area, line);
      return { area, line };
    });
    this.element.append(this.#marks, this.#cursor);
    if (pointed === null) {
      this.element.setAttribute("aria-hidden", "true");
      this.element.addEventListener("pointermove", (event) => {
        const { left, width } = this.element.getBoundingClientRect();
        this.#pointedAt = marks.timeAt(Math.min(Math.max((event.clientX - left) / width, 0), 1));
        marks.point(this.#pointedAt);
      });
      // Unless a key has moved the cursor since.
      this.element.addEventListener("pointerleave", () => marks.pointed() === this.#pointedAt && marks.point(null));
    }
    marks.register(this);
  }

  // Sets the middle of each sample and its length in milliseconds, and the values of each line,
  // which are null where they are unknown.
  set(times, values, slotMs) {
    this.#samples = { times, values, slotMs };
  }

  // Sets the marks.
  mark(done) {
    this.#done = done;
  }

  // Highest value, the upper end of the scale.
  get peak() {
    return this.#samples.values.flat().reduce((peak, value) => Math.max(peak, value ?? 0), 1);
  }

  draw() {
    const { times, values, slotMs } = this.#samples;
    const peak = this.peak;
    // The sample at each end may lie outside by less than itself.
    const positions = times.map((time) => marks.x(time) ?? marks.x(time - slotMs) ?? marks.x(time + slotMs));
    this.#lines.forEach(({ area, line }, each) => {
      // A pixel above and below for the stroke.
      const y = (index) => (99 - (values[each][index] / peak) * 97).toFixed(2);
      const runs = unbroken(values[each] ?? [], positions).map((run) => run.map((index) => [positions[index].toFixed(1), y(index)]));
      line.setAttribute("d", runs.map((run) => `M${run.join("L")}`).join(""));
      area.setAttribute("d", runs.map((run) => `M${run[0][0]},${HEIGHT}L${run.join("L")}L${run.at(-1)[0]},${HEIGHT}Z`).join(""));
    });
    this.#marks.replaceChildren(...marks.lines(this.#done, HEIGHT));
    this.point(marks.pointed());
  }

  // Shows the cursor at this time, or hides it.
  point(time) {
    const where = time === null ? null : marks.x(time);
    this.#cursor.setAttribute("visibility", where === null ? "hidden" : "visible");
    if (where !== null) for (const end of ["x1", "x2"]) this.#cursor.setAttribute(end, where.toFixed(1));
    this.#pointed(time);
  }
}

// Runs of indices of known values with a position, without gaps.
function unbroken(values, positions) {
  const runs = [[]];
  values.forEach((value, index) => (value === null || positions[index] === null ? runs.push([]) : runs.at(-1).push(index)));
  return runs.filter((run) => run.length > 0);
}
