// Questions that are asked again and again. A round begins when all answers of the one before are there, so that requests never pile up, and a
// hidden page asks nothing.

const ROUND_MS = 1000;

export class Rounds {
  #questions = [];
  #hurried = false;
  #wake = () => {};

  // `ask` is called whenever so many milliseconds have passed, and is to handle its own errors. `interval` may be a function, for one that changes.
  every(interval, ask) {
    const question = { interval: typeof interval === "function" ? interval : () => interval, ask, asked: -Infinity };
    this.#questions.push(question);
    return question;
  }

  // Asks these, or all, as soon as the answers that are awaited are there.
  hurry(questions = this.#questions) {
    for (const question of questions) question.asked = -Infinity;
    this.#hurried = true;
    this.#wake();
  }

  async run() {
    for (;;) {
      await visible();
      this.#hurried = false;
      const now = performance.now();
      // Timers are not exact: half a round early is on time.
      const due = this.#questions.filter(({ asked, interval }) => now - asked >= interval() - ROUND_MS / 2);
      for (const question of due) question.asked = now;
      await Promise.all(due.map(({ ask }) => ask()));
      if (this.#hurried) continue;
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, ROUND_MS);
      });
    }
  }
}

const visible = () =>
  document.hidden ? new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true })) : null;
