// Lets a reader point at a piece of a drawing, by pointer or by arrow keys, and tells what is there.

import { say } from "./dom.js";

const STEPS = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity };

export class Picker {
  #element;
  #readout;
  #mark;
  #pieces = 0;
  #tell = () => "";
  #summary = "";
  #at = null;

  // `readout` shows what is picked; `mark` is called with the number of the piece, or null.
  constructor(element, label, readout, mark) {
    [this.#element, this.#readout, this.#mark] = [element, readout, mark];
    element.tabIndex = 0;
    element.setAttribute("role", "slider");
    element.setAttribute("aria-label", label);
    element.setAttribute("aria-valuemin", 0);
    element.addEventListener("pointermove", (event) => {
      const { left, width } = element.getBoundingClientRect();
      this.#pick(Math.floor(((event.clientX - left) / width) * this.#pieces));
    });
    for (const event of ["pointerleave", "blur"]) element.addEventListener(event, () => this.#pick(null));
    element.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (step === undefined) return;
      event.preventDefault();
      this.#pick((this.#at ?? (step > 0 ? -1 : this.#pieces)) + step);
    });
  }

  // What can be picked from now on: so many pieces, which `tell` says in words, and all of it in short.
  offer(pieces, tell, summary) {
    [this.#pieces, this.#tell, this.#summary] = [pieces, tell, summary];
    this.#element.setAttribute("aria-valuemax", Math.max(pieces - 1, 0));
    this.#pick(this.#at);
  }

  #pick(at) {
    const was = this.#at;
    this.#at = at === null || this.#pieces === 0 ? null : Math.min(Math.max(at, 0), this.#pieces - 1);
    this.#mark(this.#at);
    const text = this.#at === null ? this.#summary : this.#tell(this.#at);
    this.#element.setAttribute("aria-valuenow", this.#at ?? 0);
    this.#element.setAttribute("aria-valuetext", text);
    // Several drawings share a readout: only the one that is pointed at may write to it, or clear it.
    if (this.#at !== null) say(this.#readout, text);
    else if (was !== null) say(this.#readout, "");
  }
}
