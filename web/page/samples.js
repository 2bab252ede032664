// Samples of histories: values of lines, and sums.

// Times, values and length of the samples of a history. `value(sample, name, seconds)` is the value
// of a line.
export function samplesOf({ started_at, interval_seconds, samples }, names, value) {
  const slotMs = interval_seconds * 1000;
  const times = samples.map((_, index) => Date.parse(started_at) + (index + 0.5) * slotMs);
  const values = names.map((name) => samples.map((sample) => sample && value(sample, name, interval_seconds)));
  return [times, values, slotMs];
}

// Null where the source does not count it.
export const perSecond = (sample, name, seconds) => (sample[name] === null ? null : sample[name] / seconds);

// Whether a line has a value, or has none because nothing was read, rather than because the source does not count it.
export const isCounted = (values, { samples }) => samples.every((sample) => sample === null) || values.some((value) => value !== null);

// Sum of several histories with one interval, as one history.
export function sum(histories) {
  const known = histories.filter(({ samples }) => samples.length > 0);
  if (known.length === 0) return { started_at: new Date(0).toISOString(), interval_seconds: 1, samples: [] };
  const seconds = Math.max(...known.map(({ interval_seconds }) => interval_seconds));
  const slots = new Map();
  for (const { started_at, samples } of known) {
    const first = Math.round(Date.parse(started_at) / 1000 / seconds);
    samples.forEach((sample, index) => {
      const total = slots.get(first + index) ?? null;
      slots.set(first + index, sample === null ? total : add(total, sample));
    });
  }
  const numbers = [...slots.keys()];
  const begin = Math.min(...numbers);
  const samples = Array.from({ length: Math.max(...numbers) - begin + 1 }, (_, index) => slots.get(begin + index) ?? null);
  return { started_at: new Date(begin * seconds * 1000).toISOString(), interval_seconds: seconds, samples };
}

// What one of the two does not count is null.
const plus = (one, other) => (one === null || other === null ? null : one + other);
const add = (total, sample) => Object.fromEntries(Object.entries(sample).map(([name, value]) => [name, total === null ? value : plus(total[name], value)]));
