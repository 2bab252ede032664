// Names and descriptions of verdicts, owners, GPUs, patterns and plans; the names are those of uvmctl.

import { processHref } from "./dom.js";
import * as format from "./format.js";

// === verdicts ===

const KINDS = {
  capacity_thrash: ["capacity thrash", "Evicted memory is fetched again: more memory is in use than the GPU holds"],
  ping_pong: ["ping-pong", "Memory goes back and forth between a CPU and a GPU that both use it"],
  driver_throttling: ["throttled", "The driver throttles processors, or pins pages, because pages bounce"],
  streaming: ["streaming", "More memory than the GPU holds is used once: evictions, but hardly any refetches"],
  first_touch_storm: ["first touches", "Faults come from memory that is touched for the first time"],
};

export const kind = (name) => KINDS[name]?.[0] ?? format.printable(name.replaceAll("_", " "));
export const meaning = (name) => KINDS[name]?.[1] ?? "";
export const tone = ({ thrashing }) => (thrashing ? "bad" : "odd");

export const same = (one, other) => one.pid === other.pid && one.start_ticks === other.start_ticks;
export const seconds = (from, to) => (Date.parse(to) - Date.parse(from)) / 1000;

// Measured effect of a decision, or the expected one: of faults where no fewer link bytes are expected.
export function effect({ link_bytes_saved, faults_saved, expected }) {
  const change = (saved) => `${saved > 0 ? "−" : "+"}${Math.abs(saved * 100).toFixed(0)}\u2009%`;
  const figures = [["link", link_bytes_saved, expected.link_bytes_saved], ["faults", faults_saved, expected.faults_saved]];
  if (expected.link_bytes_saved.at_most <= 0 && expected.faults_saved.at_most > 0) figures.reverse();
  const known = figures.find(([, saved]) => saved !== null);
  if (known) return `${known[0]} ${change(known[1])}`;
  const [figure, , { at_least, at_most }] = figures[0];
  // No lower bound that says nothing.
  return at_least === 0 ? `${figure} up to ${change(at_most)}` : `${figure} ${change(at_least)} to ${change(at_most)}`;
}

// Diagnosis in words, with tone, rank for sorting, and the address of its evidence or evictor; null
// without one.
export function headline(process, now) {
  const { diagnosis } = process;
  if (diagnosis === null) return null;
  const { decision, evictor, verdict } = diagnosis;
  const age = verdict && now ? format.age(seconds(verdict.started_at, now)) : "";
  switch (diagnosis.kind) {
    case "decision": {
      const isConfirmed = decision.stage === "confirmed";
      const text = `${isConfirmed ? "acting" : "trying"}: ${format.printable(decision.policy)}`;
      return { text, age: isConfirmed ? effect(decision) : "", tone: "good", rank: 2, href: processHref(process, { decision: decision.id }), help: "A decision is in effect; follow for its evidence" };
    }
    case "victim": {
      const help = `${format.bytes(evictor.bytes_per_second)}/s of it is evicted for ${name(evictor)}`;
      return { text: `victim of ${evictor.pid}`, age, tone: "odd", rank: 2, href: processHref(evictor), help: `${help}; follow for the evictor` };
    }
    case "verdict":
      return { text: kind(verdict.kind), age, tone: tone(verdict), rank: verdict.thrashing ? 3 : 1, href: processHref(process), help: meaning(verdict.kind) };
    default:
      return null;
  }
}

// Reason of a verdict as a sentence, from the inputs of the last window.
export function reason({ kind, inputs, window_seconds }) {
  const rate = (bytes) => `${format.bytes(bytes / Math.max(window_seconds, 0.001))}/s`;
  const arrived = inputs.bytes_htod + inputs.populated_bytes;
  const evicted = Math.max(inputs.evicted_bytes, inputs.induced_eviction_bytes);
  // Block records may be missing: shares of recorded bytes stand for all.
  const share = (bytes) => (inputs.fetched_bytes > 0 ? bytes / inputs.fetched_bytes : 0);
  switch (kind) {
    case "capacity_thrash":
      return `${format.percent(share(inputs.refetched_bytes))} of fetched bytes were refetched after eviction: ${rate(inputs.bytes_htod)} to the GPU, ${rate(evicted)} evicted from or for it.`;
    case "ping_pong":
      return `${format.percent(share(inputs.cpu_reclaimed_bytes))} of fetched bytes had been reclaimed by a CPU: ${format.count(inputs.bounces)} bounces of blocks in ${format.span(window_seconds)}.`;
    case "driver_throttling":
      return `${format.count(inputs.throttles)} throttles by the driver in ${format.span(window_seconds)}, for ${format.time(inputs.throttled_ns)} in total.`;
    case "streaming":
      return `${rate(arrived)} arrive at the GPU and ${rate(evicted)} are evicted for it; only ${format.percent(share(inputs.refetched_bytes))} of fetched bytes are refetched.`;
    case "first_touch_storm":
      return `${format.count(inputs.fault_entries)} faults in ${format.span(window_seconds)} populated ${format.bytes(inputs.populated_bytes)} of new memory.`;
    default:
      return "";
  }
}

