// Rates, from counters that only grow.

const WINDOW_MS = 3000;

export class Rates {
  #samples = new Map();

  // Remembers the counters of everything that is there now, by key, and forgets what is not.
  record(now, countersByKey) {
    const samples = new Map();
    for (const [key, counters] of countersByKey) {
      const known = this.#samples.get(key) ?? [];
      const last = known.at(-1);
      // Counters that went back started anew, and so does their rate.
      const reset = last && Object.keys(counters).some((name) => counters[name] < last.counters[name]);
      const kept = reset ? [] : known;
      // One sample older than the window stays: the rate is over at least the window, once there is that much.
      const from = kept.findLastIndex((sample) => now - sample.now >= WINDOW_MS);
      samples.set(key, [...kept.slice(Math.max(from, 0)), { now, counters }]);
    }
    this.#samples = samples;
  }

  // What a counter gained a second, lately; null while only one value of it is known.
  of(key, name) {
    const samples = this.#samples.get(key) ?? [];
    if (samples.length < 2) return null;
    const [first, last] = [samples[0], samples.at(-1)];
    return ((last.counters[name] - first.counters[name]) * 1000) / (last.now - first.now);
  }
}
