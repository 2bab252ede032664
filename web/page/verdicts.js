// What is wrong on the node now, and what was lately.

import { element, say } from "./dom.js";
import * as format from "./format.js";
import { more } from "./lists.js";
import { Table } from "./table.js";
import * as words from "./words.js";

const ENDED_SHOWN = 20;

const href = (process) => `#process=${process.pid}.${process.start_ticks}`;
const since = (verdict) => format.moment(verdict.started_at);
let now = "";

const victims = ({ victims }) =>
  victims.slice(0, 3).map((victim) => `${words.name(victim)} ${format.bytes(victim.bytes_per_second)}/s`).join(", ") + (victims.length > 3 ? ` and ${victims.length - 3} more` : "");

const shared = {
  process: { title: "Process", text: (verdict) => format.printable(verdict.name || "forgotten"), detail: (verdict) => `pid ${verdict.pid}`, href },
  verdict: { title: "Verdict", text: (verdict) => words.kind(verdict.kind), tone: (verdict) => words.tone(verdict), hint: (verdict) => words.meaning(verdict.kind) },
  gpu: { title: "On", text: (verdict) => words.gpu(verdict.gpu_uuid) },
};

const tables = {
  active: new Table(element("verdicts"), [
    shared.process,
    { ...shared.verdict, detail: ({ evictor }) => (evictor ? `victim of ${evictor.pid}` : "") },
    shared.gpu,
    { title: "For", text: (verdict) => format.age(words.seconds(verdict.started_at, now)), detail: (verdict) => `since ${since(verdict)}` },
    { title: "Reason", text: words.why, wraps: true },
    { title: "Evicts", help: "Bytes per second evicted from others for this process; inferred", text: (verdict) => victims(verdict) || "–", wraps: true },
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

const nothing = (unavailable) =>
  unavailable.length === 0 ? "No thrashing." : `No thrashing; unavailable: ${unavailable.map(({ kind }) => words.kind(kind)).join(", ")}.`;

export function show(verdicts, counting) {
  now = verdicts.time;
  tables.active.update(verdicts.active, key);
  const ended = verdicts.ended.slice(0, ENDED_SHOWN);
  tables.ended.update(ended, key);
  const thrashing = verdicts.active.filter((verdict) => verdict.thrashing).length;
  say(element("verdict-count"), `${thrashing > 0 ? `${thrashing} thrashing` : ""} ${more(verdicts)}`.trim());
  element("no-verdicts").hidden = thrashing > 0;
  say(element("no-verdicts"), counting ? nothing(verdicts.unavailable) : "Nothing is judged while nothing is counted.");
  element("verdicts-over").hidden = ended.length === 0;
  const last = verdicts.ended.length > ended.length ? `, the last ${ended.length} of them` : "";
  say(element("verdicts-over-count"), `${verdicts.ended.length}${last}`);
}
