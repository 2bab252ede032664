// Polls the API every second, and shows the responses.

import { hasToken, request } from "./api.js";
import * as auth from "./auth.js";
import * as cards from "./cards.js";
import { counters, gpuColumns, gpuKey, matches, probeColumns, processColumns, processKey } from "./columns.js";
import * as decisions from "./decisions.js";
import * as detail from "./detail.js";
import { addressed, element, followLinks, go, processId, setText } from "./dom.js";
import * as format from "./format.js";
import { list, more } from "./lists.js";
import * as marks from "./marks.js";
import * as matrix from "./matrix.js";
import * as ownerSums from "./owner.js";
import { Rates } from "./rates.js";
import { Rounds } from "./rounds.js";
import { sum } from "./samples.js";
import * as state from "./status.js";
import { Table } from "./table.js";
import { Tile } from "./tiles.js";
import * as verdicts from "./verdicts.js";
import * as words from "./words.js";

const rates = new Rates();
const NODE = "node";

// === content ===

const probeKey = (probe) => `probe ${probe.name}`;
const rateOf = (gpu, name) => rates.of(gpuKey(gpu), name);

// Null until the first responses.
let latest = null;
const headlineOf = (process) => words.headline(process, latest.verdicts.time);

const tables = {
  processes: new Table(element("processes"), processColumns(rates, headlineOf), (sort) => go({ sort }, "replaceState")),
  gpus: new Table(element("gpus"), gpuColumns(rates)),
  probes: new Table(element("probes"), probeColumns(rates, probeKey)),
  drops: new Table(element("drops"), [
    { title: "Reason of drop", text: (drop) => drop.reason },
    { title: "Count", text: (drop) => format.count(drop.events), number: true },
  ]),
};

const tiles = [
  { title: "GPU faults", help: "GPU page faults per second", series: "fault_entries", rate: format.countRate, total: format.count },
  { title: "To GPU", help: "Copied from host to GPU", series: "bytes_htod", rate: format.bytesRate, total: format.bytes },
  { title: "To host", help: "Copied from GPU to host", series: "bytes_dtoh", rate: format.bytesRate, total: format.bytes },
  { title: "Evicted", help: "Evicted from GPU memory to free it", series: "evicted_bytes", rate: format.bytesRate, total: format.bytes },
].map((options) => ({ ...options, tile: new Tile(element("tiles"), options) }));

function show(status, { processes, remaining }, { gpus }, verdictList, evictions, decisionList, policy) {
  rates.record(performance.now(), [
    [NODE, counters(status.total)],
    ...processes.map((process) => [processKey(process), counters(process)]),
    ...status.gpus.map((gpu) => [gpuKey(gpu), counters(gpu)]),
    ...status.probes.map((probe) => [probeKey(probe), { hits: probe.hits }]),
  ]);
  state.show(status);
  auth.show(status.can_read);
  const doneAt = (uuid) => marks.of(decisionList.decisions.filter(({ gpu_uuid }) => gpu_uuid === uuid));
  const done = marks.of(decisionList.decisions);
  for (const { tile, series, rate, total } of tiles) {
    // Rates are unknown, not 0, while uvmd does not count.
    const current = status.state === "counting" ? rates.of(NODE, series) : null;
    const counted = status.total[series];
    tile.update(rate(current), counted === null ? null : total(counted), done);
  }
  latest = { processes, remaining, counting: status.state === "counting", verdicts: verdictList };
  cards.show(gpus, rateOf, doneAt);
  plotGpus(gpus.map(({ uuid }) => uuid).filter((uuid) => uuid !== null));
  verdicts.show(verdictList, latest.counting, evictions.unavailable === null);
  decisions.show(decisionList, policy);
  if (slowIsDue) matrix.show(evictions);
  showProcesses();
  tables.gpus.update(gpus, gpuKey);
  tables.probes.update(status.probes, probeKey, (probe) => ({ faded: probe.unavailable_reason !== null }));
  tables.drops.update(drops(status), (drop) => drop.reason);
  element("no-gpus").hidden = gpus.length > 0;
  setText(element("no-gpus"), "No GPU seen yet. A GPU appears when a process first uses it for managed memory.");
  element("no-probes").hidden = status.probes.length > 0;
  setText(element("no-probes"), "No probe is attached.");
  marks.advance(Date.parse(status.time));
}

function showProcesses() {
  if (latest === null) return;
  const { processes, remaining, counting } = latest;
  const [filter, owner, open] = [(addressed("filter") ?? "").trim(), addressed("owner"), addressed("process")];
  const matching = processes.filter((process) => (owner === null || words.ownerKey(process) === owner) && matches(process, filter, headlineOf(process)));
  const rowClasses = (process) => ({ faded: process.state === "exited", open: processId(process) === open });
  tables.processes.update(busiestFirst(matching), processKey, rowClasses);
  const running = processes.filter((process) => process.state === "running").length;
  element("owner-filter").hidden = owner === null;
  // The name of an owner without processes is not known.
  if (owner !== null) setText(element("owner-name"), matching.length > 0 ? words.owner(matching[0]) : format.printable(owner));
  const shown = filter === "" && owner === null ? `${running} running` : `${matching.length} of ${processes.length}`;
  setText(element("process-count"), `${shown} ${more({ remaining })}`.trim());
  element("no-processes").hidden = matching.length > 0;
  setText(element("no-processes"), processes.length > 0 ? "No process matches the filter." : counting ? "No process uses managed memory now." : "uvmd does not count yet.");
}

