// Polling. A round begins after all responses of the previous one, so that requests never pile up.
// A hidden page sends none.

const ROUND_MS = 1000;

export class Rounds {
  #polls = [];
  #isPending = false;
  #isPaused = false;
  #wake = () => {};

  // `run` is called every `interval` milliseconds, and handles its errors. `interval` may be a
  // function.
  every(interval, run) {
    const poll = { interval: typeof interval === "function" ? interval : () => interval, run, startedAt: -Infinity };
    this.#polls.push(poll);
    return poll;
  }

  // A paused page runs only polls that are requested by `pollNow`.
  pause(isPaused) {
    this.#isPaused = isPaused;
    if (!isPaused) this.pollNow();
  }

  // Runs these polls, or all, right after the current round.
  pollNow(polls = this.#polls) {
    for (const poll of polls) poll.startedAt = -Infinity;
    this.#isPending = true;
    this.#wake();
  }

  async run() {
    for (;;) {
      await visible();
      this.#isPending = false;
      const now = performance.now();
      // Timers are inexact: half a round early counts as due.
      const due = this.#polls.filter(({ startedAt, interval }) => startedAt === -Infinity || (!this.#isPaused && now - startedAt >= interval() - ROUND_MS / 2));
      for (const poll of due) poll.startedAt = now;
      await Promise.all(due.map(({ run }) => run()));
      if (this.#isPending) continue;
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, ROUND_MS);
      });
    }
  }
}

const visible = () =>
  document.hidden ? new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true })) : null;
