// The last two minutes of one or more rates, as lines on a common scale.

const SVG = "http://www.w3.org/2000/svg";
const SAMPLES = 120;
const WIDTH = SAMPLES - 1;
const HEIGHT = 32;

export class Spark {
  #lines;
  element = document.createElementNS(SVG, "svg");

  // `series` names the lines, and with that their colours.
  constructor(series) {
    this.element.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.element.setAttribute("preserveAspectRatio", "none");
    this.element.setAttribute("aria-hidden", "true");
    this.element.classList.add("spark");
    this.#lines = series.map((name) => {
      const [area, line] = ["polygon", "polyline"].map((shape) => document.createElementNS(SVG, shape));
      for (const shape of [area, line]) {
        shape.dataset.series = name;
        this.element.append(shape);
      }
      return { area, line, rates: [] };
    });
  }

  // Adds a rate to each line; what is not known yet is left out.
  push(rates) {
    if (rates.some((rate) => rate === null)) return;
    this.#lines.forEach((each, at) => (each.rates = [...each.rates, rates[at]].slice(-SAMPLES)));
    const peak = Math.max(...this.#lines.flatMap(({ rates }) => rates), 1);
    for (const { area, line, rates } of this.#lines) {
      const first = SAMPLES - rates.length;
      // A pixel of room above and below keeps the stroke whole.
      const points = rates.map((rate, at) => `${first + at},${(HEIGHT - 1 - (rate / peak) * (HEIGHT - 2)).toFixed(2)}`);
      line.setAttribute("points", points.join(" "));
      area.setAttribute("points", [`${first},${HEIGHT}`, ...points, `${WIDTH},${HEIGHT}`].join(" "));
    }
  }
}

// One of them for each key, for as long as the key is there.
export class Sparks {
  #series;
  #byKey = new Map();

  constructor(series) {
    this.#series = series;
  }

  push(ratesByKey) {
    this.#byKey = new Map(ratesByKey.map(([key]) => [key, this.#byKey.get(key) ?? new Spark(this.#series)]));
    for (const [key, rates] of ratesByKey) this.#byKey.get(key).push(rates);
  }

  element(key) {
    return this.#byKey.get(key).element;
  }
}
