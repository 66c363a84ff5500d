//! What a master says to one slave, and when, at the edges of each rule.

use super::{Fault, Feed, FeedConfig};

const RULES: FeedConfig = FeedConfig {
    batch: 100,
    heartbeat: 50,
    housekeeping: 200,
    bytes_per_second: 0,
    linger: 10,
};

fn report(offset: i64) -> [u8; 8] {
    offset.to_be_bytes()
}

/// A slave that has reported 1000 and is fed from there.
fn fed(rules: FeedConfig) -> Feed {
    let mut feed = Feed::new(rules);
    assert_eq!(feed.receive(&report(1000), 0).unwrap(), Some(1000));
    feed.begin(1000).unwrap();
    feed
}

/// The same, with so many bytes sent at a time.
fn sent(rules: FeedConfig, bytes: u64, now: u64) -> Feed {
    let mut feed = fed(rules);
    feed.header(bytes, now);
    feed
}

#[test]
fn first_report_may_come_in_pieces_and_later_ones_wait_for_the_start() {
    let mut feed = Feed::new(RULES);
    let all = [report(1000), report(1000), report(1001)].concat();
    for byte in &all[..7] {
        assert!(feed.listens());
        assert_eq!(feed.receive(&[*byte], 0).unwrap(), None);
    }
    // Nothing is fed before somebody says from where.
    assert_eq!(feed.due(5000, 0), None);
    feed.begin(7).unwrap();
    assert_eq!((feed.acked(), feed.position()), (0, 0));
    assert_eq!(feed.receive(&all[7..], 0).unwrap(), Some(1000));
    assert!(!feed.listens());
    assert_eq!((feed.acked(), feed.due(5000, 0)), (0, None));
    assert!(!feed.wants_heartbeat(1000));
    feed.begin(1001).unwrap();
    assert!(feed.listens());
    assert_eq!((feed.acked(), feed.position()), (1001, 1001));
    // It is decided once.
    feed.begin(5).unwrap();
    assert_eq!((feed.acked(), feed.position()), (1001, 1001));
}

#[test]
fn slave_acknowledges_what_was_sent_and_never_less_than_before() {
    for (reported, good) in [(1000, true), (1050, true), (1100, true), (1101, false)] {
        let mut feed = sent(RULES, 100, 0);
        let found = feed.receive(&report(reported), 1);
        assert_eq!(found.is_ok(), good, "{reported}");
        let acked = if good { reported.cast_unsigned() } else { 1000 };
        assert_eq!(feed.acked(), acked);
    }
    let mut feed = sent(RULES, 100, 0);
    feed.receive(&report(1050), 1).unwrap();
    feed.receive(&report(1050), 2).unwrap();
    let Fault(said) = feed.receive(&report(1049), 3).unwrap_err();
    assert_eq!(said, "goes back from 1050 to 1049");
    let mut feed = Feed::new(RULES);
    let Fault(said) = feed.receive(&report(-1), 0).unwrap_err();
    assert_eq!(said, "reports a negative offset, -1");
    // What came too early is judged when the start is known.
    let mut feed = Feed::new(RULES);
    let both = [report(1000), report(1001)].concat();
    assert_eq!(feed.receive(&both, 0).unwrap(), Some(1000));
    let Fault(said) = feed.begin(1000).unwrap_err();
    assert_eq!(said, "acknowledges 1001, of which 1000 and more is unsent");
}

#[test]
fn a_piece_is_what_there_is_up_to_a_batch() {
    let mut feed = fed(RULES);
    for (end, piece) in [
        (0, None),
        (999, None),
        (1000, None),
        (1001, Some((1000, 1))),
        (1099, Some((1000, 99))),
        (1100, Some((1000, 100))),
        (1101, Some((1000, 100))),
    ] {
        assert_eq!(feed.due(end, 0), piece, "{end}");
    }
    let header = feed.header(100, 7);
    assert_eq!(header[..8], 1000_u64.to_be_bytes());
    assert_eq!(header[8..], 100_u32.to_be_bytes());
    assert_eq!((feed.position(), feed.acked()), (1100, 1000));
    let mut other = fed(RULES);
    other.follow(FeedConfig { batch: 9, ..RULES });
    assert_eq!(other.due(2000, 0), Some((1000, 9)));
}

