// The candidates as bars of conversion and products.

import { el, show } from "./dom.js";
import { pays, uncertainty } from "./decision.js";
import { baseline, shown, total } from "./ranking.js";
import { bytes, products, time } from "./units.js";

/** Maximum numbers of bars without those of all variants, on a phone and elsewhere. */
const MOST_BARS = [8, 14];

function bar(ranked, spmvs, full, baseUs) {
    const width = (us) => `${Math.min(100, (100 * us) / full)}%`;
    const mark = baseUs <= full ? el("i", { class: "base", style: { left: width(baseUs) } }) : null;
    const over = total(ranked, spmvs) > full ? " over" : "";
    return el("div", { class: `bar${over}`, "aria-hidden": "true" },
        el("span", { class: "conversion", style: { width: width(ranked.convert_us) } }),
        el("span", { class: "products", style: { width: width(spmvs * ranked.spmv_us) } }), mark);
}

function row(ranked, { chosen, base, spmvs, full }) {
    const [format, parameters] = ranked.candidate.split(/:(.*)/);
    const cell = (label, kind, ...children) => el("td", { class: kind, "data-label": label }, children);
    return el("tr", { class: ranked === chosen ? "chosen" : null, "data-candidate": ranked.candidate },
        el("th", { scope: "row" }, format, parameters === undefined ? null
            : el("span", { class: "parameters" }, ` ${parameters}`)),
        el("td", { class: "drawn" }, bar(ranked, spmvs, full, total(base ?? ranked, spmvs))),
        cell("total", "number strong", time(total(ranked, spmvs))),
        cell("product", "number", time(ranked.spmv_us), el("small", {}, uncertainty(ranked))),
        cell("conversion", "number", ranked.convert_us === 0 ? "none" : time(ranked.convert_us)),
        cell("pays from", "number", pays(ranked, base)),
        cell("memory", "number", bytes(ranked.bytes)),
        cell("source", "source", ranked.source));
}

/** Draws the candidates for `spmvs` products: the best of each format, or all. */
export function bars(node, answer, chosen, spmvs, all) {
    const base = baseline(answer);
    let list = shown(answer, spmvs, chosen, all);
    const most = MOST_BARS[Number(matchMedia("(min-width: 48rem)").matches)];
    const hidden = all ? 0 : Math.max(0, list.length - most);
    if (hidden > 0) {
        const few = list.slice(0, most);
        list = base !== undefined && !few.includes(base) ? [...few, base] : few;
    }
    // One very slow candidate must not squeeze all others; its bar ends in an arrow.
    const slowest = Math.max(...list.map((ranked) => total(ranked, spmvs)));
    const reference = Math.max(total(chosen, spmvs), base === undefined ? 0 : total(base, spmvs));
    const full = Math.min(slowest, 1.6 * reference);
    const heads = ["format", "", "total", "a product", "conversion", "pays from", "memory", "source"];
    const head = heads.map((text, i) => (text === ""
        ? el("td", {})
        : el("th", { scope: "col", class: i > 1 && i < 7 ? "number" : null }, text)));
    const caption = `Candidates for ${products(spmvs)}, by total time`;
    show(node,
        el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
            el("table", { class: "bars" }, el("caption", { class: "hidden" }, caption),
                el("thead", {}, el("tr", {}, head)),
                el("tbody", {}, list.map((ranked) => row(ranked, { chosen, base, spmvs, full }))))),
        hidden > 0 ? el("p", { class: "muted" }, `${hidden} slower formats are not drawn; "all variants" shows them.`) : null);
}
