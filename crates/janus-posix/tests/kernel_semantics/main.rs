//! The kernel's own sockets and these, side by side: the same calls in the same order over loopback and over two stacks
//! with a wire between them, and after each call its outcome and what poll says of every socket must be the same. Every
//! state that a socket can be brought into is tried with every call.
//!
//! Needs no privilege, and a Linux kernel; what is known to differ is in `differs`, each with its reason.

mod janus;
mod kernel;
mod options;
mod plan;

use plan::{Op, Who};

/// Somewhere sockets are.
trait World {
    /// Carries out a call; its value or minus errno.
    fn call(&mut self, op: Op) -> i64;
    /// Lets all that is on its way arrive.
    fn settle(&mut self);
    /// What poll says of a socket, if it is open.
    fn mask(&mut self, who: Who) -> Option<u32>;
}

/// Everything that is seen while a plan is carried out.
fn run(world: &mut dyn World, plan: &[Op]) -> Vec<String> {
    let mut seen = Vec::new();
    for &op in plan {
        let outcome = world.call(op);
        world.settle();
        let mut line = format!("{op:?} = {outcome}");
        for who in Who::ALL {
            if let Some(mask) = world.mask(who) {
                line.push_str(&format!("; {who:?} {}", names(mask)));
            }
        }
        seen.push(line);
    }
    seen
}

/// A mask in words.
fn names(mask: u32) -> String {
    let bits = [
        (0x1, "in"),
        (0x2, "pri"),
        (0x4, "out"),
        (0x8, "err"),
        (0x10, "hup"),
        (0x40, "rdnorm"),
        (0x80, "rdband"),
        (0x100, "wrnorm"),
        (0x200, "wrband"),
        (0x2000, "rdhup"),
    ];
    let set = bits.iter().filter(|(bit, _)| mask & bit != 0);
    let words: Vec<&str> = set.map(|(_, word)| *word).collect();
    words.join("+")
}

/// Whether a difference in what `probe` showed after `setup` is known, and why it stays.
fn differs(setup: &str, probe: Op) -> Option<&'static str> {
    plan::DIFFERENCES
        .iter()
        .find(|(name, probes, _)| (*name == "*" || *name == setup) && probes(probe))
        .map(|(_, _, why)| *why)
}

/// What both worlds show, and where they first differ. The kernel is given more time when they do: somebody else may have
/// had the processor.
fn compare(plan: &[Op]) -> Option<(usize, String, String)> {
    let ours = run(&mut janus::Janus::new(), plan);
    let mut difference = None;
    for patience_us in [100, 2_000, 50_000] {
        let theirs = run(&mut kernel::Kernel::new(patience_us), plan);
        let at = (0..plan.len()).find(|&at| theirs[at] != ours[at])?;
        difference = Some((at, theirs[at].clone(), ours[at].clone()));
    }
    difference
}

#[test]
fn every_call_in_every_state_is_answered_as_the_kernel_answers_it() {
    let setups = plan::setups();
    let tried = setups.len() * plan::probes().len();
    assert!(tried > 500, "{tried} plans only");
    // Mostly the kernel is waited for.
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let parts = setups.chunks(setups.len().div_ceil(8));
        let threads: Vec<_> = parts
            .map(|part| scope.spawn(move || part.iter().flat_map(every_call_after).collect()))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap());
        ended.flat_map(|wrong: Vec<String>| wrong).collect()
    });
    assert!(
        wrong.is_empty(),
        "{} of {tried} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// What differs, and is not known to, when any call follows what brought the sockets into a state.
fn every_call_after((name, setup): &(&str, Vec<Op>)) -> Vec<String> {
    let mut wrong = Vec::new();
    for probe in plan::probes() {
        let mut plan = setup.clone();
        plan.push(probe);
        // What the call left behind: its error is told once, and reading goes on as it must.
        plan.extend(plan::aftermath(probe.who()));
        if let Some((at, theirs, ours)) = compare(&plan)
            && differs(name, plan[at]).is_none()
        {
            wrong.push(format!(
                "{name}, then {probe:?}:\n    kernel: {theirs}\n    janus:  {ours}"
            ));
        }
    }
    wrong
}

#[test]
fn two_sockets_may_have_one_port_when_the_kernel_says_so() {
    let mut wrong = Vec::new();
    let pairs = plan::pairs();
    assert!(pairs.len() > 100, "{} pairs only", pairs.len());
    for plan in pairs {
        if let Some((at, theirs, ours)) = compare(&plan) {
            wrong.push(format!(
                "{:?}:\n    kernel: {theirs}\n    janus:  {ours}",
                &plan[..=at]
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn urgent_data_is_had_as_from_the_kernel() {
    for seed in 0..150 {
        let plan = plan::urgent_walk(seed);
        if let Some((at, theirs, ours)) = compare(&plan) {
            panic!(
                "seed {seed}: {:?}\n    kernel: {theirs}\n    janus:  {ours}",
                &plan[..=at]
            );
        }
    }
}

#[test]
fn epoll_tells_what_the_kernel_tells_level_and_edge() {
    for seed in 0..150 {
        let plan = plan::epoll_walk(seed);
        if let Some((at, theirs, ours)) = compare(&plan) {
            panic!(
                "seed {seed}: {:?}\n    kernel: {theirs}\n    janus:  {ours}",
                &plan[..=at]
            );
        }
    }
}
