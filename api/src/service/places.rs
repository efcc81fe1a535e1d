//! Limits on concurrent requests, with turns that are fair to clients.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot::{self, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failure::{BUSY, Failure};

/// A client: the holder of a token, or an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client(pub String);

/// Limits on the number of requests: those being processed, and those waiting.
///
/// Clients take turns: one that asks for much does not delay another that asks for little by more
/// than the request at work.
pub struct Places {
    /// Permits for admitted requests, including waiting ones.
    admitted: Arc<Semaphore>,
    line: Mutex<Line>,
}

/// The requests that wait.
struct Line {
    /// Number of requests that may be processed at once; over 0 only if none waits.
    free: u32,
    /// The clients in the order of their turns, each with its requests in the order of arrival.
    waiting: VecDeque<(Client, VecDeque<Sender<Turn>>)>,
}

impl Line {
    fn add(&mut self, client: &Client, sender: Sender<Turn>) {
        match self.waiting.iter_mut().find(|(other, _)| other == client) {
            Some((_, own)) => own.push_back(sender),
            None => self.waiting.push_back((client.clone(), VecDeque::from([sender]))),
        }
    }

    /// Removes the next request; its client then waits behind all others.
    fn next(&mut self) -> Option<Sender<Turn>> {
        let (client, mut own) = self.waiting.pop_front()?;
        let next = own.pop_front();
        if !own.is_empty() {
            self.waiting.push_back((client, own));
        }
        next
    }
}

/// The permission to process a request, given back when it is dropped.
pub struct Turn(Option<Arc<Places>>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(places) = self.0.take() {
            places.pass_on();
        }
    }
}

impl Places {
    /// Allows `at_work` requests to be processed at once, and `waiting` more to wait.
    pub fn new(at_work: u32, waiting: u32) -> Arc<Self> {
        let all = at_work.saturating_add(waiting) as usize;
        let line = Line { free: at_work, waiting: VecDeque::new() };
        Arc::new(Places { admitted: Arc::new(Semaphore::new(all)), line: Mutex::new(line) })
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of requests that are waiting.
    pub fn waiting(&self) -> usize {
        let line = self.line();
        let all = line.waiting.iter().flat_map(|(_, own)| own);
        all.filter(|sender| !sender.is_closed()).count()
    }

    /// Admits a request.
    ///
    /// # Errors
    /// 503 if too many requests are waiting.
    pub fn admit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.admitted)
            .try_acquire_owned()
            .map_err(|_| Failure::new(&BUSY, "too many requests are waiting; try again later"))
    }

    /// Waits until a request of this client may be processed.
    ///
    /// # Errors
    /// None: a turn is always passed on.
    pub async fn turn(self: &Arc<Self>, client: &Client) -> Result<Turn, Failure> {
        let receiver = {
            let mut line = self.line();
            if line.free > 0 {
                line.free -= 1;
                return Ok(Turn(Some(Arc::clone(self))));
            }
            let (sender, receiver) = oneshot::channel();
            line.add(client, sender);
            receiver
        };
        receiver.await.map_err(Failure::internal)
    }

    /// Gives a turn that ended to the next request that still waits.
    fn pass_on(self: Arc<Self>) {
        loop {
            let next = {
                let mut line = self.line();
                let next = line.next();
                if next.is_none() {
                    line.free += 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(Turn(Some(Arc::clone(&self)))) {
                Ok(()) => return,
                // Its request is gone; taking the turn out keeps it from being passed on twice.
                Err(mut turn) => drop(turn.0.take()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str) -> Client {
        Client(name.to_string())
    }

    #[tokio::test]
    async fn clients_take_turns_whatever_number_of_requests_each_has() {
        let places = Places::new(1, 100);
        let first = places.turn(&client("first")).await.expect("it is free");
        let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
        for (name, requests) in [("many", 4), ("few", 2), ("one", 1)] {
            for _ in 0..requests {
                let (places, told, before) = (Arc::clone(&places), told.clone(), places.waiting());
                let waiting = Arc::clone(&places);
                tokio::spawn(async move {
                    let turn = places.turn(&client(name)).await.expect("its turn comes");
                    told.send(name).expect("it is read");
                    drop(turn);
                });
                while waiting.waiting() == before {
                    tokio::task::yield_now().await;
                }
            }
        }
        drop((first, told));
        let mut all = Vec::new();
        while let Some(name) = order.recv().await {
            all.push(name);
        }
        assert_eq!(all, ["many", "few", "one", "many", "few", "many", "many"]);
    }

    #[tokio::test]
    async fn a_request_that_was_given_up_keeps_no_turn() {
        let places = Places::new(1, 1);
        let admitted = [(); 2].map(|()| places.admit().expect("there is room"));
        assert_eq!(places.admit().expect_err("there is none").code, &BUSY);
        drop(admitted);
        let first = places.turn(&client("a")).await.expect("it is free");
        let (other, moment) = (client("b"), std::time::Duration::from_millis(5));
        let given_up = tokio::time::timeout(moment, places.turn(&other));
        assert!(given_up.await.is_err());
        assert_eq!(places.waiting(), 0);
        drop(first);
        drop(places.turn(&client("c")).await.expect("it is free again"));
        assert_eq!(places.line().free, 1);
    }
}
