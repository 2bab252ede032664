// What the page shows: every view in every state, width and theme.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { TOKEN, WIDTHS, gaps, openAllDetails, openPage, overflow, settle, settlePanel, startBrowser, startShowcase, violations } from "./support.mjs";

const PROCESSES = [41207, 40981, 52113, 47640, 38002, 39870].map((pid) => `${pid}.77000`);
const DECISIONS_OF_PLANS = ["19"];
const DECISIONS = { 14: 40981, 15: 52113, 16: 40981, 17: 52113, 18: 41207, 19: 40981 };

let browser;
before(async () => (browser = await startBrowser()));
after(() => browser.close());

// Showcases of this state, for the tests of a suite.
function showcase(state) {
  const running = {};
  before(async () => Object.assign(running, await startShowcase(state)));
  after(() => running.stop());
  return running;
}

for (const state of ["counting", "degraded", "tools", "healthy", "empty", "waiting", "refused", "hostile"]) {
  describe(`${state}:`, () => {
    const node = showcase(state);
    const counts = ["counting", "degraded", "tools", "healthy", "hostile"].includes(state);

    test("the page renders without an error, a failed request or a missing value", async () => {
      const { page, faults, close } = await openPage(browser, node.url, { token: TOKEN });
      await settle(page, { counts });
      await openAllDetails(page);
      assert.deepEqual(await gaps(page), []);
      assert.equal(await page.locator("#tiles strong").count(), 4);
      assert.deepEqual(faults, []);
      await close();
    });

    if (!counts) return;

    test("the panel of each process renders without an error, a failed request or a missing value", async () => {
      const { page, faults, close } = await openPage(browser, node.url, { token: TOKEN });
      for (const id of PROCESSES) {
        await page.goto(`${node.url}/#process=${id}`);
        await page.locator("#detail-title").filter({ hasText: id.split(".")[0] }).waitFor();
        await settlePanel(page);
        await openAllDetails(page);
        for (const measure of await page.locator("#heat-measure option:enabled").evaluateAll((options) => options.map(({ value }) => value))) {
          await page.locator("#heat-measure").selectOption(measure);
          assert.deepEqual(await gaps(page), [], `${id} ${measure}`);
        }
        await page.locator(".plot").first().focus();
        await page.keyboard.press("End");
        assert.deepEqual(await gaps(page), [], `${id} at the cursor`);
      }
      assert.deepEqual(faults, []);
      await close();
    });
  });
}

describe("tools:", () => {
  const node = showcase("tools");

  test("what the source does not count has no column, and lists of it the reason", async () => {
    const { page, close } = await openPage(browser, node.url, { token: TOKEN });
    await settle(page);
    const titles = async (table) => page.locator(`#${table} thead th:visible`).allTextContents();
    assert.ok((await page.locator("#no-evictions").textContent()).startsWith("Victims and evictors are not counted by the driver's tools"));
    for (const title of ["Resident", "Batches/s", "Batch p99", "Induced", "Calls/s"]) assert.ok(!(await titles("processes")).includes(title), title);
    await page.goto(`${node.url}/#process=${PROCESSES[0]}`);
    await settlePanel(page);
    await openAllDetails(page);
    for (const title of ["Faults", "CPU faults", "Evictions"]) assert.ok(!(await titles("detail-blocks")).includes(title), title);
    for (const title of ["Faults", "Pattern", "Resident"]) assert.ok(!(await titles("detail-ranges")).includes(title), title);
    assert.ok((await page.locator("#sites-others").textContent()).startsWith("CPU code is not counted by the driver's tools"));
    assert.deepEqual(await page.locator("#heat-measure option:disabled").allTextContents(), ["GPU faults", "CPU faults"]);
    await close();
  });
});

describe("counting:", () => {
  const node = showcase("counting");

  test("the evidence of each decision renders, whatever its stage", async () => {
    const { page, faults, close } = await openPage(browser, node.url, { token: TOKEN });
    for (const [id, pid] of Object.entries(DECISIONS)) {
      await page.goto(`${node.url}/#process=${pid}.77000&decision=${id}`);
      await page.locator("#detail-decisions dd").filter({ hasText: new RegExp(`^${id}, created`) }).waitFor();
      assert.deepEqual(await gaps(page), [], id);
      const titles = await page.locator("#detail-decisions section", { hasText: `${id}, created` }).locator("dt").allTextContents();
      // The moves of a plan are counted once.
      assert.equal(titles.filter((title) => /^Move[sd]$/.test(title)).length, DECISIONS_OF_PLANS.includes(id) ? 1 : 0, titles.join());
    }
    assert.deepEqual(faults, []);
    await close();
  });

  test("each column sorts the processes, and a second click restores the order", async () => {
    const { page, faults, close } = await openPage(browser, node.url, { width: 1920 });
    await settle(page);
    const headings = page.locator("#processes thead button");
    assert.ok((await headings.count()) > 10);
    for (const heading of await headings.all()) {
      await heading.click();
      assert.equal(await page.locator("#processes [aria-sort]").count(), 1);
      assert.deepEqual(await gaps(page), []);
      await heading.click();
      assert.equal(await page.locator("#processes [aria-sort]").count(), 0);
    }
    await page.locator("#processes thead button", { hasText: "Managed" }).click();
    await page.locator("#processes tbody tr").first().filter({ hasText: "solver" }).waitFor();
    assert.deepEqual(faults, []);
    await close();
  });
});

