// What was counted lately of one process, as lines over time.

import { draw, element, make, place, say } from "./dom.js";
import * as format from "./format.js";
import * as marks from "./marks.js";
import { Picker } from "./picker.js";

// How far back, in how many samples, and how often that is asked for anew.
const SPANS = {
  "5 min": { seconds: 300, samples: 300, every_ms: 2000 },
  "1 h": { seconds: 3600, samples: 360, every_ms: 10_000 },
  "1 day": { seconds: 86_400, samples: 480, every_ms: 60_000 },
};
let span = SPANS["5 min"];
const DONE_SHOWN = 6;

// Lines on a common scale that begins at 0.
class Plot {
  #lines;
  #svg = draw("svg", { preserveAspectRatio: "none", viewBox: "0 0 1000 100", class: "plot" });
  #marks = draw("g", { class: "marks" });
  #cursor = draw("line", { class: "cursor", y1: 0, y2: 100, visibility: "hidden" });
  #scale = [make("span"), make("span"), make("span")];
  #readout = make("p", { className: "readout muted" });
  #picker;
  #value;
  #show;
  #x = () => 0;
  element;

  // `value(sample, name, seconds)` is what a line shows of a sample, `show` writes it.
  constructor(title, series, value, show) {
    [this.#value, this.#show] = [value, show];
    this.#lines = series.map(([name, label]) => {
      const [area, line] = ["area", "line"].map((shape) => draw("path", { class: shape, "data-series": name }));
      return { name, label, area, line };
    });
    this.#svg.append(...[25, 50, 75].map((y) => draw("line", { class: "grid", x1: 0, x2: 1000, y1: y, y2: y })));
    this.#svg.append(...this.#lines.flatMap(({ area, line }) => [area, line]), this.#marks, this.#cursor);
    this.#picker = new Picker(this.#svg, title, this.#readout, (at) => {
      this.#cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
      if (at !== null) for (const end of ["x1", "x2"]) this.#cursor.setAttribute(end, this.#x(at));
    });
    const keys = this.#lines.map(({ name, label }) => {
      const key = make("span", { textContent: label });
      key.dataset.series = name;
      return key;
    });
    this.element = make(
      "figure",
      { className: "chart-figure" },
      make("figcaption", {}, make("span", { textContent: title }), make("span", { className: "keys" }, ...(keys.length > 1 ? keys : []))),
      make("div", { className: "scale muted" }, ...this.#scale),
      this.#svg,
      this.#readout,
    );
  }

  update({ begin, interval_seconds, samples }, done) {
    const start = Date.parse(begin);
    const at = (index) => start + index * interval_seconds * 1000;
    const end = at(samples.length);
    // The right edge is now; where less is known than was asked for, the left stays empty.
    this.#x = (index) => 1000 * (1 - (end - at(index + 0.5)) / (span.seconds * 1000));
    const values = this.#lines.map(({ name }) => samples.map((sample) => sample && this.#value(sample, name, interval_seconds)));
    const peak = Math.max(...values.flat().filter((value) => value !== null), 1);
    this.#lines.forEach(({ area, line }, each) => {
      const runs = unbroken(values[each]).map((run) => run.map((index) => [this.#x(index).toFixed(1), (99 - (values[each][index] / peak) * 97).toFixed(2)]));
      line.setAttribute("d", runs.map((run) => `M${run.join("L")}`).join(""));
      area.setAttribute("d", runs.map((run) => `M${run[0][0]},100L${run.join("L")}L${run.at(-1)[0]},100Z`).join(""));
    });
    marks.show(this.#marks, done, 100, (when) => (when < end - span.seconds * 1000 ? null : 1000 * (1 - (end - when) / (span.seconds * 1000))));
    [peak, peak / 2, 0].forEach((value, index) => say(this.#scale[index], this.#show(value)));
    const tell = (index) => {
      const told = this.#lines.map(({ label }, each) => `${label} ${values[each][index] === null ? "not known" : this.#show(values[each][index])}`);
      const meanwhile = done.filter((mark) => mark.at >= at(index) && mark.at < at(index + 1)).map(({ text }) => text);
      return `${format.moment(at(index))}: ${[...told, ...meanwhile].join(", ")}`;
    };
    const highest = this.#lines.map(({ label }, each) => `${label} at most ${this.#show(Math.max(...values[each].filter((value) => value !== null), 0))}`);
    this.#picker.offer(samples.length, tell, `From ${format.moment(end - span.seconds * 1000)} to ${format.moment(end)}: ${highest.join(", ")}`);
  }
}

// The indices of values that are known, in runs without a gap.
function unbroken(values) {
  const runs = [[]];
  values.forEach((value, index) => (value === null ? runs.push([]) : runs.at(-1).push(index)));
  return runs.filter((run) => run.length > 0);
}

const perSecond = (sample, name, seconds) => sample[name] / seconds;
const plots = [
  new Plot(
    "Bytes a second",
    [["bytes_htod", "to GPU"], ["bytes_dtoh", "to host"], ["evicted_bytes", "evicted"], ["refetched_bytes", "fetched again"]],
    perSecond,
    format.bytesRate,
  ),
  new Plot("GPU faults a second", [["fault_entries", "faults"]], perSecond, format.countRate),
  new Plot("In GPU memory", [["resident_bytes", "resident"]], (sample) => sample.resident_bytes, format.bytes),
];
element("history-plots").append(...plots.map((plot) => plot.element));

// `changed` is called when the reader chose another span.
export function watch(changed) {
  const buttons = Object.entries(SPANS).map(([textContent, chosen]) => {
    const button = make("button", { type: "button", textContent });
    button.addEventListener("click", () => {
      span = chosen;
      press();
      changed();
    });
    return button;
  });
  const press = () => buttons.forEach((button) => button.setAttribute("aria-pressed", String(SPANS[button.textContent] === span)));
  press();
  place(element("history-spans"), buttons);
}

export const query = () => `&seconds=${span.seconds}&samples=${span.samples}`;
export const everyMs = () => span.every_ms;

export function clear() {
  element("detail-history").hidden = true;
}

// `decided` is what was decided about the process.
export function show(history, { decisions }) {
  element("detail-history").hidden = false;
  const done = marks.of(decisions);
  for (const plot of plots) plot.update(history, done);
  say(element("history-done"), done.slice(-DONE_SHOWN).map(({ at, text }) => `${format.moment(at)} ${text}`).join(" · "));
  const end = Date.parse(history.started_at) + history.interval_seconds * history.samples.length * 1000;
  say(element("history-from"), format.moment(end - span.seconds * 1000));
  say(element("history-to"), format.moment(end));
}
