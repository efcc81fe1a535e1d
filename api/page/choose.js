// The view Choose: sends the matrix, keeps the answers, and shows them for any number of products.

import { ask, get, query, text } from "./api.js";
import { bars } from "./bars.js";
import { decision, strip } from "./decision.js";
import { details } from "./details.js";
import { byId, el, show } from "./dom.js";
import { inWords } from "./features.js";
import * as input from "./input.js";
import { followed } from "./jobs.js";
import { picture } from "./picture.js";
import { MOST, winner, winners } from "./ranking.js";
import { snippets } from "./snippets.js";
import { bytes, count, parsed, products } from "./units.js";

/** The matrix, the answer that is shown, and earlier answers for the same matrix. */
const state = { matrix: null, spmvs: 1000, answer: null, margin: 0, wins: [], kept: new Map(), sending: null };

function status(sentence) {
    byId("status").textContent = sentence;
    byId("status").classList.toggle("busy", sentence !== "");
}

/** Shows a reason why there is no answer; nothing for null. */
export function problem(sentence) {
    show(byId("problem"), sentence === null ? null : el("p", { class: "card problem" }, sentence));
}

/** Returns what identifies an answer for the matrix at hand. */
function key({ device, precision, effort }) {
    return `${device} ${precision} ${effort}`;
}

/** Returns the body of a request; null if the matrix is named in the query. */
async function body(matrix) {
    if (matrix.kind === "sample") return text(matrix.path);
    return matrix.kind === "file" ? matrix.file : null;
}

function remember() {
    const { matrix, spmvs } = state;
    const named = { generate: matrix.spec, sample: matrix.kind === "sample" ? matrix.name : null };
    const own = matrix.kind === "file" ? {} : { ...named, fingerprint: matrix.fingerprint, ...input.product(), spmvs };
    history.replaceState(null, "", `${query(location.pathname, own)}#choose`);
}

/** Sends the request and returns the answer, that of a job once it has ended. */
async function answered(matrix, product, signal) {
    const parameters = { ...product, spmvs: state.spmvs };
    if (matrix.kind === "known") {
        return get(query(`recommend/${matrix.fingerprint}`, parameters), { signal });
    }
    if (input.measures(product.effort)) parameters.wait_ms = 0;
    const size = matrix.kind === "file" ? `, ${bytes(matrix.file.size)}` : "";
    status(`Choosing for ${matrix.name}${size} ...`);
    const path = query("recommend", { ...parameters, generate: matrix.spec });
    const first = await ask(path, { method: "POST", body: await body(matrix), signal });
    if (first.status !== 202) return first.answer;
    status(`Measuring as job ${first.answer.id} ...`);
    byId("work").hidden = false;
    return followed(first.answer, byId("work"), signal);
}

/** Asks for the matrix and the product that the form names, and shows the answer. */
async function request() {
    const { matrix } = state;
    if (matrix === null) return;
    state.sending?.abort();
    const sending = new AbortController();
    state.sending = sending;
    const product = input.product();
    problem(null);
    byId("work").hidden = true;
    remember();
    try {
        let answer = state.kept.get(key(product));
        if (answer === undefined) {
            answer = await answered(matrix, product, sending.signal);
            state.kept.set(key(product), answer);
        }
        if (state.sending !== sending) return;
        await arrived(answer);
        // On a phone, the answer is below the form.
        if (matchMedia("(max-width: 60rem)").matches) byId("answer").scrollIntoView();
    } catch (error) {
        if (error.name === "AbortError" || state.sending !== sending) return;
        byId("answer").hidden = true;
        problem(error.message);
    } finally {
        if (state.sending === sending) status("");
    }
}

