// One process: what it did in all, how its fault batches were distributed, and where in its memory it happened. The page's address says which one.

import * as format from "./format.js";
import { Table } from "./table.js";

const BLOCKS = 64;
const element = (id) => document.getElementById(`detail-${id}`);
const number = (title, text, more = {}) => ({ title, text, number: true, ...more });

const tables = {
  batches: new Table(element("batches"), [
    { title: "Fault batches", text: (row) => row.title },
    number("Count", (row) => format.count(row.of.count)),
    number("Mean", (row) => row.show(row.of.sum / row.of.count)),
    ...["p50", "p90", "p99", "max"].map((name) => number(name, (row) => row.show(row.of[name]))),
  ]),
  causes: new Table(element("causes"), [
    { title: "Bytes copied", text: (row) => row.cause },
    ...[["htod", "To GPU"], ["dtoh", "To host"], ["dtod", "From GPU"]].map(([way, title]) => number(title, (row) => format.bytes(row[way]))),
  ]),
  gpus: new Table(element("gpus"), [
    { title: "GPU", text: (gpu) => String(gpu.gpu ?? "-"), detail: (gpu) => gpu.uuid ?? "UUID not known" },
    number("Faults", (gpu) => format.count(gpu.fault_entries)),
    number("Batches", (gpu) => format.count(gpu.batches)),
    number("To GPU", (gpu) => format.bytes(gpu.bytes_htod)),
    number("To host", (gpu) => format.bytes(gpu.bytes_dtoh)),
    number("Evicted", (gpu) => format.bytes(gpu.evicted_bytes)),
  ]),
  blocks: new Table(element("blocks"), [
    { title: "Block", text: (block) => block.address },
    { title: "GPU", text: (block) => block.gpu, rare: true },
    number("Faults", (block) => format.count(block.fault_entries)),
    number("CPU faults", (block) => format.count(block.cpu_faults), { minor: true }),
    number("To GPU", (block) => format.bytes(block.bytes_htod)),
    number("To host", (block) => format.bytes(block.bytes_dtoh)),
    number("Evicted", (block) => format.bytes(block.evicted_bytes)),
    number("Evictions", (block) => format.count(block.evictions), { minor: true }),
    number("Last seen", (block) => new Date(block.last_seen).toLocaleTimeString(), { minor: true }),
  ]),
};

// === which process ===

// What the address asks for, as the API takes it; null if it asks for none.
export function wanted() {
  const [, pid, ticks] = /^#process=(\d+)\.(\d+)$/.exec(location.hash) ?? [];
  return pid === undefined ? null : { pid, path: `/api/v1/processes/${pid}?start_ticks=${ticks}&blocks=${BLOCKS}` };
}

let opener = null;

// Opens and closes as the address says; `changed` is called to fill it at once.
export function watch(changed) {
  const follow = () => {
    if (wanted() === null) return close();
    opener = document.activeElement;
    element("title").textContent = `Process ${wanted().pid}`;
    for (const part of ["identity", "note"]) element(part).textContent = "";
    element("sums").replaceChildren();
    for (const table of Object.values(tables)) table.update([], () => "");
    element("heading").hidden = true;
    element("panel").hidden = false;
    element("panel").scrollIntoView({ block: "nearest" });
    element("title").focus({ preventScroll: true });
    changed();
  };
  addEventListener("hashchange", follow);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && wanted() !== null) location.hash = "";
  });
  element("close").addEventListener("click", () => (location.hash = ""));
  if (wanted() !== null) follow();
}

function close() {
  element("panel").hidden = true;
  // Back to where the reader came from, if that is still there.
  if (opener?.isConnected) opener.focus();
  history.replaceState(null, "", location.pathname);
}

// === what is shown of it ===

export function fail(text) {
  element("note").textContent = text;
}

