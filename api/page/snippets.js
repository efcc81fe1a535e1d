// The same request for a terminal and for programs.

import { query, token } from "./api.js";
import { copyable, el, show } from "./dom.js";

const LANGUAGES = ["curl", "Python", "C", "Rust"];

let chosen = LANGUAGES[0];

function address() {
    return new URL(".", document.baseURI).href.replace(/\/$/, "");
}

/** Quotes a text for a shell. */
function shell(text) {
    return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Quotes a text for C, Python and Rust. */
function quoted(text) {
    return JSON.stringify(text);
}

/** Returns the path of the file that programs read. */
function file(matrix) {
    return matrix.kind === "file" || matrix.kind === "sample" ? matrix.name : "matrix.mtx";
}

function curl(matrix, parameters) {
    const auth = token() === null ? "" : " -H \"Authorization: Bearer $ELLECT_TOKEN\"";
    const url = (path, more) => shell(`${address()}/${query(path, { ...parameters, ...more })}`);
    switch (matrix.kind) {
    case "generate":
        return `curl -X POST${auth} ${url("recommend", { generate: matrix.spec })}`;
    case "known":
        return `curl${auth} ${url(`recommend/${matrix.fingerprint}`)}`;
    case "sample":
        return `curl${auth} ${shell(`${address()}/${matrix.path}`)} > ${shell(matrix.name)}\n`
            + `curl${auth} --data-binary @${shell(matrix.name)} ${url("recommend")}`;
    default:
        return `curl${auth} --data-binary @${shell(matrix.name)} ${url("recommend")}`;
    }
}

function python(matrix, { device, precision, effort, spmvs }) {
    const own = token() !== null;
    const what = {
        generate: `generate=${quoted(matrix.spec ?? "")}`,
        known: `fingerprint=${quoted(matrix.fingerprint ?? "")}`,
    }[matrix.kind] ?? quoted(file(matrix));
    return [
        own ? "import os\n\nimport ellect\n" : "import ellect\n",
        `client = ellect.Client(${quoted(address())}${own ? ', token=os.environ["ELLECT_TOKEN"]' : ""})`,
        "answer = client.recommend(",
        `    ${what}, device=${quoted(device)}, precision=${quoted(precision)},`,
        `    effort=${quoted(effort)}, spmvs=${spmvs},`,
        ")",
        "print(answer.choice)",
    ].join("\n");
}

function c(matrix, { device, precision, effort, spmvs }) {
    const note = matrix.kind === "generate" ? ` /* ellect generate ${matrix.spec} -o matrix.mtx */` : "";
    return [
        "#include <ellect.h>",
        "#include <stdio.h>",
        "",
        "int main(void) {",
        "    ellect_tuner *tuner;",
        "    ellect_matrix *matrix;",
        "    char *json;",
        "    ellect_workload workload = {.struct_size = sizeof workload,",
        `                                .spmvs = ${spmvs}, .effort = ELLECT_${effort.toUpperCase()}};`,
        `    if (ellect_tuner_open(${quoted(device)}, NULL, &tuner) != ELLECT_OK ||`,
        `        ellect_matrix_read(${quoted(file(matrix))}, ELLECT_${precision.toUpperCase()}, &matrix) != ELLECT_OK ||${note}`,
        "        ellect_recommend_json(tuner, matrix, &workload, &json) != ELLECT_OK) {",
        "        fprintf(stderr, \"%s\\n\", ellect_last_error_message());",
        "        return 1;",
        "    }",
        "    puts(json);",
        "    ellect_string_destroy(json);",
        "    ellect_matrix_destroy(matrix);",
        "    ellect_tuner_destroy(tuner);",
        "    return 0;",
        "}",
    ].join("\n");
}

function rust(matrix, { device, precision, effort, spmvs }) {
    const name = effort[0].toUpperCase() + effort.slice(1);
    const read = matrix.kind === "generate"
        ? [`    let spec: generate::Spec = ${quoted(matrix.spec)}.parse()?;`,
            precision === "f64" ? "    let csr = spec.make();" : "    let csr = spec.make().cast::<f32>();"]
        : [`    let csr: Csr<${precision}> = read::file(${quoted(file(matrix))}, &read::Limits::default())?;`];
    const used = matrix.kind === "generate" ? "Tuner, Workload, generate" : "Csr, Tuner, Workload, read";
    return [
        "use ellect::choose::Effort;",
        `use ellect::{${used}};`,
        "",
        "fn main() -> ellect::Result<()> {",
        ...read,
        `    let workload = Workload { spmvs: ${spmvs}, effort: Effort::${name}, ..Workload::default() };`,
        `    let choice = Tuner::open(${quoted(device)})?.recommend(&csr, &workload)?;`,
        "    println!(\"{}\", choice.candidate);",
        "    Ok(())",
        "}",
    ].join("\n");
}

/** Shows the request in the language that was chosen last. */
export function snippets(node, matrix, answer, parameters) {
    const made = { curl, Python: python, C: c, Rust: rust }[chosen](matrix, parameters);
    const radios = LANGUAGES.map((name) => el("label", {},
        el("input", {
            type: "radio", name: "language", value: name, checked: name === chosen,
            on: {
                change: () => {
                    chosen = name;
                    snippets(node, matrix, answer, parameters);
                    node.querySelector(`input[value="${name}"]`).focus();
                },
            },
        }), el("span", {}, name)));
    const reads = chosen === "C" || chosen === "Rust";
    const note = !reads ? "" : matrix.kind === "known"
        ? "The library ranks on the program's own machine. Put your own file in place of matrix.mtx."
        : "The library ranks on the program's own machine, with the models and measurements there.";
    show(node, el("fieldset", { class: "switch" }, el("legend", { class: "hidden" }, "Language"), radios),
        copyable(made, `${chosen} program`), el("p", { class: "muted" }, note));
}
