//! Bids with their auction, of category 10.

use std::borrow::Cow;
use std::marker::PhantomData;

use dbsp::RootCircuit;
use dbsp::utils::{Tup2, Tup6, Tup9};
use serde::{Deserialize, Serialize};

use super::auction::{Auction, AuctionIn};
use super::{Added, Handles, added, write, write_key};
use crate::query::{Query, Results};
use crate::records::Lines;
use crate::text::Text;

pub struct Q20<T>(PhantomData<T>);

/// Bidder, price, channel, url, time, extra.
type Bid<T> = Tup6<i64, i64, T, T, i64, T>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BidIn<'a> {
    auction: i64,
    bidder: i64,
    price: i64,
    #[serde(borrow)]
    channel: Cow<'a, str>,
    #[serde(borrow)]
    url: Cow<'a, str>,
    date_time: i64,
    #[serde(borrow)]
    extra: Cow<'a, str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Out<'a> {
    auction: i64,
    bidder: i64,
    price: i64,
    channel: &'a str,
    url: &'a str,
    #[serde(rename = "bid_dateTime")]
    bid_date_time: i64,
    #[serde(rename = "bid_extra")]
    bid_extra: &'a str,
    item_name: &'a str,
    description: &'a str,
    initial_bid: i64,
    reserve: i64,
    #[serde(rename = "auction_dateTime")]
    auction_date_time: i64,
    expires: i64,
    seller: i64,
    category: i64,
    #[serde(rename = "auction_extra")]
    auction_extra: &'a str,
}

impl<T: Text> Query for Q20<T> {
    type Rows = super::Rows<Added<i64, Auction<T>>, Added<i64, Bid<T>>>;
    type Handles = Handles<i64, Auction<T>, i64, Bid<T>>;
    type Key = i64;
    type Row = Tup2<Bid<T>, Auction<T>>;

    const APPENDS: bool = true;

    fn circuit(circuit: &mut RootCircuit, _: bool) -> (Self::Handles, Results<Self>) {
        let (auctions, auctions_in) = circuit.add_input_indexed_zset::<i64, Auction<T>>();
        let (bids, bids_in) = circuit.add_input_indexed_zset::<i64, Bid<T>>();
        let wanted = auctions.filter(|(_, Tup9(_, _, _, _, _, _, _, category, _))| *category == 10);
        let results =
            bids.join_index(&wanted, |id, bid, auction| Some((*id, Tup2(bid.clone(), auction.clone()))));
        (Handles { auctions: auctions_in, others: bids_in }, results)
    }

    fn decode(lines: Lines) -> Self::Rows {
        match lines.topic() {
            "auction" => super::Rows::Auctions(added(lines, |a: AuctionIn| (a.id, a.row()))),
            "bid" => super::Rows::Others(added(lines, |b: BidIn| {
                let (channel, url, extra) = (T::from(&b.channel), T::from(&b.url), T::from(&b.extra));
                (b.auction, Tup6(b.bidder, b.price, channel, url, b.date_time, extra))
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

    fn encode_row(id: &i64, Tup2(bid, auction): &Self::Row, out: &mut Vec<u8>) {
        let Tup6(bidder, price, channel, url, bid_date_time, bid_extra) = bid;
        let Tup9(item_name, description, initial_bid, reserve, auction_date_time, expires, seller, category, extra) =
            auction;
        let row = Out {
            auction: *id,
            bidder: *bidder,
            price: *price,
            channel: channel.as_ref(),
            url: url.as_ref(),
            bid_date_time: *bid_date_time,
            bid_extra: bid_extra.as_ref(),
            item_name: item_name.as_ref(),
            description: description.as_ref(),
            initial_bid: *initial_bid,
            reserve: *reserve,
            auction_date_time: *auction_date_time,
            expires: *expires,
            seller: *seller,
            category: *category,
            auction_extra: extra.as_ref(),
        };
        write(&row, out);
    }
}
