// Cards of GPUs: use of their memory, and traffic.

import { draw, element, make, place, setText } from "./dom.js";
import * as format from "./format.js";
import { perSecond, samplesOf } from "./samples.js";
import { Chart } from "./spark.js";
import * as words from "./words.js";

const SERIES = [["bytes_htod", "to GPU"], ["bytes_dtoh", "to host"], ["evicted_bytes", "evicted"]];
const NAMES = SERIES.map(([series]) => series);

class Card {
  #name = make("h3");
  #ratio = make("span", { className: "ratio" });
  #bar = draw("svg", { class: "fill", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img" });
  #parts = ["used", "resident"].map((name) => draw("rect", { class: name, y: 0, height: 10 }));
  #figures = Object.fromEntries(["Used", "Managed", "Resident"].map((title) => [title, { now: make("strong"), more: make("small") }]));
  #rates = SERIES.map(([series, label]) => {
    const key = make("span", { textContent: label });
    key.dataset.series = series;
    return { series, label, key };
  });
  #chart = new Chart(NAMES, { className: "spark" });
  element;

  constructor() {
    this.#bar.append(...this.#parts);
    const figures = Object.entries(this.#figures).map(([title, { now, more }]) => {
      const term = make("dt", { textContent: title });
      // Figures that are in the bar.
      if (title !== "Managed") term.dataset.part = title;
      return make("div", {}, term, make("dd", {}, now, more));
    });
    this.element = make(
      "li",
      { className: "card" },
      make("div", { className: "title" }, this.#name, this.#ratio),
      this.#bar,
      make("dl", {}, ...figures),
      make("p", { className: "keys muted" }, ...this.#rates.map(({ key }) => key)),
      this.#chart.element,
    );
  }

  update(gpu, rate, done) {
    const { memory_bytes: size, memory_used_bytes: used, managed_bytes, resident, oversubscription_ratio: ratio } = gpu;
    setText(this.#name, `${words.gpu(gpu.uuid)} ${format.printable(gpu.name ?? "")}`.trim());
    this.#name.title = [gpu.uuid ?? "UUID unknown", gpu.pci_address && `PCI ${gpu.pci_address}`, gpu.processor_id !== null && `processor id ${gpu.processor_id}`].filter(Boolean).join(", ");
    this.#ratio.hidden = ratio === null;
    if (ratio !== null) setText(this.#ratio, `${ratio.toFixed(ratio < 9.95 ? 1 : 0)}x managed`);
    this.#ratio.title = "Managed memory of its processes over its memory; above 1, not all of it fits";
    this.#ratio.classList.toggle("over", ratio > 1);
    this.#bar.classList.toggle("unknown", !size);
    [used ?? 0, resident?.bytes ?? 0].forEach((part, at) => this.#parts[at].setAttribute("width", size ? Math.min((1000 * part) / size, 1000).toFixed(1) : 0));
    this.#bar.setAttribute("aria-label", size ? `Of ${format.bytes(size)}: ${used === null ? "" : `${format.bytes(used)} used, `}${format.resident(resident)} managed and resident` : "Memory size unknown");
    const set = (title, now, more) => {
      setText(this.#figures[title].now, now);
      setText(this.#figures[title].more, more);
    };
    set("Used", ...words.used(gpu));
    set("Managed", format.bytes(managed_bytes), "mapped by processes");
    set("Resident", format.resident(resident), resident === null ? "not counted" : words.bounds(resident) || "of managed memory");
    for (const { series, label, key } of this.#rates) setText(key, `${label} ${format.bytesRate(rate(series))}`);
    this.#chart.mark(done);
  }

  plot(history) {
    this.#chart.set(...samplesOf(history, NAMES, perSecond));
  }
}

let cards = new Map();

const key = (gpu) => gpu.uuid ?? `processor ${gpu.processor_id}`;

// `rateOf(gpu, name)` is the rate of a GPU's counter. `doneAt(uuid)` are the marks of actions there.
export function show(gpus, rateOf, doneAt) {
  words.learn(gpus);
  cards = new Map(gpus.map((gpu) => [key(gpu), cards.get(key(gpu)) ?? new Card()]));
  for (const gpu of gpus) cards.get(key(gpu)).update(gpu, (name) => rateOf(gpu, name), doneAt(gpu.uuid));
  place(element("cards"), [...cards.values()].map((card) => card.element));
}

// Shows the history of a GPU.
export const plot = (uuid, history) => cards.get(uuid)?.plot(history);