// Dropped events, and dropped block records, on which only the figures of blocks rest.
function drops(status) {
  const reasons = Object.entries(status.dropped_events_by_reason);
  reasons.push(["block records: sampled_out", status.block_records_sampled_out], ["block records: dropped", status.block_records_dropped]);
  return reasons.map(([reason, events]) => ({ reason, events }));
}

const PAGE_BYTES = 4096;

// Activity of a process in total: pages faulted on and copied.
function totalActivity({ fault_entries, bytes_htod, bytes_dtoh }) {
  return fault_entries + (bytes_htod + bytes_dtoh) / PAGE_BYTES;
}

// Sorts by current activity; the API's order, by total activity, decides between equals.
function busiestFirst(processes) {
  const now = (process) => {
    const rate = (name) => rates.of(processKey(process), name) ?? 0;
    return rate("fault_entries") + (rate("bytes_htod") + rate("bytes_dtoh")) / PAGE_BYTES;
  };
  const ended = (process) => (process.state === "exited" ? 1 : 0);
  return processes
    .map((process) => ({ process, now: now(process) }))
    .sort((a, b) => ended(a.process) - ended(b.process) || b.now - a.now)
    .map(({ process }) => process);
}

// === polling ===

// Paths of every round, and those of every other round.
const FAST = ["status", "processes/summary"];
const SLOW = ["gpus", "verdicts", "evictions", "decisions?limit=1000", "policy"];
// Lists that may have many pages, with a comparison by activity of each field, as in the API.
const descending = (value) => (a, b) => value(b) - value(a);
const LISTS = {
  "processes/summary": { processes: descending(totalActivity) },
  verdicts: {
    active: descending(({ inputs }) => inputs.bytes_htod + inputs.bytes_dtoh + inputs.populated_bytes),
    ended: descending(({ ended_at }) => Date.parse(ended_at)),
  },
  evictions: { pairs: descending(({ bytes }) => bytes) },
};
let slow = null;
let slowIsDue = true;

async function refresh() {
  try {
    const paths = slowIsDue ? [...FAST, ...SLOW] : FAST;
    const [status, processes, ...responses] = await Promise.all(paths.map((path) => (path in LISTS ? list(request, `/api/v1/${path}`, LISTS[path]) : request(`/api/v1/${path}`))));
    if (slowIsDue) slow = responses;
    show(status, processes, ...slow);
    slowIsDue = !slowIsDue;
  } catch (error) {
    slowIsDue = true;
    if (!auth.tokenRejected(error)) state.showNoResponse(error);
  }
}

// === charts ===

let plotted = [];

// Requests the history of new GPUs at once.
function plotGpus(uuids) {
  if (uuids.join() === plotted.join()) return;
  plotted = uuids;
  rounds.pollNow([plots]);
}

// Shows the history of each GPU, and their sum as that of the node. Small charts need half of the
// samples.
async function plot() {
  const historyOf = (uuid) => request(`/api/v1/gpus/${uuid}/history?${marks.query(0.5)}`);
  const results = await Promise.allSettled(plotted.map(historyOf));
  // A GPU may be gone; an error of all is that of `refresh`.
  const histories = results.filter(({ status }) => status === "fulfilled").map(({ value }) => value);
  results.forEach(({ status, value }, at) => status === "fulfilled" && cards.plot(plotted[at], value));
  if (histories.length > 0) for (const { tile } of tiles) tile.plot(sum(histories));
}

const rounds = new Rounds();
rounds.every(1000, refresh);
const plots = rounds.every(marks.everyMs, plot);
const ownerPoll = rounds.every(2000, ownerSums.poll);
const pollHistory = detail.watch(rounds);
marks.watch(() => {
  rounds.pollNow([plots]);
  pollHistory();
});
auth.watch(() => {
  if (!hasToken()) detail.clear();
  rounds.pollNow();
});

let isPaused = false;
element("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  rounds.pause(isPaused);
  marks.pause(isPaused);
  state.pause(isPaused);
});

element("filter").addEventListener("input", () => go({ filter: element("filter").value || null }, "replaceState"));
element("owner-clear").addEventListener("click", () => {
  go({ owner: null });
  element("filter").focus();
});
// Shows the selection of the address.
let owned = null;
function follow() {
  if (addressed("owner") !== owned) rounds.pollNow([ownerPoll]);
  owned = addressed("owner");
  const filter = addressed("filter") ?? "";
  if (element("filter").value !== filter) element("filter").value = filter;
  tables.processes.sortBy(addressed("sort"));
  showProcesses();
}
followLinks();
addEventListener("hashchange", follow);
follow();
await rounds.run();
