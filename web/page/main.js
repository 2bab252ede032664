// Asks the API every second and shows the answer.

import { counters, gpuColumns, gpuKey, matches, probeColumns, processColumns, processHref, processKey } from "./columns.js";
import * as detail from "./detail.js";
import * as format from "./format.js";
import { Rates } from "./rates.js";
import { Sparks } from "./spark.js";
import { Table } from "./table.js";
import { Tile } from "./tiles.js";

const INTERVAL_MS = 1000;
const PATIENCE_MS = 8000;

const element = (id) => document.getElementById(id);
const rates = new Rates();
const NODE = "node";

// === what is shown ===

const probeKey = (probe) => `probe ${probe.name}`;
const TRAFFIC = ["bytes_htod", "bytes_dtoh", "evicted_bytes"];
const sparks = new Sparks(["htod", "dtoh", "evicted"]);

const tables = {
  processes: new Table(element("processes"), processColumns(rates), () => showProcesses()),
  gpus: new Table(element("gpus"), gpuColumns(rates, sparks)),
  probes: new Table(element("probes"), probeColumns(rates, probeKey)),
  drops: new Table(element("drops"), [
    { title: "Not counted because", text: (drop) => drop.reason },
    { title: "Count", text: (drop) => format.count(drop.events), number: true },
  ]),
};

const tiles = [
  { title: "GPU faults", help: "GPU page faults a second", series: "faults", name: "fault_entries", rate: format.countRate, sum: format.count },
  { title: "To GPU", help: "Copied from host to GPU", series: "htod", name: "bytes_htod", rate: format.bytesRate, sum: format.bytes },
  { title: "To host", help: "Copied from GPU to host", series: "dtoh", name: "bytes_dtoh", rate: format.bytesRate, sum: format.bytes },
  { title: "Evicted", help: "Pushed out of GPU memory because it was needed", series: "evicted", name: "evicted_bytes", rate: format.bytesRate, sum: format.bytes },
].map((what) => ({ ...what, tile: new Tile(element("tiles"), what) }));

// === update ===

let answeredAt = null;

function show(status, processes) {
  answeredAt = Date.now();
  rates.record(performance.now(), [
    [NODE, counters(status.total)],
    ...processes.map((process) => [processKey(process), counters(process)]),
    ...status.gpus.map((gpu) => [gpuKey(gpu), counters(gpu)]),
    ...status.probes.map((probe) => [probeKey(probe), { hits: probe.hits }]),
  ]);

  showState(status);
  for (const { tile, name, rate, sum } of tiles) {
    // Nothing is known while nothing is counted; 0 would say that nothing happens.
    const now = status.state === "counting" ? rates.of(NODE, name) : null;
    tile.update(now, rate(now), `${sum(status.total[name])} in all`);
  }
  sparks.push(status.gpus.map((gpu) => [gpuKey(gpu), TRAFFIC.map((name) => rates.of(gpuKey(gpu), name))]));
  known = { processes, counting: status.state === "counting" };
  showProcesses();
  tables.gpus.update(status.gpus, gpuKey);
  tables.probes.update(status.probes, probeKey, (probe) => ({ faded: probe.missing !== null }));
  tables.drops.update(notCounted(status), (drop) => drop.reason);

  element("no-gpus").hidden = status.gpus.length > 0;
  element("no-probes").hidden = status.probes.length > 0;
  element("updated").textContent = `Updated ${new Date(answeredAt).toLocaleTimeString()}, every second`;
}

let known = { processes: [], counting: false };

function showProcesses() {
  const { processes, counting } = known;
  const filter = element("filter").value.trim();
  const wanted = processes.filter((process) => matches(process, filter));
  const look = (process) => ({ faded: process.state === "ended", open: processHref(process) === location.hash });
  tables.processes.update(busiestFirst(wanted), processKey, look);
  const running = processes.filter((process) => process.state === "running").length;
  element("process-count").textContent = filter === "" ? `${running} running` : `${wanted.length} of ${processes.length}`;
  element("no-processes").hidden = wanted.length > 0;
  element("no-processes").textContent =
    processes.length > 0 ? "None is as you look for." : counting ? "No process uses managed memory now." : "Nothing is counted yet.";
}

