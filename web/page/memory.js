// Ranges of a process's memory: access pattern, counts, and heat map.

import { element, make, place, setText } from "./dom.js";
import * as format from "./format.js";
import { MEASURES, Strip, isCounted } from "./heat.js";
import { Table } from "./table.js";
import * as words from "./words.js";

const readout = element("heat-readout");
const measure = element("heat-measure");
measure.append(...Object.entries(MEASURES).map(([value, [textContent]]) => make("option", { value, textContent })));

// Strips by first address, dropped when another process is selected.
let strips = new Map();
let latest = null;

const number = (title, help, text, more = {}) => ({ title, help, text, number: true, ...more });
const refetchShare = ({ reuse }) => (reuse.fetched_bytes === 0 ? "–" : format.percent(reuse.refetched_bytes / reuse.fetched_bytes));

const table = new Table(element("detail-ranges"), [
  { title: "Range", text: (range) => range.begin, detail: (range) => `${format.bytes(range.bytes)}${range.mapped ? "" : ", unmapped"}` },
  { title: "Pattern", help: "Order of its faults, and the share of them that matches", text: (range) => words.pattern(range.pattern), detail: (range) => words.confidence(range.pattern), known: format.isKnown("fault_entries") },
  { title: "Where", help: "By address: activity above, residency below", node: (range) => strips.get(range.begin).element, chart: true, strip: true },
  number("Resident", "In GPU memory: an estimate, and its bounds", (range) => format.resident(range.resident), { detail: (range) => words.bounds(range.resident), known: format.isKnown("resident") }),
  number("Faults", "GPU page faults", (range) => format.optional(format.count)(range.fault_entries), { spare: true, known: format.isKnown("fault_entries") }),
  number("To GPU", "Copied from host to GPU", (range) => format.bytes(range.bytes_htod)),
  number("Evicted", "Evicted from GPU memory to free it", (range) => format.bytes(range.evicted_bytes)),
  number("Refetched", "Share of fetched bytes that were refetched after eviction", refetchShare),
]);

measure.addEventListener("change", () => latest && show(...latest));

export function clear() {
  [strips, latest] = [new Map(), null];
  table.update([], () => "");
  for (const id of ["known", "limits", "lower-bound"]) element(`ranges-${id}`).replaceChildren();
  element("detail-memory").hidden = true;
  setText(readout, "");
}

export function show(ranges, map) {
  latest = [ranges, map];
  for (const option of measure.options) option.disabled = !isCounted(map, option.value);
  if (measure.selectedOptions[0].disabled) measure.value = [...measure.options].find(({ disabled }) => !disabled).value;
  element("resident-key").hidden = ranges.ranges.every(({ resident }) => resident === null);
  const byBegin = new Map(map.ranges.map((range) => [range.begin, range]));
  setText(element("heat-key"), `${MEASURES[measure.value][0]}, by strength of colour`);
  const most = Math.max(...map.ranges.flatMap((range) => range.cells.map((cell) => cell[measure.value])), 0);
  strips = new Map(ranges.ranges.map(({ begin }) => [begin, strips.get(begin) ?? new Strip(readout)]));
  for (const [begin, strip] of strips) {
    const cells = byBegin.get(begin);
    strip.element.classList.toggle("none", cells === undefined);
    if (cells !== undefined) strip.show(cells, measure.value, most);
  }
  table.update(ranges.ranges, (range) => range.begin, (range) => ({ faded: !range.mapped }));
  element("detail-memory").hidden = false;
  const omitted = map.ranges_omitted > 0 ? `, ${format.count(map.ranges_omitted)} without cells` : "";
  const joined = ranges.mappings > ranges.ranges_known ? `, of ${format.count(ranges.mappings)} mappings` : "";
  setText(element("ranges-known"), `${ranges.ranges.length} of ${format.count(ranges.ranges_known)}${joined}${omitted}`);
  element("no-ranges").hidden = ranges.ranges.length > 0;
  const incomplete = [
    [ranges.block_records_sampled_out, "block records sampled out"],
    [ranges.block_records_dropped, "block records dropped for want of space"],
    [ranges.blocks_forgotten, "blocks forgotten at their limit"],
    [ranges.ranges_forgotten, "unmapped ranges forgotten at their limit"],
  ].filter(([count]) => count > 0);
  setText(element("ranges-lower-bound"), incomplete.length === 0 ? "" : `Figures are lower bounds: ${incomplete.map(([count, what]) => `${format.count(count)} ${what}`).join("; ")}.`);
  const limits = element("ranges-limits");
  if (limits.children.length !== ranges.caveats.length) place(limits, ranges.caveats.map((textContent) => make("li", { textContent })));
}
