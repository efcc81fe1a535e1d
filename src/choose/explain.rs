//! The explanation of a choice, in sentences for the author of a solver.

use super::rank::{Entry, NEAR_TIE};
use super::{Effort, Refused, Workload};
use crate::analysis::Analysis;
use crate::cost::{Estimator, Source, balance};
use crate::device::Kind;
use crate::format::{Basis, Candidate, Target};
use crate::units::{bytes, time};

/// The facts of a choice; the winner is the first entry.
pub(super) struct Case<'a> {
    pub analysis: &'a Analysis<'a>,
    pub target: &'a Target<'a>,
    pub workload: &'a Workload,
    pub entries: &'a [Entry],
    pub csr: &'a Entry,
    pub refused: &'a [Refused],
}

/// Returns the sentences, most important first.
pub(super) fn explain(case: &Case<'_>) -> Vec<String> {
    let mut sentences = vec![verdict(case)];
    sentences.extend(untimed(case));
    sentences.extend(reasons(case));
    sentences.extend(narrow_values(case));
    sentences.extend(next_best(case));
    sentences.extend(permuted_basis(case));
    sentences.extend(link(case));
    sentences.extend(memory_limit(case));
    sentences.push(sources(case));
    sentences
}

fn verdict(case: &Case<'_>) -> String {
    let Case { workload, entries, csr, .. } = case;
    let winner = &entries[0];
    let products = products(workload.spmvs, workload.vectors);
    if winner.candidate.is_baseline() {
        return stay_in_csr(case);
    }
    let pays = match winner.cost.break_even(&csr.cost, workload) {
        Some(0) => {
            "no more than CSR's own preparation, and pays from the first product".to_string()
        }
        Some(from) => format!("and pays from product {from}"),
        None => "and never pays".to_string(),
    };
    let faster = match csr.cost.spmv_s / winner.cost.spmv_s {
        times if times.is_finite() => format!(" ({times:.2}x)"),
        _ => String::new(),
    };
    format!(
        "Use {}: {} a product against {} with {}{faster}; conversion takes {}, {pays}; {products} take \
         {} in total against {}.",
        winner.candidate,
        time(winner.cost.spmv_s),
        time(csr.cost.spmv_s),
        csr.candidate,
        time(winner.cost.convert_s),
        time(winner.cost.total_s(workload)),
        time(csr.cost.total_s(workload)),
    )
}

/// Returns the verdict if a kernel on the CSR arrays wins.
fn stay_in_csr(case: &Case<'_>) -> String {
    let Case { workload, entries, .. } = case;
    let winner = &entries[0];
    let cost = &winner.cost;
    let faster = entries.iter().filter(|entry| entry.cost.spmv_s < (1.0 - NEAR_TIE) * cost.spmv_s);
    let fastest = faster.min_by(|a, b| a.cost.spmv_s.total_cmp(&b.cost.spmv_s));
    let pays = fastest.and_then(|entry| Some((entry, entry.cost.break_even(cost, workload)?)));
    let total_s = |entry: &Entry| entry.cost.total_s(workload);
    let least = entries.iter().min_by(|a, b| total_s(a).total_cmp(&total_s(b)));
    let in_doubt = |least: &&Entry| {
        let less = total_s(least) * (1.0 + NEAR_TIE) < total_s(winner);
        less && least.cost.source != Source::Measured && case.target.device.margin > 0.0
    };
    if let Some(least) = least.filter(in_doubt) {
        return format!(
            "Keep CSR ({}): {} is expected to take {} in total against {}, but it was not timed, and \
             {} may be off by up to {:.0} % on {}. Effort measure times it.",
            winner.candidate,
            least.candidate,
            time(total_s(least)),
            time(total_s(winner)),
            match least.cost.source {
                Source::Predicted => "a prediction",
                _ => "an estimate",
            },
            100.0 * case.target.device.margin,
            case.target.device.name
        );
    }
    // A candidate that pays back sooner differs by less than a near tie.
    match pays.filter(|&(_, from)| from > workload.spmvs) {
        Some((fastest, from)) => format!(
            "Keep CSR ({}) for {}: {} takes {} a product against {}, but its conversion takes {} and \
             pays only from product {from}.",
            winner.candidate,
            products(workload.spmvs, workload.vectors),
            fastest.candidate,
            time(fastest.cost.spmv_s),
            time(cost.spmv_s),
            time(fastest.cost.convert_s),
        ),
        None => format!(
            "Keep CSR ({}): a product takes {}, and no other candidate lowers the total by more than \
             {:.0} %.",
            winner.candidate,
            time(cost.spmv_s),
            100.0 * NEAR_TIE
        ),
    }
}

