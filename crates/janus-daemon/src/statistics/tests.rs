use std::fs;

use janus_shm::Board;
use proptest::prelude::*;

use super::*;

/// A file of this test's own, which goes with it.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> File {
        let name = format!("janus-statistics-{}-{name}", std::process::id());
        File(std::env::temp_dir().join(name))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn member() -> MemberStatistics {
    MemberStatistics {
        name: "nginx: master".into(),
        identity: 77,
        user: 33,
        process: 4_711,
        cores: 2,
        since: from_millis(1_700_000_000_123),
        received: Traffic {
            frames: 1,
            bytes: 2,
        },
        sent: Traffic {
            frames: 3,
            bytes: u64::MAX,
        },
        lost_no_buffer: 4,
        refused: 5,
        limited: 6,
        buffers: 7,
        memory: 8,
        ports: 9,
        tcp_ports: vec![80, 443],
        udp_ports: vec![53],
    }
}

/// A daemon's file with one member, and its bytes.
fn shown(file: &File) -> Vec<u8> {
    let counters = Counters::default();
    for (at, (_, counter)) in (1..).zip(counters.all()) {
        counter.set(at);
    }
    let member = member();
    let ports = [(false, 443), (true, 53), (false, 80), (false, 443)];
    let mut board = Board::create(&file.0, FORM).unwrap();
    board.show(0, &Statistics::row(12, 1_700_000_000_000, &counters));
    let row = member.row(ports.into_iter(), &member.name);
    board.show(5, &row);
    let read = Statistics::open(&file.0).unwrap();
    assert!(read.is_running);
    fs::read(&file.0).unwrap()
}

#[test]
fn figures_come_back_as_they_were_shown() {
    let file = File::new("back");
    let bytes = shown(&file);
    fs::write(&file.0, bytes).unwrap();
    let read = Statistics::open(&file.0).unwrap();
    assert!(!read.is_running, "a file that nobody writes");
    assert_eq!(read.process, 12);
    assert_eq!(read.since, from_millis(1_700_000_000_000));
    let counts = read.counters.all().map(|(_, counter)| counter.get());
    assert!(counts.into_iter().eq(1..=counts.len() as u64), "{counts:?}");
    assert_eq!(read.members, [member()]);
}

#[test]
fn the_longest_name_and_the_most_ports_fit() {
    let name = "n".repeat(NAME_MAX);
    let ports = (0..40).map(|it| (it % 2 == 1, 1_000 + it));
    let row = member().row(ports, &name);
    let read = MemberStatistics::of(&row).unwrap();
    assert_eq!(read.name, name);
    assert_eq!((read.tcp_ports.len(), read.udp_ports.len()), (8, 8));
    assert_eq!(MemberStatistics::of(&[0; WORDS]), None);
}

/// The meaning of a word changes with the version only.
#[test]
fn the_form_is_that_of_its_version() {
    let counters = Counters::default();
    let names = counters.all().map(|(name, _)| name).join(" ");
    let told = "to_members from_members inside to_keeper lost_no_buffer lost_full lost_unknown \
                lost_reserved turned_back refused limited uncopied lent returned left_open begun ended asked told joined left died cut_off";
    let numbers = (NUMBERS, PORTS_SHOWN, NAME_MAX, MEMBERS_MAX);
    assert_eq!(
        (FORM.version, names.as_str(), numbers),
        (2, told, (16, 16, 64, 128)),
        "raise FORM's version, and write it here"
    );
}

#[test]
fn a_file_that_is_none_is_told_of() {
    let file = File::new("none");
    let text = |bytes: &[u8]| {
        fs::write(&file.0, bytes).unwrap();
        Statistics::open(&file.0).unwrap_err().to_string()
    };
    let told = text(&[b'?'; 200_000]);
    assert!(told.contains("something else"), "{told}");
    assert!(text(b"").contains("its 0 bytes"));
    let mut bytes = shown(&file);
    bytes.truncate(10_000);
    assert!(text(&bytes).contains("has 10000 bytes"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever stands behind the header: it is some figures, of which a name is text and a time is one.
    #[test]
    fn any_words_are_figures(
        seed in any::<u64>(),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..200),
    ) {
        let file = File::new(&format!("mutated-{seed}"));
        let mut bytes = shown(&file);
        // The first rows only: the others are empty.
        let len = bytes.len().min(6 * (1 + 2 * WORDS) * 8 + 64);
        for (at, byte) in changes {
            let at = 64 + at % (len - 64);
            bytes[at] = byte;
        }
        fs::write(&file.0, bytes).unwrap();
        let read = Statistics::open(&file.0).unwrap();
        for member in &read.members {
            prop_assert!(member.name.len() <= 3 * NAME_MAX);
            prop_assert!(member.tcp_ports.len() + member.udp_ports.len() <= PORTS_SHOWN);
        }
        let _ = format!("{read:?} {}", read.counters);
    }

    #[test]
    fn any_row_is_one_or_none(words in proptest::collection::vec(any::<u64>(), WORDS)) {
        let row = <&Row>::try_from(words.as_slice()).unwrap();
        let read = MemberStatistics::of(row);
        prop_assert_eq!(read.is_none(), words[0] == 0);
    }
}
