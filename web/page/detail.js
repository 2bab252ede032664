// One process: what is wrong with it and why, where in its memory, what it did lately and in all. The page's address says which one.

import { ask, reason } from "./api.js";
import * as authority from "./authority.js";
import { element as byId, make, say } from "./dom.js";
import * as evidence from "./evidence.js";
import * as format from "./format.js";
import * as lately from "./history.js";
import * as memory from "./memory.js";
import { Table } from "./table.js";
import * as words from "./words.js";

const BLOCKS = 64;
const CELLS = 64;
const element = (id) => byId(`detail-${id}`);
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
    { title: "GPU", text: (gpu) => words.gpu(gpu.uuid), detail: (gpu) => gpu.uuid ?? "UUID not known" },
    number("Resident", (gpu) => format.resident(gpu.resident), { detail: (gpu) => words.bounds(gpu.resident) }),
    number("Faults", (gpu) => format.count(gpu.fault_entries)),
    number("Batches", (gpu) => format.count(gpu.batches)),
    number("To GPU", (gpu) => format.bytes(gpu.bytes_htod)),
    number("To host", (gpu) => format.bytes(gpu.bytes_dtoh)),
    number("Evicted", (gpu) => format.bytes(gpu.evicted_bytes)),
  ]),
  blocks: new Table(element("blocks"), [
    { title: "Block", text: (block) => block.address },
    { title: "GPU", text: (block) => words.gpu(block.gpu_uuid), rare: true },
    number("Faults", (block) => format.count(block.fault_entries)),
    number("CPU faults", (block) => format.count(block.cpu_faults), { minor: true }),
    number("To GPU", (block) => format.bytes(block.bytes_htod)),
    number("To host", (block) => format.bytes(block.bytes_dtoh)),
    number("Evicted", (block) => format.bytes(block.evicted_bytes)),
    number("Evictions", (block) => format.count(block.evictions), { minor: true }),
    number("Last seen", (block) => format.moment(block.last_seen_at), { minor: true }),
  ]),
};

// === which process ===

// What the address asks for; null if it asks for none.
function wanted() {
  const [, pid, ticks] = /^#process=(\d+)\.(\d+)$/.exec(location.hash) ?? [];
  return pid === undefined ? null : { pid, path: (part, query = "") => `/api/v1/processes/${pid}${part}?start_ticks=${ticks}${query}` };
}

let opener = null;

// Opens and closes as the address says, and asks for what is open.
export function watch(rounds) {
  const questions = [
    rounds.every(2000, about((path) => [path("", `&blocks=${BLOCKS}`), path("/verdict")], show, fail)),
    rounds.every(3000, about((path) => (authority.readsAll() ? [path("/ranges"), path("/heatmap", `&cells=${CELLS}`)] : []), memory.show, memory.clear)),
    rounds.every(lately.everyMs, about((path, pid) => [path("/history", lately.query()), `/api/v1/decisions?limit=50&pid=${pid}`], lately.show, lately.clear)),
  ];
  lately.watch(() => rounds.hurry(questions.slice(2)));
  const follow = () => {
    if (wanted() === null) return close();
    if (element("panel").hidden) opener = document.activeElement;
    clear();
    element("panel").hidden = false;
    element("panel").scrollIntoView({ block: "nearest" });
    element("title").focus({ preventScroll: true });
    rounds.hurry(questions);
  };
  addEventListener("hashchange", follow);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && wanted() !== null) location.hash = "";
  });
  element("close").addEventListener("click", () => (location.hash = ""));
  if (wanted() !== null) follow();
}

// A question about the process that is open: shows the answers of these paths, if there are any.
function about(paths, show, fail) {
  return async () => {
    const process = wanted();
    if (process === null) return;
    const asked = paths(process.path, process.pid);
    if (asked.length === 0) return fail("");
    // The reader may have gone on to another meanwhile.
    const isOpen = () => wanted()?.path("") === process.path("");
    try {
      const answers = await Promise.all(asked.map((path) => ask(path)));
      if (isOpen()) show(...answers);
    } catch (error) {
      if (isOpen() && !authority.refused(error)) fail(reason(error));
    }
  };
}

function close() {
  clear();
  element("panel").hidden = true;
  // Back to where the reader came from, if that is still there.
  if (opener?.isConnected) opener.focus();
  history.replaceState(null, "", location.pathname);
}

// Nothing of it is left in the page, which may be shown to others once the token is forgotten.
function clear() {
  const process = wanted();
  say(element("title"), process === null ? "" : `Process ${process.pid}`);
  for (const part of ["identity", "command", "note"]) say(element(part), "");
  element("sums").replaceChildren();
  for (const table of Object.values(tables)) table.update([], () => "");
  element("blocks-panel").hidden = true;
  element("locked").hidden = true;
  for (const part of [evidence, memory, lately]) part.clear();
}