/// Returns why candidates that were not timed and seem better than the timed choice are not chosen.
fn untimed(case: &Case<'_>) -> Option<String> {
    let winner = &case.entries[0];
    if winner.cost.source != Source::Measured {
        return None;
    }
    let total_s = |entry: &Entry| entry.cost.total_s(case.workload);
    let better = |entry: &&Entry| {
        entry.cost.source != Source::Measured && total_s(entry) * (1.0 + NEAR_TIE) < total_s(winner)
    };
    let count = case.entries.iter().filter(better).count();
    let least =
        case.entries.iter().filter(better).min_by(|a, b| total_s(a).total_cmp(&total_s(b)))?;
    let others = match count {
        1 => String::new(),
        count => format!(" ({} others like it)", count - 1),
    };
    Some(format!(
        "{} is expected to take {} in total, less than the choice, but it was not timed{others}; effort \
         exhaustive times it.",
        least.candidate,
        time(total_s(least)),
    ))
}

fn reasons(case: &Case<'_>) -> Option<String> {
    let winner = &case.entries[0];
    let estimate = winner.estimate.as_ref()?;
    let nnz = case.analysis.pattern().nnz().max(1) as f64;
    let mut text = format!("A product moves {}", bytes(estimate.times.bytes as u64));
    if !winner.candidate.is_baseline() {
        if let Some(csr) = &case.csr.estimate {
            text += &format!(" (CSR moves {})", bytes(csr.times.bytes as u64));
        }
        let padding = estimate.work.entries as f64 / nnz - 1.0;
        text += &match padding {
            p if p < 0.005 => "; almost none of its entries are padding".to_string(),
            p => format!("; {:.0} % of its entries are padding", 100.0 * p / (1.0 + p)),
        };
        if estimate.work.scattered_rows > 0 {
            text += "; it writes y out of order";
        }
    }
    Some(format!("{text}. Its time is limited by {}.", estimate.times.bound()))
}

/// Returns how exact the values are if the choice stores them in fewer bits than vectors.
fn narrow_values(case: &Case<'_>) -> Option<String> {
    let Case { analysis, target, entries, .. } = case;
    let winner = &entries[0].candidate;
    winner.format.narrows?;
    let (stores, of) = (winner.format.stores, target.precision);
    if winner.rounding(target) > 0.0 && !analysis.would_round(stores) {
        return Some(format!(
            "{winner} stores the values in {stores}, which holds them exactly; x, y and sums are in {of}. \
             New values may be rounded."
        ));
    }
    quick_values(winner, target)
}

/// As [`narrow_values`], where it is not known whether values that may be rounded need to be.
pub(super) fn quick_values(winner: &Candidate, target: &Target<'_>) -> Option<String> {
    winner.format.narrows?;
    let (stores, of) = (winner.format.stores, target.precision);
    Some(match winner.rounding(target) {
        0.0 => format!(
            "{winner} stores the values in {stores}, which holds them exactly; x, y and sums are in {of}. \
             It refuses new values that {stores} does not hold exactly, unless values={stores} allows \
             rounding."
        ),
        _ => format!(
            "{winner} rounds the values to {stores}, as allowed; x, y and sums are in {of}. Row i of a \
             product differs from that of the exact values by at most 2^{} * sum_j |a_ij| |x_j|, beside \
             the rounding of {of}.",
            stores.rounding_log2()
        ),
    })
}

fn next_best(case: &Case<'_>) -> Option<String> {
    let winner = &case.entries[0];
    let next = case.entries[1..]
        .iter()
        .find(|entry| entry.candidate.format.name != winner.candidate.format.name)?;
    let more = next.cost.total_s(case.workload) / winner.cost.total_s(case.workload) - 1.0;
    // The verdict explains a candidate that is expected to take less time but is not trusted.
    if !more.is_finite() || more < -NEAR_TIE {
        return None;
    }
    Some(if more <= NEAR_TIE {
        let decided = if winner.cost.convert_s < next.cost.convert_s {
            ": the cheaper conversion decided"
        } else if winner.candidate.is_baseline() {
            ": CSR is there already"
        } else if winner.cost.bytes < next.cost.bytes {
            ": the smaller layout decided"
        } else {
            ""
        };
        format!(
            "{} takes as long in total, within {:.0} %{decided}.",
            next.candidate,
            100.0 * NEAR_TIE
        )
    } else {
        format!(
            "Next best format: {}, with {:.0} % more time in total ({} for the conversion, {} a \
             product).",
            next.candidate,
            100.0 * more,
            time(next.cost.convert_s),
            time(next.cost.spmv_s)
        )
    })
}