// Events, and the records that only the blocks of a process are made of.
function notCounted(status) {
  const reasons = Object.entries(status.dropped_events_by_reason);
  reasons.push(["block records: sampled_out", status.block_records_sampled_out], ["block records: dropped", status.block_records_dropped]);
  return reasons.map(([reason, events]) => ({ reason, events }));
}

// By what they do now; the API's own order, by what they did in all, decides between equals.
function busiestFirst(processes) {
  const PAGE_BYTES = 4096;
  const now = (process) => {
    const rate = (name) => rates.of(processKey(process), name) ?? 0;
    return rate("fault_entries") + (rate("bytes_htod") + rate("bytes_dtoh")) / PAGE_BYTES;
  };
  const ended = (process) => (process.state === "ended" ? 1 : 0);
  return processes
    .map((process) => ({ process, now: now(process) }))
    .sort((a, b) => ended(a.process) - ended(b.process) || b.now - a.now)
    .map(({ process }) => process);
}

function showState(status) {
  document.title = `${status.hostname} · uvmd`;
  element("hostname").textContent = format.printable(status.hostname);
  // A driver that is refused may have no known layout.
  const layout = status.layout ? ` (layout ${status.layout})` : "";
  const driver = status.driver ? [`driver ${status.driver}${layout}`] : [];
  element("watched").textContent = format.printable([status.version, ...driver, status.backend].join(" · "));
  if (status.state === "counting") {
    const since = (Date.parse(status.time) - Date.parse(status.counting_since)) / 1000;
    state("counting", `Counting for ${format.duration(since)}`);
    if (status.dropped_events > 0) {
      banner("warning", `${format.count(status.dropped_events)} events were not counted: figures are lower bounds.`, status.reasons);
    } else if (status.reasons.length > 0) {
      banner("warning", "Counting, but not all is known.", status.reasons);
    } else {
      banner(null);
    }
  } else if (status.state === "refused") {
    state("refused", "Not counting");
    banner("error", "This driver is not counted on.", status.reasons);
  } else {
    state("waiting", "Waiting");
    banner("warning", "Waiting, and looking again by itself. Missing:", status.reasons);
  }
}

function showSilence(error) {
  state("silent", "No answer");
  const since = answeredAt === null ? "" : ` for ${format.duration((Date.now() - answeredAt) / 1000)}; what is below is that old`;
  banner("error", `uvmd has not answered${since}.`, [String(error.message ?? error)]);
}

function state(name, text) {
  element("state").dataset.state = name;
  if (element("state").textContent !== text) element("state").textContent = text;
  document.body.classList.toggle("stale", name === "silent");
}

function banner(level, title = "", reasons = []) {
  element("banner").hidden = level === null;
  element("banner").dataset.level = level ?? "";
  const shown = [element("banner-title").textContent, ...[...element("banner-reasons").children].map((item) => item.textContent)];
  // Unchanged text is left alone, or screen readers would read it out every second.
  if (JSON.stringify(shown) === JSON.stringify([title, ...reasons])) return;
  element("banner-title").textContent = title;
  element("banner-reasons").replaceChildren(
    ...reasons.map((reason) => Object.assign(document.createElement("li"), { textContent: reason })),
  );
}

// === asking ===

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS) });
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(`${path}: ${body.detail ?? answer.status}`), { detail: body.detail });
  return body;
}

async function refresh() {
  try {
    const [status, { processes }] = await Promise.all([ask("/api/v1/status"), ask("/api/v1/processes")]);
    show(status, processes);
  } catch (error) {
    showSilence(error);
  }
  await refreshDetail();
}

async function refreshDetail() {
  const wanted = detail.wanted();
  if (wanted === null) return;
  try {
    const process = await ask(wanted.path);
    // The reader may have gone on to another meanwhile.
    if (detail.wanted()?.path === wanted.path) detail.show(process);
  } catch (error) {
    if (detail.wanted()?.path === wanted.path) detail.fail(String(error.detail ?? error.message ?? error));
  }
}

// A hidden page asks nothing.
const visible = () =>
  document.hidden ? new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true })) : null;

element("filter").addEventListener("input", showProcesses);
detail.watch(refreshDetail);
for (;;) {
  await visible();
  await refresh();
  await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
}
