// Readers: filters, tokens, keyboards, and programs that attack them.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { TOKEN, gaps, openAllDetails, openPage, settle, settlePanel, startBrowser, startShowcase } from "./support.mjs";

let browser, node, hostile;
before(async () => ([browser, node, hostile] = await Promise.all([startBrowser(), startShowcase("counting"), startShowcase("hostile")])));
after(() => Promise.all([browser.close(), node.stop(), hostile.stop()]));

const names = (page) => page.locator("#processes tbody th a").allTextContents();

test("the filter finds processes by name, pid, user, owner, verdict, cgroup and GPU", async () => {
  const { page, faults, close } = await openPage(browser, node.url);
  await settle(page);
  const found = {
    cudf: ["cudf-worker"],
    52113: ["solver", "<b>evil</b>\\u{1b}[31m"],
    etl: ["cudf-worker"],
    "JOB 4711": ["solver"],
    "capacity thrash": ["python"],
    "kubepods.slice/e00c": ["cudf-worker"],
    "gpu0": ["cudf-worker", "jupyter-lab", "python"],
    "GPU-4c": ["<b>evil</b>\\u{1b}[31m", "nbody", "solver"],
    "no such process": [],
  };
  for (const [text, expected] of Object.entries(found)) {
    await page.locator("#filter").fill(text);
    assert.deepEqual((await names(page)).sort(), [...expected].sort(), text);
    assert.equal(await page.locator("#process-count").textContent(), `${expected.length} of 6`);
  }
  assert.equal(await page.locator("#no-processes").textContent(), "No process matches the filter.");
  await page.locator("#filter").fill("");
  assert.equal((await names(page)).length, 6);
  assert.deepEqual(faults, []);
  await close();
});

test("a token unlocks command lines and memory, survives a reload, and can be forgotten", async () => {
  const { page, faults, close } = await openPage(browser, `${node.url}/#process=41207.77000`);
  await settlePanel(page, { canRead: false });
  const secret = "python train.py --model llm-7b";
  assert.ok(!(await page.content()).includes(secret));
  assert.equal(await page.locator("#detail-memory").isVisible(), false);
  await page.locator("#detail-unlock").click();
  await page.locator("#token").fill("wrong");
  await page.keyboard.press("Enter");
  await page.locator("#token-error", { hasText: "Rejected" }).waitFor();
  await page.locator("#token").fill("not ascii: \u00e9");
  await page.keyboard.press("Enter");
  await page.locator("#token-error", { hasText: "visible ASCII" }).waitFor();
  await page.locator("#token").fill(TOKEN);
  await page.keyboard.press("Enter");
  await page.locator("#detail-command", { hasText: secret }).waitFor();
  await page.locator("#detail-ranges tbody tr").first().waitFor();
  assert.equal(await page.locator("#auth").isVisible(), false);
  assert.ok(!page.url().includes(TOKEN));
  await page.reload();
  await page.locator("#detail-command", { hasText: secret }).waitFor();
  // Before any further response.
  let release;
  const held = new Promise((resolve) => (release = resolve));
  await page.route(/\/api\//, (route) => held.then(() => route.continue()));
  await page.locator("#token-forget").click();
  assert.ok(!(await page.content()).includes(secret));
  release();
  await page.locator("#auth").waitFor();
  await page.locator("#detail-memory").waitFor({ state: "hidden" });
  assert.ok(!(await page.content()).includes(secret));
  const expected = /^(401 .*|console: Failed to load resource.*401.*)$/;
  assert.deepEqual(faults.filter((fault) => !expected.test(fault)), []);
  await close();
});

test("the tab key reaches everything in the order of the page, with visible focus", async () => {
  const { page, close } = await openPage(browser, node.url);
  await settle(page);
  // Rows do not change places meanwhile.
  await page.locator("#pause").click();
  // The tab key begins where the page was clicked last: its upper left corner.
  await page.mouse.click(1, 1);
  const expected = await page.evaluate(() => [...document.querySelectorAll("a[href], button, input, summary, [tabindex='0']")]
      // The tab key stops at one button of a group of radio buttons.
      .filter((each) => each.checkVisibility() && !each.disabled && !(each.type === "radio" && !each.checked)).length);
  const reached = [];
  for (;;) {
    await page.keyboard.press("Tab");
    const state = await page.evaluate(() => {
      const now = document.activeElement;
      if (now === document.body) return null;
      const { width, height } = now.getBoundingClientRect();
      const { outlineStyle, outlineWidth } = getComputedStyle(now);
      const inOrder = window.former === undefined || Boolean(window.former.compareDocumentPosition(now) & Node.DOCUMENT_POSITION_FOLLOWING);
      window.former = now;
      return { name: `${now.tagName} ${now.id} ${now.textContent.slice(0, 20)}`, visible: width > 0 && height > 0, outlined: outlineStyle !== "none" && parseFloat(outlineWidth) >= 2, inOrder };
    });
    if (state === null) break;
    assert.ok(state.visible && state.outlined && state.inOrder, JSON.stringify(state));
    reached.push(state.name);
    assert.ok(reached.length <= expected, "the focus is trapped");
  }
  assert.equal(reached.length, expected);
  await close();
});

test("keys open a process, move in its charts, and close it where it was opened", async () => {
  const { page, faults, close } = await openPage(browser, node.url, { token: TOKEN });
  await settle(page);
  const link = page.locator("#processes th a", { hasText: "solver" });
  await link.focus();
  await page.keyboard.press("Enter");
  await page.locator("#detail-title", { hasText: "solver 52113" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), "detail-title");
  await settlePanel(page);
  for (const slider of [".plot", ".strip"]) {
    await page.locator(slider).first().focus();
    const texts = new Set();
    for (const key of ["Home", "ArrowRight", "PageUp", "End", "ArrowLeft"]) {
      await page.keyboard.press(key);
      texts.add(await page.locator(slider).first().getAttribute("aria-valuetext"));
    }
    assert.equal(texts.size, 5, slider);
  }
  await page.keyboard.press("Escape");
  await page.locator("#detail-panel").waitFor({ state: "hidden" });
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "solver");
  assert.equal(new URL(page.url()).hash, "");
  assert.deepEqual(faults, []);
  await close();
});

