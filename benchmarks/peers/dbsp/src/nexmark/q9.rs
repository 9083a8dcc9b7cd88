//! Each auction with its winning bid: the highest one in time, of equal ones the first.

use std::borrow::Cow;
use std::marker::PhantomData;

use dbsp::RootCircuit;
use dbsp::utils::{Tup2, Tup4, Tup9};
use serde::{Deserialize, Serialize};

use super::auction::{Auction, AuctionIn, AuctionOut};
use super::winning::{in_time, largest};
use super::{Added, Handles, added, write, write_key};
use crate::query::{Query, Results};
use crate::records::Lines;
use crate::text::Text;

pub struct Q9<T>(PhantomData<T>);

/// Price, time turned round, bidder, extra: the winning bid is the largest.
type Bid<T> = Tup4<i64, i64, i64, T>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BidIn<'a> {
    auction: i64,
    bidder: i64,
    price: i64,
    date_time: i64,
    #[serde(borrow)]
    extra: Cow<'a, str>,
}

#[derive(Serialize)]
struct Out<'a> {
    #[serde(flatten)]
    item: AuctionOut<'a>,
    auction: i64,
    bidder: i64,
    price: i64,
    #[serde(rename = "bid_dateTime")]
    bid_date_time: i64,
    bid_extra: &'a str,
}

impl<T: Text> Query for Q9<T> {
    type Rows = super::Rows<Added<i64, Auction<T>>, Added<i64, Bid<T>>>;
    type Handles = Handles<i64, Auction<T>, i64, Bid<T>>;
    type Key = i64;
    type Row = Tup2<Auction<T>, Bid<T>>;

    fn circuit(circuit: &mut RootCircuit, _: bool) -> (Self::Handles, Results<Self>) {
        let (auctions, auctions_in) = circuit.add_input_indexed_zset::<i64, Auction<T>>();
        let (bids, bids_in) = circuit.add_input_indexed_zset::<i64, Bid<T>>();
        // The wide row of the auction joins only its winning bid.
        let open = auctions.map_index(|(id, Tup9(_, _, _, _, opened, expires, _, _, _))| (*id, Tup2(*opened, *expires)));
        let valid = open.join_index(&bids, |id, Tup2(opened, expires), bid| {
            in_time(-bid.1, *opened, *expires).then(|| (*id, bid.clone()))
        });
        let results = auctions
            .join_index(&largest(&valid), |id, auction, bid| Some((*id, Tup2(auction.clone(), bid.clone()))));
        (Handles { auctions: auctions_in, others: bids_in }, results)
    }

    fn decode(lines: Lines) -> Self::Rows {
        match lines.topic() {
            "auction" => super::Rows::Auctions(added(lines, |a: AuctionIn| (a.id, a.row()))),
            "bid" => super::Rows::Others(added(lines, |b: BidIn| {
                (b.auction, Tup4(b.price, -b.date_time, b.bidder, T::from(&b.extra)))
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

    fn encode_row(id: &i64, Tup2(item, Tup4(price, turned, bidder, extra)): &Self::Row, out: &mut Vec<u8>) {
        let Tup9(item_name, description, initial_bid, reserve, date_time, expires, seller, category, item_extra) = item;
        let row = Out {
            item: AuctionOut {
                id: *id,
                item_name: item_name.as_ref(),
                description: description.as_ref(),
                initial_bid: *initial_bid,
                reserve: *reserve,
                date_time: *date_time,
                expires: *expires,
                seller: *seller,
                category: *category,
                extra: item_extra.as_ref(),
            },
            auction: *id,
            bidder: *bidder,
            price: *price,
            bid_date_time: -turned,
            bid_extra: extra.as_ref(),
        };
        write(&row, out);
    }
}
