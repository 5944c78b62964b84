use super::*;

fn seen(rests: &Rests) -> Seen {
    let mut seen = Seen::default();
    rests.note(&mut seen);
    seen
}

#[test]
fn it_dozes_only_while_all_have_slept_since_the_look() {
    let rests = Rests::new(2);
    assert!(!rests.doze(&seen(&rests)), "both work");
    rests.falls_asleep(0);
    assert!(!rests.doze(&seen(&rests)), "one works");
    let before = seen(&rests);
    rests.falls_asleep(1);
    assert!(!rests.doze(&before), "it worked after the look");
    let looked = seen(&rests);
    // A sleep that goes on is no news.
    rests.falls_asleep(1);
    assert!(rests.doze(&looked));
    assert!(rests.works(0), "the first rings");
    assert!(!rests.works(1), "and only that one");
    rests.falls_asleep(0);
    rests.falls_asleep(1);
    assert!(!rests.doze(&looked), "they worked in between");
    assert!(!rests.works(1), "nobody dozes");
    assert!(!Rests::new(1).doze(&Seen::default()), "without any look");
}

#[test]
fn of_a_core_that_wakes_and_a_thread_that_dozes_one_sees_the_other() {
    let rests = Rests::new(1);
    for _ in 0..2_000 {
        rests.falls_asleep(0);
        let looked = seen(&rests);
        let (dozed, rang) = std::thread::scope(|scope| {
            let core = scope.spawn(|| rests.works(0));
            (rests.doze(&looked), core.join().unwrap())
        });
        assert!(rang || !dozed, "it sleeps although a core works");
        rests.wakes();
    }
}
