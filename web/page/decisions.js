// Decisions of the node, open or in shadow and ended; and those about one process, with evidence and
// override.

import { addressed, element, make, place, processHref, processId, setText } from "./dom.js";
import * as format from "./format.js";
import { Table } from "./table.js";
import * as words from "./words.js";

const OPEN = ["trial", "confirmed", "shadow"];
const ENDED_SHOWN = 20;
const STAGES = {
  trial: ["trial", "odd", "In effect; its benefit is not verified yet"],
  confirmed: ["confirmed", "good", "In effect; its benefit is verified"],
  shadow: ["shadow", "", "Reported, not executed"],
  denied: ["denied", "odd", "Not executed: a condition is not met"],
  rolled_back: ["rolled back", "bad", "Withdrawn: without benefit, harmful, or acting was switched off"],
};

const perSecond = (count, window) => count / Math.max(window.window_seconds, 0.001);
const link = (window) => (window ? format.bytesRate(perSecond(window.own_link_bytes, window)) : "–");
const faults = (window) => (window ? `${format.countRate(perSecond(window.inputs.fault_entries, window))} faults` : "");
// A faster program does more per second, so the change is that for the same work.
const speed = (pace) => {
  const percent = Math.round((pace - 1) * 100);
  return percent === 0 ? "unchanged" : `${percent > 0 ? "+" : "−"}${Math.abs(percent)} %`;
};
const pace = ({ after, pace }) => (after && pace ? `speed ${speed(pace)}` : "");
// Override in the address that stands for the configuration's default.
const DEFAULT = "";
const overrideLink = (decision) => ({
  text: decision.override_id === null ? "by default" : `by override ${format.printable(decision.override_id)}`,
  href: processHref(decision, { override: decision.override_id ?? DEFAULT }),
});
let now = "";

const shared = {
  process: { title: "Process", text: (decision) => format.printable(decision.name), detail: (decision) => `pid ${decision.pid}`, href: (decision) => processHref(decision) },
  policy: { title: "Policy", text: (decision) => format.printable(decision.policy), links: (decision) => [overrideLink(decision)] },
  gpu: { title: "On", text: (decision) => words.gpu(decision.gpu_uuid), minor: true },
  stage: { title: "Stage", text: ({ stage }) => STAGES[stage]?.[0] ?? stage, tone: ({ stage }) => STAGES[stage]?.[1] ?? "", hint: ({ stage }) => STAGES[stage]?.[2] ?? "", href: (decision) => processHref(decision, { decision: decision.id }) },
  change: { title: "Change", help: "Saved link bytes for the same work, as a faster program does more per second. Expected savings until they are measured", text: ({ effect }) => effect.split(" expected")[0], detail: (decision) => (decision.after ? pace(decision) : "expected") },
};

const tables = {
  open: new Table(element("decisions"), [
    shared.process,
    shared.policy,
    shared.gpu,
    { ...shared.stage, detail: (decision) => `for ${format.age(words.seconds(decision.updated_at, now))}` },
    { title: "Before", help: "Bytes per second over the GPU's link: copies for the process, and remote accesses of any process", text: ({ before }) => link(before), detail: ({ before }) => faults(before), number: true },
    { title: "After", text: ({ after }) => link(after), detail: ({ after }) => faults(after), number: true },
    shared.change,
    { title: "Reason", text: ({ reason }) => format.printable(reason), wraps: true },
  ]),
  ended: new Table(element("decisions-ended"), [
    shared.process,
    shared.policy,
    shared.gpu,
    { ...shared.stage, detail: (decision) => format.moment(decision.updated_at) },
    { ...shared.change, text: ({ after, effect }) => (after ? effect : "–"), detail: undefined },
    { title: "Reason", text: ({ stage_reason }) => format.printable(stage_reason ?? ""), detail: ({ reason }) => format.printable(reason), wraps: true },
  ]),
};

const key = ({ id }) => id;
// A denied step is tried again: the latest denial of a policy is enough.
const isLatest = (decision, at, all) =>
  decision.stage !== "denied" || all.findIndex(({ stage, policy, ...each }) => stage === "denied" && policy === decision.policy && words.same(each, decision)) === at;
// Why nothing is done: the denials that no other decision about the process followed. `own` is about one process, newest first.
function currentDenials(own) {
  const before = own.findIndex(({ stage }) => stage !== "denied");
  return (before === -1 ? own : own.slice(0, before)).filter(isLatest);
}

export function show({ decisions, time }, policy) {
  now = time;
  const open = decisions.filter(({ stage }) => OPEN.includes(stage));
  const closed = decisions.filter(({ stage }) => !OPEN.includes(stage)).filter(isLatest);
  const ended = closed.slice(0, ENDED_SHOWN);
  tables.open.update(open, key, ({ stage }) => ({ faded: stage === "shadow" }));
  tables.ended.update(ended, key);
  const off = words.switchedOff(policy);
  setText(element("acting"), off);
  // Hidden on a node where acting was never enabled.
  element("decisions-panel").hidden = decisions.length === 0 && off === "";
  element("no-decisions").hidden = open.length > 0;
  element("decisions-ended-panel").hidden = closed.length === 0;
  setText(element("decisions-ended-count"), `${closed.length}${closed.length > ended.length ? `, the last ${ended.length} shown` : ""}`);
}

