// Numbers with units, written for people.

/** Writes a number with three significant digits. */
export function digits(value) {
    if (value >= 100 || value === 0) return value.toFixed(0);
    return value.toFixed(value >= 10 ? 1 : 2);
}

/** Writes a time in microseconds with a fitting unit, as `8.37 us`. */
export function time(us) {
    if (us >= 3.6e9) return `${digits(us / 3.6e9)} h`;
    if (us >= 1e6) return `${digits(us / 1e6)} s`;
    if (us >= 1e3) return `${digits(us / 1e3)} ms`;
    return `${digits(us)} us`;
}

/** Writes a number of bytes with a fitting decimal unit. */
export function bytes(count) {
    if (count >= 1e9) return `${digits(count / 1e9)} GB`;
    if (count >= 1e6) return `${digits(count / 1e6)} MB`;
    if (count >= 1e3) return `${digits(count / 1e3)} kB`;
    return `${count} B`;
}

/** Writes a whole number with separators. */
export function count(value) {
    return Math.round(value).toLocaleString("en-US");
}

/** Writes a large number shortly, as `2.5 million`. */
export function about(value) {
    if (value >= 1e9) return `${digits(value / 1e9)} billion`;
    if (value >= 1e6) return `${digits(value / 1e6)} million`;
    return count(value);
}

/** Writes a share as a percentage. */
export function percent(share) {
    const value = share * 100;
    if (value >= 10 || value === 0) return `${value.toFixed(0)} %`;
    return `${value.toPrecision(2).replace(/\.0$/, "")} %`;
}

/** Writes a ratio, as `1.82x`. */
export function ratio(value) {
    return `${value.toFixed(2)}x`;
}

/** Writes a point of time, given in seconds since 1970. */
export function date(seconds) {
    return new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** Writes `1 product`, `2 products`. */
export function products(number) {
    return `${count(number)} ${number === 1 ? "product" : "products"}`;
}

/** Parses a whole number as people write it: 60000, 60,000, 6e4 or 1.5M; null if it is none. */
export function parsed(text) {
    const found = /^([0-9.]+(?:e[0-9]+)?)([kmg]?)$/i.exec(text.replaceAll(/[ ,_]/g, ""));
    const scale = { "": 1, k: 1e3, m: 1e6, g: 1e9 };
    const value = found === null ? NaN : Number(found[1]) * scale[found[2].toLowerCase()];
    return Number.isFinite(value) && value >= 0 ? Math.round(value) : null;
}