test("markup in the names of processes, users, cgroups, owners and policies is text", async () => {
  const { page, faults, close } = await openPage(browser, hostile.url, { token: TOKEN });
  await settle(page);
  for (const pid of [41207, 40981, 52113]) {
    await page.goto(`${hostile.url}/#process=${pid}.77000`);
    await page.locator("#detail-title", { hasText: String(pid) }).waitFor();
    await settlePanel(page);
    await page.locator("#detail-decisions section").first().waitFor();
    await openAllDetails(page);
    await page.locator("#processes a", { hasText: "unit " }).first().click();
    const { attacked, images, links, handlers } = await page.evaluate(() => ({
      attacked: document.body.dataset.attacked ?? null,
      images: document.querySelectorAll("img:not([src='/page/icon.svg']), script:not([src='/page/main.js']), iframe").length,
      links: [...document.querySelectorAll("a[href]")].map((link) => link.getAttribute("href")).filter((href) => !/^(#|\/api\/v1\/|\/metrics$)/.test(href)),
      handlers: [...document.querySelectorAll("*")].filter((each) => [...each.attributes].some(({ name }) => name.startsWith("on"))).length,
    }));
    assert.deepEqual({ attacked, images, links, handlers }, { attacked: null, images: 0, links: [], handlers: 0 });
  }
  const text = await page.locator("main").textContent();
  for (const where of ["#processes th a", "#processes td a", "#detail-identity", "#detail-sums", "#decisions", "#detail-decisions", "#detail-command"]) {
    assert.ok((await page.locator(where).allTextContents()).some((shown) => shown.includes("<img src=x onerror=")), where);
  }
  assert.ok(text.includes("<img src=x onerror="));
  assert.deepEqual(await gaps(page), []);
  assert.deepEqual(faults, []);
  await close();
});

test("nothing moves by itself, for readers who prefer reduced motion", async () => {
  const { page, close } = await openPage(browser, `${node.url}/#process=41207.77000`, { token: TOKEN, reducedMotion: "reduce" });
  await settlePanel(page);
  await openAllDetails(page);
  const moving = await page.evaluate(() =>
    [...document.querySelectorAll("*")].filter((each) => {
      const { animationName, transitionDuration, scrollBehavior } = getComputedStyle(each);
      return animationName !== "none" || transitionDuration.split(", ").some((duration) => duration !== "0s") || scrollBehavior === "smooth";
    }).map(({ tagName, id }) => `${tagName} ${id}`),
  );
  assert.deepEqual(moving, []);
  assert.deepEqual(await page.evaluate(() => document.getAnimations().length), 0);
  await close();
});
