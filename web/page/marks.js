// When something was done about a process and when that was taken back, for lines over time.

import { draw } from "./dom.js";
import * as format from "./format.js";

// What became of a decision, and how that looks.
const BECAME = { confirmed: "good", rolled_back: "bad", ended: "over" };

// Those of decisions that came into force, the latest last: when by the clock of uvmd, in words, and of what tone.
export function of(decisions) {
  const inForce = decisions.filter(({ stage, done }) => stage === "trial" || stage === "confirmed" || done.calls > 0);
  const marks = inForce.flatMap(({ policy, name, created_at, updated_at, stage }) => {
    const tried = { at: Date.parse(created_at), tone: "odd", text: `${policy} tried on ${format.printable(name)}` };
    return stage in BECAME ? [tried, { at: Date.parse(updated_at), tone: BECAME[stage], text: `${policy} ${stage.replace("_", " ")}` }] : [tried];
  });
  return marks.sort((one, other) => one.at - other.at);
}

// Upright lines in a drawing of this height, where `x` says that a time is; `null` leaves one out.
export function show(group, marks, height, x) {
  const lines = marks.flatMap(({ at, tone, text }) => {
    const where = x(at);
    if (where === null) return [];
    const title = draw("title");
    title.textContent = `${format.moment(at)}: ${text}`;
    return [draw("line", { "data-tone": tone, x1: where, x2: where, y1: 0, y2: height }, title)];
  });
  group.replaceChildren(...lines);
}
