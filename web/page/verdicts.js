// Verdicts of the node: active and ended ones.

import { element, processHref, setText } from "./dom.js";
import * as format from "./format.js";
import { more } from "./lists.js";
import { Table } from "./table.js";
import * as words from "./words.js";

const ENDED_SHOWN = 20;

const VICTIMS_SHOWN = 3;
const since = (verdict) => format.moment(verdict.started_at);
let now = "";
// Whether the source counts who evicted whom.
let hasVictims = true;

// Links to the processes that lose memory to this one.
const victims = ({ victims }) =>
  victims.slice(0, VICTIMS_SHOWN).map((victim) => ({ text: `${words.name(victim)} ${format.bytes(victim.bytes_per_second)}/s`, href: processHref(victim) }));
const otherVictims = ({ victims }) => (victims.length === 0 ? "–" : victims.length > VICTIMS_SHOWN ? `${victims.length} processes` : "");
const evictor = ({ evictor }) => (evictor ? [{ text: `victim of ${words.name(evictor)}`, href: processHref(evictor) }] : []);

const shared = {
  process: { title: "Process", text: (verdict) => format.printable(verdict.name || "forgotten"), detail: (verdict) => `pid ${verdict.pid}`, href: (verdict) => processHref(verdict) },
  verdict: { title: "Verdict", text: (verdict) => verdict.label, tone: (verdict) => words.tone(verdict), hint: (verdict) => format.printable(verdict.summary) },
  gpu: { title: "On", text: (verdict) => words.gpu(verdict.gpu_uuid) },
};

const tables = {
  active: new Table(element("verdicts"), [
    shared.process,
    { ...shared.verdict, links: evictor },
    shared.gpu,
    { title: "For", text: (verdict) => format.age(words.seconds(verdict.started_at, now)), detail: (verdict) => `since ${since(verdict)}` },
    { title: "Reason", text: ({ reason }) => format.printable(reason), wraps: true },
    { title: "Evicts", help: "Bytes per second evicted from others for this process; inferred", text: otherVictims, links: victims, wraps: true, known: () => hasVictims },
  ]),
  ended: new Table(element("verdicts-ended"), [
    shared.process,
    { ...shared.verdict, tone: undefined },
    shared.gpu,
    { title: "From", text: since },
    { title: "For", text: (verdict) => format.duration(words.seconds(verdict.started_at, verdict.ended_at)), number: true },
  ]),
};

const key = (verdict) => `${verdict.pid} ${verdict.start_ticks} ${verdict.gpu_uuid} ${verdict.kind} ${verdict.started_at}`;

const THRASHING = ["capacity_thrash", "ping_pong", "driver_throttling"];

function noVerdict(unavailable) {
  if (unavailable.length === 0) return "No thrashing.";
  const isUnavailable = (name) => unavailable.some(({ kind }) => kind === name);
  if (THRASHING.every(isUnavailable)) return "Thrashing cannot be judged by what is counted.";
  return `No thrashing; unavailable: ${unavailable.map(({ label }) => label).join(", ")}.`;
}

export function show(verdicts, counting, countsVictims) {
  [now, hasVictims] = [verdicts.time, countsVictims];
  tables.active.update(verdicts.active, key);
  const ended = verdicts.ended.slice(0, ENDED_SHOWN);
  tables.ended.update(ended, key);
  const thrashing = verdicts.active.filter((verdict) => verdict.thrashing).length;
  setText(element("verdict-count"), `${thrashing > 0 ? `${thrashing} thrashing` : ""} ${more(verdicts)}`.trim());
  element("no-verdicts").hidden = thrashing > 0;
  setText(element("no-verdicts"), counting ? noVerdict(verdicts.unavailable) : "No verdicts while uvmd does not count.");
  element("verdicts-ended-panel").hidden = ended.length === 0;
  const last = verdicts.ended.length > ended.length ? `, the last ${ended.length} shown` : "";
  setText(element("verdicts-ended-count"), `${verdicts.ended.length}${last}`);
}
