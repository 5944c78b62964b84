//! SEGMENT ARRIVES as one table: every state of RFC 9293 section 3.10.7 against every kind of segment, with what is
//! answered and which state follows. Resets, SYNs and acknowledgements are judged as RFC 5961 says.

use core::time::Duration;

use crate::support::family::socket;
use crate::support::{Craft, HERE, Host, PEER, PORT, Peer, Seen, bytes_at};
use janus_tcp::{Config, ConnId, State};
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

/// `answer` or `answer>STATE`; without a state the old one stays. `-` is silence, `.` says that there is no such segment in
/// that state. `ack+` acknowledges the segment, `ack` only what came before it; both carry SND.NXT. `rst` carries the
/// segment's acknowledgement number (or, without one, acknowledges it: `rstack`).
///
/// Where the RFC leaves a choice, or another RFC overrides it:
/// * A reset does not end TIME-WAIT, and nothing but the peer's FIN and data is answered there (RFC 1337).
/// * A SYN in TIME-WAIT opens anew only beyond all that was seen (MAY-2): the row `syn-new`.
/// * A SYN in the window is challenged, in SYN-RECEIVED of a passive open too (RFC 5961 section 4.2): section 3.10.7.4 would
///   go back to LISTEN there, which lets a blind attacker end an opening; a peer that did begin anew resets the challenge.
/// * What came last and comes again is heard for its acknowledgement, as other stacks do: `fin-repeated` and `data-old`.
const TABLE: &str = "
              CLOSED LISTEN       SENT         RCVD-P      RCVD-A      ESTAB       FW1          FW2       CWAIT CLOSING LAST     TW
syn           rstack synack>RCVD-P synack>RCVD-A ack       ack         ack         ack          ack       ack   ack     ack      ack
syn-new       .      .            .            ack         ack         ack         ack          ack       ack   ack     ack      synack>RCVD-P
syn-repeated  .      .            .            synack      ack         ack         ack          ack       ack   ack     ack      ack
syn-ack       rst    rst          ack>ESTAB    ack         ack>ESTAB   ack         ack          ack       ack   ack     ack      ack
ack           rst    rst          -            ->ESTAB     ->ESTAB     -           ->FW2        -         -     ->TW    ->CLOSED -
ack-old       rst    rst          rst          rst         rst         -           -            -         -     -       -        -
ack-ancient   rst    rst          rst          rst         rst         ack         ack          ack       ack   ack     ack      -
ack-future    rst    rst          rst          rst         rst         ack         ack          ack       ack   ack     ack      -
rst           -      -            ->CLOSED     ->LISTEN    ->CLOSED    ->CLOSED    ->CLOSED     ->CLOSED  ->CLOSED ->CLOSED ->CLOSED -
rst-inside    -      -            -            ack         ack         ack         ack          ack       ack   ack     ack      -
rst-outside   -      -            -            -           -           -           -            -         -     -       -        -
fin           rst    rst          -            ack+>CWAIT  ack+>CWAIT  ack+>CWAIT  ack+>TW      ack+>TW   -     ->TW    ->CLOSED ack
fin-crossing  rst    rst          rst          rst         rst         ack+>CWAIT  ack+>CLOSING ack+>TW   -     -       -        ack
fin-repeated  .      .            .            ack         ack         ack         ack>FW2      ack       ack   ->TW    ->CLOSED ack
fin-ahead     rst    rst          -            ack>ESTAB   ack>ESTAB   ack         ack>FW2      ack       -     ->TW    ->CLOSED ack
data          rst    rst          -            ack+>ESTAB  ack+>ESTAB  ack+        ack+>FW2     ack+      -     ->TW    ->CLOSED ack
data-ahead    rst    rst          -            ack>ESTAB   ack>ESTAB   ack         ack>FW2      ack       -     ->TW    ->CLOSED ack
data-beyond   rst    rst          -            ack         ack         ack         ack          ack       ack   ack     ack      ack
data-old      rst    rst          -            ack         ack         ack         ack>FW2      ack       ack   ->TW    ->CLOSED ack
data-overlap  rst    rst          -            ack+>ESTAB  ack+>ESTAB  ack+        ack+>FW2     ack+      ack   ->TW    ->CLOSED ack
urgent        rst    rst          -            ack+>ESTAB  ack+>ESTAB  ack+        ack+>FW2     ack+      -     ->TW    ->CLOSED ack
no-ack        rstack -            -            -           -           -           -            -         -     -       -        -
";

