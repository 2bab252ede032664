// Time axis that all charts share, with marks of the begin and end of decisions.

import { addressed, draw, element, go, make, place, setText } from "./dom.js";
import * as format from "./format.js";

// === span ===

// Length, interval of requests, and samples of a large chart. Small charts have half of them.
const SPANS = {
  "5 min": { seconds: 300, samples: 300, every_ms: 2000 },
  "1 h": { seconds: 3600, samples: 360, every_ms: 10_000 },
  "1 day": { seconds: 86_400, samples: 480, every_ms: 60_000 },
};
const DEFAULT = "5 min";
const LONGEST_SECONDS = 86_400;
export const WIDTH = 1000;

const span = () => SPANS[addressed("span")] ?? SPANS[DEFAULT];
export const everyMs = () => span().every_ms;

// By uvmd's clock, in milliseconds.
let end = Date.now();
// While the page is paused: when that began, by the reader's clock.
let pausedAt = null;
let cursor = null;
const charts = new Set();

// Query for the samples of the axis. It stands still while the page is paused, so that they begin
// earlier.
export function query(share = 1) {
  const { seconds, samples } = span();
  const missed = pausedAt === null ? 0 : (Date.now() - pausedAt) / 1000;
  const requested = Math.min(Math.ceil(seconds + missed), LONGEST_SECONDS);
  return `seconds=${requested}&samples=${Math.ceil((samples * share * requested) / seconds)}`;
}

export function pause(isPaused) {
  pausedAt = isPaused ? Date.now() : null;
}

const begin = () => end - span().seconds * 1000;

// Position of a time, or null outside the axis.
export function x(time) {
  return time < begin() || time > end ? null : (WIDTH * (time - begin())) / (end - begin());
}

// Time at a share of the axis.
export const timeAt = (share) => begin() + share * (end - begin());

// A chart has `draw()`, and `point(time)` for the common cursor.
export const register = (chart) => charts.add(chart);

// Moves the end of the axis, and draws all charts.
export function advance(now) {
  end = now;
  // Charts of GPUs that are gone.
  for (const chart of charts) if (!chart.element.isConnected) charts.delete(chart);
  for (const chart of charts) chart.draw();
  show();
}

// Moves the cursor of all charts; null hides it.
export function point(time) {
  if (cursor === time) return;
  cursor = time;
  for (const chart of charts) chart.point(time);
  show();
}

export const pointed = () => cursor;

function show() {
  setText(element("axis-range"), `${format.moment(begin())} to ${format.moment(end)}`);
  setText(element("axis-cursor"), cursor === null ? "" : `at ${format.moment(cursor)}`);
}

// Buttons of the spans. `changed` is called when another one is in the address.
export function watch(changed) {
  const buttons = Object.keys(SPANS).map((textContent) => {
    const button = make("button", { type: "button", textContent });
    button.addEventListener("click", () => go({ span: textContent === DEFAULT ? null : textContent }, "replaceState"));
    return button;
  });
  place(element("axis-spans"), buttons);
  let former = null;
  const follow = () => {
    if (span() === former) return;
    const isFirst = former === null;
    former = span();
    for (const button of buttons) button.setAttribute("aria-pressed", String(SPANS[button.textContent] === former));
    if (!isFirst) {
      advance(end);
      changed();
    }
  };
  addEventListener("hashchange", follow);
  follow();
}

// === marks ===

// Tones of a decision's outcome.
const OUTCOMES = { confirmed: "good", rolled_back: "bad", ended: "over" };

// Marks of the decisions that took effect, the latest last: time by uvmd's clock, text, and tone.
export function of(decisions) {
  const inEffect = decisions.filter(({ stage, done }) => stage === "trial" || stage === "confirmed" || done.calls > 0);
  const marks = inEffect.flatMap(({ policy, name, created_at, updated_at, stage }) => {
    const shown = format.printable(policy);
    const trial = { at: Date.parse(created_at), tone: "odd", text: `${shown} on trial on ${format.printable(name)}` };
    return stage in OUTCOMES ? [trial, { at: Date.parse(updated_at), tone: OUTCOMES[stage], text: `${shown} ${stage.replace("_", " ")}` }] : [trial];
  });
  return marks.sort((one, other) => one.at - other.at);
}

// Vertical lines in a drawing of this height.
export function lines(marks, height) {
  return marks.flatMap(({ at, tone, text }) => {
    const where = x(at);
    if (where === null) return [];
    const title = draw("title");
    title.textContent = `${format.moment(at)}: ${text}`;
    return [draw("line", { "data-tone": tone, x1: where.toFixed(1), x2: where.toFixed(1), y1: 0, y2: height }, title)];
  });
}