// === one process ===

const saved = (share) => (share === null ? "–" : `${share > 0 ? "−" : "+"}${format.percent(Math.abs(share))}`);
const expected = ({ at_least, at_most }) => `${saved(at_least)} to ${saved(at_most)}`;

// Rows of the effect: a name, and the value of one window.
const EFFECTS = [
  ["Link bytes of the process", link],
  ["Link bytes of all programs", (window) => (window.link_bytes === null ? "–" : format.bytesRate(perSecond(window.link_bytes.htod + window.link_bytes.dtoh, window)))],
  ["GPU faults", (window) => format.countRate(perSecond(window.inputs.fault_entries, window))],
  ["Evicted from it", (window) => format.bytesRate(perSecond(window.inputs.evicted_bytes, window))],
  ["Evicted of others for it", (window) => format.bytesRate(perSecond(window.others_evicted_bytes, window))],
  ["Replays", (window) => format.countRate(perSecond(window.replays, window))],
];

// Titles with values, without empty ones.
function describe(list, rows) {
  const shown = rows.filter(([, value]) => value !== "" && value !== null);
  const texts = shown.flatMap(([title, value]) => [title, value]);
  if ([...list.children].every((child, at) => child.textContent === texts[at]) && list.children.length === texts.length) return;
  list.replaceChildren(...shown.flatMap(([title, value]) => [make("dt", { textContent: title }), make("dd", { textContent: value })]));
}

// Rows of a plan that the helper follows.
const plan = ({ plan, trial, moves }) => [["Plan", plan], ["Trial", trial], ["Moves", moves]].map(([title, text]) => [title, format.printable(text)]);

