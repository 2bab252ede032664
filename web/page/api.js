// Requests to the API, with the reader's token if there is one. The token is stored for this tab
// only, and never part of an address.

const TIMEOUT_MS = 8000;
const STORAGE_KEY = "uvmd token";

// Storage may be forbidden; then the token lasts until the page is reloaded.
let token = null;
try {
  token = sessionStorage.getItem(STORAGE_KEY);
} catch {}

export const hasToken = () => token !== null;

export function storeToken(text) {
  token = text;
  try {
    if (text === null) sessionStorage.removeItem(STORAGE_KEY);
    else sessionStorage.setItem(STORAGE_KEY, text);
  } catch {}
}

// Problem response; `detail` is that of the API.
export class Problem extends Error {
  constructor(path, status, detail) {
    super(`${path}: ${detail ?? status}`);
    this.status = status;
    this.detail = detail;
  }
}

export async function request(path, presented = token) {
  const headers = presented === null ? {} : { Authorization: `Bearer ${presented}` };
  const response = await fetch(path, { headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
  // A proxy between here and uvmd may respond without JSON.
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new Problem(path, response.status, body?.detail);
  if (body === null) throw new Problem(path, response.status, "the response is not JSON");
  return body;
}

export const reason = (error) => String(error.detail ?? error.message ?? error);
