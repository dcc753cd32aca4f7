// Numbers as people read them.

export const none = "–";

// As the tables of fedse round: an exact half goes to the even digit. `toFixed` takes it up, and 36.25 would be 36.3 here, 36.2 there.
export function fixed(number, digits) {
  if ((Math.abs(number) * 2 ** (digits + 1)) % 2 !== 1) return number.toFixed(digits);
  const below = Math.floor(number * 10 ** digits);
  return ((below + Math.abs(below % 2)) / 10 ** digits).toFixed(digits);
}

export function percent(share, digits = 1) {
  return share === null || share === undefined ? none : `${fixed(100 * share, digits)} %`;
}

// At an axis, where half a percent must not be taken for a whole one.
export function share(value) {
  return percent(value, Math.abs(100 * value - Math.round(100 * value)) < 1e-9 ? 0 : 1);
}

export function interval(bounds) {
  return bounds ? `${fixed(100 * bounds[0], 0)} to ${fixed(100 * bounds[1], 0)}` : none;
}

export function count(number) {
  return number === null || number === undefined ? none : Math.round(number).toLocaleString("en");
}

export function short(number) {
  if (number === null || number === undefined) return none;
  if (Math.abs(number) < 10000) return count(number);
  const [divisor, unit] = number < 1e6 ? [1e3, "k"] : number < 1e9 ? [1e6, "M"] : [1e9, "G"];
  return `${(number / divisor).toPrecision(3)} ${unit}`;
}

export function bytes(number) {
  if (number === null || number === undefined) return none;
  if (number < 1000) return `${number} B`;
  const [divisor, unit] = number < 1e6 ? [1e3, "kB"] : number < 1e9 ? [1e6, "MB"] : [1e9, "GB"];
  return `${(number / divisor).toPrecision(3)} ${unit}`;
}

export function decimal(number, digits = 3) {
  return number === null || number === undefined ? none : fixed(number, digits);
}

export function points(difference) {
  return difference === null || difference === undefined
    ? none
    : `${difference >= 0 ? "+" : "−"}${fixed(Math.abs(100 * difference), 1)}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return none;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 100 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

export function when(seconds) {
  return seconds ? new Date(1000 * seconds).toLocaleString("sv").slice(0, 19) : none;
}

export function clock(seconds) {
  return seconds ? new Date(1000 * seconds).toLocaleTimeString("sv") : "";
}

export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}
