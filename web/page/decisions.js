// What is done about it on the node now, or would be, and whether that helps.

import { element, say } from "./dom.js";
import * as format from "./format.js";
import { Table } from "./table.js";
import * as words from "./words.js";

const OPEN = ["trial", "kept", "shadow"];
const STAGES = {
  trial: ["trying", "It is in force, and whether it helps is not known yet"],
  kept: ["kept", "It helps"],
  shadow: ["shadow", "What would be done: nothing is"],
};

const href = (decision) => `#process=${decision.pid}.${decision.start_ticks}`;
const linkBytes = (window) => window?.link_bytes && window.link_bytes.htod + window.link_bytes.dtoh;
const perSecond = (count, window) => (count === null || count === undefined ? null : count / Math.max(window.window_seconds, 0.001));
const link = (window) => format.bytesRate(perSecond(linkBytes(window), window));
const faults = (window) => (window ? `${format.countRate(perSecond(window.inputs.fault_entries, window))} faults` : "");
let now = "";

const table = new Table(element("decisions"), [
  { title: "Process", text: (decision) => format.printable(decision.name), detail: (decision) => `pid ${decision.pid}`, href },
  { title: "Policy", text: (decision) => decision.policy, detail: (decision) => (decision.asked_by === null ? "by default" : `asked for by ${decision.asked_by}`) },
  { title: "On", text: (decision) => words.gpu(decision.gpu_uuid), minor: true },
  { title: "Stage", text: ({ stage }) => STAGES[stage]?.[0] ?? stage, hint: (decision) => decision.stage_reason ?? STAGES[decision.stage]?.[1] ?? "", detail: (decision) => `for ${format.age(words.seconds(decision.changed, now))}` },
  { title: "Link before", help: "Bytes a second over the GPU's link, of all programs, accesses to memory on the host included", text: ({ before }) => link(before), detail: ({ before }) => faults(before), number: true },
  { title: "After", text: ({ after }) => (after ? link(after) : "–"), detail: ({ after }) => faults(after), number: true },
  { title: "Change", help: "By how much less goes over the link; what is expected, where that is not known yet", text: words.effect, detail: (decision) => (decision.after ? "" : "expected") },
  { title: "Why", text: ({ reason }) => format.printable(reason), wraps: true },
]);

export function show({ decisions, time }, policy) {
  now = time;
  const open = decisions.filter(({ stage }) => OPEN.includes(stage));
  table.update(open, ({ id }) => id, ({ stage }) => ({ faded: stage === "shadow" }));
  const off = policy.off_by.map(({ by }) => format.printable(by)).join(" and ");
  say(element("acting"), off === "" ? "" : `switched off by ${off}`);
  // Who never asked for anything need not know.
  element("decisions-panel").hidden = open.length === 0 && off === "";
  element("no-decisions").hidden = open.length > 0;
}
