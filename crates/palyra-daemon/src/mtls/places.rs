//! How many connections devices have: in all, and each.

use palyra_protocol::DeviceId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How many connections there are of all devices.
const MAX_CONNECTIONS: usize = 4096;
/// How many there are of one device.
const PER_DEVICE: usize = 64;

/// The connections of devices.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(Arc<Mutex<HashMap<DeviceId, usize>>>);

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub(super) struct DevicePlace {
    places: Places,
    device: DeviceId,
}

impl Places {
    /// Takes a place for a connection of this device; nothing if there is none.
    pub(super) fn enter(&self, device: &DeviceId) -> Option<DevicePlace> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.values().sum::<usize>() >= MAX_CONNECTIONS {
            return None;
        }
        let own = taken.entry(device.clone()).or_default();
        if *own >= PER_DEVICE {
            return None;
        }
        *own += 1;
        Some(DevicePlace { places: self.clone(), device: device.clone() })
    }
}

impl Drop for DevicePlace {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.device) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.device);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_device_does_not_take_the_places_of_another() {
        let places = Places::default();
        let (first, second) = (DeviceId::mint(), DeviceId::mint());
        let taken: Vec<_> = (0..PER_DEVICE).map(|_| places.enter(&first).unwrap()).collect();
        assert!(places.enter(&first).is_none());
        assert!(places.enter(&second).is_some());
        drop(taken);
        assert!(places.enter(&first).is_some());
        assert!(places.0.lock().unwrap().is_empty(), "nobody is remembered who has gone");
    }
}
