//! Persons who came and opened an auction in the same 10 s.

use std::borrow::Cow;
use std::marker::PhantomData;

use dbsp::RootCircuit;
use dbsp::utils::Tup2;
use serde::{Deserialize, Serialize};

use super::{Added, Handles, added, write, write_key};
use crate::query::{Query, Results};
use crate::records::Lines;
use crate::text::Text;

const WINDOW_MS: i64 = 10_000;

pub struct Q8<T>(PhantomData<T>);

/// Person, start of the window.
type Key = Tup2<i64, i64>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuctionIn {
    seller: i64,
    date_time: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PersonIn<'a> {
    id: i64,
    #[serde(borrow)]
    name: Cow<'a, str>,
    date_time: i64,
}

#[derive(Serialize)]
struct Out<'a> {
    id: i64,
    name: &'a str,
    starttime: i64,
}

impl<T: Text> Query for Q8<T> {
    type Rows = super::Rows<Added<Key, ()>, Added<Key, T>>;
    type Handles = Handles<Key, (), Key, T>;
    type Key = Key;
    type Row = T;

    fn circuit(circuit: &mut RootCircuit, _: bool) -> (Self::Handles, Results<Self>) {
        let (sellers, sellers_in) = circuit.add_input_indexed_zset::<Key, ()>();
        let (persons, persons_in) = circuit.add_input_indexed_zset::<Key, T>();
        let results = persons.distinct().join_index(&sellers.distinct(), |key, name, ()| Some((*key, name.clone())));
        (Handles { auctions: sellers_in, others: persons_in }, results)
    }

    fn decode(lines: Lines) -> Self::Rows {
        match lines.topic() {
            "auction" => super::Rows::Auctions(added(lines, |a: AuctionIn| (Tup2(a.seller, window(a.date_time)), ()))),
            "person" => super::Rows::Others(added(lines, |p: PersonIn| {
                (Tup2(p.id, window(p.date_time)), T::from(&p.name))
            })),
            _ => super::Rows::None,
        }
    }

    fn feed(handles: &mut Self::Handles, rows: Self::Rows) {
        handles.feed(rows);
    }

    fn encode_key(Tup2(id, start): &Key, out: &mut Vec<u8>) {
        write_key(&[*id, *start], out);
    }

    fn encode_row(Tup2(id, start): &Key, name: &T, out: &mut Vec<u8>) {
        write(&Out { id: *id, name: name.as_ref(), starttime: *start }, out);
    }
}

fn window(at: i64) -> i64 {
    at - at.rem_euclid(WINDOW_MS)
}
