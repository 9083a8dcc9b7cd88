//! Nexmark's queries, as far as they have a circuit. Persons, auctions and bids are only added to.
//!
//! Each query takes the columns in that it needs, under the key that it needs them by.

mod auction;
pub mod q20;
pub mod q3;
pub mod q4;
pub mod q5;
pub mod q8;
pub mod q9;

mod winning;

use dbsp::utils::Tup2;
use dbsp::{DBData, IndexedZSetHandle, ZWeight};
use serde::{Deserialize, Serialize};

use crate::records::Lines;

/// New rows of a table, each once, as a handle takes them.
type Added<K, V> = Vec<Tup2<K, Tup2<V, ZWeight>>>;

/// Rows of a table with auctions, of one with bids or persons.
pub enum Rows<A, B> {
    Auctions(A),
    Others(B),
    None,
}

/// The handles of two tables.
pub struct Handles<AK: DBData, AV: DBData, BK: DBData, BV: DBData> {
    auctions: IndexedZSetHandle<AK, AV>,
    others: IndexedZSetHandle<BK, BV>,
}

impl<AK: DBData, AV: DBData, BK: DBData, BV: DBData> Handles<AK, AV, BK, BV> {
    fn feed(&self, rows: Rows<Added<AK, AV>, Added<BK, BV>>) {
        match rows {
            Rows::Auctions(mut rows) => self.auctions.append(&mut rows),
            Rows::Others(mut rows) => self.others.append(&mut rows),
            Rows::None => (),
        }
    }
}

fn added<'a, E: Deserialize<'a>, K, V>(lines: Lines<'a>, row: impl Fn(E) -> (K, V)) -> Added<K, V> {
    lines
        .iter()
        .map(|line| {
            let (key, value) = row(serde_json::from_str(line).expect("the record is JSON as it should be"));
            Tup2(key, Tup2(value, 1))
        })
        .collect()
}

fn write(row: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, row).expect("a row is JSON");
}

fn write_key(key: &[i64], out: &mut Vec<u8>) {
    write(&key, out);
}
