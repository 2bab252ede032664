// Run by web/tests/http/page_scripts.rs, with Node.

import assert from "node:assert/strict";
import { test } from "node:test";
import { switchedOff } from "./words.js";

test("the text names everyone who switched acting off, and whether that is saved", () => {
  const disabled_by = [{ actor: "uid 0 on the socket" }, { actor: "uid 7, by the file /run/off" }];
  assert.equal(switchedOff({ disabled_by: [], persist_pending: false }), "");
  assert.equal(switchedOff({ disabled_by, persist_pending: false }), "switched off by uid 0 on the socket and uid 7, by the file /run/off");
  assert.match(switchedOff({ disabled_by: disabled_by.slice(0, 1), persist_pending: true }), /^switched off by uid 0 on the socket: not on the disk yet/);
});
