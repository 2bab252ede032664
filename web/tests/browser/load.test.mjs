// Many processes, and a daemon that goes away.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { gaps, openPage, settle, settlePanel, startBrowser, startShowcase } from "./support.mjs";

const ROWS = 50;
const REFRESHES = 4;
// Changes of a row: it is placed once, and each of its 16 cells has two texts, which are removed
// and added, a title and a class.
const CHANGES_PER_ROW = 1 + 16 * 4;
// Changes of the rest: tiles, cards, charts and other tables, which do not grow with processes.
const OTHER_CHANGES = 1500;

let browser;
before(async () => (browser = await startBrowser()));
after(() => browser.close());

// Changes of the page during some refreshes, and the rows of processes that changed in each.
const changes = (page) =>
  page.evaluate(
    (refreshes) =>
      new Promise((resolve) => {
        const all = [];
        let [records, rows] = [0, new Set()];
        new MutationObserver((mutations, observer) => {
          for (const { target, addedNodes } of mutations) {
            records += 1 + addedNodes.length;
            const row = (target.nodeType === Node.ELEMENT_NODE ? target : target.parentElement)?.closest("#processes tbody tr");
            if (row) rows.add(row);
          }
          if (!mutations.some(({ target }) => target.id === "updated")) return;
          all.push({ records, rows: rows.size });
          [records, rows] = [0, new Set()];
          if (all.length === refreshes) resolve(all) || observer.disconnect();
        }).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
      }),
    REFRESHES,
  );

test("with 500 processes, the work of a refresh is bounded by the visible rows", async () => {
  const node = await startShowcase("crowd");
  const { page, faults, close } = await openPage(browser, node.url, { width: 1920 });
  await settle(page);
  await page.locator("#process-count", { hasText: "499 running" }).waitFor();
  for (const shown of [ROWS, 2 * ROWS]) {
    assert.equal(await page.locator("#processes tbody tr").count(), shown);
    for (const { records, rows } of await changes(page)) {
      assert.ok(rows <= 2 * shown, `${rows} rows`);
      assert.ok(records <= shown * CHANGES_PER_ROW + OTHER_CHANGES, `${records} changes`);
    }
    await page.locator("#processes ~ .more").click();
  }
  // All processes can be found nevertheless, by the filter and in any order.
  await page.locator("#filter").fill("60199");
  await page.locator("#process-count", { hasText: "1 of 500" }).waitFor();
  await page.locator("#filter").fill("");
  await page.locator("#processes thead button", { hasText: "Process" }).click();
  assert.equal(await page.locator("#processes tbody th a").first().textContent(), "<b>evil</b>\\u{1b}[31m");
  await page.locator("#processes td a", { hasText: "pod abc0000a" }).first().click();
  await page.locator("#process-count", { hasText: "20 of 500" }).waitFor();
  assert.deepEqual(faults, []);
  await close();
  await node.stop();
});

test("a daemon that goes away is reported, and figures continue when it comes back", async () => {
  const node = await startShowcase("counting");
  const { page, faults, close } = await openPage(browser, `${node.url}/#process=41207.77000`);
  await settle(page);
  await settlePanel(page, { canRead: false });
  await node.stop();
  await page.locator('#state[data-state="silent"]', { hasText: "No response" }).waitFor();
  await page.locator("#banner-title", { hasText: "uvmd has not responded" }).waitFor();
  assert.equal(await page.locator("#processes tbody tr").count(), 6, "the last figures stay");
  assert.deepEqual(await gaps(page), []);
  const updated = await page.locator("#updated").textContent();
  const again = await startShowcase("counting", node.port);
  await page.locator('#state[data-state="counting"]').waitFor();
  await page.waitForFunction((former) => document.getElementById("updated").textContent !== former, updated);
  await settle(page);
  assert.equal(await page.locator("#banner").isVisible(), false);
  assert.equal(await page.evaluate(() => document.body.classList.contains("stale")), false);
  assert.deepEqual(await gaps(page), []);
  assert.deepEqual(faults.filter((fault) => fault.startsWith("exception")), []);
  await close();
  await again.stop();
});

test("panels report that they load until the first responses", async () => {
  const node = await startShowcase("counting");
  const context = await browser.newContext();
  const page = await context.newPage();
  let release;
  const released = new Promise((resolve) => (release = resolve));
  await page.route("**/api/v1/**", async (route) => {
    await released;
    await route.continue();
  });
  await page.goto(`${node.url}/#process=41207.77000`);
  const loading = ["no-verdicts", "no-processes", "no-evictions", "no-gpus", "no-probes", "detail-identity"];
  const texts = () => page.evaluate((ids) => ids.map((id) => document.getElementById(id).textContent), loading);
  assert.deepEqual(await texts(), loading.map(() => "Loading"));
  assert.ok(await page.locator("#no-processes").isVisible());
  release();
  await settle(page);
  await settlePanel(page, { canRead: false });
  assert.ok((await texts()).every((text) => text !== "Loading"), (await texts()).join("; "));
  assert.equal(await page.locator("#no-processes").isVisible(), false);
  await context.close();
  await node.stop();
});
