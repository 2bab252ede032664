// What is done about it on the node now, or would be, and whether that helps; and what was lately.

import { element, say } from "./dom.js";
import * as format from "./format.js";
import { Table } from "./table.js";
import * as words from "./words.js";

const OPEN = ["trial", "confirmed", "shadow"];
const ENDED_SHOWN = 20;
const STAGES = {
  trial: ["trying", "odd", "In force; its effect is not known yet"],
  confirmed: ["confirmed", "good", "Verified: it helps"],
  shadow: ["shadow", "", "Reported only, not ordered"],
  rolled_back: ["rolled back", "bad", "It did not help, and was rolled back"],
};

const href = (decision) => `#process=${decision.pid}.${decision.start_ticks}`;
const perSecond = (count, window) => count / Math.max(window.window_seconds, 0.001);
const link = (window) => (window ? format.bytesRate(perSecond(window.own_link_bytes, window)) : "–");
const faults = (window) => (window ? `${format.countRate(perSecond(window.inputs.fault_entries, window))} faults` : "");
// A program that is helped does more in a second: the change is told for the same work.
const pace = ({ after, pace }) => (after && pace ? `at ${pace.toFixed(2)}× the pace` : "");
let now = "";

const shared = {
  process: { title: "Process", text: (decision) => format.printable(decision.name), detail: (decision) => `pid ${decision.pid}`, href },
  policy: { title: "Policy", text: (decision) => decision.policy, detail: (decision) => (decision.override_id === null ? "by default" : `by override ${decision.override_id}`) },
  gpu: { title: "On", text: (decision) => words.gpu(decision.gpu_uuid), minor: true },
  stage: { title: "Stage", text: ({ stage }) => STAGES[stage]?.[0] ?? stage, tone: ({ stage }) => STAGES[stage]?.[1] ?? "", hint: ({ stage }) => STAGES[stage]?.[2] ?? "" },
  change: { title: "Change", help: "Saved link bytes for the same work: a program that is helped does more in a second. Expected savings until they are known", text: words.effect, detail: (decision) => (decision.after ? pace(decision) : "expected") },
};

const tables = {
  open: new Table(element("decisions"), [
    shared.process,
    shared.policy,
    shared.gpu,
    { ...shared.stage, detail: (decision) => `for ${format.age(words.seconds(decision.updated_at, now))}` },
    { title: "Link before", help: "Bytes per second over the GPU's link: copied for the process, and accessed remotely by any", text: ({ before }) => link(before), detail: ({ before }) => faults(before), number: true },
    { title: "After", text: ({ after }) => link(after), detail: ({ after }) => faults(after), number: true },
    shared.change,
    { title: "Reason", text: ({ reason }) => format.printable(reason), wraps: true },
  ]),
  ended: new Table(element("decisions-ended"), [
    shared.process,
    shared.policy,
    shared.gpu,
    { ...shared.stage, detail: (decision) => format.moment(decision.updated_at) },
    { ...shared.change, text: (decision) => (decision.after ? words.effect(decision) : "–"), detail: undefined },
    { title: "Reason", text: ({ stage_reason }) => format.printable(stage_reason ?? ""), detail: ({ reason }) => format.printable(reason), wraps: true },
  ]),
};

const key = ({ id }) => id;
// What is refused is asked again: once is enough to know.
const isLatest = (decision, at, all) =>
  decision.stage !== "denied" || all.findIndex(({ stage, policy, ...each }) => stage === "denied" && policy === decision.policy && words.same(each, decision)) === at;

export function show({ decisions, time }, policy) {
  now = time;
  const open = decisions.filter(({ stage }) => OPEN.includes(stage));
  const over = decisions.filter(({ stage }) => !OPEN.includes(stage)).filter(isLatest);
  const ended = over.slice(0, ENDED_SHOWN);
  tables.open.update(open, key, ({ stage }) => ({ faded: stage === "shadow" }));
  tables.ended.update(ended, key);
  const off = words.switchedOff(policy);
  say(element("acting"), off);
  // Who never asked for anything need not know.
  element("decisions-panel").hidden = decisions.length === 0 && off === "";
  element("no-decisions").hidden = open.length > 0;
  element("decisions-over").hidden = over.length === 0;
  say(element("decisions-over-count"), `${over.length}${over.length > ended.length ? `, the last ${ended.length} of them` : ""}`);
}
