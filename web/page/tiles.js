// A rate of the whole node: the figure now, its last two minutes, and the sum.

import { make } from "./dom.js";
import { Spark } from "./spark.js";

export class Tile {
  #now = make("strong");
  #total = make("small");
  #spark;

  constructor(list, { title, help, series }) {
    this.#spark = new Spark([series]);
    const figures = make("dd", {}, this.#now, this.#total);
    list.append(make("div", { title: help }, make("dt", { textContent: title }), figures, this.#spark.element));
  }

  update(rate, rateText, totalText, done, now) {
    this.#now.textContent = rateText;
    this.#total.textContent = totalText;
    this.#spark.push([rate], now);
    this.#spark.mark(done);
  }
}
