// Pictures of the page for the README, light and dark: node pictures.mjs URL TOKEN FOLDER

import { openPage, settle, startBrowser } from "./support.mjs";

const MARGIN = 14;
const [url, token, folder] = process.argv.slice(2);
const browser = await startBrowser();
for (const colorScheme of ["light", "dark"]) {
  const { page, faults, close } = await openPage(browser, url, { token, colorScheme });
  await settle(page);
  // Until the charts show the node before and since uvmd acts.
  await page.waitForTimeout(colorScheme === "light" ? 120_000 : 0);
  // From the top of the page to the end of the processes.
  const { y, height } = await page.locator("section:has(#processes)").boundingBox();
  await page.screenshot({ path: `${folder}/page-${colorScheme}.png`, fullPage: true, clip: { x: 0, y: 0, width: page.viewportSize().width, height: y + height + MARGIN } });
  if (faults.length > 0) throw new Error(faults.join("\n"));
  await close();
}
await browser.close();