class DecisionEvidence {
  #heading = make("h3", { tabIndex: -1 });
  #reason = make("p");
  #table = new Table(make("table", { className: "plain" }, make("caption", { textContent: "Effect" })), [
    { title: "Per second", text: ({ title }) => title, wraps: true },
    { title: "Before", text: ({ before }) => before, number: true },
    { title: "After", text: ({ after }) => after, number: true },
  ]);
  // Hidden for plans, which are measured by iterations, and by few counts.
  #windows;
  #sums = make("dl", { className: "sums" });
  #override = make("a");
  element;

  constructor() {
    this.#windows = make("div", { className: "scroll" }, this.#table.element);
    const sides = make("div", { className: "side-by-side" }, this.#windows, this.#sums);
    this.element = make("section", { className: "evidence" }, this.#heading, this.#reason, make("p", { className: "muted" }, "Selected ", this.#override), sides);
  }

  update(decision) {
    const { id, stage, stage_reason, policy, reason, gpu_uuid, updated_at, before, after, done, advice, ranges } = decision;
    setText(this.#heading, `${format.printable(policy)}: ${STAGES[stage]?.[0] ?? stage.replaceAll("_", " ")} on ${words.gpu(gpu_uuid)} since ${format.moment(updated_at)}`);
    this.element.dataset.tone = STAGES[stage]?.[1] ?? "";
    setText(this.#reason, format.printable([reason, stage_reason].filter(Boolean).join("; ")));
    const { text, href } = overrideLink(decision);
    setText(this.#override, text);
    this.#override.href = href;
    const isDenied = stage === "denied";
    this.#windows.hidden = Boolean(decision.plan) || isDenied;
    this.#table.update(EFFECTS.map(([title, show]) => ({ title, before: show(before), after: after === null ? "–" : show(after) })), ({ title }) => title);
    const error = decision.last_error;
    describe(this.#sums, [
      ["Decision", `${id}, created ${format.moment(decision.created_at)}`],
      ["Verdict", decision.verdict_label ?? ""],
      ["Expected", `link ${expected(decision.expected.link_bytes_saved)}, faults ${expected(decision.expected.faults_saved)}`],
      ["Measured", isDenied ? "" : after === null ? "not yet" : `link ${saved(decision.link_bytes_saved)}, faults ${saved(decision.faults_saved)} for the same work`],
      ["Speed", decision.pace === null ? "" : speed(decision.pace)],
      ["Calls", decision.plan || isDenied ? "" : `${format.count(done.calls)} done, ${format.count(done.failed)} failed${done.longest_ns > 0 ? `, the longest ${format.time(done.longest_ns)}` : ""}`],
      ...(decision.plan_description ? plan(decision.plan_description) : []),
      ["Actuator", decision.actuator === null ? "" : format.printable(decision.actuator)],
      ["Moved", decision.plan || done.to_gpu_bytes + done.to_host_bytes === 0 ? "" : `${format.bytes(done.to_gpu_bytes)} to the GPU, ${format.bytes(done.to_host_bytes)} to the host`],
      ["Touched", done.touches === 0 ? "" : `${format.count(done.touches)} blocks`],
      ["Advice", [...advice.map((name) => format.printable(name.replaceAll("_", " "))), done.advised_bytes > 0 ? `on ${format.bytes(done.advised_bytes)}` : ""].filter(Boolean).join(", ")],
      ["Memory", `${format.bytes(decision.bytes)}${ranges === null ? "" : `: ${ranges.map(({ begin, end }) => `${begin} to ${end}`).join(", ")}`}`],
      ["Last error", error === null ? "" : format.printable([error.result.replaceAll("_", " "), error.detail].filter(Boolean).join(": "))],
    ]);
  }

  focus() {
    this.#heading.scrollIntoView({ block: "nearest" });
    this.#heading.focus({ preventScroll: true });
  }
}

let sections = new Map();
// Decision that has the focus.
let focused = null;

export function clearProcess() {
  [sections, focused] = [new Map(), null];
  place(element("detail-decisions"), []);
  element("detail-policy").hidden = true;
}

// Shows the decisions about a process that are open or say why nothing is done, and the one in the address.
export function showProcess({ decisions }) {
  const wanted = addressed("decision");
  const own = decisions.filter((decision) => processId(decision) === addressed("process"));
  const denials = currentDenials(own);
  const shown = own.filter((decision) => OPEN.includes(decision.stage) || denials.includes(decision) || String(decision.id) === wanted);
  sections = new Map(shown.map((decision) => [decision.id, sections.get(decision.id) ?? new DecisionEvidence()]));
  for (const decision of shown) sections.get(decision.id).update(decision);
  place(element("detail-decisions"), [...sections.values()].map((section) => section.element));
  if (wanted !== null && wanted !== focused) sections.get(Number(wanted))?.focus();
  focused = wanted;
}

const candidates = new Table(element("detail-candidates"), [
  { title: "Override", text: ({ id }) => format.printable(id) },
  { title: "Matches", text: ({ matches, selected }) => (selected ? "✓ selected" : matches ? "✓ yes" : "✗ no") },
  { title: "Reason", text: ({ reason }) => format.printable(reason), wraps: true },
]);

let focusedOverride = null;

// Shows the policy in effect for a process, and an override: the one in the address, else the
// selected one; null where it does not exist.
export function showPolicy(effective, status) {
  const { mode, policy, override_id, reason, restrictions, active } = effective;
  const by = override_id === null ? "by default" : `by override ${format.printable(override_id)}`;
  setText(element("detail-policy-title"), `Policy: ${format.printable(policy)}, mode ${mode}, ${by}`);
  const where = ({ gpu_uuid, label, reason }) => `${label}${gpu_uuid === null ? "" : ` on ${words.gpu(gpu_uuid)}`}: ${reason}`;
  describe(element("detail-policy-effect"), [
    ["Reason", format.printable(reason)],
    ["Acting", active ? "permitted" : "disabled on this node"],
    ["Budget", budget(effective.budget)],
    ["Plan", effective.plan ? words.plan(effective.plan) : ""],
    ["Restrictions", format.printable(restrictions.map(where).join("; ")) || "none"],
  ]);
  const wanted = addressed("override");
  setText(element("detail-override-title"), status === null ? (wanted ? `Override ${format.printable(wanted)} does not exist any more` : "") : `Override ${format.printable(status.override.id)}`);
  describe(element("detail-override"), status === null ? [] : override(status));
  candidates.update(effective.candidates, ({ id }) => id);
  element("detail-policy").hidden = false;
  if (wanted !== null && wanted !== focusedOverride) {
    element("detail-policy").open = true;
    element("detail-policy").scrollIntoView({ block: "nearest" });
    element("detail-policy-summary").focus({ preventScroll: true });
  }
  focusedOverride = wanted;
}

const budget = ({ bytes, bytes_per_second }) =>
  [bytes_per_second === null ? "" : `${format.bytes(bytes_per_second)}/s`, bytes === null ? "" : `${format.bytes(bytes)} in all`].filter(Boolean).join(", ") || "not limited";

function override({ override, source, expired }) {
  const parameters = (of) => Object.entries(of).map(([name, value]) => `${name.replaceAll("_", " ")} ${typeof value === "object" ? Object.values(value).join(" to ") : value}`);
  const criteria = Object.fromEntries(Object.entries(override.match).filter(([, value]) => value !== null));
  return [
    ["Source", { file: "the file of overrides", fleet: "policies of the cluster" }[source] ?? "the API"],
    ["Match", format.printable(parameters(criteria).join(", ")) || "every process"],
    ["Mode", override.mode],
    ["Policy", format.printable(override.policy ?? "auto-live")],
    ["Parameters", format.printable(parameters(override.parameters).join(", "))],
    ["Budget", budget(override.budget)],
    ["Priority", String(override.priority)],
    ["Expires", override.expires_at === null ? "never" : `${format.moment(override.expires_at)}${expired ? ", expired" : ""}`],
  ];
}
