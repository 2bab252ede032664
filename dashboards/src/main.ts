// Writes the dashboards into a folder: node main.js FOLDER.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fleet } from "./fleet.js";
import { node } from "./node.js";
import { owner } from "./owner.js";
import { policiesDashboard } from "./policies.js";
import { uvmd } from "./uvmd.js";

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error("usage: node main.js FOLDER");

// The SDK would move each link and annotation into a menu.
const withoutMenu = (key: string, value: unknown) => (key === "placement" && value === "inControlsMenu" ? undefined : value);

for (const each of [fleet, node, owner, policiesDashboard, uvmd]) {
  const built = each.build();
  writeFileSync(join(folder, `${built.uid}.json`), `${JSON.stringify(built, withoutMenu, 2)}\n`);
}
