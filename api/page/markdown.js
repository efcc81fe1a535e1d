// The Markdown of model cards: headings, tables, lists and paragraphs, as elements.

import { el } from "./dom.js";

/** Returns the parts of a line: code, bold text, and text. */
function inline(text) {
    return text.split(/(`[^`]*`|\*\*[^*]+\*\*)/).filter((part) => part !== "").map((part) => {
        if (part.startsWith("`") && part.endsWith("`") && part.length > 1) return el("code", {}, part.slice(1, -1));
        if (part.startsWith("**") && part.length > 4) return el("b", {}, part.slice(2, -2));
        return part;
    });
}

function cells(line) {
    return line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
}

function tableOf(lines, heading) {
    const [head, , ...rows] = lines.map(cells);
    const named = head.some((text) => text !== "");
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${heading}` },
        el("table", {},
            named ? el("thead", {}, el("tr", {}, head.map((text) => (text === "" ? el("td", {}) : el("th", { scope: "col" }, inline(text)))))) : null,
            el("tbody", {}, rows.map((row) => el("tr", {}, row.map((text, i) =>
                el(i === 0 ? "th" : "td", i === 0 ? { scope: "row" } : {}, inline(text))))))));
}

/** Returns the elements of a text; headings begin at the level `level`. */
export function markdown(text, level) {
    const nodes = [];
    let heading = "";
    for (const block of text.split(/\n\s*\n/).map((part) => part.trim()).filter((part) => part !== "")) {
        const lines = block.split("\n");
        const title = /^(#+) (.*)$/.exec(lines[0]);
        if (title !== null) {
            heading = title[2];
            nodes.push(el(`h${Math.min(6, level + title[1].length - 1)}`, {}, inline(title[2])));
            lines.shift();
        }
        if (lines.length === 0) continue;
        if (lines.length > 1 && lines[0].startsWith("|")) nodes.push(tableOf(lines, heading));
        else if (lines[0].startsWith("- ")) nodes.push(el("ul", {}, lines.map((line) => el("li", {}, inline(line.replace(/^- /, ""))))));
        else nodes.push(el("p", {}, inline(lines.join(" "))));
    }
    return nodes;
}
