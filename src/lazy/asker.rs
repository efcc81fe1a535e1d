//! Questions about a better layout and their answers, in a thread of their own.
//!
//! A question is asked when the products so far have reached a number that the answer before it
//! named. Nothing waits for an answer: it is there when it is there, and no other question is asked
//! until then.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};

use super::Conversion;
use crate::choose::Choice;
use crate::cuda::Mark;
use crate::error::{Error, Result};
use crate::format::Candidate;
use crate::operator::PreparedOperator;
use crate::scalar::Scalar;

/// A question: which layout to use after these products.
pub(super) struct Question {
    /// Number of products so far.
    pub products: u64,
    /// The candidate that multiplies now.
    pub held: Candidate,
    /// Number of updates of values so far.
    pub updates: u64,
    /// End of the work that is queued on the caller's stream, for a conversion on another one.
    pub mark: Option<Mark>,
}

/// The answer to a question.
pub(super) struct Answer<T: Scalar> {
    /// The operator to multiply with from now on; `None` to keep the present one.
    pub operator: Option<PreparedOperator<T>>,
    /// The choice behind the answer.
    pub choice: Option<Choice>,
    /// Number of products after which to ask again; `None` for never.
    pub next: Option<u64>,
}

/// Answers questions about one matrix.
pub(super) trait Adviser<T: Scalar>: Send + 'static {
    /// Decides, and converts the matrix if the decision is another layout.
    ///
    /// # Errors
    /// Errors of the decision and of the conversion.
    fn answer(&mut self, question: Question) -> Result<Answer<T>>;
}

/// Asks an [`Adviser`], one question at a time.
pub(super) struct Asker<T: Scalar> {
    way: Way<T>,
    /// Number of products after which to ask; `None` for never.
    next: Option<u64>,
    /// Numbers of products and of updates at the question that has no answer yet.
    open: Option<[u64; 2]>,
}

/// Place where questions are answered.
enum Way<T: Scalar> {
    /// In the call that asks; with the answer until it is taken.
    Here(Box<dyn Adviser<T>>, Option<Box<Result<Answer<T>>>>),
    /// In a thread that ends when its questions are dropped.
    Background {
        questions: Option<Sender<Question>>,
        answers: Receiver<Result<Answer<T>>>,
        thread: Option<JoinHandle<()>>,
    },
    /// Nowhere: all questions were answered.
    Nowhere,
}

impl<T: Scalar> Asker<T> {
    /// Asks this adviser for the first time after `next` products.
    ///
    /// # Errors
    /// [`Error::Io`] if the thread cannot be started.
    pub fn new(
        mut adviser: impl Adviser<T>,
        conversion: Conversion,
        next: Option<u64>,
    ) -> Result<Self> {
        let way = match conversion {
            Conversion::Here => Way::Here(Box::new(adviser), None),
            Conversion::Background => {
                let (questions, asked) = channel();
                let (answer, answers) = channel();
                let work = move || {
                    // Sending fails if the operator was dropped meanwhile.
                    for question in asked {
                        drop(answer.send(adviser.answer(question)));
                    }
                };
                let thread = Builder::new().name("ellect-lazy".into()).spawn(work);
                let thread = thread.map_err(|source| Error::Io {
                    what: "starting a thread for conversions".into(),
                    source,
                })?;
                Way::Background { questions: Some(questions), answers, thread: Some(thread) }
            }
        };
        Ok(Asker { way, next, open: None })
    }

    /// Tells whether a question is due after this number of products.
    pub fn is_due(&self, products: u64) -> bool {
        self.open.is_none() && self.next.is_some_and(|next| products >= next)
    }

    /// Asks; does not wait for the answer if it comes from a thread.
    pub fn ask(&mut self, question: Question) {
        self.open = Some([question.products, question.updates]);
        match &mut self.way {
            Way::Here(adviser, answer) => *answer = Some(Box::new(adviser.answer(question))),
            // Sending fails if the thread has panicked, which the missing answer shows.
            Way::Background { questions, .. } => {
                if let Some(to) = questions {
                    drop(to.send(question));
                }
            }
            Way::Nowhere => {}
        }
    }

    /// Returns the answer to the last question if it is there, with the numbers of products and of
    /// updates at the question.
    ///
    /// # Errors
    /// As [`Adviser::answer`]; no more questions are then asked.
    pub fn answer(&mut self) -> Result<Option<([u64; 2], Answer<T>)>> {
        let Some(asked) = self.open else { return Ok(None) };
        let answer = match &mut self.way {
            Way::Here(_, answer) => {
                answer.take().map(|answer| *answer).ok_or(TryRecvError::Disconnected)
            }
            Way::Background { answers, .. } => answers.try_recv(),
            Way::Nowhere => Err(TryRecvError::Disconnected),
        };
        if let Err(TryRecvError::Empty) = answer {
            return Ok(None);
        }
        (self.open, self.next) = (None, None);
        match answer {
            Ok(Ok(answer)) => {
                self.next = answer.next;
                Ok(Some((asked, answer)))
            }
            Ok(Err(error)) => {
                self.stop();
                Err(error)
            }
            Err(_) => {
                self.stop();
                Ok(None)
            }
        }
    }

    /// Asks again after this number of products; `None` for never, which frees the adviser.
    pub fn ask_after(&mut self, next: Option<u64>) {
        self.next = next;
        if next.is_none() {
            self.stop();
        }
    }

    fn stop(&mut self) {
        self.next = None;
        match &mut self.way {
            Way::Here(..) => self.way = Way::Nowhere,
            Way::Background { questions, .. } => *questions = None,
            Way::Nowhere => {}
        }
    }

    /// Stops and waits for the end of the thread.
    pub fn join(&mut self) {
        self.stop();
        if let Way::Background { thread, .. } = &mut self.way
            && let Some(thread) = thread.take()
        {
            // A panic in the thread has been reported there.
            drop(thread.join());
        }
    }
}
