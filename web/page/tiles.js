// A rate of the whole node: the figure now, its last two minutes, and the sum.

const SVG = "http://www.w3.org/2000/svg";
const SAMPLES = 120;
const WIDTH = SAMPLES - 1;
const HEIGHT = 32;

export class Tile {
  #rates = [];
  #now = document.createElement("strong");
  #total = document.createElement("small");
  #line = document.createElementNS(SVG, "polyline");
  #area = document.createElementNS(SVG, "polygon");

  constructor(list, { title, help, series }) {
    const tile = document.createElement("div");
    tile.dataset.series = series;
    tile.title = help;
    const term = document.createElement("dt");
    term.textContent = title;
    const value = document.createElement("dd");
    value.append(this.#now, this.#total);
    const chart = document.createElementNS(SVG, "svg");
    chart.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    chart.setAttribute("preserveAspectRatio", "none");
    chart.setAttribute("aria-hidden", "true");
    chart.append(this.#area, this.#line);
    tile.append(term, value, chart);
    list.append(tile);
  }

  update(rate, rateText, totalText) {
    this.#now.textContent = rateText;
    this.#total.textContent = totalText;
    if (rate === null) return;
    this.#rates = [...this.#rates, rate].slice(-SAMPLES);
    const peak = Math.max(...this.#rates, 1);
    const first = SAMPLES - this.#rates.length;
    // A pixel of room above and below keeps the stroke whole.
    const points = this.#rates.map((value, at) => `${first + at},${(HEIGHT - 1 - (value / peak) * (HEIGHT - 2)).toFixed(2)}`);
    this.#line.setAttribute("points", points.join(" "));
    this.#area.setAttribute("points", [`${first},${HEIGHT}`, ...points, `${WIDTH},${HEIGHT}`].join(" "));
  }
}