/// A connection (or none) in some state, and the numbers of RFC 9293 section 3.3.1.
struct Scene {
    host: Host,
    conn: Option<ConnId>,
    /// Where segments come from and go to.
    src: (std::net::Ipv4Addr, u16),
    dst: (std::net::Ipv4Addr, u16),
    irs: SeqNum,
    rcv_nxt: SeqNum,
    snd_una: SeqNum,
    snd_nxt: SeqNum,
}

/// The window the peer offers, and its scale, by [`Craft::syn`].
const PEER_WINDOW: u32 = 0xffff << 3;

impl Scene {
    fn bare(port: u16) -> Scene {
        let host = Host::with(Config {
            delayed_ack: Duration::from_millis(1),
            ..Config::default()
        });
        Scene {
            host,
            conn: None,
            src: (PEER, 4_000),
            dst: (HERE, port),
            irs: SeqNum(10_000),
            rcv_nxt: SeqNum(10_001),
            snd_una: SeqNum(70_000),
            snd_nxt: SeqNum(70_001),
        }
    }

    fn take_numbers(&mut self, answers: &[Seen]) {
        let syn = &answers[0];
        assert!(syn.has(Flags::SYN));
        (self.snd_una, self.snd_nxt) = (syn.header.seq, syn.end());
    }

    /// Our own SYN is out.
    fn syn_sent() -> Scene {
        let mut scene = Scene::bare(5_000);
        let remote = socket(scene.src.0, scene.src.1);
        let conn = scene
            .host
            .stack
            .connect(scene.host.now, socket(HERE, 5_000), remote);
        scene.conn = Some(conn.expect("a connection"));
        let answers = scene.host.collect();
        scene.take_numbers(&answers);
        scene
    }

    /// The peer's SYN crossed or answered it, or opened a half-open record.
    fn syn_received(mut self) -> Scene {
        let syn = self.craft("syn-repeated");
        let answers = self.host.ask(&syn);
        self.take_numbers(&answers);
        self
    }

    fn established() -> Scene {
        let mut scene = Scene::bare(PORT);
        let mut syn = Craft::syn(scene.src);
        syn.seq = scene.irs;
        let peer = Peer::open_with(&mut scene.host, &syn);
        scene.conn = Some(peer.conn);
        (scene.snd_una, scene.snd_nxt) = (peer.rcv, peer.rcv);
        scene
    }

    /// We say that we send no more; the connection stays ours, so that its state can be looked at.
    fn our_fin(mut self) -> Scene {
        let conn = self.conn.expect("a connection");
        self.host
            .stack
            .shutdown_write(self.host.now, conn)
            .expect("open");
        assert!(self.host.collect()[0].has(Flags::FIN));
        self.snd_nxt += 1u32;
        self
    }

    fn our_fin_acknowledged(mut self) -> Scene {
        self.snd_una = self.snd_nxt;
        let ack = self.craft("ack");
        assert!(self.host.ask(&ack).is_empty());
        self
    }

    /// The peer's FIN arrives; it acknowledges as much as `SND.UNA` says.
    fn their_fin(mut self) -> Scene {
        let fin = self.craft("fin-crossing");
        assert_eq!(self.host.ask(&fin).len(), 1);
        self.rcv_nxt += 1u32;
        self
    }

