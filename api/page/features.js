// The features of a matrix in sentences.

import { el } from "./dom.js";
import { about, count, digits, percent } from "./units.js";

function size(f) {
    const shape = f.nrows === f.ncols ? "Square" : f.nrows > f.ncols ? "Taller than wide" : "Wider than tall";
    return `${shape}: ${count(f.nrows)} rows, ${count(f.ncols)} columns and ${about(f.nnz)} entries, `
        + `${percent(f.density)} of all places.`;
}

function rows(f) {
    if (f.row_nnz_mean === undefined) return null;
    const spread = f.row_nnz_cv < 0.2 ? "nearly all alike"
        : f.row_nnz_cv < 0.6 ? "of moderately different length"
            : f.row_nnz_cv < 2 ? "of very different length" : "of extremely different length";
    const range = f.row_nnz_min === undefined ? ""
        : ` (from ${count(f.row_nnz_min)} to ${count(f.row_nnz_max)}, half of them between `
        + `${count(f.row_nnz_q25)} and ${count(f.row_nnz_q75)})`;
    return `${digits(f.row_nnz_mean)} entries a row on average${range}: rows are ${spread}.`;
}

function empty(f) {
    return f.empty_rows > 0 ? `${count(f.empty_rows)} rows are empty (${percent(f.empty_rows / f.nrows)}).` : null;
}

function longest(f) {
    if (!(f.row_nnz_max > 20 * f.row_nnz_mean)) return null;
    return `The longest row has ${digits(f.row_nnz_max / f.row_nnz_mean)} times the average: formats that pad every `
        + "row to the longest are out.";
}

function symmetry(f) {
    if (f.pattern_symmetry === undefined || f.nrows !== f.ncols) return null;
    if (f.pattern_symmetry === 1) return "The pattern is symmetric.";
    return `${percent(f.pattern_symmetry)} of the entries have a mirror image: the pattern is `
        + `${f.pattern_symmetry > 0.9 ? "nearly symmetric" : "not symmetric"}.`;
}

function band(f) {
    if (f.bandwidth === undefined) return null;
    const share = f.bandwidth / Math.max(1, f.ncols);
    return share < 0.1
        ? `All entries lie within ${count(f.bandwidth)} columns of the diagonal, a band of ${percent(share)} of the width.`
        : `Entries lie up to ${count(f.bandwidth)} columns from the diagonal (${percent(share)} of the width).`;
}

function diagonals(f) {
    if (f.n_diagonals === undefined) return null;
    return f.dia_padding < 3
        ? `Only ${count(f.n_diagonals)} diagonals hold entries; storing them whole takes ${digits(f.dia_padding)} places an entry.`
        : null;
}

function blocks(f) {
    const fills = [2, 3, 4, 5, 6].map((side) => [side, f[`block_fill_${side}`] ?? 0]);
    const full = fills.filter(([, fill]) => fill > 0.75).pop();
    return full === undefined
        ? "It has no dense blocks to speak of."
        : `Entries come in blocks of ${full[0]} by ${full[0]}, which are ${percent(full[1])} full.`;
}

function padding(f) {
    if (f.ell_padding === undefined || f.hll_padding_32 === undefined) return null;
    return `Padding all rows to the longest takes ${digits(f.ell_padding)} places an entry; padding 32 rows at a time `
        + `takes ${digits(f.hll_padding_32)}.`;
}

function narrow(f) {
    if (f.hack_span_16bit === undefined) return null;
    return f.hack_span_16bit > 0.99 ? "Column indices fit into 16 bits where 32 rows share an offset."
        : f.hack_span_16bit < 0.01 ? "Column indices need 32 bits."
            : `Column indices fit into 16 bits in ${percent(f.hack_span_16bit)} of the groups of 32 rows.`;
}

function reuse(f) {
    if (f.x_alpha_f64 === undefined) return null;
    const word = f.x_alpha_f64 < 0.3 ? "well" : f.x_alpha_f64 < 0.8 ? "in part" : "hardly at all";
    return `Neighbouring rows share elements of x ${word}: 256 rows load ${digits(f.x_alpha_f64)} elements an entry.`;
}

/** Describes the features of a matrix in words, and lists them. */
export function inWords(features) {
    const sentences = [size, rows, longest, empty, symmetry, band, diagonals, blocks, padding, narrow, reuse]
        .map((describe) => describe(features)).filter((sentence) => sentence !== null);
    const all = Object.entries(features).map(([name, value]) =>
        [el("dt", {}, el("code", {}, name)), el("dd", { class: "number" },
            Number.isInteger(value) ? count(value) : value.toPrecision(4))]);
    return [
        el("ul", { class: "words" }, sentences.map((sentence) => el("li", {}, sentence))),
        el("details", {}, el("summary", {}, `All ${all.length} features`), el("dl", { class: "features" }, all)),
    ];
}
