//! Tests of lazy operators on the host: the break-even, questions and answers, values and errors.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::asker::Adviser;
use super::plan::{ConversionPlan, knowledge, next_question, repays};
use super::*;
use crate::choose::Effort;
use crate::device::{Device, KernelFigures, PerPrecision};
use crate::error::DeviceFault;
use crate::features::Features;
use crate::format::Candidate;
use crate::generate;

/// Builds a tuner for a host whose conversions take `convert_ns` for each entry.
fn tuner(convert_ns: f64) -> Arc<Tuner> {
    let devices = Device::shipped();
    let mut device = devices.into_iter().find(|d| d.name == "cpu").expect("shipped");
    // The profile makes CSR slow, so that some conversion pays.
    let slow = KernelFigures {
        entry_ns: PerPrecision::both(50.0),
        ..crate::cost::kernel_figures(&device, &csr())
    };
    device.kernels.insert("csr".into(), slow);
    device.kernels.entry("others".into()).or_default();
    for figures in device.kernels.values_mut() {
        figures.convert_ns = PerPrecision::both(convert_ns);
    }
    Arc::new(Tuner::without_models(device))
}

fn csr() -> Candidate {
    "csr".parse().expect("a format")
}

fn lazy(convert_ns: f64, conversion: Conversion) -> (LazyOperator<f64>, Arc<Csr<f64>>) {
    lazy_of("stencil5", convert_ns, conversion, Workload::default())
}

fn lazy_of(
    class: &str,
    convert_ns: f64,
    conversion: Conversion,
    workload: Workload,
) -> (LazyOperator<f64>, Arc<Csr<f64>>) {
    let csr = Arc::new(generate::by_name(class, 2500, 1).expect("a class"));
    let lazy = LazyOperator::new(tuner(convert_ns), csr.clone(), workload, conversion);
    (lazy.expect("CSR applies"), csr)
}

fn product(lazy: &mut LazyOperator<f64>, csr: &Csr<f64>) {
    let x: Vec<f64> = (0..csr.ncols()).map(|i| (i % 7) as f64).collect();
    let mut y = vec![1.0; csr.nrows()];
    lazy.apply(1.0, &x, 0.0, &mut y).expect("it fits");
    let expected: Vec<f64> = (0..csr.nrows())
        .map(|i| {
            let (columns, values) = csr.row(i);
            columns.iter().zip(values).map(|(&j, value)| value * x[j as usize]).sum()
        })
        .collect();
    for (got, expected) in y.iter().zip(&expected) {
        assert!((got - expected).abs() < 1e-9);
    }
}

#[test]
fn it_converts_when_products_have_paid_and_stays_right() {
    let (mut lazy, csr) = lazy(1.0, Conversion::Here);
    product(&mut lazy, &csr);
    assert_eq!(lazy.operator().candidate().to_string(), "csr");
    (0..2000).for_each(|_| product(&mut lazy, &csr));
    assert_ne!(lazy.operator().candidate().to_string(), "csr");
    assert_eq!(lazy.products(), 2001);
}

#[test]
fn x_and_y_stay_in_their_order_whatever_the_workload_allows() {
    let workload = Workload { basis: Basis::Permuted, ..Workload::default() };
    let (mut lazy, csr) = lazy_of("power_law", 1.0, Conversion::Here, workload);
    (0..2000).for_each(|_| product(&mut lazy, &csr));
    assert_ne!(lazy.operator().candidate().to_string(), "csr");
    assert!(lazy.operator().permutation().is_none());
}

