// Run by web/tests/http/page_scripts.rs, with Node.

import assert from "node:assert/strict";
import { test } from "node:test";
import { list, more } from "./lists.js";

const downwards = (a, b) => b - a;

// A list of so many items, answered in pages of at most `longest`.
function listing(count, longest = 1000) {
  const asked = [];
  const ask = async (path) => {
    asked.push(path);
    const { searchParams } = new URL(path, "http://localhost");
    const begin = Number(searchParams.get("continue") ?? 0);
    const end = Math.min(count, begin + longest, begin + Number(searchParams.get("limit")));
    const items = Array.from({ length: end - begin }, (_, at) => begin + at);
    return { time: "now", items, continue: end < count ? String(end) : null, remaining: count - end };
  };
  return { ask, asked };
}

test("one page is asked for once, in the order of activity", async () => {
  const { ask, asked } = listing(250);
  const all = await list(ask, "/api/v1/things", { items: downwards });
  assert.deepEqual([all.items.length, all.remaining, more(all)], [250, 0, ""]);
  assert.deepEqual(asked, ["/api/v1/things?order=activity&limit=1000"]);
});

test("a list of several pages is whole, each item is there once, and they are in the order of activity", async () => {
  for (const longest of [1000, 300]) {
    const { ask, asked } = listing(2300, longest);
    const all = await list(ask, "/api/v1/things?state=running", { items: downwards });
    assert.deepEqual(all.items, Array.from({ length: 2300 }, (_, at) => 2299 - at));
    assert.deepEqual([all.continue, all.remaining, more(all)], [null, 0, ""]);
    assert.ok(asked.slice(1).every((path) => path.startsWith("/api/v1/things?state=running&order=id&limit=")), asked);
  }
});

test("of a longer list those that do most are shown, and how many there are beside them", async () => {
  const { ask, asked } = listing(7001);
  const all = await list(ask, "/api/v1/things", { items: downwards });
  assert.deepEqual([all.items.length, all.remaining, more(all)], [5000, 2001, "and 2,001 more"]);
  assert.ok(asked.length === 5 && asked.every((path) => path.includes("order=activity")), asked);
});

test("an empty page that says that another follows is the last one", async () => {
  const all = await list(async () => ({ items: [], continue: "x", remaining: 3 }), "/api/v1/things", { items: downwards });
  assert.deepEqual([all.items, more(all)], [[], "and 3 more"]);
});
