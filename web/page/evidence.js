// Evidence of the verdicts on a process, for readers to check.

import { element, make, place, processHref, setLinks, setText } from "./dom.js";
import * as format from "./format.js";
import { Table } from "./table.js";
import * as words from "./words.js";

const { bytes, count } = format;
const number = (title, text, more = {}) => ({ title, text, number: true, ...more });

// Inputs of a verdict, with names for readers.
const INPUTS = [
  ["fault_entries", "GPU faults", count],
  ["cpu_faults", "CPU faults", count],
  ["bytes_htod", "copied to the GPU", bytes],
  ["bytes_dtoh", "copied to the host", bytes],
  ["bytes_dtod", "copied directly from other GPUs", bytes],
  ["populated_bytes", "populated at the GPU, without a copy", bytes],
  ["evicted_bytes", "evicted from the GPU", bytes],
  ["induced_eviction_bytes", "evicted for the process, of any process", bytes],
  ["fetched_bytes", "fetched, by block records", bytes],
  ["refetched_bytes", "fetched bytes refetched after eviction", bytes],
  ["cpu_reclaimed_bytes", "fetched bytes reclaimed by a CPU before", bytes],
  ["bounces", "bounces of blocks between CPUs and the GPU", count],
  ["peer_reclaimed_bytes", "fetched bytes taken by other GPUs before", bytes],
  ["peer_bounces", "blocks taken from other GPUs", count],
  ["throttles", "throttles by the driver", count],
  ["throttled_ns", "time in throttles, in total", format.time],
  ["thrashing_pages", "thrashing pages, by the driver's detector", count],
  ["pinned_bytes", "pinned elsewhere by the driver", bytes],
  ["missing_records", "block records omitted or dropped", count],
];

class Evidence {
  #heading = make("h3");
  #window = make("p", { className: "muted" });
  #reason = make("p");
  #remedies = make("div", { className: "remedies" });
  #shownRemedies = "";
  #ranges;
  #tables;
  element;

