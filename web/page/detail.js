// Panel of one process: verdicts with evidence, ranges of its memory, CPU code that faults, history and totals. The
// page's address selects the process.

import { Problem, hasToken, request, reason } from "./api.js";
import * as auth from "./auth.js";
import * as decisions from "./decisions.js";
import { addressed, element as byId, fragment, go, make, setText } from "./dom.js";
import * as evidence from "./evidence.js";
import * as format from "./format.js";
import * as processHistory from "./history.js";
import * as marks from "./marks.js";
import * as memory from "./memory.js";
import * as sites from "./sites.js";
import { Table } from "./table.js";
import * as words from "./words.js";

const BLOCKS = 64;
const CELLS = 64;
const LOADING = "Loading";
const element = (id) => byId(`detail-${id}`);
const number = (title, text, more = {}) => ({ title, text, number: true, ...more });
// Column of a count, which is hidden where it is not counted.
const countOf = (title, name, more = {}) =>
  number(title, (item) => format.optional(format.count)(item[name]), { known: format.isKnown(name), ...more });

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
    { title: "GPU", text: (gpu) => words.gpu(gpu.uuid), detail: (gpu) => gpu.uuid ?? "UUID unknown" },
    number("Resident", (gpu) => format.resident(gpu.resident), { detail: (gpu) => words.bounds(gpu.resident), known: format.isKnown("resident") }),
    number("Faults", (gpu) => format.count(gpu.fault_entries)),
    countOf("Batches", "batches"),
    number("To GPU", (gpu) => format.bytes(gpu.bytes_htod)),
    number("To host", (gpu) => format.bytes(gpu.bytes_dtoh)),
    number("Evicted", (gpu) => format.optional(format.bytes)(gpu.evicted_bytes), { known: format.isKnown("evicted_bytes") }),
  ]),
  blocks: new Table(element("blocks"), [
    { title: "Block", text: (block) => block.address },
    { title: "GPU", text: (block) => words.gpu(block.gpu_uuid), rare: true },
    countOf("Faults", "fault_entries"),
    countOf("CPU faults", "cpu_faults", { minor: true }),
    number("To GPU", (block) => format.bytes(block.bytes_htod)),
    number("To host", (block) => format.bytes(block.bytes_dtoh)),
    number("Evicted", (block) => format.bytes(block.evicted_bytes)),
    countOf("Evictions", "evictions", { minor: true }),
    number("Last seen", (block) => format.moment(block.last_seen_at), { minor: true }),
  ]),
};

// === selection ===

// The process that the address selects, or null.
function selected() {
  const [id, pid, ticks] = /^(\d+)\.(\d+)$/.exec(addressed("process") ?? "") ?? [];
  return pid === undefined ? null : { id, pid, path: (part, query = "") => `/api/v1/processes/${pid}${part}?start_ticks=${ticks}${query}` };
}

const CLOSED = { process: null, decision: null, override: null };
let opener = null;
let open = null;

// Opens and closes the panel as the address changes, and polls the open process. Returns a function
// that polls its history.
export function watch(rounds) {
  const polls = [
    rounds.every(2000, about((path) => [path("", `&blocks=${BLOCKS}`), path("/verdict")], show, fail)),
    rounds.every(3000, about((path) => (auth.readPermission() ? [path("/ranges"), path("/heatmap", `&cells=${CELLS}`)] : []), memory.show, memory.clear)),
    rounds.every(marks.everyMs, about((path, pid) => [path("/history", `&${marks.query()}`), decisionsOf(pid)], processHistory.show, processHistory.clear)),
    rounds.every(2000, about((_, pid) => [decisionsOf(pid)], decisions.showProcess, () => {})),
    rounds.every(3000, about((path) => [path("/override")], showPolicy, () => {})),
    rounds.every(3000, about((path) => (auth.readPermission() ? [path("/sites")] : []), sites.show, sites.clear)),
  ];
  const follow = () => {
    const id = selected()?.id ?? null;
    // Another part of the address changed, perhaps the decision or the override.
    if (id === open) return id !== null && rounds.pollNow(polls.slice(2));
    open = id;
    if (id === null) return close();
    if (element("panel").hidden) opener = document.activeElement;
    clear();
    element("panel").hidden = false;
    element("panel").scrollIntoView({ block: "nearest" });
    element("title").focus({ preventScroll: true });
    rounds.pollNow(polls);
  };
  addEventListener("hashchange", follow);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && selected() !== null) go(CLOSED);
  });
  element("close").addEventListener("click", () => go(CLOSED));
  if (selected() !== null) follow();
  // For another span of the axis.
  return () => selected() !== null && rounds.pollNow([polls[2]]);
}

