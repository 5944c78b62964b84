use super::*;
use std::rc::Rc;

#[test]
fn what_is_not_pulled_stays_in_order() {
    let mut burst: Burst<u32, 8> = Burst::new();
    burst.extend(0..100);
    assert!(burst.is_full());
    assert_eq!(burst.push(9), Err(9));
    {
        let mut pull = burst.pull();
        assert_eq!(
            (pull.len(), pull.next(), pull.next()),
            (8, Some(0), Some(1))
        );
    }
    assert_eq!(&burst[..], &[2, 3, 4, 5, 6, 7]);
    assert_eq!(burst.room(), 2);
    assert_eq!(burst.pull().count(), 6);
    assert!(burst.is_empty());
}

#[test]
fn every_item_is_dropped_once() {
    let item = Rc::new(());
    let mut burst: Burst<Rc<()>, 4> = Burst::new();
    burst.extend((0..4).map(|_| item.clone()));
    drop(burst.pull().next());
    assert_eq!(Rc::strong_count(&item), 4);
    core::mem::forget(burst.pull());
    assert!(
        burst.is_empty(),
        "a leaked iterator leaks, it never doubles"
    );
    burst.extend((0..2).map(|_| item.clone()));
    assert_eq!(Rc::strong_count(&item), 6);
    drop(burst);
    assert_eq!(Rc::strong_count(&item), 4);
}

#[test]
fn a_limit_bounds_what_comes_in_and_keeps_what_is_there() {
    let mut burst: Burst<u32, 8> = Burst::new();
    burst.set_limit(3);
    burst.extend(0..8);
    assert_eq!(
        (&burst[..], burst.room(), burst.is_full()),
        (&[0, 1, 2][..], 0, true)
    );
    assert_eq!(burst.push(9), Err(9));
    burst.set_limit(1);
    assert_eq!((burst.len(), burst.room(), burst.is_full()), (3, 0, true));
    assert_eq!(burst.pull().next(), Some(0));
    assert_eq!(&burst[..], [1, 2]);
    burst.set_limit(1000);
    burst.extend(3..100);
    assert_eq!(&burst[..], [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn pieces_move_in_order_and_have_one_owner() {
    let items: Vec<Rc<u32>> = (0..6).map(Rc::new).collect();
    let mut waiting = items.clone();
    let mut burst: Burst<Rc<u32>, 4> = Burst::new();
    assert_eq!(burst.take_front(&mut waiting, 3), 3);
    assert_eq!(burst.take_front(&mut waiting, 3), 1, "no more fits");
    assert_eq!((&burst[..], &waiting[..]), (&items[..4], &items[4..]));
    assert_eq!(burst.take_front(&mut waiting, 0), 0);
    let mut out = vec![Rc::new(9)];
    burst.append_to(&mut out);
    assert!(burst.is_empty());
    assert_eq!(&out[1..], &items[..4]);
    assert_eq!(burst.take_front(&mut waiting, 9), 2);
    burst.append_to(&mut out);
    assert_eq!((&out[1..], waiting.len()), (&items[..], 0));
    assert!(items.iter().all(|item| Rc::strong_count(item) == 2));
    drop(out);
    assert!(items.iter().all(|item| Rc::strong_count(item) == 1));
}
