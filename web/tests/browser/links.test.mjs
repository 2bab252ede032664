// What a reader asks next: links, the address, the time axis and pause.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { TOKEN, gaps, openPage, settle, settlePanel, startBrowser, startShowcase } from "./support.mjs";

let browser, node;
before(async () => ([browser, node] = await Promise.all([startBrowser(), startShowcase("counting")])));
after(() => Promise.all([browser.close(), node.stop()]));

const fragmentOf = (page) => new URLSearchParams(new URL(page.url()).hash.slice(1));
const titled = (page, text) => page.locator("#detail-title").filter({ hasText: text }).waitFor();
const focused = (page) => page.evaluate(() => document.activeElement.textContent);

test("one click leads from a victim to its evictor, in each table and in the panel", async () => {
  const { page, faults, close } = await openPage(browser, node.url);
  await settle(page);
  await page.locator("#processes a", { hasText: "victim of 52113" }).click();
  await titled(page, "solver 52113");
  await page.locator("#verdicts a", { hasText: "victim of 41207" }).click();
  await titled(page, "python 41207");
  await page.locator("#verdicts a", { hasText: "40981 cudf-worker" }).click();
  await titled(page, "cudf-worker 40981");
  await page.locator("#detail-evictor a", { hasText: "41207 python" }).click();
  await titled(page, "python 41207");
  await page.locator("#matrices thead a", { hasText: "40981 cudf-worker" }).click();
  await titled(page, "cudf-worker 40981");
  assert.deepEqual(faults, []);
  await close();
});

test("one click leads from an owner to its processes, and from a process to those of its owner", async () => {
  const { page, faults, close } = await openPage(browser, node.url);
  await settle(page);
  await page.locator("#processes a", { hasText: "job 4711" }).click();
  await page.locator("#process-count", { hasText: "1 of 6" }).waitFor();
  assert.deepEqual(await page.locator("#processes tbody th a").allTextContents(), ["solver"]);
  assert.equal(await page.locator("#owner-name").textContent(), "job 4711");
  assert.equal(fragmentOf(page).get("owner"), "job:4711");
  await page.locator("#owner-sums dd", { hasText: "in total" }).first().waitFor();
  await page.locator("#owner-clear").click();
  await page.waitForFunction(() => document.querySelector("#owner-sums").children.length === 0);
  assert.equal(await page.locator("#processes tbody tr").count(), 6);
  await page.locator("#verdicts a", { hasText: "victim of 41207" }).click();
  await page.locator("#detail-owner", { hasText: "All processes of pod 7c1f0c0e" }).click();
  assert.deepEqual(await page.locator("#processes tbody th a").allTextContents(), ["python"]);
  assert.deepEqual(faults, []);
  await close();
});