// Cells of the first rows that are not below their headings, and where these are hidden, without their own title.
const misplaced = (page) =>
  page.evaluate(() => {
    const edge = (cell) => {
      const { left, right } = cell.getBoundingClientRect();
      return cell.matches(".number") ? right : left;
    };
    const found = [];
    for (const table of document.querySelectorAll("table:not([hidden])")) {
      const row = table.tBodies[0]?.rows[0];
      if (!row || table.offsetParent === null) continue;
      const hasTitles = getComputedStyle(table.tHead).clipPath !== "none";
      [...table.tHead.rows[0].cells].forEach((heading, at) => {
        if (hasTitles) {
          const title = getComputedStyle(row.cells[at], "::before").content;
          if (at > 0 && title !== JSON.stringify(heading.textContent)) found.push(`${table.id} ${heading.textContent}: ${title}`);
          return;
        }
        const [shown, expected] = [row.cells[at].offsetParent !== null, heading.offsetParent !== null];
        if (shown !== expected || (shown && Math.abs(edge(heading) - edge(row.cells[at])) > 1)) found.push(`${table.id} ${heading.textContent}`);
      });
    }
    return found;
  });

for (const state of ["counting", "hostile"]) {
  describe(`${state}:`, () => {
    const node = showcase(state);
    for (const width of WIDTHS) {
      test(`each figure has its heading or title at ${width} px`, async () => {
        const { page, close } = await openPage(browser, `${node.url}/#process=40981.77000`, { width, token: TOKEN });
        await settle(page);
        await settlePanel(page);
        await openAllDetails(page);
        assert.deepEqual(await misplaced(page), []);
        await close();
      });

      test(`nothing is wider than ${width} px`, async () => {
        const { page, close } = await openPage(browser, node.url, { width, token: TOKEN });
        await settle(page);
        await openAllDetails(page);
        assert.equal(await overflow(page), 0);
        await page.goto(`${node.url}/#process=40981.77000&decision=19&owner=unit:x`);
        await settlePanel(page);
        await openAllDetails(page);
        assert.equal(await overflow(page), 0, "with a panel");
        await close();
      });
    }
  });
}

for (const colorScheme of ["dark", "light"]) {
  describe(`${colorScheme}:`, () => {
    const nodes = Object.fromEntries(["counting", "degraded", "empty", "waiting", "refused"].map((state) => [state, showcase(state)]));

    test("the background follows the reader's setting", async () => {
      const { page, close } = await openPage(browser, nodes.counting.url, { colorScheme });
      const [, red, green, blue] = /(\d+), (\d+), (\d+)/.exec(await page.evaluate(() => getComputedStyle(document.body).backgroundColor)).map(Number);
      assert.equal((red + green + blue) / 3 < 128, colorScheme === "dark");
      await close();
    });

    for (const state of ["degraded", "empty", "waiting", "refused"]) {
      test(`axe finds no violation while ${state}`, async () => {
        const { page, close } = await openPage(browser, nodes[state].url, { colorScheme });
        await settle(page, { counts: state === "degraded" });
        await openAllDetails(page);
        assert.deepEqual(await violations(page), []);
        await close();
      });
    }

    test("axe finds no violation in the panel of a process, its decisions and policy", async () => {
      const { page, close } = await openPage(browser, `${nodes.counting.url}/#process=40981.77000&decision=16&override=llm`, { colorScheme, token: TOKEN });
      await settle(page);
      await settlePanel(page);
      await openAllDetails(page);
      assert.deepEqual(await violations(page), []);
      await page.locator("#pause").click();
      assert.deepEqual(await violations(page), [], "paused");
      await close();
    });

    test("axe finds no violation on a phone, without a token, with an owner selected", async () => {
      const { page, close } = await openPage(browser, `${nodes.counting.url}/#process=41207.77000&owner=job:4711`, { colorScheme, width: 420 });
      await settle(page);
      await settlePanel(page, { canRead: false });
      await openAllDetails(page);
      await page.locator("#token-send").click();
      await page.locator("#token-error:not(:empty)").waitFor();
      assert.deepEqual(await violations(page), []);
      await close();
    });

    test("axe finds no violation while uvmd does not respond", async () => {
      const gone = await startShowcase("counting");
      const { page, close } = await openPage(browser, `${gone.url}/#process=41207.77000`, { colorScheme });
      await settle(page);
      await gone.stop();
      await page.locator('#state[data-state="silent"]').waitFor();
      assert.deepEqual(await violations(page), []);
      await close();
    });
  });
}
