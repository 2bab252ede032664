// Elements, made of text and never of markup.

const SVG = "http://www.w3.org/2000/svg";

export const element = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export function draw(tag, attributes = {}, ...children) {
  const drawn = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) drawn.setAttribute(name, value);
  drawn.append(...children);
  return drawn;
}

// Text that did not change is left alone: a selection in it stays, and screen readers do not read it out again.
export function say(where, text) {
  if (where.textContent !== text) where.textContent = text;
}

// Shows these children in this order, leaving alone what is there already: moving an element would take the focus from it.
export function place(parent, children) {
  if (children.length === parent.children.length && children.every((child, at) => child === parent.children[at])) return;
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  parent.replaceChildren(...children);
  if (focused?.isConnected) focused.focus({ preventScroll: true });
}