export function show(process) {
  element("title").textContent = `${format.printable(process.name)} ${process.pid}`;
  element("identity").textContent = identity(process);
  sums(process);
  const batches = [
    { title: "faults in each", of: process.batch_entries, show: format.count },
    { title: "service time", of: process.batch_service_ns, show: format.time },
  ];
  tables.batches.update(batches.filter((row) => row.of.count > 0), (row) => row.title);
  tables.causes.update(causes(process.bytes_by_cause), (row) => row.cause);
  tables.gpus.update(process.gpus.length > 1 ? process.gpus : [], (gpu) => gpu.uuid ?? gpu.gpu);
  const gpuOf = (uuid) => String(process.gpus.find((gpu) => uuid !== null && gpu.uuid === uuid)?.gpu ?? "–");
  tables.blocks.update(process.blocks.map((block) => ({ ...block, gpu: gpuOf(block.gpu_uuid) })), (block) => block.address);
  element("heading").hidden = process.blocks.length === 0;
  element("known").textContent = `${process.blocks.length} of ${format.count(process.blocks_known)} known`;
  fail(losses(process));
}

function identity(process) {
  const parts = [process.user ?? `uid ${process.uid}`, process.state];
  if (process.started) parts.push(`started ${new Date(process.started).toLocaleString()}`);
  if (process.ended) parts.push(`ended ${new Date(process.ended).toLocaleString()}`);
  if (process.cgroup) parts.push(process.cgroup);
  return format.printable(parts.join(" · "));
}

function sums(process) {
  const { count, bytes } = format;
  // Those above 0, with their names.
  const list = (byName, show) =>
    Object.entries(byName)
      .filter(([, value]) => value > 0)
      .map(([name, value]) => `${format.printable(name.replaceAll("_", " "))} ${show(value)}`)
      .join(", ");
  const rows = [
    ["Managed", format.optional(bytes)(process.managed_bytes)],
    ["Faults", `${count(process.fault_entries)} on GPUs (${count(process.fault_instances)} before merging), ${count(process.cpu_faults)} on CPUs`],
    ["Batches", `${count(process.batches)}, ${count(process.replays)} replays`],
    ["Copied", `${bytes(process.bytes_htod)} to GPUs, ${bytes(process.bytes_dtoh)} to the host`],
    ["New", `${bytes(process.populated_bytes)} made resident with nothing to copy`],
    ["Evicted", `${bytes(process.evicted_bytes)} of it, in ${count(process.evictions)} pieces`],
    ["Caused", `${bytes(process.evicted_bytes_caused)} of anybody's memory evicted for it, in ${count(process.evictions_caused)} pieces`],
    ["Thrashing", `${count(process.thrashing_pages)} pages found by the driver, ${count(process.throttles)} throttles of ${format.time(process.throttled_ns)} together`],
    ["Remote", [`${bytes(process.remote_mapped_bytes)} in ${count(process.remote_mappings)} mappings`, list(process.remote_mapped_bytes_by_cause, bytes)].filter(Boolean).join(": ")],
    ["Its calls", list(process.api_calls_by_kind, count) || "none"],
    ["Tools' calls", list(process.tool_calls_by_kind, count) || "none"],
  ];
  if (process.dropped_events > 0) rows.push(["Not counted", `${count(process.dropped_events)} events: figures are lower bounds`]);
  element("sums").replaceChildren(
    ...rows.flatMap(([title, text]) => [["dt", title], ["dd", text]].map(([tag, content]) => Object.assign(document.createElement(tag), { textContent: content }))),
  );
}

// By cause, those that moved anything.
function causes(byDirection) {
  const { htod, dtoh, dtod } = byDirection;
  return Object.keys(htod)
    .map((cause) => ({ cause: cause.replaceAll("_", " "), htod: htod[cause], dtoh: dtoh[cause], dtod: dtod[cause] }))
    .filter((row) => row.htod + row.dtoh + row.dtod > 0);
}

function losses(process) {
  const losses = [
    [process.block_records_sampled_out, "records were left out, as too many came at once"],
    [process.block_records_dropped, "were lost for want of room"],
    [process.blocks_forgotten, "blocks were forgotten to make room"],
  ].filter(([count]) => count > 0);
  if (losses.length === 0) return process.blocks_known === 0 ? "No block of it is known." : "";
  return `Sampled: the blocks' figures are lower bounds. ${losses.map(([count, what]) => `${format.count(count)} ${what}`).join("; ")}.`;
}
