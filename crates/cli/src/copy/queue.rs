//! Work for several threads: a stack of tasks that grows while they are done.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Tasks that wait, and threads that are at one.
struct State<T> {
    tasks: Vec<T>,
    busy: usize,
}

/// A stack of tasks. The last one goes first: a tree is walked in depth, so few tasks wait.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    bell: Condvar,
}

impl<T: Send> Queue<T> {
    /// One without tasks.
    pub(super) const fn new() -> Queue<T> {
        Queue { state: Mutex::new(State { tasks: Vec::new(), busy: 0 }), bell: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // A thread that panicked has left whole tasks.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more task.
    pub(super) fn push(&self, task: T) {
        self.state().tasks.push(task);
        self.bell.notify_one();
    }

    /// Does all tasks, and those that they push, with `threads` threads.
    pub(super) fn run(&self, threads: usize, work: &(impl Fn(T) + Sync)) {
        std::thread::scope(|scope| {
            for _ in 1..threads.max(1) {
                scope.spawn(|| self.serve(work));
            }
            self.serve(work);
        });
    }

    fn serve(&self, work: &impl Fn(T)) {
        let mut state = self.state();
        loop {
            if let Some(task) = state.tasks.pop() {
                state.busy += 1;
                drop(state);
                work(task);
                state = self.state();
                state.busy -= 1;
            } else if state.busy == 0 {
                self.bell.notify_all();
                return;
            } else {
                state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn tasks_of_tasks_are_done() {
        let queue = Queue::new();
        let done = AtomicU64::new(0);
        queue.push(12_u32);
        queue.run(3, &|depth: u32| {
            done.fetch_add(1, Ordering::Relaxed);
            if depth > 0 {
                queue.push(depth - 1);
                queue.push(depth - 1);
            }
        });
        assert_eq!(done.into_inner(), (1 << 13) - 1);
    }
}