#[test]
fn formats_chosen_for_old_values_are_not_converted_to() {
    let (mut lazy, csr) = lazy(1.0, Conversion::Here);
    let candidates = ["cdia", "hdia"].map(|name| name.parse().expect("a candidate")).to_vec();
    assert!(candidates.iter().map(|c: &Candidate| c.format.by_values).eq([true, false]));
    let new: Vec<f64> = (0..csr.nnz()).map(|k| (k % 5) as f64).collect();
    lazy.update_values(&new).expect("as many");
    let (tuner, workload) = (tuner(1.0), Workload::default());
    let choice = tuner.recommend(&*csr, &workload).expect("an estimate");
    let plan = Some((choice, Some(ConversionPlan { candidates, from: 0 })));
    let mut matrix = HostMatrix { tuner, csr: csr.clone(), workload, plan };
    let question = Question { products: 0, held: self::csr(), updates: 1, mark: None };
    let answer = matrix.answer(question).expect("one applies");
    lazy.take([0, 1], answer).expect("it holds all values");
    assert_eq!(lazy.operator().candidate().format.name, "hdia");
    let mut csr = csr.map_values(|value| value);
    csr.values_mut().copy_from_slice(&new);
    product(&mut lazy, &csr);
}

#[test]
fn a_conversion_pays_beside_the_kernel_that_is_held() {
    let workload = Workload { effort: Effort::Estimate, ..Workload::default() };
    let gpu = Tuner::without_models(crate::device::find("h200").expect("shipped"));
    let csr: Csr<f64> = generate::by_name("stencil5", 2500, 1).expect("a class");
    let mut choice = gpu.recommend(&csr, &workload).expect("an estimate");
    choice.ranking.truncate(3);
    let times = [("cusparse:alg=csr_alg1", 4.0, 0.0), ("csr", 2.0, 0.0), ("hll", 1.0, 10.0)];
    for (ranked, (name, spmv_s, convert_s)) in choice.ranking.iter_mut().zip(times) {
        ranked.candidate = name.parse().expect("a candidate");
        (ranked.spmv_s, ranked.convert_s) = (spmv_s, convert_s);
        ranked.total_s = convert_s + 1000.0 * spmv_s;
    }
    for (held, from) in [("cusparse:alg=csr_alg1", 4), ("csr", 10)] {
        let plan = ConversionPlan::of(&choice, &held.parse().expect("a candidate"));
        let plan = plan.expect("hll pays");
        let best = plan.candidates.first().expect("a candidate");
        assert_eq!((best.format.name, plan.from), ("hll", from), "{held}");
    }
}

#[test]
fn the_next_best_is_made_where_the_best_refuses() {
    let named = |name: &&str| name.parse().expect("a candidate");
    let plan =
        ConversionPlan { candidates: ["hll", "pjds", "ell"].iter().map(named).collect(), from: 0 };
    let refusing = |names: &'static str| {
        move |candidate: &Candidate| match names.contains(candidate.format.name) {
            true => Err(Error::Refused { candidate: candidate.to_string(), reason: "so".into() }),
            false => Ok(candidate.format.name),
        }
    };
    let made = |names| plan.first(refusing(names)).expect("a refusal is no error");
    assert_eq!([made(""), made("hll"), made("hll pjds")], [Some("hll"), Some("pjds"), Some("ell")]);
    assert_eq!(made("hll pjds ell"), None);
    let failing = |_: &Candidate| Err::<(), _>(Error::device(DeviceFault::Failed, "gone"));
    plan.first(failing).expect_err("other errors are returned");
}

#[test]
fn csr_is_kept_where_nothing_pays() {
    let (mut lazy, csr) = lazy(1e9, Conversion::Here);
    (0..500).for_each(|_| product(&mut lazy, &csr));
    assert_eq!(lazy.operator().candidate().to_string(), "csr");
}

#[test]
fn it_converts_in_the_background_and_keeps_new_values() {
    let (mut lazy, csr) = lazy(1.0, Conversion::Background);
    let twice: Vec<f64> = csr.values().iter().map(|value| 2.0 * value).collect();
    lazy.update_values(&twice).expect("as many");
    let csr = csr.map_values(|value| 2.0 * value);
    let start = Instant::now();
    while lazy.operator().candidate().to_string() == "csr" {
        product(&mut lazy, &csr);
        assert!(start.elapsed() < Duration::from_secs(60), "it never converts");
    }
    product(&mut lazy, &csr);
}

