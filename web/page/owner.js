// Sums of the owner by which the address filters the processes, ended ones included.

import { request } from "./api.js";
import { counters } from "./columns.js";
import { addressed, element, make, setText } from "./dom.js";
import * as format from "./format.js";
import { Rates } from "./rates.js";

const rates = new Rates();
const list = element("owner-sums");

const bytes = (title, name) => [title, (owner, rate) => owner[name] === null ? format.NOT_COUNTED : `${format.bytesRate(rate(name))}, ${format.bytes(owner[name])} in total`];
const SUMS = [
  ["Running", ({ processes }) => format.count(processes)],
  ["GPU faults", (owner, rate) => `${format.countRate(rate("fault_entries"))}, ${format.count(owner.fault_entries)} in total`],
  bytes("To GPU", "bytes_htod"),
  bytes("To host", "bytes_dtoh"),
  bytes("Evicted", "evicted_bytes"),
  ["Refetched", ({ reuse }) => (reuse === null ? format.NOT_COUNTED : `${format.bytes(reuse.refetched_bytes)} in total`)],
];

// A user is no owner with sums of its own.
const hasSums = (owner) => owner !== null && !owner.startsWith("user:");

// Owner whose sums are shown.
let shown = null;

export async function poll() {
  const owner = addressed("owner");
  if (owner !== shown) list.replaceChildren();
  shown = owner;
  if (!hasSums(owner)) return;
  try {
    const { owners } = await request(`/api/v1/owners?owner=${encodeURIComponent(owner)}`);
    // The selection may have changed meanwhile.
    if (addressed("owner") === owner) show(owner, owners[0]);
  } catch {
    // The list of processes shows errors of the node.
    list.replaceChildren();
  }
}

// Without sums, the owner is not known any more.
function show(owner, totals) {
  if (totals === undefined) return list.replaceChildren();
  rates.record(performance.now(), [[owner, counters(totals)]]);
  const rate = (name) => rates.of(owner, name);
  if (list.children.length === 0) list.append(...SUMS.flatMap(([title]) => [make("dt", { textContent: title }), make("dd")]));
  SUMS.forEach(([, text], at) => setText(list.children[2 * at + 1], text(totals, rate)));
}
