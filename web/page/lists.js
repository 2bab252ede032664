// Lists of the API, which have pages.

const PAGE = 1000;
// Maximum of items; more would be slow to request and to show.
const MAX_ITEMS = 5000;

// A list that is not counted is null.
const length = (names, page) => names.reduce((sum, name) => sum + (page[name] ?? []).length, 0);

// Requests the items of a list as one response: at most `max`, in the order of activity;
// `remaining` is the number of further ones. `fields` hold the items, each with a comparison by
// activity. A list of several pages is requested in the order of ids, so that no item is skipped,
// unless it has more than `max` items.
export async function list(request, path, fields, max = MAX_ITEMS) {
  const names = Object.keys(fields);
  const joint = path.includes("?") ? "&" : "?";
  const page = (order, count, cursor) =>
    request(`${path}${joint}order=${order}&limit=${Math.min(PAGE, max - count)}${cursor === null ? "" : `&continue=${cursor}`}`);
  let all = await page("activity", 0, null);
  if (all.continue === null) return all;
  const order = length(names, all) + all.remaining > max ? "activity" : "id";
  if (order === "id") all = await page(order, 0, null);
  while (all.continue !== null && length(names, all) < max) {
    const next = await page(order, length(names, all), all.continue);
    if (length(names, next) === 0) break;
    for (const name of names) all[name].push(...next[name]);
    all.continue = next.continue;
    all.remaining = next.remaining;
  }
  if (order === "id") for (const name of names) all[name].sort(fields[name]);
  return all;
}

// Number of omitted items; empty without any.
export const more = ({ remaining }) => (remaining > 0 ? `and ${remaining.toLocaleString("en")} more` : "");
