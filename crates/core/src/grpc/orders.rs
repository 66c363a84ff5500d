//! What the owner of the port wants of one call, on its way to the task of that.

use std::collections::VecDeque;
use std::sync::Mutex;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::store::health::hold;

/// What the owner wants to be written.
pub(super) enum Order {
    /// Messages of so many bytes may be read.
    Admit(usize),
    /// A message.
    Message(Bytes),
    /// The only message and, behind it, the end of a call that succeeds.
    Answer(Bytes),
    /// The end of the call.
    Finish(u8, String),
}

/// Orders for one call, which has no memory for them before there is one.
#[derive(Default)]
pub(super) struct Orders {
    waiting: Mutex<VecDeque<Order>>,
    filled: Notify,
}

impl Orders {
    /// Adds an order.
    pub(super) fn put(&self, order: Order) {
        hold(&self.waiting).push_back(order);
        self.filled.notify_one();
    }

    /// Takes the next order if there is one.
    pub(super) fn take(&self) -> Option<Order> {
        hold(&self.waiting).pop_front()
    }

    /// Waits for the next order. Dropping the future loses none; one task alone waits.
    pub(super) async fn next(&self) -> Order {
        loop {
            if let Some(order) = self.take() {
                return order;
            }
            self.filled.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Order, Orders};

    #[test]
    fn orders_of_another_thread_come_in_turn_and_none_is_lost() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let orders = Arc::new(Orders::default());
        let theirs = Arc::clone(&orders);
        let other = std::thread::spawn(move || {
            for number in 0..1000 {
                theirs.put(Order::Admit(number));
            }
        });
        runtime.block_on(async {
            for number in 0..1000 {
                assert!(matches!(orders.next().await, Order::Admit(found) if found == number));
            }
        });
        other.join().unwrap();
        assert!(orders.take().is_none());
    }
}
