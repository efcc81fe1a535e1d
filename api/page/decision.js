// The decision in figures, and the strip of winners above the slider.

import { el, show } from "./dom.js";
import { MOST, baseline, total } from "./ranking.js";
import { bytes, count, percent, products, ratio, time } from "./units.js";

function figure(name, value, note, kind = "") {
    return el("div", { class: `figure ${kind}` },
        el("dt", {}, name), el("dd", {}, el("strong", {}, value), el("span", { class: "muted" }, note)));
}

/** Writes the error that 9 of 10 times stay under; nothing if it is not known. */
export function uncertainty(ranked) {
    return ranked.spmv_error > 0 ? `\u00b1 ${percent(ranked.spmv_error)}` : "";
}

/** Returns the time of the baseline over that of a candidate, and the range of 9 in 10 cases. */
export function speedup(base, ranked) {
    const value = base.spmv_us / ranked.spmv_us;
    const factor = (1 + base.spmv_error) * (1 + ranked.spmv_error);
    return { value, low: value / factor, high: value * factor };
}

/** Writes from which number of products on a candidate is cheaper than the baseline. */
export function pays(ranked, base) {
    if (ranked === base) return "baseline";
    if (ranked.break_even_spmvs === null) return "never";
    return ranked.break_even_spmvs === 0 ? "always" : count(ranked.break_even_spmvs);
}

/** Describes the choice for `spmvs` products. */
export function decision(answer, chosen, spmvs, matrix) {
    const base = baseline(answer) ?? chosen;
    const [, parameters] = chosen.candidate.split(/:(.*)/);
    const gain = speedup(base, chosen);
    const stays = chosen === base;
    const paid = chosen.break_even_spmvs;
    const from = paid === null ? "never pays" : paid === 0 ? "pays at once" : `pays from product ${count(paid)}`;
    return [
        el("p", { class: "muted matrix" }, `${matrix.name} on ${answer.device} in ${answer.precision}`),
        el("h2", { id: "decision-title" }, stays ? "Keep " : "Use ", el("b", {}, chosen.format),
            parameters === undefined ? null : el("code", {}, parameters)),
        el("dl", { class: "figures" },
            figure("a product", time(chosen.spmv_us), `${chosen.source} ${uncertainty(chosen)}`),
            stays ? figure("speed", ratio(1), "it is the baseline")
                : figure(`speed over ${base.format}`, ratio(gain.value), `${gain.low.toFixed(2)} to ${gain.high.toFixed(2)}`),
            figure("conversion", chosen.convert_us === 0 ? "none" : time(chosen.convert_us), stays ? "" : from),
            figure(products(spmvs), time(total(chosen, spmvs)),
                stays ? "in total" : `${time(total(base, spmvs))} with ${base.format}`, "main"),
            figure("memory", bytes(chosen.bytes), `CSR: ${bytes(csrBytes(answer))}`)),
    ];
}

function csrBytes(answer) {
    return (answer.ranking.find((ranked) => ranked.format === "csr") ?? answer.ranking[0]).bytes;
}

/** Returns the place of a number of products on the slider, as a percentage. */
function place(spmvs) {
    return (100 * Math.log10(Math.max(1, spmvs))) / MOST;
}

/** Draws who wins where along the slider, and where each format begins to pay. */
export function strip(node, wins, answer, spmvs, onPick) {
    const parts = wins.map(({ from, ranked }, i) => {
        const end = i + 1 < wins.length ? wins[i + 1].from : 10 ** MOST;
        const [left, right] = [i === 0 ? 0 : place(from), place(end)];
        const holds = spmvs >= from && (spmvs < end || i + 1 === wins.length);
        return el("button", {
            type: "button", tabindex: "-1", "aria-hidden": "true", class: holds ? "part now" : "part",
            style: { left: `${left}%`, width: `${right - left}%` },
            title: `${ranked.candidate} from ${products(from)} on`,
            on: { click: () => onPick(from) },
        }, right - left > 7 ? ranked.format : "");
    });
    const seen = new Set();
    const evens = answer.ranking.filter((ranked) => {
        const isNew = ranked.break_even_spmvs > 0 && !seen.has(ranked.format);
        seen.add(ranked.format);
        return isNew && ranked.break_even_spmvs <= 10 ** MOST;
    });
    const marks = evens.map((ranked) => el("i", {
        class: "even", style: { left: `${place(ranked.break_even_spmvs)}%` },
        title: `${ranked.format} pays from product ${count(ranked.break_even_spmvs)}`,
    }));
    const scale = Array.from({ length: MOST + 1 }, (_, power) =>
        el("span", { style: { left: `${(100 * power) / MOST}%` } }, power < 6 ? count(10 ** power) : `${10 ** (power - 6)}M`));
    show(node, el("div", { class: "parts" }, parts), el("div", { class: "evens", "aria-hidden": "true" }, marks),
        el("div", { class: "scale", "aria-hidden": "true" }, scale));
}
