//! How many connections each address has, so that one cannot have all of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use crate::store::health::hold;

/// Connections by address.
#[derive(Clone, Debug, Default)]
pub(in crate::grpc) struct Places(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl Places {
    /// Counts a connection of an address for as long as the place is kept; None: it has `most`.
    pub(in crate::grpc) fn take(&self, address: IpAddr, most: usize) -> Option<Place> {
        let address = address.to_canonical();
        let mut counts = hold(&self.0);
        let count = counts.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Place {
            address,
            places: self.clone(),
        })
    }
}

/// The place of one connection.
#[derive(Debug)]
pub(in crate::grpc) struct Place {
    address: IpAddr,
    places: Places,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = hold(&self.places.0);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_number_and_leaves_nothing_behind() {
        let places = Places::default();
        let (four, mapped, other) = ("10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2");
        let take = |address: &str| places.take(address.parse().unwrap(), 2);
        let kept = (take(four), take(mapped));
        assert!(kept.0.is_some() && kept.1.is_some());
        assert!(take(four).is_none() && take(mapped).is_none());
        assert!(take(other).is_some());
        drop(kept);
        assert!(hold(&places.0).is_empty());
        assert!(take(four).is_some());
    }
}