async function arrived(answer) {
    state.answer = answer;
    state.margin = input.margin(answer.device);
    state.wins = winners(answer, state.margin);
    byId("start").hidden = true;
    byId("answer").hidden = false;
    byId("work").hidden = true;
    render();
    show(byId("words"), inWords(answer.features));
    show(byId("why"), details(answer));
    let structure = null;
    try {
        structure = answer.fingerprint === null ? null : await get(`structures/${answer.fingerprint}`);
    } catch (error) {
        if (error.status !== 404) throw error;
    }
    if (state.answer === answer) picture(byId("picture"), structure);
}

/** Returns the candidate that wins for the number of products that the slider shows. */
function first() {
    const { answer, spmvs, margin } = state;
    return spmvs === answer.spmvs ? answer.ranking[0] : winner(answer, spmvs, margin);
}

/** Shows everything that depends on the number of products. */
function render() {
    const { answer, matrix, spmvs, wins } = state;
    if (answer === null) return;
    const chosen = first();
    show(byId("decision"), decision(answer, chosen, spmvs, matrix));
    strip(byId("strip"), wins, answer, spmvs, setProducts);
    byId("winners").textContent = `Least total: ${wins.map(({ from, ranked }) =>
        `${ranked.format} from ${count(from)}`).join(", ")} on.`;
    bars(byId("bars"), answer, chosen, spmvs, byId("variants").checked);
    snippets(byId("snippets"), matrix, answer, { ...input.product(), spmvs });
}

/** Sets the number of products, on the slider and everywhere. */
function setProducts(spmvs) {
    state.spmvs = Math.min(Math.max(1, spmvs), 10 ** MOST);
    byId("spmvs").value = Math.log10(state.spmvs);
    noteProducts();
    render();
}

function noteProducts() {
    byId("spmvs").setAttribute("aria-valuetext", products(state.spmvs));
    if (document.activeElement !== byId("spmvs-number")) {
        byId("spmvs-number").value = count(state.spmvs);
    }
}

/** Returns a number of products with two digits, as positions of the slider deserve. */
function rounded(value) {
    const scale = 10 ** Math.max(0, Math.floor(Math.log10(value)) - 1);
    return Math.round(value / scale) * scale;
}

function wireSlider() {
    byId("spmvs").addEventListener("input", () => {
        state.spmvs = rounded(10 ** Number(byId("spmvs").value));
        noteProducts();
        render();
    });
    byId("spmvs").addEventListener("change", () => state.matrix !== null && remember());
    byId("spmvs-number").addEventListener("change", () => {
        const value = parsed(byId("spmvs-number").value);
        if (value !== null) setProducts(value);
        byId("spmvs-number").value = count(state.spmvs);
    });
    byId("variants").addEventListener("change", render);
    noteProducts();
}

/** Chooses for another matrix. */
export function choose(matrix) {
    state.matrix = matrix;
    state.kept.clear();
    return request();
}

/** Shows the answer of a job, or of another view. */
export async function showAnswer(answer, name) {
    state.sending?.abort();
    state.sending = null;
    state.matrix = { kind: "known", name, fingerprint: answer.fingerprint };
    state.kept.clear();
    input.setProduct({ device: answer.device, precision: answer.precision });
    state.kept.set(key(input.product()), answer);
    problem(null);
    setProducts(answer.spmvs);
    location.hash = "#choose";
    await arrived(answer);
}

/** Opens the view; the query of the page may name a matrix, a product and the number of products. */
export async function open() {
    wireSlider();
    await input.open({ onMatrix: choose, onProduct: request, onProblem: problem });
    const wanted = Object.fromEntries(new URLSearchParams(location.search));
    input.setProduct(wanted);
    const spmvs = parsed(wanted.spmvs ?? "");
    if (spmvs !== null) setProducts(spmvs);
    const { generate, sample, fingerprint } = wanted;
    if (generate !== undefined) await choose(input.generated(generate));
    else if (sample !== undefined && input.sample(sample) !== null) await choose(input.sample(sample));
    else if (fingerprint !== undefined) await choose({ kind: "known", name: fingerprint, fingerprint });
}
