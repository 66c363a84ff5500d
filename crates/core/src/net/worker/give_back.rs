//! The thread's part of [`crate::net::given_back`].

use super::{note_waits, Worker};
use crate::ingest::Handed;
use crate::net::given_back::GivenBack;
use crate::net::lane::News;
use crate::store::health::hold;

impl Worker {
    /// Gives a connection up, or says that it stays.
    pub(super) fn give_back(&mut self, key: u64) {
        let owes = self.ingest().is_some_and(|core| core.owes(key));
        let Some(connection) = self.connections.get(&key) else {
            return; // Its end was told.
        };
        let socket = connection.to_give_back().filter(|_| !owes);
        let ends_watch =
            || connection.watched.is_none() || self.poll.remove(connection.fd(), key).is_ok();
        let Some(socket) = socket.filter(|_| ends_watch()) else {
            self.lane.push(News::Stays(key));
            return;
        };
        let Some(mut connection) = self.connections.remove(&key) else {
            return;
        };
        let mut handed = Handed::default();
        if let Some(fast) = &self.fast {
            let mut core = hold(&fast.ingest);
            handed = core.hand_over(key);
            note_waits(&self.lane, fast, &mut core);
        } else {
            handed.kept = std::mem::take(&mut connection.kept);
        }
        *hold(&connection.handle.given_back) = Some(GivenBack {
            socket: Some(socket),
            session: connection.take_session(),
            handed,
        });
        // Not counted here any more by the time the loop counts what it keeps.
        drop(connection);
        self.lane.push(News::GivenBack(key));
    }
}