// === processes and their owners ===

export const name = (process) => `${process.pid} ${format.printable(process.name ?? "")}`.trim();

// Digits of a container id, as container runtimes list it.
const CONTAINER_DIGITS = 12;

// Short name of an owner, by which it can be found.
export function owner(process) {
  const { kind, id } = process.owner;
  // The first part of a pod's UUID; the name of a unit without its manager's.
  const short = { pod: id.split("-")[0], container: id.slice(0, CONTAINER_DIGITS), unit: id.split("/").at(-1) }[kind] ?? id;
  if (short !== "") return format.printable(`${kind} ${short}`);
  return "uid" in process ? format.printable(`user ${process.user ?? process.uid}`) : "";
}

// Owner in the page's address; empty if nothing is known of it.
export function ownerKey(process) {
  const { kind, id } = process.owner;
  if (id !== "") return `${kind}:${id}`;
  return "uid" in process ? `user:${process.uid}` : "";
}

// All identifiers of an owner.
export function fullOwner({ container, container_runtime, pod_uid, slurm_job, slurm_step, unit }) {
  const parts = [
    ["pod", pod_uid],
    ["job", slurm_job && `${slurm_job}${slurm_step === null ? "" : ` step ${slurm_step}`}`],
    [`${container_runtime ?? ""} container`.trim(), container?.slice(0, CONTAINER_DIGITS)],
    // The name of a container's scope has the container's id.
    ["unit", container === null && unit],
  ];
  return format.printable(parts.filter(([, id]) => id).map((part) => part.join(" ")).join(" · "));
}

// === GPUs ===

let gpus = new Map();

export function learn(details) {
  gpus = new Map(details.map((gpu) => [gpu.uuid, gpu]));
}

// NVML's index, as in nvidia-smi; without NVML, the first digits of the UUID, which nvidia-smi
// accepts.
export function gpu(uuid) {
  if (uuid === null) return "a GPU";
  const index = gpus.get(uuid)?.gpu ?? null;
  return index === null ? uuid.slice(0, "GPU-".length + 8) : `GPU ${index}`;
}

// === memory ===

const PATTERNS = { hot_set: "hot set" };

export function pattern({ kind, stride_bytes }) {
  const words = PATTERNS[kind] ?? format.printable(kind);
  if (stride_bytes === null) return words;
  return `${words}, ${stride_bytes < 0 ? "−" : ""}${format.bytes(Math.abs(stride_bytes))}`;
}

export const confidence = ({ kind, confidence, steps }) =>
  kind === "unknown" ? `${format.count(steps)} steps` : `${format.percent(confidence)} of ${format.count(steps)} steps`;

// Bounds of residency, unless they equal the estimate.
export function bounds(resident) {
  if (resident === null) return "";
  const { bytes, min_bytes, max_bytes } = resident;
  const [least, most] = [format.bytes(min_bytes), format.bytes(max_bytes)];
  return least === format.bytes(bytes) && most === least ? "" : `${least} to ${most}`;
}

// === plans ===

const counted = (number, thing) => `${format.count(number)} ${thing}${number === 1 ? "" : "s"}`;

// Plan of a process's iterations, or the state on the way to one with its reason.
export function plan({ state, reason, planner, promise, planned_bytes, planned_faulted_blocks, iterations }) {
  const soFar = iterations === null ? "" : `, ${counted(iterations, "iteration")} so far`;
  if (planner === null) return format.printable(`${state}${soFar}${reason === null ? "" : `: ${reason}`}`);
  const outlook = promise === "faults" ? `${counted(planned_faulted_blocks, "block")} left to faults` : `${format.bytes(planned_bytes)} over the link`;
  return `${format.printable(planner)}, ${outlook} in an iteration${soFar}`;
}

// === kill switch ===

// Who switched acting off; empty while acting is on.
export function switchedOff({ disabled_by, persist_pending }) {
  if (disabled_by.length === 0) return "";
  const by = disabled_by.map(({ actor }) => format.printable(actor)).join(" and ");
  return `switched off by ${by}${persist_pending ? ": not on the disk yet, so uvmd would act again after a restart" : ""}`;
}
