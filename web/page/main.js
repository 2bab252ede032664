// Asks the API every second and shows the answer.

import { ask } from "./api.js";
import * as authority from "./authority.js";
import * as cards from "./cards.js";
import { counters, gpuColumns, gpuKey, matches, probeColumns, processColumns, processHref, processKey } from "./columns.js";
import * as decisions from "./decisions.js";
import * as detail from "./detail.js";
import { element, say } from "./dom.js";
import * as format from "./format.js";
import { list, more } from "./lists.js";
import * as marks from "./marks.js";
import * as matrix from "./matrix.js";
import { Rates } from "./rates.js";
import { Rounds } from "./rounds.js";
import * as state from "./status.js";
import { Table } from "./table.js";
import { Tile } from "./tiles.js";
import * as verdicts from "./verdicts.js";
import * as words from "./words.js";

const rates = new Rates();
const NODE = "node";

// === what is shown ===

const probeKey = (probe) => `probe ${probe.name}`;
const rateOf = (gpu, name) => rates.of(gpuKey(gpu), name);

let known = { processes: [], remaining: 0, counting: false, verdicts: { time: "", active: [], ended: [], unavailable: [] } };
const headlineOf = (process) => words.headline(process, known.verdicts.time);

const tables = {
  processes: new Table(element("processes"), processColumns(rates, headlineOf), () => showProcesses()),
  gpus: new Table(element("gpus"), gpuColumns(rates)),
  probes: new Table(element("probes"), probeColumns(rates, probeKey)),
  drops: new Table(element("drops"), [
    { title: "Reason of drop", text: (drop) => drop.reason },
    { title: "Count", text: (drop) => format.count(drop.events), number: true },
  ]),
};

const tiles = [
  { title: "GPU faults", help: "GPU page faults per second", series: "fault_entries", rate: format.countRate, sum: format.count },
  { title: "To GPU", help: "Copied from host to GPU", series: "bytes_htod", rate: format.bytesRate, sum: format.bytes },
  { title: "To host", help: "Copied from GPU to host", series: "bytes_dtoh", rate: format.bytesRate, sum: format.bytes },
  { title: "Evicted", help: "Evicted from GPU memory to free it", series: "evicted_bytes", rate: format.bytesRate, sum: format.bytes },
].map((what) => ({ ...what, tile: new Tile(element("tiles"), what) }));

function show(status, { processes, remaining }, { gpus }, judged, evictions, decided, policy) {
  rates.record(performance.now(), [
    [NODE, counters(status.total)],
    ...processes.map((process) => [processKey(process), counters(process)]),
    ...status.gpus.map((gpu) => [gpuKey(gpu), counters(gpu)]),
    ...status.probes.map((probe) => [probeKey(probe), { hits: probe.hits }]),
  ]);
  state.show(status);
  authority.show(status.can_read);
  const now = Date.parse(status.time);
  const doneAt = (uuid) => marks.of(decided.decisions.filter(({ gpu_uuid }) => gpu_uuid === uuid));
  const done = marks.of(decided.decisions);
  for (const { tile, series, rate, sum } of tiles) {
    // Nothing is known while nothing is counted; 0 would say that nothing happens.
    const lately = status.state === "counting" ? rates.of(NODE, series) : null;
    tile.update(lately, rate(lately), `${sum(status.total[series])} in total`, done, now);
  }
  known = { processes, remaining, counting: status.state === "counting", verdicts: judged };
  cards.show(gpus, rateOf, doneAt, now, (uuid) => ask(`/api/v1/gpus/${uuid}/history?seconds=120`));
  verdicts.show(judged, known.counting);
  decisions.show(decided, policy);
  if (restIsDue) matrix.show(evictions);
  showProcesses();
  tables.gpus.update(gpus, gpuKey);
  tables.probes.update(status.probes, probeKey, (probe) => ({ faded: probe.unavailable_reason !== null }));
  tables.drops.update(notCounted(status), (drop) => drop.reason);
  element("no-gpus").hidden = gpus.length > 0;
  element("no-probes").hidden = status.probes.length > 0;
}

function showProcesses() {
  const { processes, remaining, counting } = known;
  const filter = element("filter").value.trim();
  const wanted = processes.filter((process) => matches(process, filter, headlineOf(process)));
  const look = (process) => ({ faded: process.state === "exited", open: processHref(process) === location.hash });
  tables.processes.update(busiestFirst(wanted), processKey, look);
  const running = processes.filter((process) => process.state === "running").length;
  const shown = filter === "" ? `${running} running` : `${wanted.length} of ${processes.length}`;
  say(element("process-count"), `${shown} ${more({ remaining })}`.trim());
  element("no-processes").hidden = wanted.length > 0;
  say(element("no-processes"), processes.length > 0 ? "None is as you look for." : counting ? "No process uses managed memory now." : "Nothing is counted yet.");
}

// Events, and the records that only the blocks of a process are made of.
function notCounted(status) {
  const reasons = Object.entries(status.dropped_events_by_reason);
  reasons.push(["block records: sampled_out", status.block_records_sampled_out], ["block records: dropped", status.block_records_dropped]);
  return reasons.map(([reason, events]) => ({ reason, events }));
}

const PAGE_BYTES = 4096;

// What a process did, in pages faulted on and copied.
function inAll({ fault_entries, bytes_htod, bytes_dtoh }) {
  return fault_entries + (bytes_htod + bytes_dtoh) / PAGE_BYTES;
}

// By what they do now; the API's own order, by what they did in all, decides between equals.
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

// === asking ===

// What moves, and what is asked for only every other time.
const MOVING = ["status", "processes/summary"];
const REST = ["gpus", "verdicts", "evictions", "decisions?limit=1000", "policy"];
// Those that may have many pages, with the fields of their items, and what compares two by activity, as the API does.
const mostOf = (value) => (a, b) => value(b) - value(a);
const LISTS = {
  "processes/summary": { processes: mostOf(inAll) },
  verdicts: {
    active: mostOf(({ inputs }) => inputs.bytes_htod + inputs.bytes_dtoh + inputs.populated_bytes),
    ended: mostOf(({ ended_at }) => Date.parse(ended_at)),
  },
  evictions: { pairs: mostOf(({ bytes }) => bytes) },
};
let rest = null;
let restIsDue = true;

async function refresh() {
  try {
    const asked = restIsDue ? [...MOVING, ...REST] : MOVING;
    const [status, processes, ...answers] = await Promise.all(asked.map((what) => (what in LISTS ? list(ask, `/api/v1/${what}`, LISTS[what]) : ask(`/api/v1/${what}`))));
    if (restIsDue) rest = answers;
    show(status, processes, ...rest);
    restIsDue = !restIsDue;
  } catch (error) {
    restIsDue = true;
    if (!authority.refused(error)) state.showSilence(error);
  }
}

const rounds = new Rounds();
rounds.every(1000, refresh);
detail.watch(rounds);
authority.watch(() => rounds.hurry());
element("filter").addEventListener("input", showProcesses);
await rounds.run();
