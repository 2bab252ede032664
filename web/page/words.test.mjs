// Run by web/tests/http/page_scripts.rs, with Node.

import assert from "node:assert/strict";
import { test } from "node:test";
import { gpu, headline, learn, plan, switchedOff, used } from "./words.js";

test("a switch is shown in uvmd's words, but not where acting was never enabled", () => {
  const [inactive_reason, persist_warning, disabled_by] = ["acting is switched off by a\u001b", "it is not saved yet", [{}]];
  assert.equal(switchedOff({ disabled_by: [], inactive_reason: null, persist_warning: null }), "");
  assert.equal(switchedOff({ disabled_by: [], inactive_reason, persist_warning: null }), "");
  assert.equal(switchedOff({ disabled_by, inactive_reason, persist_warning }), "acting is switched off by a\\u{1b}; it is not saved yet");
});

test("a GPU has one name: its index, or the digits of its UUID that nvidia-smi accepts", () => {
  const uuid = "GPU-73776770-d43c-8e11-b055-6f201caa9401";
  learn([{ uuid, gpu: null }]);
  assert.deepEqual([gpu(uuid), gpu(null)], ["GPU-73776770", "a GPU"]);
  learn([{ uuid, gpu: 1 }]);
  assert.equal(gpu(uuid), "GPU1");
});

test("used memory that is unknown has the reason", () => {
  const [memory_bytes, memory_used_bytes] = [64 * 2 ** 20, 30 * 2 ** 20];
  assert.deepEqual(used({ memory_bytes, memory_used_bytes, source: "nvml" }), ["30.0 MiB", "of 64.0 MiB"]);
  assert.deepEqual(used({ memory_bytes, memory_used_bytes: null, source: "procfs" }), ["unknown", "of 64.0 MiB; requires NVML"]);
  assert.deepEqual(used({ memory_bytes, memory_used_bytes: null, source: "nvml" }), ["unknown", "of 64.0 MiB; NVML does not respond"]);
  assert.deepEqual(used({ memory_bytes: null, memory_used_bytes: null, source: null }), ["unknown", "size unknown; requires NVML"]);
});

test("a plan is described in uvmd's words, with the reason if there is none", () => {
  assert.equal(plan({ description: "pump, 52.0 MiB over the link in an iteration", reason: null }), "pump, 52.0 MiB over the link in an iteration");
  assert.equal(plan({ description: "unavailable", reason: "its user's reader time is used up\u001b" }), "unavailable: its user's reader time is used up\\u{1b}");
});

test("a diagnosis is shown in uvmd's words, with its age and what to follow", () => {
  const process = { pid: 7, start_ticks: 70 };
  const verdict = { thrashing: true, started_at: "2026-11-21T14:00:00Z" };
  const diagnosis = { kind: "victim", label: "victim of 8", description: "8.0 GiB/s of its memory is evicted for 8 a\u001b", decision: null, evictor: { pid: 8, start_ticks: 80 }, verdict };
  const { text, age, help, rank } = headline({ ...process, diagnosis }, "2026-11-21T14:04:00Z");
  assert.deepEqual([text, age, help, rank], ["victim of 8", "4 min", "8.0 GiB/s of its memory is evicted for 8 a\\u{1b}; follow for the evictor", 2]);
  assert.equal(headline({ ...process, diagnosis: null }, ""), null);
  assert.equal(headline({ ...process, diagnosis: { ...diagnosis, kind: "prophecy" } }, ""), null);
});

test("a decision is shown with its effect in the second line, once it is confirmed", () => {
  const decision = (stage) => ({ id: 1, stage, action: "acting: cycle", effect: "link -55 %" });
  const diagnosis = (stage) => ({ kind: "decision", label: "acting: cycle, link -55 %", description: "A decision is in effect", decision: decision(stage), evictor: null, verdict: null });
  const shown = (stage) => headline({ pid: 7, start_ticks: 70, diagnosis: diagnosis(stage) }, "2026-11-21T14:04:00Z");
  assert.deepEqual([shown("confirmed").text, shown("confirmed").age, shown("trial").age], ["acting: cycle", "link -55 %", ""]);
});
