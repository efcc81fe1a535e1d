// The view Jobs, and the progress of one job.

import { ask, events, get } from "./api.js";
import { byId, el, show } from "./dom.js";
import { date, time } from "./units.js";

const ENDED = ["succeeded", "failed", "canceled"];

/** Streams of the jobs in the list; they end when the view is left. */
let following = new AbortController();

function progress(job) {
    const { done, total, step } = job.progress ?? {};
    if (ENDED.includes(job.status)) return null;
    if (job.status === "enqueued") return el("p", { class: "muted" }, job.again ?? "It waits for its turn.");
    return [
        el("progress", { max: total ?? 1, value: total === undefined ? null : done, "aria-label": `Progress of job ${job.id}` }),
        el("p", { class: "muted" }, total === undefined ? "It has begun." : `${done} of ${total}: ${step}`),
    ];
}

function cancelButton(job, node) {
    const cancel = async (event) => {
        event.target.disabled = true;
        try {
            await ask(`jobs/${job.id}`, { method: "DELETE" });
        } catch (error) {
            node.append(el("p", { class: "problem", role: "alert" }, error.message));
        }
    };
    return el("button", { type: "button", class: "quiet", "aria-label": `Cancel job ${job.id}`, on: { click: cancel } }, "Cancel");
}

/** Follows a job, drawn into `node`, to its end; returns its result. */
export async function followed(job, node, signal) {
    const draw = (now) => show(node, el("h2", {}, `Job ${now.id}: `, el("span", { class: "tag" }, now.status)),
        progress(now), ENDED.includes(now.status) ? null : cancelButton(now, node));
    draw(job);
    await events(`jobs/${job.id}/events`, draw, signal);
    const ended = await get(`jobs/${job.id}`, { signal });
    if (ended.status === "succeeded") return ended.result;
    throw new Error(ended.error?.message ?? `job ${job.id} is ${ended.status}; it goes on when the service starts again`);
}

/** Describes what a job is about. */
function about(job) {
    const { details } = job;
    if (job.kind === "recommend") {
        const { device = "cpu", effort, generate, precision = "f64" } = details.parameters;
        return `${effort} for ${generate ?? "a file"} on ${device} in ${precision}`;
    }
    return `training for ${details.device ?? "cpu"}`;
}

function row(job, onResult) {
    const card = el("li", { class: "card job", "data-status": job.status });
    const open = async () => {
        const { result, details } = await get(`jobs/${job.id}`);
        await onResult(result, details.parameters.generate ?? `the matrix of job ${job.id}`);
    };
    const draw = (now) => {
        const took = now.duration_s === null ? "" : `, took ${time(now.duration_s * 1e6)}`;
        card.dataset.status = now.status;
        show(card,
            el("div", { class: "card-head" }, el("h2", {}, `Job ${now.id} `, el("span", { class: `tag ${now.status}` }, now.status)),
                ENDED.includes(now.status) ? null : cancelButton(now, card),
                now.status === "succeeded" && now.kind === "recommend"
                    ? el("button", { type: "button", class: "quiet", on: { click: open } }, "Show the answer") : null),
            el("p", {}, about(now)), el("p", { class: "muted" }, `${date(now.enqueued_at)}${took}`),
            progress(now), now.error === null ? null : el("p", { class: now.status === "canceled" ? "muted" : "problem" }, now.error.message));
    };
    draw(job);
    return { card, draw };
}

/** Stops to follow the jobs of the list. */
export function close() {
    following.abort();
}

/** Shows the jobs, each with its progress as it goes on. */
export async function open(onResult) {
    following.abort();
    following = new AbortController();
    const { signal } = following;
    const node = byId("jobs");
    if (!node.hasChildNodes()) show(node, el("p", { class: "muted busy", role: "status" }, "Reading the jobs ..."));
    const { jobs, total } = await get("jobs?limit=50", { signal });
    const rows = jobs.map((job) => ({ job, ...row(job, onResult) }));
    const again = el("button", { type: "button", on: { click: () => open(onResult) } }, "Look again");
    show(node,
        el("div", { class: "view-head" }, el("p", {}, total === 0
            ? "There are no jobs. Measuring (effort measure) makes one, and so does POST /tune."
            : `${total} jobs, the latest first. Those at work are followed.`), again),
        el("ul", { class: "plain jobs" }, rows.map(({ card }) => card)));
    for (const { job, draw } of rows.filter((one) => !ENDED.includes(one.job.status))) {
        events(`jobs/${job.id}/events`, draw, signal).catch(() => {
            // The view was left, or the service stopped; the list tells when it is opened again.
        });
    }
}
