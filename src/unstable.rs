//! Items for the training of models and for this project's own programs. They may change in any
//! version; programs that multiply do not need them.

/// The steps of a choice: gates, rankings and the policy.
///
/// ```
/// use ellect::unstable::choose::{baseline_product_s, row_scan_s};
/// use ellect::{Precision, Workload, device};
///
/// # fn main() -> ellect::Result<()> {
/// let h200 = device::find("h200")?;
/// let target = Workload::default().target(&h200, Precision::F64);
/// let product_s = baseline_product_s([1000, 1000, 5000], &target, 1).expect("a usual size");
/// assert!(product_s > row_scan_s(1000));
/// # Ok(())
/// # }
/// ```
pub mod choose {
    pub use crate::choose::gate::{SAMPLE_S, baseline_product_s, keep_baseline, row_scan_s};
    pub use crate::choose::policy::{
        CandidateState, Decision, FEW, Found, Knowledge, Mode, Place, Policy, Step, Thought,
        best_few, may_keep,
    };
    pub use crate::choose::quick::{analysis_pays, feature_count_s, feature_sample_s, rank_quick};
    pub use crate::choose::rank::{By, NEAR_TIE, Ranking, choose, order, trusted};
    pub use crate::choose::trial::{
        CLEAR, Hopeful, LEAST_TOTAL_S, PRODUCTS, trial_budget_s, tried,
    };
}

/// Results of an analysis, and the sizes of its samples.
pub mod analysis {
    pub use crate::analysis::columns::{ColumnSample, column_counts};
    pub use crate::analysis::histogram::Histogram;
    pub use crate::analysis::memo::{Memo, Probe};
    pub use crate::analysis::sampling::{
        EachPrecision, SAMPLED_ENTRIES, SAMPLED_MIRRORS, SAMPLED_WARPS, WHOLE,
    };
}

/// Estimates of costs, and the inputs of models that follow from them.
pub mod cost {
    pub use crate::cost::estimate::{Estimator, MatrixTerms, Times};
    pub use crate::cost::terms::{TERMS, relate, terms};
    pub use crate::cost::works::{Known, Works, works};
    pub use crate::cost::{CostInputs, kernel_figures};
}

/// Descriptions of layouts, launches and conversions on a GPU, for the code of formats.
pub mod format {
    pub use crate::format::aliases::{rename_keys, sort_key};
    pub use crate::format::gpu::convert::{Check, GpuConverter, GpuLayout, SliceOffsets, TOLD};
    pub use crate::format::gpu::launch::{Algorithm, Arg, Launch, OnDevice, Vendor};
    pub use crate::format::gpu::stop::Stop;
    pub use crate::format::gpu::stored::{Element, ElementType, StoredArray, StoredNumber};
    pub use crate::format::offsets::Offsets;
}

/// Work on rayon's threads.
pub mod par {
    pub use crate::par::join;
}

/// The parts of trained models.
pub mod model {
    pub use crate::model::applicability::{Applicability, coordinate};
    pub use crate::model::forest::{Forest, ForestArrays, LEAF};
    pub use crate::model::gate::{
        ALWAYS_ANALYZE, ANALYZE, GateInputs, GateReason, Gates, InputNeeds, KEEP, LONGEST,
        QuickPick, READING, SAMPLING, SPMVS, keeps, needs, quick_pick, sectors,
    };
    pub use crate::model::predictor::{Inputs, input};
    pub use crate::model::quick::{ConversionTime, QuickCandidate, QuickModel, QuickStage, Stage};
    pub use crate::model::rules::{Rule, Rules};
    pub use crate::model::{Prediction, Regressor, SCHEMA, file_name};
}

/// The loop that times several candidates of one matrix.
pub mod session {
    pub use crate::session::{Overrun, Session, SessionEvent, Task, TimeLimits};
}

/// Records of measurements, and queries for them.
pub mod wisdom {
    pub use crate::wisdom::layer::Layer;
    pub use crate::wisdom::record::{Record, StructureRecord};
    pub use crate::wisdom::shards::{Merged, merge, merge_later};
    pub use crate::wisdom::shared::Shared;
    pub use crate::wisdom::store::Unsent;
    pub use crate::wisdom::transfer::{Imported, MOST_REASONS};
    pub use crate::wisdom::wanted::{Answer, Stale, Wanted, other_image};
}
