//! An auction with all its columns.

use std::borrow::Cow;

use dbsp::utils::Tup9;
use serde::{Deserialize, Serialize};

use crate::text::Text;

/// Item name, description, initial bid, reserve, time, expires, seller, category, extra.
pub type Auction<T> = Tup9<T, T, i64, i64, i64, i64, i64, i64, T>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuctionIn<'a> {
    pub id: i64,
    #[serde(borrow)]
    item_name: Cow<'a, str>,
    #[serde(borrow)]
    description: Cow<'a, str>,
    initial_bid: i64,
    reserve: i64,
    date_time: i64,
    expires: i64,
    seller: i64,
    category: i64,
    #[serde(borrow)]
    extra: Cow<'a, str>,
}

impl AuctionIn<'_> {
    pub fn row<T: Text>(&self) -> Auction<T> {
        Tup9(
            T::from(&self.item_name),
            T::from(&self.description),
            self.initial_bid,
            self.reserve,
            self.date_time,
            self.expires,
            self.seller,
            self.category,
            T::from(&self.extra),
        )
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuctionOut<'a> {
    pub id: i64,
    pub item_name: &'a str,
    pub description: &'a str,
    pub initial_bid: i64,
    pub reserve: i64,
    pub date_time: i64,
    pub expires: i64,
    pub seller: i64,
    pub category: i64,
    pub extra: &'a str,
}
