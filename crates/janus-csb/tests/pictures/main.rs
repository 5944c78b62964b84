//! The pictures of `docs/csb.md`, drawn from what the balancer does: the ring before and after an update, and the steps of
//! an update in time. The committed files must be what is drawn; `JANUS_DRAW=1 cargo test -p janus-csb --test pictures`
//! draws them anew.

mod cast;
mod ring;
mod svg;
mod update;

use std::path::Path;

fn compare(name: &str, drawn: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    if std::env::var_os("JANUS_DRAW").is_some() {
        std::fs::write(&path, drawn).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = committed
        .lines()
        .zip(drawn.lines())
        .find(|(old, new)| old != new);
    assert!(
        committed == drawn,
        "docs/{name} is not what is drawn (first difference: {differs:?}). If that is as it should be: \
         JANUS_DRAW=1 cargo test -p janus-csb --test pictures"
    );
}

#[test]
fn the_ring_before_and_after_an_update() {
    let scenes = ring::scenes();
    // What the picture claims to show is there.
    assert_eq!(scenes[0].diverged(), 0);
    assert!(scenes[1].diverged() > 5 && scenes[1].report.exact == 0);
    assert_eq!(scenes[1].diverged(), scenes[1].report.diverged);
    assert_eq!(
        scenes[1].marked_cells().len(),
        scenes[1].report.marked_cells
    );
    assert_eq!(scenes[2].diverged(), 0);
    let drawn = ring::draw(&scenes);
    assert_eq!(
        drawn,
        ring::draw(&ring::scenes()),
        "drawn twice, it is the same"
    );
    compare("csb-ring.svg", &drawn);
}

#[test]
fn the_steps_of_an_update() {
    let story = update::run();
    assert!(story.is_over(), "the update came to its end");
    compare("csb-update.svg", &update::draw(&story));
}
