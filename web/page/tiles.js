// Rate of the whole node: current figure, the time axis, and the total.

import { make } from "./dom.js";
import { Chart, perSecond, samplesOf } from "./spark.js";

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

  update(rateText, totalText, done) {
    this.#now.textContent = rateText;
    this.#total.textContent = totalText;
    this.#chart.mark(done);
  }

  // Shows the history of the node.
  plot(history) {
    this.#chart.set(...samplesOf(history, [this.#series], perSecond));
  }
}