#[test]
fn bytes_of_a_second_are_limited_and_the_next_second_begins_anew() {
    let rules = FeedConfig {
        bytes_per_second: 150,
        ..RULES
    };
    let mut feed = fed(rules);
    assert_eq!(feed.due(5000, 5), Some((1000, 100)));
    feed.header(100, 5);
    assert_eq!(feed.due(5000, 999), Some((1100, 50)));
    feed.header(49, 999);
    assert_eq!(feed.due(5000, 999), Some((1149, 1)));
    feed.header(1, 999);
    assert_eq!(feed.due(5000, 999), None);
    assert_eq!(feed.due(5000, 1000), Some((1150, 100)));
    feed.header(100, 1000);
    assert_eq!(feed.due(5000, 1999), Some((1250, 50)));
    assert_eq!(feed.due(1251, 1999), Some((1250, 1)));
    // A second that is skipped saves nothing up.
    assert_eq!(feed.due(5000, 9000), Some((1250, 100)));
    feed.header(100, 9000);
    assert_eq!(feed.due(5000, 9001), Some((1350, 50)));
}

#[test]
fn what_is_short_waits_for_more_while_something_is_on_its_way() {
    // (bytes sent at 20, acknowledged, end, now): whether it waits
    for (bytes, acked, end, now, waits) in [
        (1, 1000, 1002, 20, true),
        (1, 1000, 1002, 29, true),
        (1, 1000, 1002, 30, false),
        (1, 1000, 1002, 31, false),
        // All of it has arrived.
        (1, 1001, 1002, 20, false),
        (0, 1000, 1001, 20, false),
        // A batch.
        (1, 1000, 1100, 20, true),
        (1, 1000, 1101, 20, false),
        (1, 1000, 1102, 20, false),
        // Nothing to send, or what is there is still to be taken back.
        (1, 1000, 1001, 20, true),
        (1, 1000, 1000, 20, true),
    ] {
        let mut feed = sent(RULES, bytes, 20);
        feed.receive(&report(acked), 20).unwrap();
        let found = feed.lingers(end, now);
        assert_eq!(found, waits, "{bytes} {acked} {end} {now}");
    }
}

#[test]
fn silence_is_broken_by_a_heartbeat() {
    let feed = sent(RULES, 1, 20);
    assert_eq!(
        [20, 69, 70, 71].map(|now| feed.wants_heartbeat(now)),
        [false, false, true, true]
    );
    assert!(!Feed::new(RULES).wants_heartbeat(500));
}

#[test]
fn slave_that_says_nothing_or_half_a_report_is_given_up() {
    let mut feed = sent(RULES, 1, 20);
    feed.receive(&report(1000), 30).unwrap();
    assert_eq!([30, 229, 230].map(|now| feed.check(now).is_ok()), [true; 3]);
    let Fault(said) = feed.check(231).unwrap_err();
    assert_eq!(said, "has said nothing for 201 ms");
    feed.receive(&[0], 40).unwrap();
    assert_eq!([40, 89, 90].map(|now| feed.check(now).is_ok()), [true; 3]);
    let Fault(said) = feed.check(91).unwrap_err();
    assert_eq!(said, "wrote 1 bytes, which is no report");
    // While the start is being decided, whole reports wait as well.
    let mut asked = Feed::new(RULES);
    asked.receive(&[report(5), report(5)].concat(), 40).unwrap();
    assert!(asked.check(240).is_ok());
    assert!(asked.check(241).is_err());
}

#[test]
fn the_clock_is_waited_for_until_the_first_of_all_that_it_makes_due() {
    let rules = FeedConfig {
        heartbeat: 5000,
        housekeeping: 20_000,
        ..RULES
    };
    // Nobody is fed: the end of patience with the slave, or with its half report.
    let mut feed = Feed::new(rules);
    feed.receive(&[], 300).unwrap();
    assert_eq!(feed.patience(0, 400), 300 + 20_001 - 400);
    feed.receive(&[1], 500).unwrap();
    assert_eq!(feed.patience(0, 600), 500 + 5001 - 600);
    let mut asked = Feed::new(rules);
    asked
        .receive(&[report(1000), report(1000)].concat(), 500)
        .unwrap();
    assert_eq!(asked.patience(5000, 600), 500 + 20_001 - 600);
    // A heartbeat.
    let mut feed = sent(rules, 10, 700);
    assert_eq!(feed.patience(1010, 800), 700 + 5000 - 800);
    assert_eq!(feed.patience(1009, 800), 700 + 5000 - 800);
    // A short piece waits for more, one that may not go yet for the next second.
    assert_eq!(feed.patience(1011, 705), 5);
    assert_eq!(feed.patience(1011, 710), 290);
    assert_eq!(feed.patience(1110, 705), 295);
    assert_eq!(feed.patience(1110, 1999), 1);
    assert_eq!(feed.patience(1110, 2000), 1000);
    // What is overdue is due at once.
    assert_eq!(feed.patience(1010, 9000), 0);
    feed.follow(FeedConfig {
        housekeeping: 1000,
        ..rules
    });
    assert_eq!(feed.patience(1010, 800), 201);
}
