// Elements of the page. Texts become text nodes, so that nothing in an answer is read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Returns the element with this id. */
export function byId(id) {
    return document.getElementById(id);
}

function filled(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) {
        if (name === "on") {
            Object.entries(value).forEach(([event, handler]) => node.addEventListener(event, handler));
        } else if (name === "style") {
            Object.entries(value).forEach(([key, text]) => node.style.setProperty(key, text));
        } else if (value === true) {
            node.setAttribute(name, "");
        } else if (value !== false && value !== null && value !== undefined) {
            node.setAttribute(name, String(value));
        }
    }
    node.append(...children.flat(3).filter((child) => child !== null && child !== undefined));
    return node;
}

/** Creates an element of HTML with attributes, `style` and `on` among them, and children. */
export function el(name, attributes, ...children) {
    return filled(document.createElement(name), attributes, children);
}

/** Creates an element of SVG, as `el` does. */
export function svg(name, attributes, ...children) {
    return filled(document.createElementNS(SVG, name), attributes, children);
}

/** Replaces the children of an element. */
export function show(node, ...children) {
    node.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined));
}

/** Creates a table with these heads and rows of cells; `numbers` are the columns aligned right. */
export function table(caption, heads, rows, numbers = []) {
    const align = (column) => (numbers.includes(column) ? "number" : null);
    const head = heads.map((text, i) => el("th", { scope: "col", class: align(i) }, text));
    const body = rows.map((cells) =>
        el("tr", {}, cells.map((cell, i) => el(i === 0 ? "th" : "td",
            i === 0 ? { scope: "row", class: align(i) } : { class: align(i), "data-label": heads[i] }, cell))));
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
        el("table", {}, el("caption", { class: "hidden" }, caption),
            el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

/** Creates a list of code lines with a button that copies them. */
export function copyable(text, label) {
    const code = el("code", {}, text);
    const button = el("button", { type: "button", class: "quiet copy", "aria-label": label }, "Copy");
    button.addEventListener("click", async () => {
        button.textContent = (await copied(text, code)) ? "Copied" : "Selected: press Ctrl+C";
        setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    return el("div", { class: "code" }, el("pre", { tabindex: "0", "aria-label": label }, code), button);
}

/** Copies a text; pages that were not loaded over HTTPS only select it. */
async function copied(text, node) {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch {
        getSelection().selectAllChildren(node);
        return false;
    }
}
