// What the reader may not read, and how to: the token that uvmd was configured with.

import { ask, hasToken, keepToken, reason } from "./api.js";
import { element, say } from "./dom.js";

const field = element("token");
let mayReadAll = null;
let changed = () => {};

// `then` is called when the reader may read more or less than before.
export function watch(then) {
  changed = then;
  element("token-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const token = field.value.trim();
    if (token === "") return fail("Enter the token: the one line of the file that auth.token_file names.");
    element("token-send").disabled = true;
    try {
      await ask("/api/v1/status", token);
      keepToken(token);
      field.value = "";
      fail("");
      changed();
    } catch (error) {
      // Whatever is no visible ASCII character cannot be sent.
      fail(/^[!-~]+$/.test(token) ? `Not accepted: ${reason(error)}.` : "Not accepted: a token has visible ASCII characters only.");
      field.select();
    }
    element("token-send").disabled = false;
  });
  element("token-forget").addEventListener("click", () => {
    keepToken(null);
    changed();
  });
  element("detail-unlock").addEventListener("click", () => {
    element("authority").open = true;
    element("authority").scrollIntoView({ block: "center" });
    field.focus();
  });
}

// As the status says.
export function show(readAuthority) {
  element("token-in-use").hidden = !(readAuthority && hasToken());
  if (mayReadAll === readAuthority) return;
  mayReadAll = readAuthority;
  const leaves = readAuthority && element("authority").contains(document.activeElement);
  element("authority").hidden = readAuthority;
  if (leaves) element("token-forget").focus();
  if (readAuthority) fail("");
  changed();
}

export const readsAll = () => mayReadAll === true;

// A token that was right and is not any more would have every request refused: goes on without. Says whether there was one.
export function refused(error) {
  if (error.status !== 401 || !hasToken()) return false;
  keepToken(null);
  element("authority").open = true;
  fail(`The token is not accepted any more: ${reason(error)}.`);
  return true;
}

function fail(text) {
  say(element("token-error"), text);
  field.setAttribute("aria-invalid", String(text !== ""));
}
