//! When a polling core that finds nothing goes to sleep. Counts empty turns, and notices when somebody else wants the
//! processor; knows no device.

use std::time::{Duration, Instant};

/// Bounds of the turns without work in which it only spins.
const SPINS_MIN: u32 = 32;
const SPINS_MAX: u32 = 256;
/// Letting others run took less than this: none has. A switch to another thread and back takes longer.
const ALONE: Duration = Duration::from_micros(2);
/// Bounds of the turns that let others run, after which a core sleeps.
const LIMIT_MIN: u32 = 32;
const LIMIT_MAX: u32 = 2048;
/// A sleep shorter than this should have been a spin: waking took about as long, on virtual processors.
const TOO_SHORT: Duration = Duration::from_micros(100);
/// A sleep longer than this says that spinning before it was wasted.
const LONG: Duration = Duration::from_millis(1);
/// Letting others run took this long: they need the processor, and whoever wakes from sleep gets it back sooner than
/// whoever asks by yielding.
const CONTENDED: Duration = Duration::from_micros(200);

/// The adaptive thresholds between spinning, letting others run, and sleeping.
#[derive(Debug)]
pub struct Idle {
    /// Turns of each kind since there was work.
    spun: u32,
    yielded: u32,
    /// As many of them at most.
    spins: u32,
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
            spun: 0,
            yielded: 0,
            spins: SPINS_MIN,
            limit: 8 * LIMIT_MIN,
        }
    }
}

impl Idle {
    /// After each turn: whether it is time to sleep. In between it spins, then lets other threads run.
    #[inline]
    pub fn should_sleep(&mut self, worked: bool) -> bool {
        if worked {
            (self.spun, self.yielded) = (0, 0);
            return false;
        }
        match self.step() {
            Step::Spin => core::hint::spin_loop(),
            Step::Sleep => return true,
            Step::Yield => {
                let before = Instant::now();
                std::thread::yield_now();
                return self.learn(before.elapsed());
            }
        }
        false
    }

    /// Returns what to do after one more empty turn.
    #[inline]
    fn step(&mut self) -> Step {
        if self.spun < self.spins {
            self.spun += 1;
            return Step::Spin;
        }
        self.yielded += 1;
        match self.yielded < self.limit {
            true => Step::Yield,
            false => Step::Sleep,
        }
    }

    /// Others had the processor for this time: learns from it. Whether they need it.
    fn learn(&mut self, time: Duration) -> bool {
        self.spins = match time < ALONE {
            true => (self.spins * 2).min(SPINS_MAX),
            false => SPINS_MIN,
        };
        time > CONTENDED
    }

    /// After a sleep: learns from how long it was.
    pub fn slept(&mut self, time: Duration) {
        (self.spun, self.yielded) = (0, 0);
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
        assert_eq!(turns(&mut idle), SPINS_MIN + 8 * LIMIT_MIN);
        for _ in 0..20 {
            idle.slept(Duration::from_micros(10));
        }
        assert_eq!(turns(&mut idle), SPINS_MIN + LIMIT_MAX);
        for _ in 0..20 {
            idle.slept(Duration::from_millis(5));
        }
        assert_eq!(turns(&mut idle), SPINS_MIN + LIMIT_MIN);
        assert!(!idle.should_sleep(true));
        idle.slept(Duration::from_micros(200));
        assert_eq!(turns(&mut idle), SPINS_MIN + LIMIT_MIN);
    }

    #[test]
    fn it_spins_for_as_long_as_no_other_wants_the_processor() {
        let mut idle = Idle::default();
        let (alone, shared) = (ALONE / 2, ALONE * 2);
        for _ in 0..10 {
            assert!(!idle.learn(alone));
        }
        assert_eq!(idle.spins, SPINS_MAX);
        assert!(!idle.learn(shared));
        assert_eq!(idle.spins, SPINS_MIN);
        assert!(idle.learn(CONTENDED * 2), "it gets it back by sleeping");
    }
}
