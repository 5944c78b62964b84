//! Knowledge of the paths to peers, whichever connection learned it: the size of packets (`pmtu`), and what a new
//! connection may begin with (`sharing`).

use crate::store::pmtu::Paths;
use crate::store::sharing::PathFacts;

/// Knowledge of paths.
pub(crate) struct PathKnowledge {
    pub(crate) sizes: Paths,
    pub(crate) facts: PathFacts,
}

impl PathKnowledge {
    pub(crate) fn new(key: (u64, u64)) -> PathKnowledge {
        PathKnowledge {
            sizes: Paths::new(key),
            facts: PathFacts::default(),
        }
    }
}