// === what is shown of it ===

function fail(text) {
  say(element("note"), text);
}

function show(process, verdicts) {
  say(element("title"), `${format.printable(process.name)} ${process.pid}`);
  say(element("command"), process.command_line === null ? "" : format.printable(process.command_line));
  element("locked").hidden = !process.redacted;
  evidence.show(verdicts, process);
  say(element("identity"), identity(process));
  sums(process);
  const batches = [
    { title: "faults in each", of: process.batch_entries, show: format.count },
    { title: "service time", of: process.batch_duration_ns, show: format.time },
  ];
  tables.batches.update(batches.filter((row) => row.of.count > 0), (row) => row.title);
  tables.causes.update(causes(process.bytes_by_cause), (row) => row.cause);
  tables.gpus.update(process.gpus.length > 1 ? process.gpus : [], (gpu) => gpu.uuid ?? gpu.processor_id);
  tables.blocks.update(process.blocks, (block) => block.address);
  element("blocks-panel").hidden = process.blocks.length === 0;
  say(element("known"), `${process.blocks.length} of ${format.count(process.blocks_known)} known`);
  fail(losses(process));
}

function identity(process) {
  const parts = [process.user ?? `uid ${process.uid}`, process.state, words.wholeOwner(process.owner)].filter(Boolean);
  if (process.started_at) parts.push(`started ${format.moment(process.started_at)}`);
  if (process.exited_at) parts.push(`exited ${format.moment(process.exited_at)}`);
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
    ["Resident", process.resident === null ? "unavailable" : [`${bytes(process.resident.bytes)} in GPU memory, estimated`, words.bounds(process.resident)].filter(Boolean).join(": ")],
    ["Reuse", cameBack(process.reuse)],
    ["Faults", `${count(process.fault_entries)} on GPUs (${count(process.fault_instances)} before coalescing), ${count(process.cpu_faults)} on CPUs`],
    ["Batches", `${count(process.batches)}, ${count(process.replays)} replays`],
    ["Copied", `${bytes(process.bytes_htod)} to GPUs, ${bytes(process.bytes_dtoh)} to the host`],
    ["Populated", `${format.optional(bytes)(process.populated_bytes)} without a copy`],
    ["Evicted", `${bytes(process.evicted_bytes)} in ${count(process.evictions)} chunks`],
    ["Induced", `${bytes(process.induced_eviction_bytes)} of any process evicted for it, in ${count(process.induced_evictions)} chunks`],
    ["Thrashing", `${count(process.thrashing_pages)} pages by the driver's detector, ${count(process.throttles)} throttles of ${format.time(process.throttled_ns)} in total`],
    ["Remote", [`${bytes(process.remote_mapped_bytes)} in ${count(process.remote_mappings)} mappings`, list(process.remote_mapped_bytes_by_cause, bytes)].filter(Boolean).join(": ")],
    ["Its calls", list(process.api_calls_by_kind, count) || "none"],
    ["Tools' calls", list(process.tool_calls_by_kind, count) || "none"],
  ];
  if (process.cgroup) rows.push(["Cgroup", format.printable(process.cgroup)]);
  if (process.dropped_events > 0) rows.push(["Not counted", `${count(process.dropped_events)} events: figures are lower bounds`]);
  element("sums").replaceChildren(...rows.flatMap(([title, text]) => [make("dt", { textContent: title }), make("dd", { textContent: text })]));
}

function cameBack({ fetched_bytes, refetched_bytes, cpu_reclaimed_bytes, bounces }) {
  if (fetched_bytes === 0) return "nothing was fetched";
  const { bytes, count, percent } = format;
  const of = (part) => `${bytes(part)} (${percent(part / fetched_bytes)})`;
  return `of ${bytes(fetched_bytes)} fetched, ${of(refetched_bytes)} refetched after eviction and ${of(cpu_reclaimed_bytes)} after reclaim by a CPU; ${count(bounces)} bounces`;
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
    [process.block_records_sampled_out, "records were omitted by sampling, as too many came at once"],
    [process.block_records_dropped, "were dropped for lack of space"],
    [process.blocks_forgotten, "blocks were forgotten to make room"],
  ].filter(([count]) => count > 0);
  if (losses.length === 0) return process.blocks_known === 0 ? "No block of it is known." : "";
  return `Sampled: the blocks' figures are lower bounds. ${losses.map(([count, what]) => `${format.count(count)} ${what}`).join("; ")}.`;
}