/// Returns the time that permuted vectors would save, if it is at least 5 %.
fn permuted_basis(case: &Case<'_>) -> Option<String> {
    let Case { analysis, target, workload, entries, .. } = case;
    let pattern = analysis.pattern();
    if target.basis == Basis::Permuted || pattern.nrows() != pattern.ncols() {
        return None;
    }
    let target = Target { basis: Basis::Permuted, ..**target };
    let estimator = Estimator::new(analysis, &target).with_vectors(workload.vectors);
    // Beside measured times, others are too uncertain to promise a gain.
    let measured = entries[0].cost.source == Source::Measured;
    let total_s = |entry: &Entry| {
        if measured && entry.cost.source != Source::Measured {
            return None;
        }
        let original = entry.estimate.as_ref().filter(|e| e.work.scattered_rows > 0)?;
        let work = entry.candidate.work(analysis, &target).ok()?;
        let mut cost = estimator.cost(&entry.candidate, &work);
        // The estimate is scaled by the error of the estimate in the original basis.
        cost.spmv_s *= entry.cost.spmv_s / original.times.total_s();
        Some(cost.total_s(workload))
    };
    let (best, best_s) = entries
        .iter()
        .filter_map(|entry| Some((&entry.candidate, total_s(entry)?)))
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    let now_s = entries[0].cost.total_s(workload);
    (best_s < 0.95 * now_s).then(|| {
        format!(
            "If x and y stay in the permuted basis (a Krylov solver permutes them once before and once \
             after), {} need not write y out of order and takes {} in total, {:.0} % less.",
            best,
            time(best_s),
            100.0 * (1.0 - best_s / now_s)
        )
    })
}

/// Returns the time of copying x and y over the host link, if it is at least a tenth of a product.
fn link(case: &Case<'_>) -> Option<String> {
    let Target { device, precision, .. } = *case.target;
    let pattern = case.analysis.pattern();
    if device.link_gbps <= 0.0 || pattern.nnz() == 0 {
        return None;
    }
    let link_s = case.workload.vectors as f64
        * balance::link_s(pattern.nrows(), pattern.ncols(), device.link_gbps, precision);
    let share = link_s / case.entries[0].cost.spmv_s;
    (share >= 0.1).then(|| {
        format!(
            "Keep x and y on the device: copying them for every product would add {} to {}.",
            time(link_s),
            time(case.entries[0].cost.spmv_s)
        )
    })
}

fn memory_limit(case: &Case<'_>) -> Option<String> {
    let limit = case.workload.memory_limit?;
    let unlimited = Target { memory_limit: u64::MAX, ..*case.target };
    let suits = |refused: &&Refused| refused.candidate.work(case.analysis, &unlimited).is_ok();
    let out = case.refused.iter().filter(suits).count();
    (out > 0).then(|| format!("The memory limit of {} excludes {out} candidates.", bytes(limit)))
}

fn sources(case: &Case<'_>) -> String {
    let Case { target, workload, entries, .. } = case;
    let device = target.device;
    let count = |source| entries.iter().filter(|entry| entry.cost.source == source).count();
    let on = match device.kind {
        Kind::Gpu => device.name.clone(),
        Kind::Host => format!("{} ({} threads)", device.name, device.processors),
    };
    let measured = count(Source::Measured);
    if measured > 0 {
        let others = match count(Source::Predicted) {
            0 => "the other times are estimates, scaled to the measured time of CSR",
            _ => {
                "the other times are predictions, scaled by the errors of those that were timed, or \
                 estimates for formats that the model does not know"
            }
        };
        let candidates = match measured {
            1 => "1 candidate was".to_string(),
            _ => format!("{measured} candidates were"),
        };
        return format!(
            "{candidates} timed on {on}, each after its product was checked; {others}."
        );
    }
    if count(Source::Predicted) > 0 {
        return format!(
            "Times on {on} are predictions of a trained model, or estimates for formats it does not know."
        );
    }
    let missing = match workload.effort {
        _ if workload.vectors > 1 => {
            " No trained model of several vectors is loaded, and those of single vectors do not apply."
        }
        Effort::Predict => " No trained model of this device is loaded: `ellect tune` trains one.",
        _ => "",
    };
    format!(
        "Times are estimates from closed formulas and the profile of {on} ({}).{missing}",
        device.source
    )
}

/// Returns a number of products in words, with the vectors of each if there are several.
pub(super) fn products(spmvs: u64, vectors: usize) -> String {
    let of_vectors = match vectors {
        1 => String::new(),
        vectors => format!(" of {vectors} vectors"),
    };
    match spmvs {
        1 => format!("1 product{of_vectors}"),
        count => format!("{count} products{of_vectors}"),
    }
}
