// Run by web/tests/http/page_scripts.rs, with Node.

import assert from "node:assert/strict";
import { test } from "node:test";
import { plan, switchedOff } from "./words.js";

test("the text names everyone who switched acting off, and whether that is saved", () => {
  const disabled_by = [{ actor: "uid 0 on the socket" }, { actor: "uid 7, by the file /run/off" }];
  assert.equal(switchedOff({ disabled_by: [], persist_pending: false }), "");
  assert.equal(switchedOff({ disabled_by, persist_pending: false }), "switched off by uid 0 on the socket and uid 7, by the file /run/off");
  assert.match(switchedOff({ disabled_by: disabled_by.slice(0, 1), persist_pending: true }), /^switched off by uid 0 on the socket: not on the disk yet/);
});

test("a plan is described by what it promises, and else by its state and the reason", () => {
  const reason = "planners wait for their turn";
  const none = { state: "planning", reason, planner: null, promise: null, planned_bytes: null, planned_faulted_blocks: null, iterations: 12 };
  assert.equal(plan(none), "planning, 12 iterations so far: planners wait for their turn");
  const throttled = "its calls are not read for now: its user's reader time is used up\u001b";
  assert.equal(plan({ ...none, state: "unavailable", reason: throttled, iterations: null }), "unavailable: its calls are not read for now: its user's reader time is used up\\u{1b}");
  const held = "the quota of recordings is reached: user 1001 has 8 of 16";
  assert.equal(plan({ ...none, state: "unavailable", reason: held, iterations: 1 }), `unavailable, 1 iteration so far: ${held}`);
  const planned = { ...none, state: "planned", reason: null, planner: "pump", promise: "link_bytes", planned_bytes: 52 * 2 ** 20, planned_faulted_blocks: 1 };
  assert.equal(plan(planned), "pump, 52.0 MiB over the link in an iteration, 12 iterations so far");
  assert.equal(plan({ ...planned, promise: "faults" }), "pump, 1 block left to faults in an iteration, 12 iterations so far");
});
