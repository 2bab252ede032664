// Rate of the whole node: current figure, the time axis, and the total.

import { make } from "./dom.js";
import { NOT_COUNTED } from "./format.js";
import { perSecond, samplesOf } from "./samples.js";
import { Chart } from "./spark.js";

export class Tile {
  #now = make("strong");
  #total = make("small");
  #series;
  #chart;

  constructor(list, { title, help, series }) {
    this.#series = series;
    this.#chart = new Chart([series], { className: "spark" });
    const figures = make("dd", {}, this.#now, this.#total);
    list.append(make("div", { title: help }, make("dt", { textContent: title }), figures, this.#chart.element));
  }

  // `total` is null where the source does not count it.
  update(rateText, total, done) {
    this.#now.textContent = rateText;
    this.#total.textContent = total === null ? NOT_COUNTED : `${total} in total`;
    this.#chart.element.toggleAttribute("hidden", total === null);
    this.#chart.mark(done);
  }

  // Shows the history of the node.
  plot(history) {
    this.#chart.set(...samplesOf(history, [this.#series], perSecond));
  }
}
