// Selection of a piece of a drawing, by pointer or arrow keys, with a description of the piece.

import { setText } from "./dom.js";

const STEPS = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity };

export class Picker {
  #element;
  #readout;
  #mark;
  #pieces = 0;
  #pieceAt;
  #describe = () => "";
  #summary = "";
  #at = null;

  // `readout` shows the description; `mark` is called with the index of the piece, or null.
  // `pieceAt` is the index at a share of the width; by default, pieces have equal widths.
  constructor(element, label, readout, mark, pieceAt = (share) => Math.floor(share * this.#pieces)) {
    [this.#element, this.#readout, this.#mark, this.#pieceAt] = [element, readout, mark, pieceAt];
    element.tabIndex = 0;
    element.setAttribute("role", "slider");
    element.setAttribute("aria-label", label);
    element.setAttribute("aria-valuemin", 0);
    element.addEventListener("pointermove", (event) => {
      const { left, width } = element.getBoundingClientRect();
      this.#pick(this.#pieceAt((event.clientX - left) / width));
    });
    for (const event of ["pointerleave", "blur"]) element.addEventListener(event, () => this.#pick(null));
    element.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (step === undefined) return;
      event.preventDefault();
      this.#pick((this.#at ?? (step > 0 ? -1 : this.#pieces)) + step);
    });
  }

  // Sets the number of pieces, their description by `describe`, and a summary of all.
  offer(pieces, describe, summary) {
    [this.#pieces, this.#describe, this.#summary] = [pieces, describe, summary];
    this.#element.setAttribute("aria-valuemax", Math.max(pieces - 1, 0));
    const was = this.#at;
    this.#show(was);
    if (this.#at !== was) this.#mark(this.#at);
  }

  // Selects the piece that another drawing selected.
  follow(at) {
    this.#show(at);
  }

  #pick(at) {
    this.#show(at);
    this.#mark(this.#at);
  }

  #show(at) {
    const was = this.#at;
    this.#at = at === null || this.#pieces === 0 ? null : Math.min(Math.max(at, 0), this.#pieces - 1);
    const text = this.#at === null ? this.#summary : this.#describe(this.#at);
    this.#element.setAttribute("aria-valuenow", this.#at ?? 0);
    this.#element.setAttribute("aria-valuetext", text);
    // Several drawings share a readout: only the one with the pointer may write to it, or clear it.
    if (this.#at !== null) setText(this.#readout, text);
    else if (was !== null) setText(this.#readout, "");
  }
}
