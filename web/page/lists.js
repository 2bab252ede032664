// Lists, which the API answers a page at a time.

const PAGE = 1000;
// More would be slow to ask for and to show.
const MOST = 5000;

const length = (names, page) => names.reduce((sum, name) => sum + page[name].length, 0);

// The items of a list as one answer, at most so many, in the order of activity; `remaining` tells how many more there are. `fields` are those that hold the
// items, each with what compares two of them by activity. A list of several pages is asked for in the order of what names its items, unless it has more
// than are shown: so nothing is left out in between.
export async function list(ask, path, fields, most = MOST) {
  const names = Object.keys(fields);
  const joint = path.includes("?") ? "&" : "?";
  const page = (order, count, cursor) =>
    ask(`${path}${joint}order=${order}&limit=${Math.min(PAGE, most - count)}${cursor === null ? "" : `&continue=${cursor}`}`);
  let all = await page("activity", 0, null);
  if (all.continue === null) return all;
  const order = length(names, all) + all.remaining > most ? "activity" : "id";
  if (order === "id") all = await page(order, 0, null);
  while (all.continue !== null && length(names, all) < most) {
    const next = await page(order, length(names, all), all.continue);
    if (length(names, next) === 0) break;
    for (const name of names) all[name].push(...next[name]);
    all.continue = next.continue;
    all.remaining = next.remaining;
  }
  if (order === "id") for (const name of names) all[name].sort(fields[name]);
  return all;
}

// What is left out, behind what is shown; nothing where nothing is.
export const more = ({ remaining }) => (remaining > 0 ? `and ${remaining.toLocaleString("en")} more` : "");
