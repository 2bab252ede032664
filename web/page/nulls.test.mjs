// Run by web/tests/http/page_scripts.rs, with Node. What a source does not count is null, and shown as a dash, never as 0.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as format from "./format.js";
import { Rates } from "./rates.js";
import { list } from "./lists.js";
import * as samples from "./samples.js";

test("a counter that is not counted has no rate", () => {
  const rates = new Rates();
  for (const now of [0, 1000]) rates.record(now, [["node", { evicted_bytes: null, bytes_htod: now }]]);
  assert.deepEqual([rates.of("node", "evicted_bytes"), rates.of("node", "bytes_htod")], [null, 1000]);
  assert.deepEqual([format.bytesRate(null), format.optional(format.bytes)(null)], ["–", "–"]);
});

test("a history that is not counted draws no line at 0", () => {
  const sample = { bytes_htod: 8, evicted_bytes: null };
  const history = { started_at: "2026-11-21T14:00:00Z", interval_seconds: 2, samples: [null, sample] };
  const [, [copied, evicted]] = samples.samplesOf(history, ["bytes_htod", "evicted_bytes"], samples.perSecond);
  assert.deepEqual([copied, evicted], [[null, 4], [null, null]]);
  assert.deepEqual([samples.isCounted(copied, history), samples.isCounted(evicted, history)], [true, false]);
  // Where nothing was read, nothing is known of the source.
  assert.ok(samples.isCounted([null], { samples: [null] }));
});

test("a sum of histories is null where one of them is", () => {
  const history = (evicted_bytes) => ({ started_at: "2026-11-21T14:00:00Z", interval_seconds: 1, samples: [{ bytes_htod: 1, evicted_bytes }] });
  assert.deepEqual(samples.sum([history(null), history(2)]).samples, [{ bytes_htod: 2, evicted_bytes: null }]);
  assert.deepEqual(samples.sum([history(3), history(2)]).samples, [{ bytes_htod: 2, evicted_bytes: 5 }]);
});

test("a list that is not counted has one page, and no items", async () => {
  const response = { pairs: null, unavailable: "not counted by the driver's tools", continue: null, remaining: 0 };
  const all = await list(async () => response, "/api/v1/evictions", { pairs: () => 0 });
  assert.deepEqual(all, response);
});

test("a column is known while a count of it is", () => {
  const isKnown = format.isKnown("evictions");
  assert.deepEqual([{ evictions: 0 }, { evictions: null }, {}].map(isKnown), [true, false, false]);
});
