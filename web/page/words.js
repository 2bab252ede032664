// Verdicts, owners and plans in uvmd's words, and names of GPUs and patterns.

import { processHref } from "./dom.js";
import * as format from "./format.js";

// === verdicts ===

export const tone = ({ thrashing }) => (thrashing ? "bad" : "odd");

export const same = (one, other) => one.pid === other.pid && one.start_ticks === other.start_ticks;
export const seconds = (from, to) => (Date.parse(to) - Date.parse(from)) / 1000;

// Diagnosis in uvmd's words, with tone, rank for sorting, and the address of its evidence or evictor; null
// without one.
export function headline(process, now) {
  const { diagnosis } = process;
  if (diagnosis === null) return null;
  const { decision, evictor, verdict, label, description } = diagnosis;
  const shown = (more, follow) => ({ text: format.printable(label), age: verdict && now ? format.age(seconds(verdict.started_at, now)) : "", help: format.printable(description) + follow, ...more });
  switch (diagnosis.kind) {
    case "decision": {
      // The effect is in the second line.
      const text = format.printable(decision.action);
      return shown({ text, age: decision.stage === "confirmed" ? format.printable(decision.effect) : "", tone: "good", rank: 2, href: processHref(process, { decision: decision.id }) }, "; follow for its evidence");
    }
    case "victim":
      return shown({ tone: "odd", rank: 2, href: processHref(evictor) }, "; follow for the evictor");
    case "verdict":
      return shown({ tone: tone(verdict), rank: verdict.thrashing ? 3 : 1, href: processHref(process) }, "");
    default:
      return null;
  }
}

// === processes and their owners ===

export const name = (process) => `${process.pid} ${format.printable(process.name ?? "")}`.trim();

// Digits of a container id, as container runtimes list it.
const CONTAINER_DIGITS = 12;

// Short name of an owner, by which it can be found; else the user's.
export function owner(process) {
  const { label } = process.owner;
  if (label !== "") return format.printable(label);
  return "uid" in process ? format.printable(`user ${process.user ?? process.uid}`) : "";
}

// Owner in the page's address; empty if nothing is known of it.
export function ownerKey(process) {
  const { kind, id } = process.owner;
  if (id !== "") return `${kind}:${id}`;
  return "uid" in process ? `user:${process.uid}` : "";
}

// All identifiers of an owner.
export function fullOwner({ container, container_runtime, pod_uid, names = null, slurm_job, slurm_step, unit }) {
  const parts = [
    ["pod", names && `${names.namespace}/${names.pod}`],
    ["workload", names?.workload],
    [names ? "UID" : "pod", pod_uid],
    ["container", names?.container],
    ["job", slurm_job && `${slurm_job}${slurm_step === null ? "" : ` step ${slurm_step}`}`],
    [`${container_runtime ?? ""} container ID`.trim(), container?.slice(0, CONTAINER_DIGITS)],
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

// As in uvmd's sentences and in uvmctl: NVML's index, `GPU0`; without NVML, the first digits of the
// UUID, `GPU-73776770`, which nvidia-smi accepts.
export function gpu(uuid) {
  if (uuid === null) return "a GPU";
  const index = gpus.get(uuid)?.gpu ?? null;
  return index === null ? uuid.slice(0, "GPU-".length + 8) : `GPU${index}`;
}

// Memory in use on a GPU, managed and unmanaged, with its size, or the reason why it is unknown.
export function used({ memory_bytes, memory_used_bytes, source }) {
  const size = memory_bytes === null ? "size unknown" : `of ${format.bytes(memory_bytes)}`;
  if (memory_used_bytes !== null) return [format.bytes(memory_used_bytes), size];
  return ["unknown", `${size}; ${source === "nvml" ? "NVML does not respond" : "requires NVML"}`];
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

// Plan of a process's iterations, or the state on the way to one with its reason.
export const plan = ({ description, reason }) => format.printable([description, reason].filter(Boolean).join(": "));

// === kill switch ===

// Why acting is switched off, in uvmd's words; empty while it is on, and where it was never enabled.
export const switchedOff = ({ disabled_by, inactive_reason, persist_warning }) =>
  disabled_by.length === 0 ? "" : format.printable([inactive_reason, persist_warning].filter(Boolean).join("; "));