#[test]
fn a_second_conversion_has_to_pay_for_itself_alone() {
    let choice = choice_of(1000, &[("hll", 2.0, 500.0), ("pjds", 1.0, 300.0), ("csr", 4.0, 0.0)]);
    let [hll, pjds] = ["hll", "pjds"].map(|name| name.parse().expect("a candidate"));
    assert_eq!(ConversionPlan::of(&choice, &hll).expect("pjds is faster").from, 300);
    assert!(ConversionPlan::of(&choice, &pjds).is_none());
}

/// Builds a choice for this many products with these candidates, best first, and the times of a
/// product and of the conversion of each in seconds.
fn choice_of(spmvs: u64, times: &[(&str, f64, f64)]) -> Choice {
    let csr: Csr<f64> = generate::by_name("stencil5", 2500, 1).expect("a class");
    let tuner = Tuner::without_models(crate::device::find("h200").expect("shipped"));
    let workload = Workload { spmvs, effort: Effort::Estimate, ..Workload::default() };
    let mut choice = tuner.recommend(&csr, &workload).expect("an estimate");
    choice.ranking.truncate(times.len());
    for (ranked, &(name, spmv_s, convert_s)) in choice.ranking.iter_mut().zip(times) {
        ranked.candidate = name.parse().expect("a candidate");
        (ranked.spmv_s, ranked.convert_s) = (spmv_s, convert_s);
        ranked.total_s = convert_s + spmvs as f64 * spmv_s;
    }
    choice.candidate = choice.ranking[0].candidate.clone();
    choice
}

#[test]
fn a_choice_repays_if_it_saves_more_than_its_conversion_takes() {
    let held = |name: &str| name.parse::<Candidate>().expect("a candidate");
    let times = |convert_s| [("hll", 1.0, convert_s), ("csr", 2.0, 0.0), ("pjds", 1.01, 90.0)];
    for (convert_s, from_csr) in [(90.0, true), (99.0, false)] {
        let choice = choice_of(100, &times(convert_s));
        assert_eq!(repays(&choice, &held("csr")), from_csr);
        // The time of the conversion to the current candidate is spent.
        assert!(!repays(&choice, &held("pjds")));
        assert!(!repays(&choice, &held("hll")));
    }
    let vendor = choice_of(100, &[("cusparse:alg=csr_alg1", 1.0, 0.0), ("csr", 2.0, 0.0)]);
    assert!(!repays(&vendor, &held("csr")), "both multiply the same arrays");
    let unranked = choice_of(100, &[("hll", 1.0, 10.0), ("csr", 2.0, 0.0)]);
    assert!(repays(&unranked, &held("pjds")));
}

#[test]
fn questions_double_until_an_analysis_has_told_all() {
    let held = |name: &str| name.parse::<Candidate>().expect("a candidate");
    let mut choice = choice_of(100, &[("csr", 2.0, 0.0), ("hll", 1.0, 700.0)]);
    assert_eq!(next_question(&choice, &held("csr"), 100), Some(700));
    assert_eq!(next_question(&choice, &held("csr"), 800), Some(1600));
    assert_eq!(next_question(&choice, &held("hll"), 100), None);
    assert_eq!(knowledge(&choice), "an analysis of the matrix");
    choice.fingerprint = None;
    assert_eq!(next_question(&choice, &held("hll"), 100), Some(200));
    assert_eq!(next_question(&choice, &held("hll"), 0), Some(1));
    assert_eq!(knowledge(&choice), "its counted features");
    let csr: Csr<f64> = generate::by_name("stencil5", 2500, 1).expect("a class");
    choice.features = Features::sampled(&crate::analysis::Analysis::of(&csr));
    assert_eq!(knowledge(&choice), "its row lengths and a few entries");
    choice.features = Features::at_size([2500, 2500, 12_000]);
    assert_eq!(knowledge(&choice), "the size of the matrix");
}