  constructor() {
    const table = (caption, columns) => new Table(make("table", { className: "plain" }, make("caption", { textContent: caption })), columns);
    this.#tables = {
      checks: table("Checks", [
        { title: "Condition", text: (check) => check.description, wraps: true },
        { title: "Met", text: (check) => (check.met ? "✓ yes" : "✗ no") },
      ]),
      inputs: table("Inputs", [
        { title: "Input", text: ([, title]) => title, wraps: true },
        number("Last window", ([, , show, window]) => show(window)),
        number("Since start", ([, , show, , total]) => show(total)),
      ]),
      ranges: table("Ranges", [
        { title: "Range", text: (range) => range.begin, detail: (range) => bytes(range.bytes) },
        { title: "Pattern", text: (range) => words.pattern(range.pattern), detail: (range) => words.confidence(range.pattern) },
        number("Share", (range) => format.percent(range.traffic_ratio)),
        number("Refetched", (range) => format.percent(range.refetch_ratio)),
      ]),
      victims: table("Victims", [
        { title: "Process", text: words.name, detail: words.owner, href: (victim) => processHref(victim) },
        number("Evicted", (victim) => `${bytes(victim.bytes_per_second)}/s`),
        { title: "Attribution", text: (victim) => (victim.inferred ? "inferred" : "exact") },
      ]),
    };
    const region = (name) => make("div", { className: "scroll" }, this.#tables[name].element);
    this.#ranges = make("p", { className: "muted", textContent: "Ranges require read permission." });
    const sides = make("div", { className: "side-by-side" }, region("checks"), region("inputs"), region("ranges"), region("victims"));
    this.element = make("section", { className: "evidence" }, this.#heading, this.#reason, this.#window, this.#remedies, sides, this.#ranges);
  }

  update(verdict, now) {
    const { label, gpu_uuid, started_at, confirmed_at, window_seconds, inputs, total, checks, ranges, victims, remedies } = verdict;
    const age = format.duration(words.seconds(started_at, now));
    setText(this.#heading, `${label[0].toUpperCase()}${label.slice(1)} on ${words.gpu(gpu_uuid)} since ${format.moment(started_at)}, ${age}`);
    this.element.dataset.tone = words.tone(verdict);
    setText(this.#reason, format.printable(`${verdict.summary} ${verdict.reason}`));
    const confirmed = format.duration(words.seconds(started_at, confirmed_at));
    setText(this.#window, `Confirmed after ${confirmed}; checked in each window, the last of ${format.span(window_seconds)}.`);
    // Unchanged remedies stay, so that their text can be selected.
    const shown = JSON.stringify(remedies);
    if (shown !== this.#shownRemedies) this.#remedies.replaceChildren(...(remedies === null ? [] : remedyLists(remedies)));
    this.#shownRemedies = shown;
    this.#tables.checks.update(checks, (check) => check.name);
    const rows = INPUTS.map(([name, title, show]) => [name, title, show, inputs[name], total[name]]);
    this.#tables.inputs.update(rows.filter(([, , , window, sum]) => window + sum > 0), ([name]) => name);
    this.#tables.ranges.update(ranges ?? [], (range) => range.begin);
    this.#ranges.hidden = ranges !== null;
    this.#tables.victims.update(victims, (victim) => `${victim.pid} ${victim.start_ticks}`);
  }
}

// Remedies in uvmd's words, cheapest first, and those that do not help.
function remedyLists({ effective, ineffective }) {
  const more = (text) => make("p", { className: "muted", textContent: format.printable(text) });
  const item = ({ action, evidence, unless }) => make("li", {}, format.printable(action), more(`Because ${evidence}.`), ...(unless === null ? [] : [more(`Not if ${unless}.`)]));
  const titled = (title, list) => (list.children.length > 0 ? [make("h4", { textContent: title }), list] : []);
  return [
    ...titled("Remedies, cheapest first", make("ol", {}, ...effective.map(item))),
    ...titled("Ineffective", make("ul", {}, ...ineffective.map((text) => make("li", { textContent: format.printable(`${text}.`) })))),
  ];
}

let sections = new Map();

export function clear() {
  sections = new Map();
  place(element("detail-evidence"), []);
  for (const part of ["healthy", "remarks"]) setText(element(`detail-${part}`), "");
  showEvictor(null);
}

// The process that takes memory of this one, or of others in its place, with a link to it.
function showEvictor(evictor) {
  const inferred = evictor?.inferred ? ", as inferred," : "";
  const text = evictor?.bytes_per_second > 0 ? `${bytes(evictor.bytes_per_second)}/s of its memory is evicted${inferred} for` : `It would fit${inferred} into the GPU without`;
  setText(element("detail-evictor-text"), evictor === null ? "" : text);
  setLinks(element("detail-evictor-link"), evictor === null ? [] : [{ text: words.name(evictor), href: processHref(evictor) }]);
}

export function show({ time, active, ended, unavailable, remarks }, process) {
  sections = new Map(active.map((verdict) => [verdict.gpu_uuid + verdict.kind + verdict.started_at, verdict]).map(([key, verdict]) => {
    const evidence = sections.get(key) ?? new Evidence();
    evidence.update(verdict, time);
    return [key, evidence];
  }));
  place(element("detail-evidence"), [...sections.values()].map((evidence) => evidence.element));
  const parts = [];
  if (active.length === 0) parts.push(unavailable.length === 0 ? "No verdict." : "No verdict; some are unavailable.");
  showEvictor(process.victim_of);
  setText(element("detail-remarks"), format.printable(remarks.join(" ")));
  const [last] = ended;
  if (last) parts.push(`Last verdict: ${last.label} for ${format.duration(words.seconds(last.started_at, last.ended_at))}, until ${format.moment(last.ended_at)}${ended.length > 1 ? `; ${ended.length - 1} earlier` : ""}.`);
  for (const { label, reason } of unavailable) parts.push(`Unavailable: ${label}; ${reason}.`);
  setText(element("detail-healthy"), parts.join(" "));
}
