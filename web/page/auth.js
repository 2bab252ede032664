// Form for the token of read permission.

import { request, hasToken, storeToken, reason } from "./api.js";
import { element, setText } from "./dom.js";

const field = element("token");
let granted = null;
let changed = () => {};

// `then` is called when the reader's permission changes.
export function watch(then) {
  changed = then;
  element("token-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const token = field.value.trim();
    if (token === "") return fail("Enter the token: the line of the file that auth.token_file names.");
    element("token-send").disabled = true;
    try {
      await request("/api/v1/status", token);
      storeToken(token);
      field.value = "";
      fail("");
      changed();
    } catch (error) {
      // A request can send visible ASCII characters only.
      fail(/^[!-~]+$/.test(token) ? `Rejected: ${reason(error)}.` : "Rejected: a token has visible ASCII characters only.");
      field.select();
    }
    element("token-send").disabled = false;
  });
  element("token-forget").addEventListener("click", () => {
    storeToken(null);
    changed();
  });
  element("detail-unlock").addEventListener("click", () => {
    element("auth").open = true;
    element("auth").scrollIntoView({ block: "center" });
    field.focus();
  });
}

// Shows the permission of the reader, as in the status.
export function show(canRead) {
  element("token-in-use").hidden = !(canRead && hasToken());
  if (granted === canRead) return;
  granted = canRead;
  const hidesFocus = canRead && element("auth").contains(document.activeElement);
  element("auth").hidden = canRead;
  if (hidesFocus) element("token-forget").focus();
  if (canRead) fail("");
  changed();
}

export const readPermission = () => granted === true;

// Drops a token that is no longer valid, as every request with it would be rejected. Returns
// whether it did.
export function tokenRejected(error) {
  if (error.status !== 401 || !hasToken()) return false;
  storeToken(null);
  element("auth").open = true;
  fail(`The token is no longer valid: ${reason(error)}.`);
  return true;
}

function fail(text) {
  setText(element("token-error"), text);
  field.setAttribute("aria-invalid", String(text !== ""));
}
