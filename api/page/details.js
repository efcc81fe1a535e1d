// The reasons of a choice, the sources of its figures, the model, and the refused candidates.

import { el } from "./dom.js";
import { count, date, percent } from "./units.js";

function sources(answer) {
    const of = (source) => answer.ranking.filter((ranked) => ranked.source === source);
    const meaning = {
        measured: "timed on the device",
        predicted: "predicted by the model",
        estimated: "estimated from closed formulas",
    };
    const parts = Object.entries(meaning).filter(([source]) => of(source).length > 0).map(([source, stated]) => {
        const all = of(source);
        const errors = all.map((ranked) => ranked.spmv_error).filter((error) => error > 0);
        const sure = errors.length === 0 ? ""
            : `; 9 of 10 such times are within \u00b1 ${percent(Math.max(...errors))}`;
        return el("li", {}, el("span", { class: `tag ${source}` }, source),
            ` ${count(all.length)} candidates are ${stated}${sure}.`);
    });
    return el("ul", { class: "plain" }, parts);
}

function model(answer) {
    const { model: name, confidence } = answer;
    if (name === null) return el("p", {}, "No model answered.");
    const trained = name.trained_at === null ? "" : `, ${date(name.trained_at)}`;
    const matrices = name.matrices === null ? "" : `, trained on ${count(name.matrices)} matrices`;
    const sure = confidence === null ? "" : ` Confidence ${confidence.toFixed(2)} of 1: how similar this matrix is to those.`;
    return el("p", {}, "Model ", el("a", { href: "#models" }, `${name.device} ${name.id}`), `${matrices}${trained}.${sure}`);
}

/** Groups the refused candidates by format and reason. */
function refusals(refused) {
    const groups = new Map();
    for (const { candidate, reason } of refused) {
        const [format, parameters] = candidate.split(/:(.*)/);
        const key = `${format}\n${reason}`;
        const group = groups.get(key) ?? { format, reason, variants: [] };
        group.variants.push(parameters ?? "");
        groups.set(key, group);
    }
    const items = [...groups.values()].map(({ format, reason, variants }) => el("li", {},
        el("b", {}, format), variants.length > 1 ? ` (${variants.length} variants)` : ` ${variants[0]}`, `: ${reason}.`));
    return el("details", { class: "refused" },
        el("summary", {}, `${count(refused.length)} candidates refused`), el("ul", { class: "plain" }, items));
}

/** Returns the reasons of an answer. */
export function details(answer) {
    return [
        el("ul", { class: "words" }, answer.explanation.map((sentence) => el("li", {}, sentence))),
        el("h3", {}, "Sources"), sources(answer), model(answer),
        answer.refused.length > 0 ? refusals(answer.refused) : el("p", {}, "No candidate was refused."),
    ];
}
