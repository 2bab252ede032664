// Asking the API, with the reader's token if there is one. It is kept for this tab alone and never put into an address.

const PATIENCE_MS = 8000;
const KEPT_AS = "uvmd token";

// Storage may be forbidden; then the token lasts until the page is loaded again.
let token = null;
try {
  token = sessionStorage.getItem(KEPT_AS);
} catch {}

export const hasToken = () => token !== null;

export function keepToken(text) {
  token = text;
  try {
    if (text === null) sessionStorage.removeItem(KEPT_AS);
    else sessionStorage.setItem(KEPT_AS, text);
  } catch {}
}

// An answer that is a problem; `detail` is what the API says of it.
export class Problem extends Error {
  constructor(path, status, detail) {
    super(`${path}: ${detail ?? status}`);
    this.status = status;
    this.detail = detail;
  }
}

export async function ask(path, presented = token) {
  const headers = presented === null ? {} : { Authorization: `Bearer ${presented}` };
  const answer = await fetch(path, { headers, signal: AbortSignal.timeout(PATIENCE_MS) });
  // What is between here and uvmd may answer something else.
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new Problem(path, answer.status, body?.detail);
  if (body === null) throw new Problem(path, answer.status, "the answer cannot be read");
  return body;
}

export const reason = (error) => String(error.detail ?? error.message ?? error);
