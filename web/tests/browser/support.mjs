// Showcases and pages for the tests.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// The packages are in the cache, where the scripts' own folder has none.
const installed = createRequire(`${process.env.PAGE_TEST_PACKAGES}/package.json`);
const { chromium } = installed("playwright-core");
export const axe = installed("axe-core");

export const TOKEN = "showcase-of-uvmd";
export const WIDTHS = [420, 768, 1180, 1920];

// Longest wait for a condition, on a machine that is busy.
const TIMEOUT_MS = 60_000;

// Starts the showcase in this state, on any free port or the given one.
export async function startShowcase(state, port = 0) {
  const child = spawn(process.env.PAGE_TEST_SHOWCASE, [String(port), state], { stdio: ["ignore", "pipe", "inherit"] });
  // A test that fails leaves it running: it ends with the tests, and does not hold them up.
  process.on("exit", () => child.kill());
  for await (const line of createInterface({ input: child.stdout })) {
    const stop = async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.ref();
      child.kill();
      await once(child, "exit");
    };
    child.unref();
    child.stdout.unref();
    return { url: line, port: Number(new URL(line).port), stop };
  }
  throw new Error(`the showcase ended with ${child.exitCode}`);
}

export async function startBrowser() {
  // Without a sandbox, as root; every page is our own.
  const browser = await chromium.launch({ executablePath: process.env.PAGE_TEST_CHROMIUM, args: ["--no-sandbox"] });
  return browser;
}

// Page of a reader of its own, who starts without a token. `faults` collects errors in the console,
// and requests that failed.
export async function openPage(browser, url, options = {}) {
  const { width = 1180, token = null, ...more } = options;
  const context = await browser.newContext({ viewport: { width, height: 900 }, ...more });
  context.setDefaultTimeout(TIMEOUT_MS);
  if (token !== null) await context.addInitScript((text) => sessionStorage.setItem("uvmd token", text), token);
  const page = await context.newPage();
  const faults = [];
  page.on("console", (message) => message.type() === "error" && faults.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => faults.push(`exception: ${error.message}`));
  page.on("response", (response) => response.status() >= 400 && faults.push(`${response.status()} ${response.url()}`));
  page.on("requestfailed", (request) => faults.push(`${request.failure()?.errorText} ${request.url()}`));
  page.on("dialog", (dialog) => faults.push(`dialog: ${dialog.message()}`) && dialog.dismiss());
  await page.goto(url);
  await page.locator('#state:not([data-state="connecting"])').waitFor();
  return { page, faults, close: () => context.close() };
}

// Waits for the first figures, and for rates and charts where the node counts.
export async function settle(page, { counts = true } = {}) {
  await page.waitForFunction(() => document.getElementById("updated").textContent !== "");
  if (counts) {
    await page.waitForFunction(() => [...document.querySelectorAll("#tiles strong")].every(({ textContent }) => textContent !== "–"));
    await page.waitForFunction(() => [...document.querySelectorAll(".spark .line")].every((line) => line.getAttribute("d") !== ""));
  }
}

// Waits for all parts of the panel of a process.
export async function settlePanel(page, { canRead = true } = {}) {
  await page.locator("#detail-sums dd").first().waitFor();
  await page.locator("#detail-history").waitFor();
  await page.locator("#detail-policy").waitFor();
  // Some processes have no known ranges.
  if (canRead) await page.locator("#detail-ranges tbody tr, #no-ranges:not([hidden])").first().waitFor();
  await page.waitForFunction(() => [...document.querySelectorAll(".chart-figure:not([hidden]) .plot .line")].every((line) => line.getAttribute("d")));
}

export const openAllDetails = (page) => page.evaluate(() => document.querySelectorAll("details").forEach((each) => (each.open = true)));

// Texts and attributes with a value that a script failed to read.
export const gaps = (page) =>
  page.evaluate(() => {
    const isGap = (text) => /\b(NaN|undefined|null|Infinity)\b|\[object /.test(text);
    const found = [];
    for (const element of document.querySelectorAll("body, body *")) {
      for (const node of element.childNodes) if (node.nodeType === Node.TEXT_NODE && isGap(node.data)) found.push(`${element.tagName} ${element.id}: ${node.data}`);
      for (const { name, value } of element.attributes) if (isGap(value)) found.push(`${element.tagName} ${element.id} ${name}: ${value}`);
    }
    return found;
  });

// Pixels by which the page is wider than the window.
export const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

// Violations of accessibility rules, as text.
export async function violations(page) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return violations.flatMap(({ id, nodes }) => nodes.map(({ target, any }) => `${id} ${target}: ${any[0]?.message ?? ""}`));
}
