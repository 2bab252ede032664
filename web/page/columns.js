// Columns of the tables of processes, GPUs and probes.

import { fragment, processHref } from "./dom.js";
import * as format from "./format.js";
import * as words from "./words.js";

// Counters whose rates are shown.
const COUNTERS = [
  "fault_entries",
  "batches",
  "replays",
  "bytes_htod",
  "bytes_dtoh",
  "evicted_bytes",
  "induced_eviction_bytes",
  "thrashing_pages",
  "throttled_ns",
  "remote_mapped_bytes",
  "api_calls",
];

export const counters = (counts) => Object.fromEntries(COUNTERS.map((name) => [name, counts[name]]));

export const processKey = (process) => `process ${process.pid} ${process.start_ticks}`;
// The driver's processor ids are reused, so they identify GPUs without a known UUID only.
export const gpuKey = (gpu) => `gpu ${gpu.uuid ?? gpu.processor_id}`;

// Column of a number: `value` of an item, which may be null, as formatted by `show`.
const figure = (title, help, value, show, room = {}) => ({ title, help, value, text: (item) => show(value(item)), number: true, ...room });
const minor = { minor: true };
const rare = { rare: true };

// Null without batches, and where the source does not count them.
const quantile = (name, quantile) => (item) => ((item[name]?.count ?? 0) === 0 ? null : item[name][quantile]);

// Column of a counter's rate, by the rates of `key`; hidden where the counter is not counted.
const rateColumn = (rates, key) => (title, help, name, show, room = {}) =>
  figure(title, help, (item) => rates.of(key(item), name), show, { known: format.isKnown(name), ...room });

// Columns of processes and GPUs, by the rates of `key`.
function shared(rates, key) {
  const rate = rateColumn(rates, key);
  return {
    faults: rate("Faults/s", "GPU page faults per second", "fault_entries", format.countRate),
    batches: rate("Batches/s", "GPU fault batches per second", "batches", format.countRate, minor),
    p99: figure("Batch p99", "99th percentile of batch durations since uvmd started", quantile("batch_duration_ns", "p99"), format.optional(format.time), { known: format.isKnown("batch_duration_ns"), ...minor }),
    replays: rate("Replays/s", "Replays of faulted accesses per second", "replays", format.countRate, rare),
    htod: rate("To GPU", "Bytes per second copied from host to GPU", "bytes_htod", format.bytesRate),
    dtoh: rate("To host", "Bytes per second copied from GPU to host", "bytes_dtoh", format.bytesRate),
    evicted: rate("Evicted", "Bytes per second evicted from GPU memory", "evicted_bytes", format.bytesRate),
    thrash: rate("Thrash/s", "Thrashing pages per second by the driver's detector, which ignores evictions", "thrashing_pages", format.countRate, rare),
    throttled: rate("Throttled", "Share of time in throttles by the driver; several at once add up", "throttled_ns", format.shareOfTime, rare),
    remote: rate("Remote", "Bytes per second mapped remotely", "remote_mapped_bytes", format.bytesRate, rare),
  };
}

// `headlineOf(process)` is the diagnosis in words, or null.
export function processColumns(rates, headlineOf) {
  const { faults, batches, p99, htod, dtoh, evicted, thrash, throttled, remote } = shared(rates, processKey);
  const rate = rateColumn(rates, processKey);
  return [
    { title: "Process", value: (process) => process.name, text: (process) => format.printable(process.name), detail: processDetail, href: (process) => processHref(process), named: true },
    {
      title: "Verdict",
      help: "Worst verdict, or evictor, and its age; a link to the evidence, or to the evictor",
      value: (process) => headlineOf(process)?.rank ?? 0,
      text: (process) => headlineOf(process)?.text ?? "–",
      detail: (process) => headlineOf(process)?.age ?? "",
      hint: (process) => headlineOf(process)?.help ?? "",
      tone: (process) => headlineOf(process)?.tone ?? "",
      href: (process) => headlineOf(process)?.href ?? null,
    },
    {
      title: "Owner",
      help: "Pod, job, container, unit or user, by its cgroup; a link to its processes",
      value: words.owner,
      text: words.owner,
      hint: (process) => words.fullOwner(process.owner),
      href: (process) => (words.ownerKey(process) === "" ? null : fragment({ owner: words.ownerKey(process) })),
      named: true,
    },
    figure("Managed", "Managed memory mapped, touched or not", (process) => process.managed_bytes, format.optional(format.bytes), minor),
    { ...figure("Resident", "Resident bytes: an estimate with bounds", (process) => process.resident?.bytes ?? null, format.optional(format.bytes)), hint: (process) => words.bounds(process.resident), known: format.isKnown("resident") },
    faults,
    { ...batches, ...rare },
    { ...p99, ...rare },
    htod,
    { ...dtoh, spare: true },
    evicted,
    rate("Induced", "Bytes per second of any process evicted for this one", "induced_eviction_bytes", format.bytesRate, rare),
    thrash,
    throttled,
    remote,
    rate("Calls/s", "Prefetch and advice calls of the process per second", "api_calls", format.countRate, rare),
  ];
}

export function gpuColumns(rates) {
  const { faults, batches, p99, replays, htod, dtoh, evicted, thrash, throttled, remote } = shared(rates, gpuKey);
  return [
    { title: "GPU", text: (gpu) => `${words.gpu(gpu.uuid)} ${format.printable(gpu.name ?? "")}`.trim(), detail: (gpu) => gpu.uuid ?? "UUID unknown" },
    faults,
    batches,
    p99,
    replays,
    htod,
    dtoh,
    evicted,
    thrash,
    throttled,
    remote,
  ];
}

const timePerHit = (probe) => (probe.run_time_ns === null || probe.hits === 0 ? null : probe.run_time_ns / probe.hits);

export const probeColumns = (rates, key) => [
  { title: "Probe", text: (probe) => probe.name, detail: (probe) => probe.unavailable_reason ?? "" },
  figure("Hits/s", "", (probe) => rates.of(key(probe), "hits"), format.countRate),
  figure("Hits", "", (probe) => probe.hits, format.count),
  figure("Time/hit", "", timePerHit, format.optional(format.time)),
];

function processDetail(process) {
  const parts = [`pid ${process.pid}`, format.printable(process.user ?? `uid ${process.uid}`), ...process.gpus.map((gpu) => words.gpu(gpu.uuid))];
  if (process.state === "exited") parts.push("exited");
  return parts.join(" · ");
}

// Whether a text of a process's row contains the filter's text.
export function matches(process, text, headline) {
  const { pid, name, user, uid, cgroup, gpus, owner } = process;
  const texts = [pid, name, user ?? uid, cgroup ?? "", owner.id, words.owner(process), headline?.text ?? "", ...gpus.flatMap((gpu) => [gpu.uuid ?? "", words.gpu(gpu.uuid)])];
  return texts.some((part) => String(part).toLowerCase().includes(text.toLowerCase()));
}
