// Formats of numbers. Bytes in powers of 1024, counts in powers of 1000.

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const COUNT_UNITS = ["", "k", "M", "G", "T", "P"];
const TIME_UNITS = ["ns", "µs", "ms", "s"];

function scaled(value, base, units, gap) {
  let unit = 0;
  // The next unit from 999.5 on, which would print as 1000.
  while (value >= base - 0.5 && unit < units.length - 1) {
    value /= base;
    unit += 1;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : 1;
  return (value.toFixed(digits) + gap + units[unit]).trim();
}

export const bytes = (value) => scaled(value, 1024, BYTE_UNITS, " ");
export const count = (value) => scaled(value, 1000, COUNT_UNITS, "\u2009");

export const time = (nanoseconds) => scaled(nanoseconds, 1000, TIME_UNITS, "\u2009");

// An unknown value is a dash.
export const optional = (format) => (value) => (value === null || value === undefined ? "–" : format(value));
// Whether this count of an item is known, for a column of it.
export const isKnown = (name) => (item) => item[name] !== null && item[name] !== undefined;
// Shown instead of a chart whose figures are null.
export const NOT_COUNTED = "not counted by this source";
// Bytes in GPU memory, which not every driver lets uvmd count.
export const resident = (resident) => optional(bytes)(resident?.bytes);

// A share from 0 to 1; only exact values print as 0 % and 100 %.
export function percent(share) {
  const digits = share > 0 && share < 0.095 ? 1 : 0;
  const shown = (share * 100).toFixed(digits);
  if (share > 0 && Number(shown) === 0) return "<\u20090.1\u2009%";
  return share < 1 && shown === "100" ? ">\u200999\u2009%" : `${shown}\u2009%`;
}

// Length of a window in seconds.
export const span = (seconds) => `${seconds < 9.95 ? seconds.toFixed(1) : Math.round(seconds)}\u2009s`;

// Share of time, from a rate of nanoseconds.
export const shareOfTime = (rate) => (rate === null ? "–" : `${Math.round(rate / 1e7)}\u2009%`.replace(/^0\u2009%$/, "0"));

// An unknown rate is a dash; a rate below half a unit per second is 0.
const perSecond = (format) => (rate) => (rate === null ? "–" : rate < 0.5 ? "0" : `${format(rate)}/s`);
export const bytesRate = perSecond(bytes);
export const countRate = perSecond(count);

export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const parts = [
    [Math.floor(whole / 86400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  if (first === -1) return "0 s";
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(" ");
}

// Duration in its largest unit.
export const age = (seconds) => duration(seconds).split(" ").slice(0, 2).join(" ");

// Time of day, with the date unless that is today.
export function moment(when) {
  const [at, now] = [new Date(when), new Date()];
  return at.toDateString() === now.toDateString() ? at.toLocaleTimeString() : at.toLocaleString();
}

// Control and direction-changing characters made visible: names come from untrusted programs.
export const printable = (text) =>
  text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
