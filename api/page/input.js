// The form: the matrix, the device, the precision and the effort.

import { get } from "./api.js";
import { byId, el, show } from "./dom.js";
import { parsed } from "./units.js";

/** Examples of generated matrices, for a first look. */
const EXAMPLES = ["elasticity:60000", "stencil7:200000", "power_law:50000", "linear_program:40000"];

/** What the service has: devices with their profiles, classes, samples, devices to measure on. */
export const known = { devices: [], classes: [], samples: [], measurable: [] };

/** Returns what the form says about the product. */
export function product() {
    return {
        device: byId("device").value,
        precision: document.querySelector("input[name=precision]:checked").value,
        effort: byId("effort").value,
    };
}

/** Tells whether an effort times candidates. */
export function measures(effort) {
    return effort === "measure" || effort === "exhaustive";
}

/** Sets the controls to these values; those that are missing or unknown stay. */
export function setProduct({ device, precision, effort }) {
    const has = (select, value) => [...select.options].some((option) => option.value === value);
    if (has(byId("device"), device)) byId("device").value = device;
    if (has(byId("effort"), effort)) byId("effort").value = effort;
    const radio = document.querySelector(`input[name=precision][value="${CSS.escape(precision ?? "")}"]`);
    if (radio !== null) radio.checked = true;
    noteEffort();
}

/** Returns the margin of a device: what an untimed candidate must gain over the baseline. */
export function margin(device) {
    return known.devices.find((one) => one.name === device)?.margin ?? 0;
}

function noteEffort() {
    const { device } = product();
    const here = known.measurable.includes(device);
    for (const option of byId("effort").options) option.disabled = measures(option.value) && !here;
    if (byId("effort").selectedOptions[0]?.disabled) byId("effort").value = "predict";
    byId("effort-note").textContent = here
        ? "Measuring is a job: its progress is shown here."
        : `The service only has the profile of this device. It measures on ${known.measurable.join(", ")}.`;
}

function fillChoices() {
    const profiles = known.devices.filter((device) => !known.measurable.includes(device.name));
    const option = (name, stated) => el("option", { value: name }, `${name}: ${stated}`);
    show(byId("device"), known.measurable.map((name) => option(name, "of this machine")),
        profiles.map((device) => option(device.name, `profile of a ${device.kind === "gpu" ? "GPU" : "host"}`)));
    const gpu = [...byId("device").options].find((one) => !known.devices.some(({ name, kind }) =>
        name === one.value && kind === "host"));
    if (gpu !== undefined) byId("device").value = gpu.value;
    show(byId("class"), known.classes.map((one) => el("option", { value: one.name }, one.name)));
    byId("class").value = "elasticity";
    byId("sample").append(...known.samples.map((one) => el("option", { value: one.name }, one.name)));
}

function noteClass() {
    const one = known.classes.find((entry) => entry.name === byId("class").value);
    byId("class-doc").textContent = one === undefined ? ""
        : `${one.doc}; about ${one.entries_per_row} entries a row`;
}

/** Returns the sample with this name; null if there is none. */
export function sample(name) {
    const found = known.samples.find((one) => one.name === name);
    return found === undefined ? null : { kind: "sample", name, path: `samples/${encodeURIComponent(name)}` };
}

function wireDrop(onMatrix) {
    const drop = byId("drop");
    const given = (file) => onMatrix({ kind: "file", name: file.name, file });
    const over = (event) => {
        event.preventDefault();
        drop.classList.add("over");
    };
    // A file that misses the field would otherwise replace the page.
    document.addEventListener("dragover", over);
    document.addEventListener("dragleave", () => drop.classList.remove("over"));
    document.addEventListener("drop", (event) => {
        event.preventDefault();
        drop.classList.remove("over");
        const [file] = event.dataTransfer?.files ?? [];
        if (file !== undefined) given(file);
    });
    byId("file").addEventListener("change", () => {
        const [file] = byId("file").files;
        if (file !== undefined) given(file);
    });
}

function wireGenerate(onMatrix, onProblem) {
    const generate = () => {
        const rows = parsed(byId("rows").value);
        if (rows === null || rows < 1) {
            onProblem(`rows is '${byId("rows").value}'; it must be a whole number over 0, as 60000, 6e4 or 1.5M are`);
            return;
        }
        onMatrix(generated(`${byId("class").value}:${rows}`));
    };
    byId("generate").addEventListener("click", generate);
    byId("input").addEventListener("submit", (event) => {
        event.preventDefault();
        generate();
    });
    byId("class").addEventListener("change", noteClass);
    show(byId("examples"), EXAMPLES.map((spec) => el("button", {
        type: "button", class: "quiet", on: { click: () => onMatrix(generated(spec)) },
    }, spec)));
}

/** Returns the matrix of a specification, CLASS:ROWS; the form shows it. */
export function generated(spec) {
    const [name, rows] = spec.split(":");
    if (known.classes.some((one) => one.name === name)) {
        byId("class").value = name;
        byId("rows").value = rows ?? "";
        noteClass();
    }
    return { kind: "generate", name: spec, spec };
}

/** Asks the service what there is, and calls back when the user changes something. */
export async function open({ onMatrix, onProduct, onProblem }) {
    const [devices, classes, samples, health] =
        await Promise.all([get("devices"), get("classes"), get("samples"), get("healthz")]);
    const hosts = devices.filter((device) => device.kind === "host").map((device) => device.name);
    // Names without a profile of their own are those of GPUs of the service's machine.
    const here = health.devices.filter((name) => !devices.some((device) => device.name === name));
    Object.assign(known, { devices, classes, samples, measurable: [...here, ...hosts] });
    byId("version").textContent = health.version;
    fillChoices();
    noteClass();
    noteEffort();
    wireDrop(onMatrix);
    wireGenerate(onMatrix, onProblem);
    byId("sample").addEventListener("change", () => {
        const chosen = sample(byId("sample").value);
        if (chosen !== null) onMatrix(chosen);
    });
    byId("device").addEventListener("change", noteEffort);
    for (const node of [byId("device"), byId("effort"), ...document.getElementsByName("precision")]) {
        node.addEventListener("change", onProduct);
    }
}
