// Requests to the service. All paths are relative to the page.

import { byId } from "./dom.js";

const KEY = "ellect.token";

/** An answer with an error: its status, its code and its message. */
export class Failure extends Error {
    constructor(status, error) {
        super(error.message);
        this.status = status;
        this.code = error.code;
    }
}

/** The token of this tab; null if there is none. */
export function token() {
    return sessionStorage.getItem(KEY);
}

/** Forgets the token. */
export function forgetToken() {
    sessionStorage.removeItem(KEY);
    byId("token-change").hidden = true;
}

let prompting = null;

/** Asks for a token; requests that need one at once share the question. */
function askedToken(refused) {
    prompting ??= new Promise((resolve) => {
        const dialog = byId("token");
        byId("token-why").textContent = refused
            ? "The service does not know this token. Ask its operator for one."
            : "Its operator has the tokens. The page keeps yours until this tab closes.";
        byId("token-value").value = "";
        dialog.returnValue = "cancel";
        dialog.showModal();
        dialog.addEventListener("close", () => {
            const value = byId("token-value").value.trim();
            byId("token-value").value = "";
            const given = dialog.returnValue === "use" && value !== "";
            if (given) {
                sessionStorage.setItem(KEY, value);
                byId("token-change").hidden = false;
            }
            prompting = null;
            resolve(given);
        }, { once: true });
    });
    return prompting;
}

async function failureOf(response) {
    let error = { code: "unknown", message: `the service answered with status ${response.status}` };
    try {
        error = (await response.json()).error ?? error;
    } catch {
        // A proxy answered, not the service.
    }
    return new Failure(response.status, error);
}

/** Sends a request, with the token if there is one; asks for it if the service needs it. */
async function sent(path, { method = "GET", body, signal, accept = "application/json" } = {}) {
    for (;;) {
        const own = token();
        const headers = { accept };
        if (own !== null) headers.authorization = `Bearer ${own}`;
        let response;
        try {
            response = await fetch(path, { method, body, signal, headers, credentials: "same-origin" });
        } catch (error) {
            if (error.name === "AbortError") throw error;
            throw new Failure(0, { code: "network", message: "the service does not answer; is it running?" });
        }
        if (response.ok) return response;
        const failure = await failureOf(response);
        const isNewer = token() !== null && token() !== own;
        if (failure.status !== 401 || !(isNewer || (await askedToken(own !== null)))) throw failure;
    }
}

/** Asks for JSON; returns it with the status. */
export async function ask(path, options) {
    const response = await sent(path, options);
    return { status: response.status, answer: await response.json() };
}

/** Asks for JSON. */
export async function get(path, options) {
    return (await ask(path, options)).answer;
}

/** Asks for text. */
export async function text(path, options) {
    return (await sent(path, { accept: "text/*", ...options })).text();
}

/** Returns a path with a query, without the parameters that are null. */
export function query(path, parameters) {
    const all = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
    return all.length === 0 ? path : `${path}?${new URLSearchParams(all).toString().replaceAll("%3A", ":")}`;
}

/** Calls `each` with the data of every server-sent event at a path until they end. */
export async function events(path, each, signal) {
    const response = await sent(path, { accept: "text/event-stream", signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) {
            const data = part.split("\n").filter((line) => line.startsWith("data:"));
            if (data.length > 0) each(JSON.parse(data.map((line) => line.slice(5)).join("\n")));
        }
    }
}
