// A rate of the whole node: the figure now, its last two minutes, and the sum.

import { Spark } from "./spark.js";

export class Tile {
  #now = document.createElement("strong");
  #total = document.createElement("small");
  #spark;

  constructor(list, { title, help, series }) {
    this.#spark = new Spark([series]);
    const tile = document.createElement("div");
    tile.title = help;
    const term = document.createElement("dt");
    term.textContent = title;
    const value = document.createElement("dd");
    value.append(this.#now, this.#total);
    tile.append(term, value, this.#spark.element);
    list.append(tile);
  }

  update(rate, rateText, totalText) {
    this.#now.textContent = rateText;
    this.#total.textContent = totalText;
    this.#spark.push([rate]);
  }
}
