// The last two minutes of one or more rates, as lines on a common scale; one sample a second.

import { draw } from "./dom.js";
import * as marks from "./marks.js";

const SAMPLES = 120;
const WIDTH = SAMPLES - 1;
const HEIGHT = 32;

export class Spark {
  #lines;
  // When each sample was taken, by uvmd's clock.
  #times = [];
  #marks = draw("g", { class: "marks" });
  element = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true", class: "spark" });

  // `series` names the lines, and with that their colours.
  constructor(series) {
    this.#lines = series.map((name) => {
      const [area, line] = ["polygon", "polyline"].map((shape) => draw(shape, { "data-series": name }));
      this.element.append(area, line);
      return { name, area, line, rates: [] };
    });
    this.element.append(this.#marks);
  }

  // Adds a rate to each line; what is not known yet is left out.
  push(rates, now) {
    if (rates.some((rate) => rate === null)) return;
    this.#times.push(now);
    this.#lines.forEach((each, at) => (each.rates = [...each.rates, rates[at]]));
    this.#draw();
  }

  // What was done since the lines begin, at the first sample after it.
  mark(done) {
    const sample = (at) => (at < this.#times[0] ? -1 : this.#times.findIndex((time) => time >= at));
    marks.show(this.#marks, done, HEIGHT, (at) => (sample(at) < 0 ? null : SAMPLES - this.#times.length + sample(at)));
  }

  // Puts what was counted earlier before what is there; the lines are named as what is counted.
  before({ begin, interval_seconds, samples }) {
    const each = Math.max(Math.round(interval_seconds), 1);
    const timed = samples.map((sample, at) => [sample, Date.parse(begin) + (at + 1) * interval_seconds * 1000]);
    const known = timed.filter(([sample]) => sample !== null).flatMap((sample) => Array(each).fill(sample));
    this.#times = [...known.map(([, time]) => time), ...this.#times];
    for (const line of this.#lines) line.rates = [...known.map(([sample]) => sample[line.name] / interval_seconds), ...line.rates];
    this.#draw();
  }

  #draw() {
    for (const each of this.#lines) each.rates = each.rates.slice(-SAMPLES);
    this.#times = this.#times.slice(-SAMPLES);
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
