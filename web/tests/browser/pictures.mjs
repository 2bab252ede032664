// Pictures of the page for the README, light and dark: node pictures.mjs URL TOKEN FOLDER

import { openPage, settle, startBrowser } from "./support.mjs";

const [url, token, folder] = process.argv.slice(2);
const browser = await startBrowser();
for (const colorScheme of ["light", "dark"]) {
  const { page, faults, close } = await openPage(browser, url, { token, colorScheme });
  await settle(page);
  // Until the sparklines have a minute, of which the last part is while uvmd acts.
  await page.waitForTimeout(colorScheme === "light" ? 60_000 : 0);
  await page.screenshot({ path: `${folder}/page-${colorScheme}.png` });
  if (faults.length > 0) throw new Error(faults.join("\n"));
  await close();
}
await browser.close();
