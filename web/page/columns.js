// What the tables of processes and GPUs show.

import * as format from "./format.js";
import * as words from "./words.js";

// The counters whose rates are shown.
const COUNTED = [
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

export const counters = (counts) => Object.fromEntries(COUNTED.map((name) => [name, counts[name]]));

export const processKey = (process) => `process ${process.pid} ${process.start_ticks}`;
// The driver's number goes from one GPU to another, so it names only those whose UUID is not known.
export const gpuKey = (gpu) => `gpu ${gpu.uuid ?? gpu.processor_id}`;

// A number: `value` of an item, which may be null, as `show` writes it.
const figure = (title, help, value, show, room = {}) => ({ title, help, value, text: (item) => show(value(item)), number: true, ...room });
const minor = { minor: true };
const rare = { rare: true };

const quantile = (name, quantile) => (item) => (item[name].count === 0 ? null : item[name][quantile]);

// The columns of both, by the rates of what `key` names.
function shared(rates, key) {
  const rate = (name) => (item) => rates.of(key(item), name);
  return {
    faults: figure("Faults/s", "GPU page faults per second", rate("fault_entries"), format.countRate),
    batches: figure("Batches/s", "GPU fault batches per second", rate("batches"), format.countRate, minor),
    p99: figure("Batch p99", "99th percentile of batch durations since uvmd started", quantile("batch_duration_ns", "p99"), format.optional(format.time), minor),
    replays: figure("Replays/s", "Replays of faulted accesses per second", rate("replays"), format.countRate, rare),
    htod: figure("To GPU", "Bytes per second copied from host to GPU", rate("bytes_htod"), format.bytesRate),
    dtoh: figure("To host", "Bytes per second copied from GPU to host", rate("bytes_dtoh"), format.bytesRate),
    evicted: figure("Evicted", "Bytes per second evicted from GPU memory", rate("evicted_bytes"), format.bytesRate),
    thrash: figure("Thrash/s", "Thrashing pages per second by the driver's detector, which ignores evictions", rate("thrashing_pages"), format.countRate, rare),
    throttled: figure("Throttled", "Share of time in throttles by the driver; several at once add up", rate("throttled_ns"), format.shareOfTime, rare),
    remote: figure("Remote", "Bytes per second mapped remotely", rate("remote_mapped_bytes"), format.bytesRate, rare),
  };
}

// `headlineOf(process)` is its diagnosis in words, or null.
export function processColumns(rates, headlineOf) {
  const { faults, batches, p99, htod, dtoh, evicted, thrash, throttled, remote } = shared(rates, processKey);
  const rate = (name) => (process) => rates.of(processKey(process), name);
  return [
    { title: "Process", value: (process) => process.name, text: (process) => format.printable(process.name), detail: processDetail, href: processHref, named: true },
    {
      title: "Verdict",
      help: "Worst verdict, or evictor, and its age",
      value: (process) => headlineOf(process)?.rank ?? 0,
      text: (process) => headlineOf(process)?.text ?? "–",
      detail: (process) => headlineOf(process)?.age ?? "",
      hint: (process) => headlineOf(process)?.help ?? "",
      tone: (process) => headlineOf(process)?.tone ?? "",
    },
    { title: "Owner", help: "Pod, job, container, unit or user, by its cgroup", value: words.owner, text: words.owner, hint: (process) => words.wholeOwner(process.owner), named: true },
    figure("Managed", "Managed memory mapped, touched or not", (process) => process.managed_bytes, format.optional(format.bytes), minor),
    { ...figure("Resident", "Resident bytes: an estimate with bounds", (process) => process.resident?.bytes ?? null, format.optional(format.bytes)), hint: (process) => words.bounds(process.resident) },
    faults,
    { ...batches, ...rare },
    { ...p99, ...rare },
    htod,
    { ...dtoh, spare: true },
    evicted,
    figure("Induced", "Bytes per second of any process evicted for this one", rate("induced_eviction_bytes"), format.bytesRate, rare),
    thrash,
    throttled,
    remote,
    figure("Calls/s", "Prefetch and advice calls of the process per second", rate("api_calls"), format.countRate, rare),
  ];
}

export function gpuColumns(rates) {
  const { faults, batches, p99, replays, htod, dtoh, evicted, thrash, throttled, remote } = shared(rates, gpuKey);
  return [
    { title: "GPU", text: (gpu) => `${words.gpu(gpu.uuid)} ${format.printable(gpu.name ?? "")}`.trim(), detail: (gpu) => gpu.uuid ?? "UUID not known" },
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

const timeAHit = (probe) => (probe.run_time_ns === null || probe.hits === 0 ? null : probe.run_time_ns / probe.hits);

export const probeColumns = (rates, key) => [
  { title: "Probe", text: (probe) => probe.name, detail: (probe) => probe.unavailable_reason ?? "" },
  figure("Hits/s", "", (probe) => rates.of(key(probe), "hits"), format.countRate),
  figure("Hits", "", (probe) => probe.hits, format.count),
  figure("Time a hit", "", timeAHit, format.optional(format.time)),
];

export const processHref = (process) => `#process=${process.pid}.${process.start_ticks}`;

function processDetail(process) {
  const parts = [`pid ${process.pid}`, format.printable(process.user ?? `uid ${process.uid}`), ...process.gpus.map((gpu) => words.gpu(gpu.uuid))];
  if (process.state === "exited") parts.push("exited");
  return parts.join(" · ");
}

// Whether what a reader looks for is in what is known of a process.
export function matches(process, text, headline) {
  const { pid, name, user, uid, cgroup, gpus, owner } = process;
  const known = [pid, name, user ?? uid, cgroup ?? "", owner.id, words.owner(process), headline?.text ?? "", ...gpus.flatMap((gpu) => [gpu.uuid ?? "", words.gpu(gpu.uuid)])];
  return known.some((part) => String(part).toLowerCase().includes(text.toLowerCase()));
}
