//! The encoder on rows made by hand; that it makes the bytes of Python's is a test over there.

use std::collections::HashSet;

use super::columns::{Keys, Rows, Texts, Validity};
use super::{key_of_row, Encoder, Problem, Rules};
use crate::codec::batch;

struct Column(Vec<u8>, Vec<u8>);

impl Column {
    fn of(values: &[&str]) -> Self {
        let mut ends = 0i32.to_ne_bytes().to_vec();
        let mut data = Vec::new();
        for value in values {
            data.extend_from_slice(value.as_bytes());
            ends.extend(i32::try_from(data.len()).unwrap().to_ne_bytes());
        }
        Self(ends, data)
    }

    fn lent(&self) -> Texts<'_> {
        Texts {
            offset: 0,
            validity: Validity(None),
            offsets: &self.0,
            data: &self.1,
        }
    }
}

fn rules(size_max: usize, chunk_rows: u32) -> Rules {
    Rules {
        size_max,
        chunk_rows,
        left_out: HashSet::new(),
        key_prefix: "run/0/".into(),
        alone: false,
    }
}

fn lots(of: &[i32]) -> Vec<u8> {
    of.iter().flat_map(|it| it.to_ne_bytes()).collect()
}

fn rows<'a>(count: usize, body: &'a Column, lots: &'a [u8]) -> Rows<'a> {
    Rows {
        rows: count,
        body: body.lent(),
        keys: None,
        tags: None,
        properties: None,
        sharding: None,
        unique: None,
        delay: None,
        lots,
    }
}

#[test]
fn frames_are_cut_by_rows_and_the_rest_comes_at_the_end() {
    let body = Column::of(&["a", "b", "c", "d", "e"]);
    let to = lots(&[1, 0, 1, 1, 0]);
    let mut encoder = Encoder::new(rules(4096, 2));
    let full = encoder.add(&rows(5, &body, &to)).unwrap();
    let shown: Vec<_> = full.iter().map(|it| (it.lot, it.rows)).collect();
    assert_eq!(shown, [(1, 2), (0, 2)]);
    let bodies: Vec<_> = batch::elements(&full[0].body)
        .map(|it| it.unwrap().body.to_vec())
        .collect();
    assert_eq!(bodies, [b"a", b"c"]);
    assert_eq!(full[1].first_key, key_of_row("run/0/", 1).into_bytes());
    let rest = encoder.finish();
    assert_eq!((rest.len(), rest[0].lot, rest[0].rows), (1, 1, 1));
    assert_eq!(encoder.bytes(), 0);
}

#[test]
fn a_frame_never_grows_beyond_the_limit_and_a_cut_ends_no_chunk() {
    let long = "x".repeat(40);
    let body = Column::of(&[&long, &long, &long]);
    let to = lots(&[0, 0, 0]);
    // One element has 22 bytes, the body, and 42 of its unique key.
    let mut encoder = Encoder::new(rules(150, 3));
    let full = encoder.add(&rows(3, &body, &to)).unwrap();
    assert_eq!(full.iter().map(|it| it.rows).collect::<Vec<_>>(), [1, 1, 1]);
    assert!(full.iter().all(|it| it.body.len() <= 150));
    assert!(encoder.finish().is_empty());
}

#[test]
fn a_row_that_is_no_message_is_named() {
    let (empty, long) = (Column::of(&["a", ""]), Column::of(&["abc"]));
    let to = lots(&[0, 0]);
    let mut encoder = Encoder::new(rules(4096, 2));
    assert_eq!(
        encoder.add(&rows(2, &empty, &to)).unwrap_err(),
        (1, Problem::NoBody)
    );
    let mut encoder = Encoder::new(rules(2, 2));
    assert_eq!(
        encoder.add(&rows(1, &long, &to)).unwrap_err(),
        (0, Problem::BodySize(3))
    );
    let mut encoder = Encoder::new(rules(60, 2));
    assert_eq!(
        encoder.add(&rows(1, &long, &to)).unwrap_err(),
        (0, Problem::BatchSize)
    );
    let mut alone = Encoder::new(Rules {
        alone: true,
        ..rules(60, 2)
    });
    assert_eq!(alone.add(&rows(1, &long, &to)).unwrap().len(), 0);
    assert_eq!(alone.finish().len(), 1);
}

#[test]
fn keys_of_a_text_are_its_words() {
    let (body, keys) = (Column::of(&["a"]), Column::of(&[" k1\u{1f}k2\u{a0} "]));
    let to = lots(&[0]);
    let mut made = rows(1, &body, &to);
    made.keys = Some(Keys::Text(keys.lent()));
    let mut encoder = Encoder::new(rules(4096, 1));
    let full = encoder.add(&made).unwrap();
    let element = batch::elements(&full[0].body).next().unwrap().unwrap();
    assert!(element
        .properties
        .starts_with(b"KEYS\x01k1 k2\x02UNIQ_KEY\x01"));
}

#[test]
fn keys_of_rows_differ_by_prefix_and_row() {
    assert_eq!(key_of_row("q/1/3/", 7), key_of_row("q/1/3/", 7));
    assert_ne!(key_of_row("q/1/3/", 7), key_of_row("q/1/3/", 8));
    assert_ne!(key_of_row("q/1/3/", 7), key_of_row("q/1/4/", 7));
}