test("the panel of a process says why nothing is done about it, and remarks on it", async () => {
  const { page, faults, close } = await openPage(browser, node.url);
  await settle(page);
  await page.locator("#processes tbody th a", { hasText: "python" }).click();
  const denial = page.locator("#detail-decisions section", { hasText: "hot-cold: denied" });
  assert.match(await denial.textContent(), /already evicts processes that fit/);
  // What another decision followed is history.
  await page.locator("#processes tbody th a", { hasText: "cudf-worker" }).click();
  await titled(page, "cudf-worker");
  await page.locator("#detail-decisions section", { hasText: "auto-plan: trial" }).waitFor();
  assert.equal(await page.locator("#detail-decisions section", { hasText: "denied" }).count(), 0);
  await page.locator("#detail-remarks", { hasText: "It allocates and frees managed memory all the time" }).waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("one click leads from a decision to its evidence, and from there to its override", async () => {
  const { page, faults, close } = await openPage(browser, node.url);
  await settle(page);
  await page.locator("#decisions a", { hasText: "confirmed" }).click();
  await page.waitForFunction(() => document.activeElement.matches("#detail-decisions h3"));
  assert.match(await focused(page), /^cycle: confirmed on GPU1 /);
  const evidence = page.locator("#detail-decisions section", { hasText: "cycle: confirmed" });
  assert.match(await evidence.locator("dl").textContent(), /Measuredlink −56/);
  await evidence.locator("a", { hasText: "by override solvers" }).click();
  await page.waitForFunction(() => document.activeElement.id === "detail-policy-summary");
  assert.match(await page.locator("#detail-override").textContent(), /Sourcethe file of overridesMatchjob 4711Modeact/);
  // Straight from the list of the node, also where the default selected the policy.
  await page.locator("#decisions a", { hasText: "by default" }).click();
  await titled(page, "cudf-worker 40981");
  await page.locator("#detail-policy[open] h3", { hasText: "by default" }).waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("an override that does not exist any more is reported as such", async () => {
  const { page, close } = await openPage(browser, `${node.url}/#process=52113.77000&override=gone`);
  await page.locator("#detail-override-title", { hasText: "Override gone does not exist any more" }).waitFor();
  await close();
});

test("a link restores process, decision, filter, owner, order and span, for others and after a reload", async () => {
  const { page, close } = await openPage(browser, node.url);
  await settle(page);
  await page.locator("#filter").fill("solver");
  await page.locator("#processes thead button", { hasText: "Managed" }).click();
  await page.locator("#axis-spans button", { hasText: "1 h" }).click();
  await page.locator("#processes a", { hasText: "job 4711" }).click();
  await page.locator("#decisions a", { hasText: "confirmed" }).click();
  await page.locator("#detail-decisions h3", { hasText: "confirmed" }).waitFor();
  assert.deepEqual(Object.fromEntries(fragmentOf(page)), { filter: "solver", sort: "Managed", span: "1 h", owner: "job:4711", process: "52113.77000", decision: "17" });
  const other = await openPage(browser, page.url());
  await page.reload();
  for (const each of [page, other.page]) {
    await each.locator("#detail-decisions h3", { hasText: "cycle: confirmed" }).waitFor();
    await titled(each, "solver 52113");
    assert.equal(await each.locator("#filter").inputValue(), "solver");
    assert.equal(await each.locator("#owner-name").textContent(), "job 4711");
    assert.equal(await each.locator("#processes [aria-sort]").textContent(), "Managed");
    assert.equal(await each.locator('#axis-spans [aria-pressed="true"]').textContent(), "1 h");
  }
  await other.close();
  await close();
});

test("the browser's buttons go back to the process before, and forward", async () => {
  const { page, close } = await openPage(browser, node.url);
  await settle(page);
  await page.locator("#processes th a", { hasText: "python" }).click();
  await titled(page, "python 41207");
  await page.locator("#processes th a", { hasText: "solver" }).click();
  await titled(page, "solver 52113");
  await page.goBack();
  await titled(page, "python 41207");
  await page.goBack();
  await page.locator("#detail-panel").waitFor({ state: "hidden" });
  await page.goForward();
  await titled(page, "python 41207");
  await close();
});

test("an address that names nothing known is harmless", async () => {
  for (const hash of ["#process=1.1", "#process=x", "#process=41207.77000&decision=999", "#owner=", "#span=%00&sort=x&filter=%F0%9F", "#=&&&"]) {
    const { page, faults, close } = await openPage(browser, `${node.url}/${hash}`);
    await settle(page);
    assert.deepEqual(await gaps(page), [], hash);
    assert.deepEqual(faults.filter((fault) => fault.startsWith("exception")), [], hash);
    await close();
  }
});

test("all charts have one time axis: the same span, and one cursor at the same time", async () => {
  const { page, close } = await openPage(browser, `${node.url}/#process=41207.77000`);
  await settle(page);
  await settlePanel(page, { canRead: false });
  await page.locator("#pause").click();
  const cursors = () => page.locator(".chart-lines .cursor").evaluateAll((lines) => lines.map((line) => (line.getAttribute("visibility") === "visible" ? line.getAttribute("x1") : null)));
  assert.deepEqual([...new Set(await cursors())], [null]);
  await page.locator(".tiles .spark").first().hover({ position: { x: 60, y: 10 } });
  assert.equal((await cursors()).length, 4 + 2 + 3);
  assert.equal(new Set(await cursors()).size, 1);
  assert.notEqual((await cursors())[0], null);
  // The focus scrolls the page, and the pointer would be over another chart.
  await page.mouse.move(0, 0);
  await page.locator(".plot").first().focus();
  await page.keyboard.press("End");
  const readouts = await page.locator(".plots .readout").allTextContents();
  assert.equal(new Set(readouts.map((text) => text.split(": ")[0])).size, 1, readouts.join());
  assert.ok(readouts[0].length > 0);
  assert.match(await page.locator("#axis-cursor").textContent(), /^at /);
  await page.locator("#pause").click();

  const requested = [];
  page.on("request", (request) => requested.push(...(/history\?.*seconds=(\d+)/.exec(request.url())?.slice(1) ?? [])));
  await page.locator("#axis-spans button", { hasText: "1 h" }).click();
  await page.waitForFunction(() => performance.getEntriesByType("resource").filter(({ name }) => /history.*seconds=3600/.test(name)).length >= 3);
  assert.deepEqual([...new Set(requested)], ["3600"]);
  // The same span in the charts: the figures of an hour ago are at the left edge.
  await page.waitForFunction(() => [...document.querySelectorAll(".chart-lines .line")].every((line) => Number(/^M([\d.]+)/.exec(line.getAttribute("d"))?.[1]) < 20));
  await close();
});

test("a paused page requests nothing and keeps its figures, until it is resumed or asked", async () => {
  const { page, faults, close } = await openPage(browser, node.url);
  await settle(page);
  await page.clock.install();
  await page.locator("#pause").click();
  await page.locator('#state[data-state="paused"]').waitFor();
  // The round that was running ends.
  await page.clock.runFor(5000);
  await page.waitForLoadState("networkidle");
  let requests = 0;
  page.on("request", () => (requests += 1));
  const before = await page.locator("#tiles").textContent();
  await page.clock.runFor(60_000);
  assert.equal(requests, 0);
  assert.equal(await page.locator("#tiles").textContent(), before);
  await page.locator("#processes th a", { hasText: "solver" }).click();
  await page.clock.runFor(2000);
  await settlePanel(page, { canRead: false });
  assert.equal(await page.locator("#tiles").textContent(), before);
  await page.locator("#pause").click();
  await page.clock.runFor(5000);
  await page.locator('#state[data-state="counting"]').waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("marks of decisions are in the charts of the node, their GPU and their process", async () => {
  const { page, close } = await openPage(browser, `${node.url}/#process=52113.77000`, { token: TOKEN });
  await settle(page);
  await settlePanel(page);
  for (const chart of [".tiles .spark", ".card:nth-child(2) .spark", ".plot"]) {
    await page.waitForFunction((chart) => [...document.querySelectorAll(`${chart} .marks title`)].some(({ textContent }) => textContent.endsWith("cycle confirmed")), chart);
  }
  assert.equal(await page.locator(".card:nth-child(1) .marks title", { hasText: "cycle confirmed" }).count(), 0);
  await close();
});
