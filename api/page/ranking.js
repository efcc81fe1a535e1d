// Totals of candidates for any number of products, and the choice among them: the service's rule, so
// that the slider needs no request. Times are in microseconds.

/** Totals that differ by at most this share are decided by conversion and memory. */
const NEAR = 0.02;

/** Difference of two products' times that is ignored. */
const NOTHING_US = 1e-3;

/** The largest number of products of the slider, as a power of ten. */
export const MOST = 7;

/** Returns the time of the conversion and `spmvs` products. */
export function total(ranked, spmvs) {
    return ranked.convert_us + spmvs * ranked.spmv_us;
}

function isBaseline(answer, ranked) {
    return ranked.candidate === answer.baseline.candidate || ranked.candidate === "csr";
}

/** Returns the entry of the baseline. */
export function baseline(answer) {
    return answer.ranking.find((ranked) => ranked.candidate === answer.baseline.candidate);
}

/** Tells whether a candidate may be chosen: it was timed, or beats the baseline by the margin. */
function isTrusted(answer, ranked, base, spmvs, margin) {
    if (ranked.source === "measured" || base === undefined) return true;
    if (base.source === "measured") return false;
    return isBaseline(answer, ranked) || total(ranked, spmvs) * (1 + margin) <= total(base, spmvs);
}

/** Returns the candidate that is chosen for `spmvs` products, with this margin of the device. */
export function winner(answer, spmvs, margin) {
    const base = baseline(answer);
    const able = answer.ranking.filter((one) => isTrusted(answer, one, base, spmvs, margin));
    able.sort((a, b) => total(a, spmvs) - total(b, spmvs));
    if (able.length === 0) return answer.ranking[0];
    const most = total(able[0], spmvs) * (1 + NEAR) + spmvs * NOTHING_US;
    const near = able.filter((one) => total(one, spmvs) <= most);
    near.sort((a, b) => a.convert_us - b.convert_us
        || isBaseline(answer, b) - isBaseline(answer, a) || a.bytes - b.bytes);
    return near[0];
}

/** Returns the winners over the whole slider: from which number of products each is chosen. */
export function winners(answer, margin) {
    const found = [];
    const numbers = new Set();
    for (let i = 0; i <= MOST * 100; i += 1) numbers.add(Math.round(10 ** (i / 100)));
    for (const spmvs of numbers) {
        const first = winner(answer, spmvs, margin);
        const last = found.at(-1);
        if (last?.ranked.candidate !== first.candidate) {
            const from = last === undefined ? spmvs
                : exactly(answer, margin, last.ranked, first, [last.seen, spmvs]);
            found.push({ from, ranked: first, seen: spmvs });
        }
        found.at(-1).seen = spmvs;
    }
    return found;
}

/** Returns the first number of products in a range for which `after` wins in place of `before`. */
function exactly(answer, margin, before, after, [low, high]) {
    while (high - low > 1) {
        const middle = Math.floor((low + high) / 2);
        if (winner(answer, middle, margin).candidate === before.candidate) low = middle;
        else high = middle;
    }
    return high;
}

/** Returns the candidates to show, by total: all, or the best one of each format and the winner. */
export function shown(answer, spmvs, first, all) {
    const sorted = [...answer.ranking].sort((a, b) => total(a, spmvs) - total(b, spmvs));
    const others = sorted.filter((ranked) => ranked !== first);
    const list = [first, ...others];
    if (all) return list;
    const seen = new Set();
    return list.filter((ranked) => {
        const isNew = !seen.has(ranked.format);
        seen.add(ranked.format);
        return isNew || ranked.candidate === answer.baseline.candidate;
    });
}
