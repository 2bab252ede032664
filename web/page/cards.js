// The GPUs: how full each is, of what, and what goes back and forth.

import { draw, element, make, place, say } from "./dom.js";
import * as format from "./format.js";
import { Spark } from "./spark.js";
import * as words from "./words.js";

const SERIES = [["bytes_htod", "to GPU"], ["bytes_dtoh", "to host"], ["evicted_bytes", "evicted"]];

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
  spark = new Spark(SERIES.map(([series]) => series));
  element;

  constructor() {
    this.#bar.append(...this.#parts);
    const figures = Object.entries(this.#figures).map(([title, { now, more }]) => {
      const term = make("dt", { textContent: title });
      // Those that the bar shows.
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
      this.spark.element,
    );
  }

  update(gpu, rate, done, now) {
    const { memory_bytes: size, memory_used_bytes: used, managed_bytes, resident, oversubscription_ratio: ratio } = gpu;
    say(this.#name, `${words.gpu(gpu.uuid)} ${format.printable(gpu.name ?? "")}`.trim());
    this.#name.title = [gpu.uuid ?? "UUID not known", gpu.pci_address && `PCI ${gpu.pci_address}`, gpu.processor_id !== null && `processor id ${gpu.processor_id}`].filter(Boolean).join(", ");
    this.#ratio.hidden = ratio === null;
    if (ratio !== null) say(this.#ratio, `${ratio.toFixed(ratio < 9.95 ? 1 : 0)}x managed`);
    this.#ratio.title = "Managed memory of its processes over all of its memory; more than 1 does not fit";
    this.#ratio.classList.toggle("over", ratio > 1);
    this.#bar.classList.toggle("unknown", !size);
    [used ?? 0, resident?.bytes ?? 0].forEach((part, at) => this.#parts[at].setAttribute("width", size ? Math.min((1000 * part) / size, 1000).toFixed(1) : 0));
    this.#bar.setAttribute("aria-label", size ? `Of ${format.bytes(size)}: ${used === null ? "" : `${format.bytes(used)} used, `}${format.resident(resident)} managed and resident` : "Its memory is not known");
    const set = (title, now, more) => {
      say(this.#figures[title].now, now);
      say(this.#figures[title].more, more);
    };
    set("Used", format.optional(format.bytes)(used), size ? `of ${format.bytes(size)}` : "size not known");
    set("Managed", format.bytes(managed_bytes), "mapped by processes");
    set("Resident", format.resident(resident), resident === null ? "unavailable" : words.bounds(resident) || "of the managed");
    for (const { series, label, key } of this.#rates) say(key, `${label} ${format.bytesRate(rate(series))}`);
    this.spark.push(this.#rates.map(({ series }) => rate(series)), now);
    this.spark.mark(done);
  }
}

let cards = new Map();

const key = (gpu) => gpu.uuid ?? `processor ${gpu.processor_id}`;

// To be called once a second. `rateOf(gpu, name)` is what a counter of a GPU gains a second; `doneAt(uuid)` are marks of what was done there until `now`; `before(uuid)` asks for what was counted before the page was opened.
export function show(gpus, rateOf, doneAt, now, before) {
  words.learn(gpus);
  cards = new Map(gpus.map((gpu) => [key(gpu), cards.get(key(gpu)) ?? opened(gpu, before)]));
  for (const gpu of gpus) cards.get(key(gpu)).update(gpu, (name) => rateOf(gpu, name), doneAt(gpu.uuid), now);
  place(element("cards"), [...cards.values()].map((card) => card.element));
}

function opened(gpu, before) {
  const card = new Card();
  if (gpu.uuid !== null) before(gpu.uuid).then((history) => history && card.spark.before(history), () => {});
  return card;
}