/// A reply of a [`Scripted`] adviser.
enum Reply {
    /// Keep the layout and ask again after this number of products.
    Keep(Option<u64>),
    /// Convert to this candidate.
    Convert(&'static str),
    Fail,
}

/// An adviser whose replies a test gives one by one, and which tells the test all questions.
struct Scripted {
    csr: Arc<Csr<f64>>,
    replies: Receiver<Reply>,
    asked: Sender<(u64, String, u64)>,
}

impl Adviser<f64> for Scripted {
    fn answer(&mut self, question: Question) -> Result<Answer<f64>> {
        let Question { products, held, updates, .. } = question;
        self.asked.send((products, held.to_string(), updates)).expect("the test listens");
        let mut choice = choice_of(products, &[("csr", 2.0, 0.0), ("hll", 1.0, 1.0)]);
        let (operator, next) = match self.replies.recv().expect("the test replies") {
            Reply::Keep(next) => (None, next),
            Reply::Convert(name) => {
                choice.ranking[1].candidate = name.parse()?;
                choice.choose(&name.parse()?);
                (Some(prepared(&self.csr, name)), None)
            }
            Reply::Fail => return Err(Error::device(DeviceFault::Failed, "no room")),
        };
        Ok(Answer { operator, choice: Some(choice), next })
    }
}

fn prepared(csr: &Csr<f64>, name: &str) -> PreparedOperator<f64> {
    let cpu = crate::device::find("cpu").expect("shipped");
    let target = Workload::default().target(&cpu, crate::scalar::Precision::F64);
    PreparedOperator::new(csr, &name.parse().expect("a candidate"), &target).expect("it applies")
}

/// A lazy operator in CSR whose adviser is asked first after 3 products.
struct Script {
    lazy: LazyOperator<f64>,
    csr: Arc<Csr<f64>>,
    replies: Sender<Reply>,
    asked: Receiver<(u64, String, u64)>,
}

impl Script {
    fn new(conversion: Conversion) -> Self {
        let csr = Arc::new(generate::by_name("constant7", 1000, 1).expect("a class"));
        let (replies, from_test) = channel();
        let (to_test, asked) = channel();
        let scripted = Scripted { csr: Arc::clone(&csr), replies: from_test, asked: to_test };
        let asker = Asker::new(scripted, conversion, Some(3)).expect("a thread");
        let lazy = LazyOperator::of(prepared(&csr, "csr"), asker, 0.0, None);
        Script { lazy, csr, replies, asked }
    }

    fn multiply(&mut self, times: usize) {
        (0..times).for_each(|_| product(&mut self.lazy, &self.csr));
    }

    fn reply(&self, reply: Reply) {
        self.replies.send(reply).expect("the adviser is there");
    }

    /// Waits for the next question.
    fn question(&self) -> (u64, String, u64) {
        self.asked.recv_timeout(Duration::from_secs(60)).expect("a question")
    }

    /// Multiplies until `done`.
    fn until(&mut self, done: impl Fn(&LazyOperator<f64>) -> bool) {
        let start = Instant::now();
        while !done(&self.lazy) {
            self.multiply(1);
            assert!(start.elapsed() < Duration::from_secs(60), "it never comes");
        }
    }

