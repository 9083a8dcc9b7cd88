//! The bids that came while their auction was open, and the best of each auction.

use dbsp::{DBData, OrdIndexedZSet, RootCircuit, Stream};

/// The largest bid of each key. Bids are only added: so the largest one so far and the new ones are all that is needed.
pub fn largest<K: DBData, B: DBData>(
    bids: &Stream<RootCircuit, OrdIndexedZSet<K, B>>,
) -> Stream<RootCircuit, OrdIndexedZSet<K, B>> {
    bids.chain_aggregate(|bid, _| bid.clone(), |best, bid, _| if *bid > best { bid.clone() } else { best })
}

/// Whether a bid came in time.
pub fn in_time(at: i64, opened: i64, expires: i64) -> bool {
    opened <= at && at <= expires
}
