// Run by web/tests/http/page_scripts.rs, with Node.

import assert from "node:assert/strict";
import { test } from "node:test";
import { list, more } from "./lists.js";

const descending = (a, b) => b - a;

// List of `count` items, in pages of at most `longest`.
function listing(count, longest = 1000) {
  const requested = [];
  const request = async (path) => {
    requested.push(path);
    const { searchParams } = new URL(path, "http://localhost");
    const begin = Number(searchParams.get("continue") ?? 0);
    const end = Math.min(count, begin + longest, begin + Number(searchParams.get("limit")));
    const items = Array.from({ length: end - begin }, (_, at) => begin + at);
    return { time: "now", items, continue: end < count ? String(end) : null, remaining: count - end };
  };
  return { request, requested };
}

test("a list of one page is requested once, in the order of activity", async () => {
  const { request, requested } = listing(250);
  const all = await list(request, "/api/v1/things", { items: descending });
  assert.deepEqual([all.items.length, all.remaining, more(all)], [250, 0, ""]);
  assert.deepEqual(requested, ["/api/v1/things?order=activity&limit=1000"]);
});

test("a list of several pages has each item once, in the order of activity", async () => {
  for (const longest of [1000, 300]) {
    const { request, requested } = listing(2300, longest);
    const all = await list(request, "/api/v1/things?state=running", { items: descending });
    assert.deepEqual(all.items, Array.from({ length: 2300 }, (_, at) => 2299 - at));
    assert.deepEqual([all.continue, all.remaining, more(all)], [null, 0, ""]);
    assert.ok(requested.slice(1).every((path) => path.startsWith("/api/v1/things?state=running&order=id&limit=")), requested);
  }
});

test("a list beyond the maximum has its most active items, and the number of others", async () => {
  const { request, requested } = listing(7001);
  const all = await list(request, "/api/v1/things", { items: descending });
  assert.deepEqual([all.items.length, all.remaining, more(all)], [5000, 2001, "and 2,001 more"]);
  assert.ok(requested.length === 5 && requested.every((path) => path.includes("order=activity")), requested);
});

test("an empty page is the last one, even with a cursor", async () => {
  const all = await list(async () => ({ items: [], continue: "x", remaining: 3 }), "/api/v1/things", { items: descending });
  assert.deepEqual([all.items, more(all)], [[], "and 3 more"]);
});
