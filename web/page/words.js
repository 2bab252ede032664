// Verdicts, owners, GPUs and patterns in words; the short ones are those of uvmctl.

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
const THRASHING = ["capacity_thrash", "ping_pong", "driver_throttling"];
export const tone = (name) => (THRASHING.includes(name) ? "bad" : "odd");

export const same = (one, other) => one.pid === other.pid && one.start_ticks === other.start_ticks;
export const seconds = (from, to) => (Date.parse(to) - Date.parse(from)) / 1000;

// The other process for whose sake a process suffers, if it is not for its own: what would fit alone is evicted only because of others. Where that
// is not known, at least half of what it lost in the window of its verdict must have been for the other's sake. Without a verdict, anything.
// uvmctl's rule: `words::evictor`.
export function evictorOf(process, verdict) {
  const evictor = process.victim_of;
  if (!evictor || !verdict) return evictor;
  const mostly = () => evictor.bytes_per_second * verdict.window_seconds * 2 >= verdict.inputs.evicted_bytes;
  return fitsAlone(process, verdict.gpu_uuid) ?? mostly() ? evictor : null;
}

// What a decision brought, or is to bring.
export function effect({ link_bytes_saved: link, faults_saved: faults, expected }) {
  const change = (saved) => `${saved > 0 ? "−" : "+"}${Math.abs(saved * 100).toFixed(0)}\u2009%`;
  if (link !== null) return `link ${change(link)}`;
  if (faults !== null) return `faults ${change(faults)}`;
  const { at_least, at_most } = expected.link_bytes_saved;
  return `link ${change(at_least)} to ${change(at_most)}`;
}

// What is wrong with a process, or who makes it suffer; null if nothing and nobody.
export function trouble(process, verdicts) {
  const deed = process.decisions.find(({ stage }) => stage !== "shadow");
  if (deed) {
    const text = deed.stage === "confirmed" ? `acting: ${deed.policy}` : `trying: ${deed.policy}`;
    return { text, age: deed.stage === "confirmed" ? effect(deed) : "", tone: "good", rank: 2, help: "A decision is in force; see Acting" };
  }
  const [worst] = process.verdicts;
  const evictor = evictorOf(process, verdicts.active.find((each) => same(each, process)));
  const age = worst && verdicts.time ? format.age(seconds(worst.started_at, verdicts.time)) : "";
  if (evictor && (!worst || worst.kind === "capacity_thrash")) {
    const help = `${format.bytes(evictor.bytes_per_second)}/s of it is evicted for ${name(evictor)}`;
    return { text: `victim of ${evictor.pid}`, age, tone: "odd", rank: 2, help };
  }
  if (!worst) return null;
  return { text: kind(worst.kind), age, tone: tone(worst.kind), rank: tone(worst.kind) === "bad" ? 3 : 1, help: meaning(worst.kind) };
}

// Why, in a sentence, from what was counted in the last window.
export function why({ kind, inputs, window_seconds }) {
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

// As container runtimes list them.
const CONTAINER_DIGITS = 12;

// As short as it can be found again by.
export function owner(process) {
  const { kind, id } = process.owner;
  // The first part of a UUID; a unit's name without its manager's.
  const short = { pod: id.split("-")[0], container: id.slice(0, CONTAINER_DIGITS), unit: id.split("/").at(-1) }[kind] ?? id;
  if (short !== "") return format.printable(`${kind} ${short}`);
  return "uid" in process ? format.printable(`user ${process.user ?? process.uid}`) : "";
}

// All that is known of it.
export function wholeOwner({ container, container_runtime, pod_uid, slurm_job, slurm_step, unit }) {
  const parts = [
    ["pod", pod_uid],
    ["job", slurm_job && `${slurm_job}${slurm_step === null ? "" : ` step ${slurm_step}`}`],
    [`${container_runtime ?? ""} container`.trim(), container?.slice(0, CONTAINER_DIGITS)],
    // A container's scope is named after it.
    ["unit", container === null && unit],
  ];
  return format.printable(parts.filter(([, id]) => id).map((part) => part.join(" ")).join(" · "));
}

// === GPUs ===

let gpus = new Map();

export function learn(details) {
  gpus = new Map(details.map((gpu) => [gpu.uuid, gpu]));
}

// As nvidia-smi names it, or else by the driver's number.
export function gpu(uuid) {
  const known = gpus.get(uuid);
  if (known) return `GPU ${known.index ?? known.gpu ?? "–"}`;
  return uuid === null ? "a GPU" : uuid.slice(0, 12);
}

// What managed memory there is room for beside everything else. Where the card's size is not known, what is there of all managed memory: as long as
// memory is evicted, the card is full. uvmctl's rule: `card::room_bytes`.
function room({ memory_bytes: all, memory_used_bytes: used, resident }) {
  // What is taken may be managed or not.
  if (resident === null && used !== null) return 0;
  const managed = resident?.bytes ?? 0;
  const others = Math.max(0, (used ?? managed) - managed);
  return all === null ? managed : Math.max(0, all - others);
}

// Whether all managed memory of a process would find room, were it alone; null if that is not known.
function fitsAlone({ managed_bytes: managed }, uuid) {
  const known = uuid === null ? undefined : gpus.get(uuid);
  const bytes = known ? room(known) : 0;
  return managed === null || bytes === 0 ? null : managed <= bytes;
}

// === memory ===

const PATTERNS = { hot_set: "hot set" };

export function pattern({ kind, stride_bytes }) {
  const words = PATTERNS[kind] ?? format.printable(kind);
  if (stride_bytes === null) return words;
  return `${words}, ${stride_bytes < 0 ? "−" : ""}${format.bytes(Math.abs(stride_bytes))}`;
}

export const confidence = ({ kind, confidence, steps }) =>
  kind === "unknown" ? `${format.count(steps)} steps seen` : `${format.percent(confidence)} of ${format.count(steps)} steps`;

// The bounds, where they say more than the number itself.
export function bounds(resident) {
  if (resident === null) return "";
  const { bytes, min_bytes, max_bytes } = resident;
  const [least, most] = [format.bytes(min_bytes), format.bytes(max_bytes)];
  return least === format.bytes(bytes) && most === least ? "" : `${least} to ${most}`;
}

// === the switch ===

// Who has switched acting off; empty where nobody has.
export function switchedOff({ disabled_by, persist_pending }) {
  if (disabled_by.length === 0) return "";
  const by = disabled_by.map(({ actor }) => format.printable(actor)).join(" and ");
  return `switched off by ${by}${persist_pending ? ": not on the disk yet, so uvmd would act again after a restart" : ""}`;
}