    fn in_state(name: &str) -> Scene {
        match name {
            "CLOSED" => Scene::bare(81),
            "LISTEN" => Scene::bare(PORT),
            "SENT" => Scene::syn_sent(),
            "RCVD-P" => Scene::bare(PORT).syn_received(),
            "RCVD-A" => Scene::syn_sent().syn_received(),
            "ESTAB" => Scene::established(),
            "FW1" => Scene::established().our_fin(),
            "FW2" => Scene::established().our_fin().our_fin_acknowledged(),
            "CWAIT" => Scene::established().their_fin(),
            "CLOSING" => Scene::established().our_fin().their_fin(),
            "LAST" => Scene::established().their_fin().our_fin(),
            "TW" => Scene::established()
                .our_fin()
                .our_fin_acknowledged()
                .their_fin(),
            _ => panic!("no state {name}"),
        }
    }

    /// The state it is in now, by what the stack shows.
    fn state(&mut self) -> &'static str {
        if let Ok((conn, _)) = self.host.stack.accept(self.host.listener) {
            self.conn = Some(conn);
        }
        if self.host.stack.in_time_wait() == 1 {
            return "TW";
        }
        if self.host.stack.half_open() == 1 {
            return "RCVD-P";
        }
        let Some(conn) = self.conn else {
            return if self.dst.1 == PORT {
                "LISTEN"
            } else {
                "CLOSED"
            };
        };
        match self.host.stack.info(conn).expect("a connection").state {
            State::Closed => "CLOSED",
            State::SynSent => "SENT",
            State::SynReceived => "RCVD-A",
            State::Established => "ESTAB",
            State::FinWait1 => "FW1",
            State::FinWait2 => "FW2",
            State::CloseWait => "CWAIT",
            State::Closing => "CLOSING",
            State::LastAck => "LAST",
            State::TimeWait => "TW",
        }
    }

    /// The segment of that name.
    fn craft(&self, name: &str) -> Craft {
        let mut craft = Craft::new(self.src, Flags::ACK);
        craft.dst = self.dst;
        (craft.seq, craft.ack) = (self.rcv_nxt, self.snd_nxt);
        let opening = self.conn.is_some() && self.snd_una + 1u32 == self.snd_nxt;
        let text = bytes_at(0, 10);
        match name {
            "syn" | "syn-new" | "syn-repeated" | "syn-ack" => {
                craft.options = Craft::syn(self.src).options;
                craft.flags = Flags::SYN;
                if name == "syn-new" {
                    craft.seq += 100_000u32;
                } else if name != "syn" {
                    craft.seq = self.irs;
                }
                if name == "syn-ack" {
                    craft.flags = Flags::SYN | Flags::ACK;
                } else {
                    craft.ack = SeqNum(0);
                }
            }
            "ack" => {}
            "ack-old" => craft.ack = self.snd_una - 1,
            "ack-ancient" => craft.ack = self.snd_una - (PEER_WINDOW + 1),
            "ack-future" => craft.ack = self.snd_nxt + 1u32,
            // To our SYN a reset must acknowledge it.
            "rst" | "rst-inside" | "rst-outside" => {
                craft.flags = Flags::RST;
                let to_our_syn = opening && self.dst.1 != PORT;
                match name {
                    "rst" if to_our_syn => craft.flags = Flags::RST | Flags::ACK,
                    "rst-inside" => craft.seq += 1_000u32,
                    "rst-outside" if to_our_syn => {
                        (craft.flags, craft.ack) = (Flags::RST | Flags::ACK, self.snd_nxt + 1u32);
                        craft.seq += 1_000_000u32;
                    }
                    "rst-outside" => craft.seq += 1_000_000u32,
                    _ => {}
                }
            }
            "fin" | "fin-crossing" | "fin-repeated" | "fin-ahead" => {
                craft.flags = Flags::FIN | Flags::ACK;
                match name {
                    "fin-crossing" => craft.ack = self.snd_una,
                    "fin-repeated" => craft.seq = self.rcv_nxt - 1,
                    "fin-ahead" => craft.seq += 100u32,
                    _ => {}
                }
            }
            "data" => craft.payload = text,
            "data-ahead" => (craft.seq, craft.payload) = (self.rcv_nxt + 100u32, text),
            "data-beyond" => (craft.seq, craft.payload) = (self.rcv_nxt + 1_000_000u32, text),
            "data-old" => (craft.seq, craft.payload) = (self.rcv_nxt - 10, text),
            "data-overlap" => (craft.seq, craft.payload) = (self.rcv_nxt - 5, text),
            "urgent" => {
                craft.flags = Flags::ACK | Flags::URG;
                (craft.urgent, craft.payload) = (5, text);
            }
            "no-ack" => (craft.flags, craft.payload) = (Flags::PSH, text),
            _ => panic!("no segment {name}"),
        }
        craft
    }

    /// What the answer is called in the table; panics when its numbers are not what its name says.
    fn name_answer(&self, craft: &Craft, answers: &[Seen]) -> &'static str {
        let Some(answer) = answers.first() else {
            return "-";
        };
        assert_eq!(answers.len(), 1, "one answer for a segment: {answers:?}");
        assert_eq!(answer.to, self.src);
        let space = craft.payload.len() as u32
            + u32::from(craft.flags.contains(Flags::SYN))
            + u32::from(craft.flags.contains(Flags::FIN));
        let end = craft.seq + space;
        let header = &answer.header;
        if header.flags == Flags::SYN | Flags::ACK {
            assert_eq!(header.ack, craft.seq + 1u32);
            return "synack";
        }
        if header.flags == Flags::RST {
            assert!(craft.flags.contains(Flags::ACK) && header.seq == craft.ack);
            return "rst";
        }
        if header.flags == Flags::RST | Flags::ACK {
            assert_eq!((header.seq, header.ack), (SeqNum(0), end));
            return "rstack";
        }
        assert_eq!(header.flags, Flags::ACK);
        assert_eq!(
            header.seq, self.snd_nxt,
            "an acknowledgement carries SND.NXT"
        );
        if header.ack == end && space > 0 && end.gt(self.rcv_nxt) {
            return "ack+";
        }
        let synced = if craft.flags == Flags::SYN | Flags::ACK && self.rcv_nxt == craft.seq {
            self.rcv_nxt + 1u32
        } else {
            self.rcv_nxt
        };
        assert_eq!(header.ack, synced, "an acknowledgement carries RCV.NXT");
        "ack"
    }
}