    fn said(&self) -> String {
        self.lazy.choice().expect("a decision was made").explanation[0].clone()
    }
}

#[test]
fn questions_are_asked_when_due_and_answers_are_told() {
    let mut script = Script::new(Conversion::Here);
    assert!(script.lazy.choice().is_none());
    [Reply::Keep(Some(6)), Reply::Convert("hll")].into_iter().for_each(|r| script.reply(r));
    script.multiply(3);
    assert!(script.asked.try_recv().is_err(), "the first question is due after 3 products");
    script.multiply(1);
    assert_eq!(script.question(), (3, "csr".to_string(), 0));
    let said = script.said();
    assert!(said.starts_with("Keeps csr. The decision was made after 3 products"), "{said}");
    script.multiply(100);
    assert_eq!(script.question(), (6, "csr".to_string(), 0));
    let said = script.said();
    let uses =
        format!("Uses {} instead of csr from product 7 on.", script.lazy.operator.candidate());
    assert!(said.starts_with(&uses), "{said}");
    let choice = script.lazy.choice().expect("a decision was made");
    assert_eq!(choice.candidate, *script.lazy.operator().candidate());
    assert_eq!(script.lazy.switched_after(), Some(6));
    assert!(script.asked.try_recv().is_err(), "the last answer named no other question");
}

#[test]
fn products_go_on_while_a_question_is_open() {
    let mut script = Script::new(Conversion::Background);
    script.multiply(50);
    assert_eq!(script.question(), (3, "csr".to_string(), 0));
    assert!(script.asked.try_recv().is_err(), "one question at a time");
    assert_eq!((script.lazy.products(), script.lazy.switched_after()), (50, None));
    script.reply(Reply::Convert("hll"));
    script.until(|lazy| lazy.switched_after().is_some());
    assert_eq!(script.lazy.operator().candidate().format.name, "hll");
    script.multiply(3);
}

#[test]
fn values_that_are_set_during_a_conversion_win() {
    let mut script = Script::new(Conversion::Background);
    script.multiply(4);
    script.question();
    let csr = script.csr.map_values(|value| 3.0 - 2.0 * value);
    script.lazy.update_values(csr.values()).expect("as many");
    // The adviser converts the old values.
    script.reply(Reply::Convert("hll"));
    script.csr = Arc::new(csr);
    script.until(|lazy| lazy.switched_after().is_some());
    script.multiply(1);
    assert_eq!(script.lazy.operator().to_csr().expect("on the host"), *script.csr);
}

#[test]
fn a_layout_chosen_for_old_values_is_left_out_and_asked_for_again() {
    let mut script = Script::new(Conversion::Background);
    script.multiply(4);
    script.question();
    let csr = script.csr.map_values(|value| value + 1.0);
    script.lazy.update_values(csr.values()).expect("as many");
    script.reply(Reply::Convert("cdia"));
    script.csr = Arc::new(csr);
    script.until(|lazy| lazy.choice().is_some());
    let said = script.said();
    assert!(said.starts_with("Keeps csr: values were replaced"), "{said}");
    assert!(script.lazy.operator().candidate().is_csr());
    assert!(script.lazy.choice().is_some_and(|choice| choice.candidate.is_csr()));
    let products = script.lazy.products();
    script.multiply(products as usize);
    let (asked, held, updates) = script.question();
    assert_eq!((held.as_str(), updates), ("csr", 1));
    assert!(asked >= products, "{asked}");
}

#[test]
fn an_error_is_told_once_and_the_operator_stays_usable() {
    for conversion in [Conversion::Here, Conversion::Background] {
        let mut script = Script::new(conversion);
        script.reply(Reply::Fail);
        let x = vec![1.0; script.csr.ncols()];
        let mut y = vec![f64::NAN; script.csr.nrows()];
        let start = Instant::now();
        let error = loop {
            y.fill(f64::NAN);
            if let Err(error) = script.lazy.apply(1.0, &x, 0.0, &mut y) {
                break error;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "it is never told");
        };
        assert!(error.to_string().contains("no room"), "{error}");
        assert!(y.iter().all(|value| value.is_nan()), "y is unchanged");
        script.question();
        script.multiply(200);
        assert!(script.lazy.operator().candidate().is_csr());
        assert!(script.asked.try_recv().is_err(), "nothing is asked after an error");
    }
}
