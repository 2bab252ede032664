// Elements with text, never with markup; and the page's address.

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

// Sets a text if it changed: a selection in it stays, and screen readers do not repeat it.
export function setText(where, text) {
  if (where.textContent !== text) where.textContent = text;
}

// Sets the children in this order, if they changed: a moved element would lose the focus.
export function place(parent, children) {
  if (children.length === parent.children.length && children.every((child, at) => child === parent.children[at])) return;
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  parent.replaceChildren(...children);
  if (focused?.isConnected) focused.focus({ preventScroll: true });
}

// Shows links in the same elements as before, so that the focus stays.
export function setLinks(parent, links) {
  place(parent, links.map(({ text, href }, at) => {
    const link = parent.children[at] ?? make("a");
    setText(link, text);
    setHref(link, href);
    return link;
  }));
}

// A link without an address cannot be followed.
export function setHref(link, href) {
  if (link.getAttribute("href") === href) return;
  if (href === null) link.removeAttribute("href");
  else link.setAttribute("href", href);
}

// === address ===

// The fragment of the page's address has what the reader selected, so that it can be shared:
// `process`, `decision`, `override`, `owner`, `filter`, `sort` and `span`.

const parts = () => new URLSearchParams(location.hash.slice(1));

export const addressed = (name) => parts().get(name);

// Changes these parts; `null` removes one. `replaceState` leaves no entry in the browser's history.
export function go(changes, how = "pushState") {
  const changed = parts();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) changed.delete(name);
    else changed.set(name, value);
  }
  history[how](null, "", changed.size === 0 ? location.pathname : `#${changed}`);
  dispatchEvent(new Event("hashchange"));
}

// Links have the parts that they change, and leave the others as they are.
export const fragment = (changes) => `#${new URLSearchParams(changes)}`;

export const processId = ({ pid, start_ticks }) => `${pid}.${start_ticks}`;
// Link to a process, and to one of its decisions or overrides in `more`.
export const processHref = (process, more = {}) => fragment({ process: processId(process), ...more });

export function followLinks() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link === null || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const changes = Object.fromEntries(new URLSearchParams(link.hash.slice(1)));
    go("process" in changes ? { decision: null, override: null, ...changes } : changes);
  });
}
