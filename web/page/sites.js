// CPU code of a process that faults on its managed memory.

import { element, make, place, setText } from "./dom.js";
import * as format from "./format.js";
import { Table } from "./table.js";

const number = (title, help, text) => ({ title, help, text, number: true });

const table = new Table(element("detail-sites"), [
  { title: "Code", text: (site) => format.printable(site.function ?? site.module ?? site.address), detail: (site) => format.printable(site.description), wraps: true },
  number("To the host", "Copied from GPUs to the host for its faults", (site) => format.bytes(site.bytes_dtoh)),
  number("CPU faults", "Faults on managed memory that is not on the host", (site) => format.count(site.cpu_faults)),
]);

export function clear() {
  table.update([], () => "");
  element("detail-code").hidden = true;
}

// Nothing is shown of a process whose CPU code has raised no fault.
export function show({ sites, unavailable, sites_known: known, unattributed_cpu_faults: others, caveats }) {
  table.update(sites ?? [], (site) => site.address);
  element("detail-code").hidden = known === 0 && others === 0;
  setText(element("sites-known"), sites === null ? "" : `${sites.length} of ${format.count(known)}`);
  const isCounted = unavailable === null;
  element("sites-limits").parentElement.hidden = !isCounted;
  setText(element("sites-others"), !isCounted ? `CPU code is ${format.printable(unavailable)}.` : others > 0 ? `${format.count(others)} CPU faults are unattributed: beyond the limit of sites, or by another process.` : "");
  const limits = element("sites-limits");
  if (limits.children.length !== caveats.length) place(limits, caveats.map((textContent) => make("li", { textContent })));
}
