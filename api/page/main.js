// The views of the page, by the fragment of its address.

import { forgetToken, token } from "./api.js";
import * as choosing from "./choose.js";
import { byId, el, show } from "./dom.js";
import { setProduct } from "./input.js";
import * as jobs from "./jobs.js";
import * as models from "./models.js";
import * as wisdom from "./wisdom.js";

function known(structure, device) {
    setProduct({ device, effort: "predict" });
    location.hash = "#choose";
    return choosing.choose({
        kind: "known", name: structure.source || structure.fingerprint, fingerprint: structure.fingerprint,
    });
}

const VIEWS = {
    choose: () => {},
    wisdom: () => wisdom.open(known),
    models: () => models.open(),
    jobs: () => jobs.open(choosing.showAnswer),
};

/** Shows the view that the address names. */
async function view() {
    const name = location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "choose";
    jobs.close();
    for (const other of Object.keys(VIEWS)) {
        byId(other).hidden = other !== name;
        const link = document.querySelector(`nav a[href="#${other}"]`);
        if (other === name) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    }
    document.title = name === "choose" ? "ellect" : `ellect: ${name}`;
    try {
        await VIEWS[name]();
    } catch (error) {
        if (error.name !== "AbortError") {
            show(byId(name), el("p", { class: "card problem", role: "alert" }, error.message));
        }
    }
}

addEventListener("hashchange", view);
byId("token-change").hidden = token() === null;
byId("token-change").addEventListener("click", () => {
    forgetToken();
    location.reload();
});
view();
choosing.open().catch((error) => choosing.problem(error.message));
