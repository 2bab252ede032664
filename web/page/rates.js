// Rates of monotonic counters.

const WINDOW_MS = 3000;

export class Rates {
  #samples = new Map();

  // Records the current counters by key, and drops keys that are not among them.
  record(now, countersByKey) {
    const samples = new Map();
    for (const [key, counters] of countersByKey) {
      const former = this.#samples.get(key) ?? [];
      const last = former.at(-1);
      // A counter that decreased was reset, and so is its rate.
      const reset = last && Object.keys(counters).some((name) => counters[name] < last.counters[name]);
      const samplesBefore = reset ? [] : former;
      // One sample before the window stays, so that the rate covers at least the window.
      const from = samplesBefore.findLastIndex((sample) => now - sample.now >= WINDOW_MS);
      samples.set(key, [...samplesBefore.slice(Math.max(from, 0)), { now, counters }]);
    }
    this.#samples = samples;
  }

  // Recent rate of a counter per second; null with fewer than two samples, or where the driver does not count it.
  of(key, name) {
    const samples = this.#samples.get(key) ?? [];
    if (samples.length < 2) return null;
    const [first, last] = [samples[0], samples.at(-1)];
    if (last.counters[name] === null || first.counters[name] === null) return null;
    return ((last.counters[name] - first.counters[name]) * 1000) / (last.now - first.now);
  }
}
