// Recent counts of one process, as lines over the shared time axis.

import { element, make, setText } from "./dom.js";
import * as format from "./format.js";
import * as marks from "./marks.js";
import { Picker } from "./picker.js";
import { isCounted, perSecond, samplesOf } from "./samples.js";
import { Chart } from "./spark.js";

const MARKS_SHOWN = 6;

// Chart with a scale, and with figures at the cursor.
class Plot {
  #series;
  #chart;
  #scale = [make("span"), make("span"), make("span")];
  #readout = make("p", { className: "readout muted" });
  #picker;
  #value;
  #show;
  #times = [];
  #slotMs = 0;
  element;

  // `value(sample, name, seconds)` is the value of a line at a sample, formatted by `show`.
  constructor(title, series, value, show) {
    [this.#series, this.#value, this.#show] = [series, value, show];
    this.#chart = new Chart(series.map(([name]) => name), { className: "plot", grid: true, pointed: (time) => this.#picker?.follow(this.#indexAt(time)) });
    const mark = (at) => marks.point(at === null ? null : this.#times[at]);
    this.#picker = new Picker(this.#chart.element, title, this.#readout, mark, (share) => this.#indexAt(marks.timeAt(share)));
    const keys = series.map(([name, label]) => {
      const key = make("span", { textContent: label });
      key.dataset.series = name;
      return key;
    });
    this.element = make(
      "figure",
      { className: "chart-figure" },
      make("figcaption", {}, make("span", { textContent: title }), make("span", { className: "keys" }, ...(keys.length > 1 ? keys : []))),
      make("div", { className: "scale muted" }, ...this.#scale),
      this.#chart.element,
      this.#readout,
    );
  }

  // Index of the sample at a time, or null.
  #indexAt(time) {
    if (time === null || this.#times.length === 0) return null;
    const index = Math.round((time - this.#times[0]) / this.#slotMs);
    return index < 0 || index >= this.#times.length ? null : index;
  }

  update(history, done) {
    const [times, values, slotMs] = samplesOf(history, this.#series.map(([name]) => name), this.#value);
    [this.#times, this.#slotMs] = [times, slotMs];
    this.#chart.set(times, values, slotMs);
    this.#chart.mark(done);
    const { peak } = this.#chart;
    const describe = (index) => {
      const figures = this.#series.map(([, label], each) => `${label} ${values[each][index] === null ? "unknown" : this.#show(values[each][index])}`);
      const [from, to] = [times[index] - slotMs / 2, times[index] + slotMs / 2];
      const meanwhile = done.filter((mark) => mark.at >= from && mark.at < to).map(({ text }) => text);
      return `${format.moment(from)}: ${[...figures, ...meanwhile].join(", ")}`;
    };
    const counted = values.map((line) => isCounted(line, history));
    this.element.hidden = !counted.includes(true);
    [peak, peak / 2, 0].forEach((value, index) => setText(this.#scale[index], this.#show(value)));
    const most = (each) => (counted[each] ? `at most ${this.#show(Math.max(...values[each].filter((value) => value !== null), 0))}` : format.NOT_COUNTED);
    const highest = this.#series.map(([, label], each) => `${label} ${most(each)}`);
    this.#picker.offer(times.length, describe, highest.join(", "));
    this.#chart.draw();
  }
}

const plots = [
  new Plot(
    "Bytes per second",
    [["bytes_htod", "to GPU"], ["bytes_dtoh", "to host"], ["evicted_bytes", "evicted"], ["refetched_bytes", "refetched"]],
    perSecond,
    format.bytesRate,
  ),
  new Plot("GPU faults per second", [["fault_entries", "faults"]], perSecond, format.countRate),
  new Plot("Resident in GPU memory", [["resident_bytes", "resident"]], (sample) => sample.resident_bytes, format.bytes),
];
element("history-plots").append(...plots.map((plot) => plot.element));

export function clear() {
  element("detail-history").hidden = true;
}

// `decisions` are those about the process.
export function show(history, { decisions }) {
  element("detail-history").hidden = false;
  const done = marks.of(decisions);
  for (const plot of plots) plot.update(history, done);
  setText(element("history-done"), done.slice(-MARKS_SHOWN).map(({ at, text }) => `${format.moment(at)} ${text}`).join(" · "));
}
