// The form that trains models: POST /tune, a job that the view Jobs then follows.

import { ask, get, query } from "./api.js";
import { el, show } from "./dom.js";

/** Matrices that may be measured before the training, by the value of `generate`. */
const MEASURED = {
    "": "none: train from what is stored",
    small: "a small corpus, minutes",
    full: "the full corpus, an hour or more",
    large: "large matrices too, hours",
};

const DEVICES = "tune-devices";

function field(id, label, control, note) {
    const about = note === undefined ? null : el("p", { class: "muted", id: `${id}-note` }, note);
    if (about !== null) control.setAttribute("aria-describedby", about.id);
    control.id = id;
    return el("div", { class: "field" }, el("label", { for: id }, label), control, about);
}

function select(name, options) {
    return el("select", { name }, Object.entries(options).map(([value, text]) => el("option", { value }, text)));
}

/** Returns the query of the training that the form describes. */
function asked(form) {
    const given = (name) => new FormData(form).get(name).trim() || null;
    return query("tune", {
        device: given("device"), precision: given("precision"), generate: given("generate"),
        matrix: given("matrix")?.split(/[\s,]+/).join(",") ?? null, budget: given("budget"),
    });
}

async function send(event) {
    event.preventDefault();
    const form = event.target;
    const [button, told] = [form.querySelector("button"), form.querySelector("[role=alert]")];
    button.disabled = true;
    show(told);
    try {
        await ask(asked(form), { method: "POST" });
        location.hash = "#jobs";
    } catch (error) {
        show(told, el("p", { class: "problem" }, error.message));
    } finally {
        button.disabled = false;
    }
}

/** Returns the form, closed; it asks for the devices when it is opened. */
export function training() {
    const devices = el("datalist", { id: DEVICES });
    const fill = async (event) => {
        if (!event.target.open || devices.hasChildNodes()) return;
        const known = await get("devices").catch(() => []);
        show(devices, known.map(({ name }) => el("option", { value: name })));
    };
    const form = el("form", { class: "tune", autocomplete: "off", on: { submit: send } },
        devices,
        field("tune-device", "Device", el("input", { name: "device", value: "cpu", list: DEVICES, required: true })),
        field("tune-precision", "Precision", select("precision", { "f64,f32": "f64 and f32", f64: "f64", f32: "f32" })),
        field("tune-generate", "Measure first", select("generate", MEASURED), "On this machine, one matrix after the other."),
        field("tune-matrix", "And these matrices", el("input", { name: "matrix", placeholder: "elasticity:60000, heat:20000" }),
            "Class and rows, with commas."),
        field("tune-budget", "Time limit of the measurements", el("input", { name: "budget", value: "10m" })),
        el("div", { role: "alert" }),
        el("button", { type: "submit", class: "primary" }, "Train"));
    return el("details", { class: "card", on: { toggle: fill } },
        el("summary", {}, "Train models from the stored measurements"),
        el("p", { class: "muted" }, "A new model replaces the one in use only if it chooses better."), form);
}