const decisionsOf = (pid) => `/api/v1/decisions?limit=200&pid=${pid}`;

// Requests the override in the address, else the selected one.
async function showPolicy(effective) {
  const id = addressed("override") || effective.override_id;
  let status = null;
  try {
    if (id !== null) status = await request(`/api/v1/overrides/${encodeURIComponent(id)}`);
  } catch (error) {
    if (!(error instanceof Problem && error.status === 404)) throw error;
  }
  // The selection may have changed meanwhile.
  if (selected()?.id.startsWith(`${effective.pid}.`)) decisions.showPolicy(effective, status);
}

// Poll of the open process: shows the responses of these paths, if there are any.
function about(paths, show, fail) {
  return async () => {
    const process = selected();
    if (process === null) return;
    const requested = paths(process.path, process.pid);
    if (requested.length === 0) return fail("");
    // The selection may have changed meanwhile, and the token may have been forgotten.
    const permitted = hasToken();
    const isOpen = () => selected()?.id === process.id && hasToken() === permitted;
    try {
      const responses = await Promise.all(requested.map((path) => request(path)));
      if (isOpen()) await show(...responses);
    } catch (error) {
      if (isOpen() && !auth.tokenRejected(error)) fail(reason(error));
    }
  };
}

function close() {
  clear();
  element("panel").hidden = true;
  // The focus returns to the opener, if it still exists.
  if (opener?.isConnected) opener.focus();
}

// Clears the panel: of the process before, or since others may see the page after the token is
// forgotten.
export function clear() {
  const process = selected();
  setText(element("title"), process === null ? "" : `Process ${process.pid}`);
  setText(element("identity"), process === null ? "" : LOADING);
  for (const part of ["command", "note"]) setText(element(part), "");
  element("sums").replaceChildren();
  for (const table of Object.values(tables)) table.update([], () => "");
  element("blocks-panel").hidden = true;
  element("locked").hidden = true;
  element("owner").hidden = true;
  for (const part of [evidence, memory, sites, processHistory]) part.clear();
  decisions.clearProcess();
}

// === content ===

function fail(text) {
  if (element("identity").textContent === LOADING) setText(element("identity"), "");
  setText(element("note"), text);
}

function show(process, verdicts) {
  setText(element("title"), `${format.printable(process.name)} ${process.pid}`);
  setText(element("command"), process.command_line === null ? "" : format.printable(process.command_line));
  element("locked").hidden = !process.redacted;
  evidence.show(verdicts, process);
  setText(element("identity"), identity(process));
  const owner = words.ownerKey(process);
  element("owner").hidden = owner === "";
  setText(element("owner"), `All processes of ${words.owner(process)}`);
  if (owner !== "") element("owner").href = fragment({ owner });
  sums(process);
  const batches = [
    { title: "faults per batch", of: process.batch_entries, show: format.count },
    { title: "service time", of: process.batch_duration_ns, show: format.time },
  ];
  tables.batches.update(batches.filter((row) => row.of?.count > 0), (row) => row.title);
  tables.causes.update(causes(process.bytes_by_cause), (row) => row.cause);
  tables.gpus.update(process.gpus.length > 1 ? process.gpus : [], (gpu) => gpu.uuid ?? gpu.processor_id);
  tables.blocks.update(process.blocks, (block) => block.address);
  element("blocks-panel").hidden = process.blocks.length === 0;
  setText(element("known"), `${process.blocks.length} of ${format.count(process.blocks_known)} known`);
  fail(losses(process));
}

function identity(process) {
  const parts = [process.user ?? `uid ${process.uid}`, process.state, words.fullOwner(process.owner)].filter(Boolean);
  if (process.started_at) parts.push(`started ${format.moment(process.started_at)}`);
  if (process.counted_from) parts.push(`counted from ${format.moment(process.counted_from)} on`);
  if (process.exited_at) parts.push(`exited ${format.moment(process.exited_at)}`);
  return format.printable(parts.join(" · "));
}

