//! When a polling core that finds nothing goes to sleep. Counts empty turns, and notices when somebody else wants the
//! processor; knows no device.

use std::time::{Duration, Instant};

/// Turns without work before anything but spinning is tried.
const SPINS: u32 = 32;
/// Bounds of the turns without work after which a core sleeps.
const LIMIT_MIN: u32 = 64;
const LIMIT_MAX: u32 = 2048;
/// A sleep shorter than this should have been a spin: waking took about as long.
const TOO_SHORT: Duration = Duration::from_micros(50);
/// A sleep longer than this says that spinning before it was wasted.
const LONG: Duration = Duration::from_millis(1);
/// Letting others run took this long: they need the processor, and whoever wakes from sleep gets it back sooner than
/// whoever asks by yielding.
const CONTENDED: Duration = Duration::from_micros(200);

/// The adaptive threshold between spinning and sleeping.
#[derive(Debug)]
pub struct Idle {
    empty_turns: u32,
    limit: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Spin,
    Yield,
    Sleep,
}

impl Default for Idle {
    fn default() -> Self {
        Self {
            empty_turns: 0,
            limit: 4 * LIMIT_MIN,
        }
    }
}

impl Idle {
    /// After each turn: whether it is time to sleep. In between it spins, then lets other threads run.
    #[inline]
    pub fn should_sleep(&mut self, worked: bool) -> bool {
        if worked {
            self.empty_turns = 0;
            return false;
        }
        match self.step() {
            Step::Spin => core::hint::spin_loop(),
            Step::Sleep => return true,
            Step::Yield => {
                let before = Instant::now();
                std::thread::yield_now();
                return before.elapsed() > CONTENDED;
            }
        }
        false
    }

    /// Returns what to do after one more empty turn.
    #[inline]
    fn step(&mut self) -> Step {
        self.empty_turns += 1;
        if self.empty_turns >= self.limit {
            Step::Sleep
        } else if self.empty_turns <= SPINS {
            Step::Spin
        } else {
            Step::Yield
        }
    }

    /// After a sleep: learns from how long it was.
    pub fn slept(&mut self, time: Duration) {
        self.empty_turns = 0;
        if time < TOO_SHORT {
            self.limit = (self.limit * 2).min(LIMIT_MAX);
        } else if time > LONG {
            self.limit = (self.limit / 2).max(LIMIT_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Empty turns until it is time to sleep, however busy the machine of the test is.
    fn turns(idle: &mut Idle) -> u32 {
        (1..).find(|_| idle.step() == Step::Sleep).unwrap()
    }

    #[test]
    fn short_sleeps_lengthen_the_spin_and_long_ones_shorten_it() {
        let mut idle = Idle::default();
        assert_eq!(turns(&mut idle), 4 * LIMIT_MIN);
        for _ in 0..20 {
            idle.slept(Duration::from_micros(10));
        }
        assert_eq!(turns(&mut idle), LIMIT_MAX);
        for _ in 0..20 {
            idle.slept(Duration::from_millis(5));
        }
        assert_eq!(turns(&mut idle), LIMIT_MIN);
        assert!(!idle.should_sleep(true));
        idle.slept(Duration::from_micros(200));
        assert_eq!(turns(&mut idle), LIMIT_MIN);
    }
}
