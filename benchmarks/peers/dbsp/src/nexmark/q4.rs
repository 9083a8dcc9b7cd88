//! The average of the winning bids by category, cut towards zero.

use std::marker::PhantomData;

use dbsp::RootCircuit;
use dbsp::utils::{Tup2, Tup3};
use serde::{Deserialize, Serialize};

use super::winning::{in_time, largest};
use super::{Added, Handles, added, write, write_key};
use crate::query::{Query, Results};
use crate::records::Lines;
use crate::text::Text;

pub struct Q4<T>(PhantomData<T>);

/// Category, time, expires.
type Auction = Tup3<i64, i64, i64>;
/// Price, time.
type Bid = Tup2<i64, i64>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuctionIn {
    id: i64,
    category: i64,
    date_time: i64,
    expires: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BidIn {
    auction: i64,
    price: i64,
    date_time: i64,
}

#[derive(Serialize)]
struct Out {
    id: i64,
    r#final: i64,
}

impl<T: Text> Query for Q4<T> {
    type Rows = super::Rows<Added<i64, Auction>, Added<i64, Bid>>;
    type Handles = Handles<i64, Auction, i64, Bid>;
    type Key = i64;
    type Row = i64;

    fn circuit(circuit: &mut RootCircuit, _: bool) -> (Self::Handles, Results<Self>) {
        let (auctions, auctions_in) = circuit.add_input_indexed_zset::<i64, Auction>();
        let (bids, bids_in) = circuit.add_input_indexed_zset::<i64, Bid>();
        let valid = auctions.join_index(&bids, |id, Tup3(category, opened, expires), Tup2(price, at)| {
            in_time(*at, *opened, *expires).then_some((Tup2(*id, *category), *price))
        });
        let by_category = largest(&valid).map_index(|(Tup2(_, category), price)| (*category, *price));
        let results = by_category.average(|price| *price);
        (Handles { auctions: auctions_in, others: bids_in }, results)
    }

    fn decode(lines: Lines) -> Self::Rows {
        match lines.topic() {
            "auction" => super::Rows::Auctions(added(lines, |a: AuctionIn| {
                (a.id, Tup3(a.category, a.date_time, a.expires))
            })),
            "bid" => super::Rows::Others(added(lines, |b: BidIn| (b.auction, Tup2(b.price, b.date_time)))),
            _ => super::Rows::None,
        }
    }

    fn feed(handles: &mut Self::Handles, rows: Self::Rows) {
        handles.feed(rows);
    }

    fn encode_key(category: &i64, out: &mut Vec<u8>) {
        write_key(&[*category], out);
    }

    fn encode_row(category: &i64, price: &i64, out: &mut Vec<u8>) {
        write(&Out { id: *category, r#final: *price }, out);
    }
}
