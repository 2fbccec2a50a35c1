//! Counting what tools do to the world, by effect key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use settled_tools_api::EffectKey;

/// The world that tools act on: it counts how often it was acted on under each effect key.
///
/// A clone is another handle on the same world.
/// Give one to the tool under test and to the test; a crash of the process does not touch it.
///
/// ```
/// use settled_testkit::Effects;
/// use settled_tools_api::EffectKey;
///
/// let (world, key) = (Effects::new(), EffectKey::new("a-key")?);
/// world.act(&key); // a payment without an idempotency key
/// assert!(!world.act_once(&key)); // one with it: this has been paid
/// assert_eq!((world.of(&key), world.total()), (1, 1));
/// # Ok::<(), settled_tools_api::InvalidId>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Effects(Arc<Mutex<BTreeMap<EffectKey, u64>>>);

impl Effects {
    /// A world that nobody has acted on.
    pub fn new() -> Self {
        Self::default()
    }

    /// Acts, whatever was done before.
    pub fn act(&self, key: &EffectKey) {
        *self.counts().entry(key.clone()).or_default() += 1;
    }

    /// Acts unless it was done under this key before; says whether it has acted now.
    pub fn act_once(&self, key: &EffectKey) -> bool {
        let mut counts = self.counts();
        let count = counts.entry(key.clone()).or_default();
        let first = *count == 0;
        *count = (*count).max(1);
        first
    }

    /// How often it was acted on under a key.
    pub fn of(&self, key: &EffectKey) -> u64 {
        self.counts().get(key).copied().unwrap_or_default()
    }

    /// How often it was acted on at all.
    pub fn total(&self) -> u64 {
        self.counts().values().sum()
    }

    /// How often it was acted on under each key.
    pub fn by_key(&self) -> BTreeMap<EffectKey, u64> {
        self.counts().clone()
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<EffectKey, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
