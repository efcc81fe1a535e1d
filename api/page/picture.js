// Pictures of a matrix: where its entries are, and how long its rows are.

import { el, show, svg } from "./dom.js";
import { about, count, percent } from "./units.js";

/** Weakest shade of a cell with an entry. */
const LEAST = 0.25;

/** Size of the histogram, in units of its own. */
const SIZE = { width: 320, height: 120, left: 4, right: 4, top: 8, bottom: 22 };

/** Paints the density of a grid in the colour of the canvas's text, darker where there is more. */
function paint(canvas, density) {
    const context = canvas.getContext("2d");
    const [red, green, blue] = getComputedStyle(canvas).color.match(/[\d.]+/g).map(Number);
    const image = context.createImageData(density.columns, density.rows);
    const most = Math.log1p(density.counts.reduce((a, b) => Math.max(a, b), 1));
    density.counts.forEach((entries, cell) => {
        const shade = entries === 0 ? 0 : LEAST + ((1 - LEAST) * Math.log1p(entries)) / most;
        image.data.set([red, green, blue, Math.round(255 * shade)], 4 * cell);
    });
    context.putImageData(image, 0, 0);
}

/** Draws where the entries are. */
function sparsity(density, structure) {
    const { nrows, ncols, nnz } = structure;
    const filled = density.counts.filter((entries) => entries > 0).length / density.counts.length;
    const shape = Math.min(2, Math.max(0.5, ncols / Math.max(1, nrows)));
    const canvas = el("canvas", {
        width: density.columns, height: density.rows, role: "img", class: "spy",
        style: { "aspect-ratio": String(shape) },
        "aria-label": `Sparsity picture: ${percent(filled)} of ${density.rows} by ${density.columns} cells hold entries`,
    });
    requestAnimationFrame(() => paint(canvas, density));
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const again = () => (canvas.isConnected ? paint(canvas, density) : dark.removeEventListener("change", again));
    dark.addEventListener("change", again);
    const cells = density.rows < nrows || density.columns < ncols
        ? ` A cell is ${count(Math.ceil(nrows / density.rows))} by ${count(Math.ceil(ncols / density.columns))}; darker cells hold more.` : "";
    return el("figure", {}, canvas, el("figcaption", { class: "muted" },
        `${count(nrows)} by ${count(ncols)}, ${about(nnz)} entries.${cells}`));
}

function label(bin) {
    return bin.from === bin.to ? count(bin.from) : `${count(bin.from)} to ${count(bin.to)}`;
}

/** Draws how many rows have which length; the height is the logarithm of the number. */
function histogram(bins) {
    const { width, height, left, right, top, bottom } = SIZE;
    const most = Math.log1p(Math.max(...bins.map((bin) => bin.rows), 1));
    const step = (width - left - right) / bins.length;
    const inner = height - top - bottom;
    const bars = bins.map((bin, i) => {
        const tall = (inner * Math.log1p(bin.rows)) / most;
        return svg("rect", {
            x: left + i * step + step * 0.08, y: height - bottom - tall, width: step * 0.84, height: tall, rx: 1,
        }, svg("title", {}, `length ${label(bin)}: ${count(bin.rows)} rows`));
    });
    const places = [...new Set([0, Math.floor(bins.length / 2), bins.length - 1])];
    const anchors = ["start", "middle", "end"];
    const texts = places.map((place, i) => svg("text", {
        x: left + (place + (i === 0 ? 0 : place === bins.length - 1 ? 1 : 0.5)) * step, y: height - 8,
        "text-anchor": places.length === 1 ? "start" : place === bins.length - 1 ? "end" : anchors[i],
    }, label(bins[place])));
    const common = bins.reduce((a, b) => (b.rows > a.rows ? b : a), bins[0]);
    const stated = `Row lengths from ${count(bins[0].from)} to ${count(bins.at(-1).to)}; `
        + `${count(common.rows)} rows have ${label(common)} entries`;
    return el("figure", {},
        svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "histogram", role: "img", "aria-label": stated },
            svg("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }), bars, texts),
        el("figcaption", { class: "muted" }, `${stated}. The height is logarithmic.`));
}

/** Shows the pictures of a structure; a sentence if there are none. */
export function picture(node, structure) {
    const { density, row_lengths: bins } = structure ?? {};
    if (!density) {
        show(node, el("p", { class: "muted" },
            "The service has pictures of the matrices that it measured, or that were sent lately. Send this one again to see it."));
        return;
    }
    show(node, sparsity(density, structure), bins?.length > 0 ? histogram(bins) : null);
}
