//! Who sells in some states: persons of three states joined with their auctions of category 10.

use std::borrow::Cow;
use std::marker::PhantomData;

use dbsp::RootCircuit;
use dbsp::utils::{Tup2, Tup3};
use serde::{Deserialize, Serialize};

use super::{Added, Handles, added, write, write_key};
use crate::query::{Query, Results};
use crate::records::Lines;
use crate::text::Text;

pub struct Q3<T>(PhantomData<T>);

/// Id, category.
type Auction = Tup2<i64, i64>;
/// Name, city, state.
type Person<T> = Tup3<T, T, T>;

#[derive(Deserialize)]
struct AuctionIn {
    id: i64,
    seller: i64,
    category: i64,
}

#[derive(Deserialize)]
struct PersonIn<'a> {
    id: i64,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    city: Cow<'a, str>,
    #[serde(borrow)]
    state: Cow<'a, str>,
}

#[derive(Serialize)]
struct Out<'a> {
    name: &'a str,
    city: &'a str,
    state: &'a str,
    id: i64,
}

impl<T: Text> Query for Q3<T> {
    type Rows = super::Rows<Added<i64, Auction>, Added<i64, Person<T>>>;
    type Handles = Handles<i64, Auction, i64, Person<T>>;
    type Key = i64;
    type Row = Person<T>;

    fn circuit(circuit: &mut RootCircuit, _: bool) -> (Self::Handles, Results<Self>) {
        let (auctions, auctions_in) = circuit.add_input_indexed_zset::<i64, Auction>();
        let (persons, persons_in) = circuit.add_input_indexed_zset::<i64, Person<T>>();
        let wanted = auctions.filter(|(_, Tup2(_, category))| *category == 10);
        let there = persons.filter(|(_, Tup3(_, _, state))| matches!(state.as_ref(), "OR" | "ID" | "CA"));
        let results = wanted.join_index(&there, |_, Tup2(id, _), person| Some((*id, person.clone())));
        (Handles { auctions: auctions_in, others: persons_in }, results)
    }

    fn decode(lines: Lines) -> Self::Rows {
        match lines.topic() {
            "auction" => super::Rows::Auctions(added(lines, |a: AuctionIn| (a.seller, Tup2(a.id, a.category)))),
            "person" => super::Rows::Others(added(lines, |p: PersonIn| {
                (p.id, Tup3(T::from(&p.name), T::from(&p.city), T::from(&p.state)))
            })),
            _ => super::Rows::None,
        }
    }

    fn feed(handles: &mut Self::Handles, rows: Self::Rows) {
        handles.feed(rows);
    }

    fn encode_key(id: &i64, out: &mut Vec<u8>) {
        write_key(&[*id], out);
    }

    fn encode_row(id: &i64, Tup3(name, city, state): &Person<T>, out: &mut Vec<u8>) {
        write(&Out { name: name.as_ref(), city: city.as_ref(), state: state.as_ref(), id: *id }, out);
    }
}
