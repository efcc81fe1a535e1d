// The view Models: the models in use and those that are kept, with their cards.

import { ask, get, text } from "./api.js";
import { byId, el, show } from "./dom.js";
import { markdown } from "./markdown.js";
import { training } from "./tune.js";
import { count, date } from "./units.js";

/** Scores that are shown, by key; the card has all. */
const SCORES = {
    best_over_chosen: "best over chosen time",
    median_error: "median error",
    worst: "worst best over chosen",
};

function scores(model) {
    const known = Object.entries(SCORES).filter(([name]) => typeof model.scores?.[name] === "number");
    return known.length === 0 ? null : el("dl", { class: "facts" }, known.map(([name, title]) =>
        el("div", {}, el("dt", {}, title), el("dd", {}, model.scores[name].toPrecision(3)))));
}

function title(model) {
    const vectors = model.several ? ", several vectors" : "";
    return `${model.device} in ${model.precision}${vectors}`;
}

function card(model) {
    if (model.card === undefined) return null;
    const body = el("div", { class: "markdown" });
    const read = async (event) => {
        if (!event.target.open || body.hasChildNodes()) return;
        show(body, el("p", { class: "muted" }, "Reading the card ..."));
        try {
            show(body, markdown(await text(model.card.slice(1)), 3));
        } catch (error) {
            show(body, el("p", { class: "problem" }, error.message));
        }
    };
    return el("details", { on: { toggle: read } },
        el("summary", {}, `Card of ${title(model)}`), body);
}

function entry(model) {
    const trained = model.trained_at === null ? "at an unknown time" : date(model.trained_at);
    const on = model.matrices === null ? "" : ` on ${count(model.matrices)} matrices`;
    const formats = model.formats === undefined ? "" : ` It predicts ${model.formats.length} formats.`;
    const of = model.trained_on === undefined || model.trained_on === model.device ? "" : ` It is the model of ${model.trained_on}.`;
    return el("li", { class: "card model" },
        el("h2", {}, `${title(model)} `, el("span", { class: "tag" }, model.state)),
        el("p", { class: "muted" }, `${model.id}, trained ${trained}${on}.${formats}${of}`),
        scores(model), card(model));
}

function draw(node, models, sentence) {
    const reload = async (event) => {
        event.target.disabled = true;
        try {
            const { answer } = await ask("models/reload", { method: "POST" });
            draw(node, answer, "The models were read again.");
        } catch (error) {
            draw(node, models, error.message);
        }
    };
    show(node,
        el("div", { class: "view-head" }, el("p", { role: "status" }, sentence),
            el("button", { type: "button", on: { click: reload } }, "Read the models again")),
        training(), el("ul", { class: "plain models" }, models.map(entry)));
}

/** Shows the models. */
export async function open() {
    show(byId("models"), el("p", { class: "muted busy", role: "status" }, "Reading the models ..."));
    const models = await get("models");
    draw(byId("models"), models, `${models.length} models. A model predicts the time of a product in each format.`);
}
