// The view Wisdom: measured matrices, their measurements, and which format wins where.

import { get, query } from "./api.js";
import { byId, el, show, table } from "./dom.js";
import { about, bytes, count, percent, ratio, time } from "./units.js";

/** Number of structures of one list. */
const LISTED = 25;

/** Number of measurements of one list that are shown at once. */
const FIRST = 12;

/** Number of formats of one chart of wins. */
const CHARTED = 8;

const state = { origin: "all", text: "", from: 0, asked: 0 };

function place({ device, precision, threads }) {
    return `${device} in ${precision}${threads > 1 ? `, ${threads} threads` : ""}`;
}

function chart(wins) {
    const most = Math.max(...wins.formats.map((one) => one.wins), 1);
    const rows = wins.formats.slice(0, CHARTED).map((one) => el("tr", {},
        el("th", { scope: "row" }, one.format),
        el("td", { class: "drawn" }, el("div", { class: "bar", "aria-hidden": "true" },
            el("span", { class: "products", style: { width: `${(100 * one.wins) / most}%` } }))),
        el("td", { class: "number" }, percent(one.wins / wins.structures)),
        el("td", { class: "number muted" }, one.speedup === null ? "" : ratio(one.speedup))));
    const others = wins.formats.length - CHARTED;
    return el("section", { class: "card wins" },
        el("h2", {}, place(wins)),
        el("p", { class: "muted" }, `${count(wins.structures)} matrices; share won, and the mean speed over the baseline there`),
        el("table", { class: "bars" }, el("caption", { class: "hidden" }, `Formats that win on ${place(wins)}`),
            el("tbody", {}, rows)),
        others > 0 ? el("p", { class: "muted" }, `and ${others} more formats`) : null);
}

function timed(measurement) {
    return Math.min(...[measurement.spmv, ...(measurement.reruns ?? [])].map((run) => run?.min_s ?? Infinity));
}

/** Shows the measurements of a structure, the fastest first. */
function measurements(structure) {
    const groups = new Map();
    for (const one of structure.measurements) {
        const name = place(one);
        groups.set(name, [...(groups.get(name) ?? []), one]);
    }
    return [...groups].map(([name, all]) => {
        const fast = all.filter((one) => Number.isFinite(timed(one))).sort((a, b) => timed(a) - timed(b));
        const rows = fast.map((one) => [el("code", {}, one.candidate), time(timed(one) * 1e6),
            one.convert?.min_s === undefined ? "" : time(one.convert.min_s * 1e6), bytes(one.bytes ?? 0)]);
        const heads = ["candidate", "a product", "conversion", "memory"];
        const listed = (caption, some) => table(caption, heads, some, [1, 2, 3]);
        return [
            el("h4", {}, name),
            listed(`Measurements on ${name}`, rows.slice(0, FIRST)),
            rows.length > FIRST ? el("details", {}, el("summary", {}, `${rows.length - FIRST} slower ones`),
                listed(`Slower measurements on ${name}`, rows.slice(FIRST))) : null,
            el("p", { class: "muted" }, `${all.length - fast.length} candidates were refused, failed or were cut short.`),
        ];
    });
}

function detail(structure, onKnown) {
    const node = el("div", { class: "detail" });
    const devices = [...new Set(structure.best.map((one) => one.device))];
    const read = async (event) => {
        if (!event.target.open || node.hasChildNodes()) return;
        show(node, el("p", { class: "muted" }, "Reading ..."));
        try {
            const whole = await get(`structures/${structure.fingerprint}`);
            const choose = devices.map((device) => el("button", {
                type: "button", class: "quiet", on: { click: () => onKnown(structure, device) },
            }, `Choose for ${device}`));
            show(node, el("p", { class: "muted" }, `Fingerprint ${structure.fingerprint}`),
                el("p", {}, choose), measurements(whole));
        } catch (error) {
            show(node, el("p", { class: "problem" }, error.message));
        }
    };
    const best = structure.best.map((one) => el("li", {}, `${place(one)}: `, el("b", {}, one.format),
        ` ${time(one.spmv_us)}${one.speedup === null ? "" : `, ${ratio(one.speedup)}`}`));
    return el("li", { class: "card structure" }, el("details", { on: { toggle: read } },
        el("summary", {}, el("b", {}, structure.source || structure.fingerprint),
            el("span", { class: "muted" }, ` ${count(structure.nrows)} by ${count(structure.ncols)}, ${about(structure.nnz)} entries`)),
        node), el("ul", { class: "best" }, best));
}

function pager({ total, next }, again) {
    const go = (from, text) => el("button", { type: "button", class: "quiet", on: { click: () => { state.from = from; again(); } } }, text);
    return el("p", { class: "pager" },
        state.from > 0 ? go(Math.max(0, state.from - LISTED), "Earlier") : null,
        ` ${count(total === 0 ? 0 : state.from + 1)} to ${count(Math.min(total, state.from + LISTED))} of ${count(total)} `,
        next === null ? null : go(next, "Later"));
}

async function fill(node, onKnown) {
    state.asked += 1;
    const asked = state.asked;
    const again = () => fill(node, onKnown);
    show(node, el("p", { class: "muted busy", role: "status" }, "Reading the measurements; the first time takes some seconds ..."));
    try {
        const answer = await get(query("structures", { origin: state.origin, text: state.text || null, limit: LISTED, from: state.from }));
        if (asked !== state.asked) return;
        const none = state.origin === "own" && state.text === ""
            ? "This service has measured nothing yet. Choose with the effort measure." : "No measured matrix is of this kind.";
        show(node,
            el("div", { class: "charts" }, answer.wins.map(chart)),
            answer.total === 0 ? el("p", { class: "card" }, none) : pager(answer, again),
            el("ul", { class: "plain structures" }, answer.structures.map((one) => detail(one, onKnown))));
    } catch (error) {
        if (asked === state.asked) show(node, el("p", { class: "card problem", role: "alert" }, error.message));
    }
}

/** Shows the stored measurements; `onKnown` chooses for one of the matrices. */
export async function open(onKnown) {
    const results = el("div", {});
    const again = () => fill(results, onKnown);
    const origins = Object.entries({ all: "all", own: "of this service", shipped: "that ship" }).map(([value, title]) =>
        el("label", {}, el("input", {
            type: "radio", name: "origin", value, checked: value === state.origin,
            on: { change: () => { Object.assign(state, { origin: value, from: 0 }); again(); } },
        }), el("span", {}, title)));
    let typing;
    const search = el("input", {
        id: "search", type: "search", value: state.text, placeholder: "elasticity",
        on: {
            input: (event) => {
                clearTimeout(typing);
                typing = setTimeout(() => { Object.assign(state, { text: event.target.value.trim(), from: 0 }); again(); }, 250);
            },
        },
    });
    show(byId("wisdom"),
        el("div", { class: "view-head" },
            el("div", { class: "field" }, el("label", { for: "search" }, "Matrix or class"), search),
            el("fieldset", { class: "switch" }, el("legend", {}, "Measurements"), origins)),
        results);
    await again();
}
