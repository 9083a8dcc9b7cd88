//! The auctions with the most bids in windows of 10 s, a new one each 2 s.

use std::marker::PhantomData;

use dbsp::operator::Max;
use dbsp::utils::Tup2;
use dbsp::{RootCircuit, ZSetHandle, ZWeight};
use serde::{Deserialize, Serialize};

use super::{write, write_key};
use crate::query::{Query, Results};
use crate::records::Lines;
use crate::text::Text;

const STEP_MS: i64 = 2_000;
const STEPS: i64 = 5;

pub struct Q5<T>(PhantomData<T>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BidIn {
    auction: i64,
    date_time: i64,
}

#[derive(Serialize)]
struct Out {
    starttime: i64,
    auction: i64,
    num: i64,
}

/// Step, auction.
type Bid = Tup2<i64, i64>;

impl<T: Text> Query for Q5<T> {
    type Rows = Vec<Tup2<Bid, ZWeight>>;
    type Handles = ZSetHandle<Bid>;
    /// Window, auction.
    type Key = Tup2<i64, i64>;
    type Row = ZWeight;

    fn circuit(circuit: &mut RootCircuit, whole_keys: bool) -> (Self::Handles, Results<Self>) {
        let (bids, bids_in) = circuit.add_input_zset::<Bid>();
        // Bids for the same auction in the same step are one row with a weight, which counts in five windows.
        let counts = bids
            .flat_map(|Tup2(step, auction)| {
                let auction = *auction;
                (step - STEPS + 1..=*step).map(move |window| Tup2(window, auction))
            })
            .weighted_count();
        let most = counts
            .map_index(|(Tup2(window, _), number)| (*window, *number))
            .aggregate(Max)
            .map_index(|(window, number)| (Tup2(*window, *number), ()));
        let by_number = counts.map_index(|(Tup2(window, auction), number)| (Tup2(*window, *number), *auction));
        let results = by_number.join_index(&most, |Tup2(window, number), auction, ()| {
            Some((Tup2(*window, *auction), *number))
        });
        // A new count of an auction can come out of another worker than its old one.
        (bids_in, if whole_keys { results.shard() } else { results })
    }

    fn decode(lines: Lines) -> Self::Rows {
        if lines.topic() != "bid" {
            return Vec::new();
        }
        let bid = |line| {
            let bid: BidIn = serde_json::from_str(line).expect("the bid is JSON as it should be");
            Tup2(Tup2(bid.date_time.div_euclid(STEP_MS), bid.auction), 1)
        };
        lines.iter().map(bid).collect()
    }

    fn feed(handle: &mut Self::Handles, mut rows: Self::Rows) {
        handle.append(&mut rows);
    }

    fn encode_key(Tup2(window, auction): &Self::Key, out: &mut Vec<u8>) {
        write_key(&[*window, *auction], out);
    }

    fn encode_row(Tup2(window, auction): &Self::Key, number: &ZWeight, out: &mut Vec<u8>) {
        write(&Out { starttime: window * STEP_MS, auction: *auction, num: *number }, out);
    }
}
