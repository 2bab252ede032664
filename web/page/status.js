// Head of the page: version, driver, state of counting, and warnings.

import { element, make, setText } from "./dom.js";
import * as format from "./format.js";

let respondedAt = null;

export function show(status) {
  respondedAt = Date.now();
  setText(element("updated"), `Updated ${new Date(respondedAt).toLocaleTimeString()}, every second`);
  document.title = `${status.hostname} · uvmd`;
  setText(element("hostname"), format.printable(status.hostname));
  // An unsupported driver may have no known layout.
  const layout = status.layout ? ` (layout ${status.layout})` : "";
  const driver = status.driver ? [`driver ${status.driver}${layout}`] : [];
  setText(element("watched"), format.printable([status.version, ...driver, status.backend].join(" · ")));
  if (status.state === "counting") {
    const since = (Date.parse(status.time) - Date.parse(status.counting_started_at)) / 1000;
    const degraded = status.degraded.length > 0;
    state(degraded ? "degraded" : "counting", `${degraded ? "Degraded, counting" : "Counting"} for ${format.duration(since)}`);
    if (degraded) {
      banner("warning", "Counting, incomplete.", status.reasons);
    } else if (status.dropped_events > 0) {
      banner("warning", `${format.count(status.dropped_events)} events were dropped: figures are lower bounds.`, status.reasons);
    } else if (status.reasons.length > 0) {
      banner("warning", "Counting, with restrictions.", status.reasons);
    } else {
      banner(null);
    }
  } else if (status.state === "refused") {
    state("refused", "Not counting");
    banner("error", "This driver is not supported.", status.reasons);
  } else {
    state("waiting", "Waiting");
    banner("warning", "Waiting; retried automatically. Missing:", status.reasons);
  }
}

// A paused page keeps its figures.
export function pause(isPaused) {
  element("pause").textContent = isPaused ? "Resume" : "Pause";
  if (isPaused) state("paused", `Paused at ${new Date().toLocaleTimeString()}`);
}

export function showNoResponse(error) {
  state("silent", "No response");
  const since = respondedAt === null ? "" : ` for ${format.duration((Date.now() - respondedAt) / 1000)}; figures are from before`;
  banner("error", `uvmd has not responded${since}.`, [String(error.message ?? error)]);
}

function state(name, text) {
  element("state").dataset.state = name;
  setText(element("state"), text);
  document.body.classList.toggle("stale", name === "silent");
}

function banner(level, title = "", reasons = []) {
  element("banner").hidden = level === null;
  element("banner").dataset.level = level ?? "";
  setText(element("banner-title"), title);
  const shown = [...element("banner-reasons").children].map((item) => item.textContent);
  if (JSON.stringify(shown) === JSON.stringify(reasons)) return;
  element("banner-reasons").replaceChildren(...reasons.map((reason) => make("li", { textContent: reason })));
}