function sums(process) {
  const { count, bytes, optional } = format;
  const [knownCount, knownBytes] = [optional(count), optional(bytes)];
  // Values above 0, with their names.
  const list = (byName, show) =>
    Object.entries(byName ?? {})
      .filter(([, value]) => value > 0)
      .map(([name, value]) => `${format.printable(name.replaceAll("_", " "))} ${show(value)}`)
      .join(", ");
  const calls = (byKind) => list(byKind, count) || "none";
  // Text about a figure, if that is counted.
  const about = (figure, text) => (figure === null ? "" : text(figure));
  // A row whose figures are all unknown goes.
  const known = (...values) => values.some((value) => value !== null);
  // Title, text, and the figures of it that may be unknown.
  const rows = [
    ["Managed", knownBytes(process.managed_bytes)],
    ["Resident", process.resident === null ? "not counted" : [`${bytes(process.resident.bytes)} in GPU memory, estimated`, words.bounds(process.resident)].filter(Boolean).join(": ")],
    ["Reuse", reuse(process.reuse)],
    ["Faults", `${count(process.fault_entries)} on GPUs${about(process.fault_instances, (instances) => ` (${count(instances)} before coalescing)`)}, ${count(process.cpu_faults)} on CPUs`],
    ["Batches", `${knownCount(process.batches)}${about(process.replays, (replays) => `, ${count(replays)} replays`)}`, [process.batches, process.replays]],
    ["Copied", `${bytes(process.bytes_htod)} to GPUs, ${bytes(process.bytes_dtoh)} to the host`],
    ["Populated", `${knownBytes(process.populated_bytes)} without a copy`, [process.populated_bytes]],
    ["Evicted", `${knownBytes(process.evicted_bytes)}${about(process.evictions, (chunks) => ` in ${count(chunks)} chunks`)}`, [process.evicted_bytes, process.evictions]],
    ["Induced", `${knownBytes(process.induced_eviction_bytes)} evicted for it, of any process, in ${knownCount(process.induced_evictions)} chunks`, [process.induced_eviction_bytes, process.induced_evictions]],
    ["Thrashing", `${knownCount(process.thrashing_pages)} pages by the driver's detector, ${knownCount(process.throttles)} throttles of ${optional(format.time)(process.throttled_ns)} in total`, [process.thrashing_pages, process.throttles, process.throttled_ns]],
    ["Remote", [`${knownBytes(process.remote_mapped_bytes)} in ${knownCount(process.remote_mappings)} mappings`, list(process.remote_mapped_bytes_by_cause, bytes)].filter(Boolean).join(": "), [process.remote_mapped_bytes, process.remote_mappings]],
    ["API calls", calls(process.api_calls_by_kind), [process.api_calls_by_kind]],
    ["Tool calls", calls(process.tool_calls_by_kind), [process.tool_calls_by_kind]],
  ].filter((row) => row.length < 3 || known(...row[2]));
  if (process.cgroup) rows.push(["Cgroup", format.printable(process.cgroup)]);
  if (process.dropped_events > 0) rows.push(["Dropped", `${count(process.dropped_events)} events: figures are lower bounds`]);
  element("sums").replaceChildren(...rows.flatMap(([title, text]) => [make("dt", { textContent: title }), make("dd", { textContent: text })]));
}

function reuse(counted) {
  if (counted === null) return format.NOT_COUNTED;
  const { fetched_bytes, refetched_bytes, cpu_reclaimed_bytes, bounces } = counted;
  if (fetched_bytes === 0) return "no bytes fetched";
  const { bytes, count, percent } = format;
  const of = (part) => `${bytes(part)} (${percent(part / fetched_bytes)})`;
  return `of ${bytes(fetched_bytes)} fetched, ${of(refetched_bytes)} refetched after eviction and ${of(cpu_reclaimed_bytes)} after a reclaim by a CPU; ${count(bounces)} bounces`;
}

// Copied bytes by cause, without causes that copied none; empty where causes are not counted.
function causes(byDirection) {
  if (byDirection === null) return [];
  const { htod, dtoh, dtod } = byDirection;
  return Object.keys(htod)
    .map((cause) => ({ cause: cause.replaceAll("_", " "), htod: htod[cause], dtoh: dtoh[cause], dtod: dtod[cause] }))
    .filter((row) => row.htod + row.dtoh + row.dtod > 0);
}

function losses(process) {
  const losses = [
    [process.block_records_sampled_out, "records sampled out"],
    [process.block_records_dropped, "records dropped for want of space"],
    [process.blocks_forgotten, "blocks forgotten at their limit"],
  ].filter(([count]) => count > 0);
  if (losses.length === 0) return process.blocks_known === 0 ? "No blocks known." : "";
  return `Figures of blocks are lower bounds: ${losses.map(([count, what]) => `${format.count(count)} ${what}`).join("; ")}.`;
}
