// Asks the API every second and shows the answer.

import * as format from "./format.js";
import { Rates } from "./rates.js";
import { Table } from "./table.js";
import { Tile } from "./tiles.js";

const INTERVAL_MS = 1000;
const PATIENCE_MS = 8000;

const element = (id) => document.getElementById(id);
const rates = new Rates();
const NODE = "node";

// === what is shown ===

const processKey = (process) => `process ${process.pid} ${process.start_ticks}`;
// The driver's number goes from one GPU to another, so it names only those whose UUID is not known.
const gpuKey = (gpu) => `gpu ${gpu.uuid ?? gpu.gpu}`;
const probeKey = (probe) => `probe ${probe.name}`;

const rateColumns = (key) => [
  { title: "Faults/s", help: "GPU page faults a second", text: (item) => format.countRate(rates.of(key(item), "fault_entries")), number: true },
  { title: "To GPU", help: "Bytes a second copied from host to GPU", text: (item) => format.bytesRate(rates.of(key(item), "bytes_htod")), number: true },
  { title: "To host", help: "Bytes a second copied from GPU to host", text: (item) => format.bytesRate(rates.of(key(item), "bytes_dtoh")), number: true },
  { title: "Evicted", help: "Bytes a second pushed out of GPU memory because it was needed", text: (item) => format.bytesRate(rates.of(key(item), "evicted_bytes")), number: true },
];

const total = (title, help, text) => ({ title, help, text, number: true, minor: true, total: true });
const totalColumns = [
  total("Faults", "GPU page faults in all", (item) => format.count(item.fault_entries)),
  total("To GPU, all", "Bytes copied from host to GPU in all", (item) => format.bytes(item.bytes_htod)),
  total("To host, all", "Bytes copied from GPU to host in all", (item) => format.bytes(item.bytes_dtoh)),
  total("Evicted, all", "Bytes pushed out of GPU memory in all", (item) => format.bytes(item.evicted_bytes)),
];

const cpuFaults = total("CPU faults", "Faults of CPUs on managed memory in all", (item) => format.count(item.cpu_faults));

const tables = {
  processes: new Table(element("processes"), [
    { title: "Process", text: (process) => format.printable(process.name), detail: processDetail },
    ...rateColumns(processKey),
    totalColumns[0],
    cpuFaults,
    ...totalColumns.slice(1),
  ]),
  gpus: new Table(element("gpus"), [
    { title: "GPU", text: (gpu) => `${gpu.gpu ?? "-"} ${format.printable(gpu.name ?? "")}`.trim(), detail: (gpu) => gpu.uuid ?? "UUID not known" },
    ...rateColumns(gpuKey),
    ...totalColumns,
  ]),
  probes: new Table(element("probes"), [
    { title: "Probe", text: (probe) => probe.name },
    { title: "Hits/s", text: (probe) => format.countRate(rates.of(probeKey(probe), "hits")), number: true },
    { title: "Hits", text: (probe) => format.count(probe.hits), number: true },
    { title: "Time a hit", text: timeAHit, number: true },
  ]),
  drops: new Table(element("drops"), [
    { title: "Dropped because", text: (drop) => drop.reason },
    { title: "Count", text: (drop) => format.count(drop.events), number: true },
  ]),
};

const tiles = [
  { title: "GPU faults", help: "GPU page faults a second", series: "faults", name: "fault_entries", rate: format.countRate, sum: format.count },
  { title: "To GPU", help: "Copied from host to GPU", series: "htod", name: "bytes_htod", rate: format.bytesRate, sum: format.bytes },
  { title: "To host", help: "Copied from GPU to host", series: "dtoh", name: "bytes_dtoh", rate: format.bytesRate, sum: format.bytes },
  { title: "Evicted", help: "Pushed out of GPU memory because it was needed", series: "evicted", name: "evicted_bytes", rate: format.bytesRate, sum: format.bytes },
].map((what) => ({ ...what, tile: new Tile(element("tiles"), what) }));

function processDetail(process) {
  const gpus = process.gpus.map((gpu) => gpu.gpu ?? gpu.uuid).join(", ");
  const parts = [`pid ${process.pid}`, format.printable(process.user ?? `uid ${process.uid}`)];
  if (gpus) parts.push(`GPU ${gpus}`);
  if (process.state === "ended") parts.push("ended");
  return parts.join(" · ");
}

function timeAHit(probe) {
  if (probe.run_time_ns === null || probe.hits === 0) return "–";
  return `${format.count(probe.run_time_ns / probe.hits)} ns`;
}

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
  tables.processes.update(busiestFirst(processes), processKey, (process) => process.state === "ended");
  tables.gpus.update(status.gpus, gpuKey);
  tables.probes.update(status.probes, probeKey);
  tables.drops.update(Object.entries(status.dropped_events_by_reason).map(([reason, events]) => ({ reason, events })), (drop) => drop.reason);

  const running = processes.filter((process) => process.state === "running").length;
  element("process-count").textContent = `${running} running`;
  element("no-processes").hidden = processes.length > 0;
  element("no-processes").textContent =
    status.state === "counting" ? "No process uses managed memory now." : "Nothing is counted yet.";
  element("no-gpus").hidden = status.gpus.length > 0;
  element("no-probes").hidden = status.probes.length > 0;
  element("updated").textContent = `Updated ${new Date(answeredAt).toLocaleTimeString()}, every second`;
}

const COUNTED = ["fault_entries", "bytes_htod", "bytes_dtoh", "evicted_bytes"];
const counters = (counts) => Object.fromEntries(COUNTED.map((name) => [name, counts[name]]));

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
  if (!answer.ok) throw new Error(`${path}: ${body.detail ?? answer.status}`);
  return body;
}

async function refresh() {
  try {
    const [status, { processes }] = await Promise.all([ask("/api/v1/status"), ask("/api/v1/processes")]);
    show(status, processes);
  } catch (error) {
    showSilence(error);
  }
}

// A hidden page asks nothing.
const visible = () =>
  document.hidden ? new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true })) : null;

for (;;) {
  await visible();
  await refresh();
  await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
}