#[test]
fn every_state_answers_every_segment_as_the_rfc_says() {
    let mut lines = TABLE.lines().filter(|line| !line.is_empty());
    let states: Vec<&str> = lines
        .next()
        .expect("a heading")
        .split_whitespace()
        .collect();
    assert_eq!(states.len(), 12);
    let (mut wrong, mut cells) = (Vec::new(), 0);
    for line in lines {
        let mut words = line.split_whitespace();
        let segment = words.next().expect("a name");
        let expected: Vec<&str> = words.collect();
        assert_eq!(expected.len(), states.len(), "{segment}");
        for (&state, &cell) in states.iter().zip(&expected) {
            if cell == "." {
                continue;
            }
            cells += 1;
            let (answer, next) = cell.split_once('>').unwrap_or((cell, state));
            let mut scene = Scene::in_state(state);
            assert_eq!(scene.state(), state, "how {state} is reached");
            let craft = scene.craft(segment);
            scene.host.send(&craft);
            // Long enough for a delayed acknowledgement, not for a retransmission.
            scene.host.wait(Duration::from_millis(2));
            let answers = scene.host.collect();
            let name = scene.name_answer(&craft, &answers);
            let now = scene.state();
            if (name, now) != (answer, next) {
                wrong.push(format!(
                    "{segment} in {state}: {name}>{now}, not {answer}>{next}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(cells, 12 * 22 - 9);
}
