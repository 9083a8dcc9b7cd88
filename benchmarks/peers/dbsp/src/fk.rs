//! The foreign-key join of `benchmarks/fk.py`: orders with the name and city of their customers, by order.
//!
//! Both tables are maps that take upserts, as Kafka's topics mean them. Rows hold only the fields that the result needs.

use std::borrow::Cow;
use std::marker::PhantomData;

use dbsp::algebra::F64;
use dbsp::operator::input::Update;
use dbsp::utils::{Tup2, Tup3, Tup4};
use dbsp::{MapHandle, RootCircuit};
use serde::{Deserialize, Serialize};

use crate::query::{Query, Results};
use crate::records::Lines;
use crate::text::Text;

pub struct Fk<T>(PhantomData<T>);

/// Customer, item, amount.
type Order<T> = Tup3<T, T, F64>;
/// Name, city.
type Customer<T> = Tup2<T, T>;

#[derive(Deserialize)]
struct OrderIn<'a> {
    #[serde(borrow)]
    customer_id: Cow<'a, str>,
    #[serde(borrow)]
    item: Cow<'a, str>,
    amount: f64,
}

#[derive(Deserialize)]
struct CustomerIn<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    city: Cow<'a, str>,
}

#[derive(Serialize)]
struct Joined<'a> {
    item: &'a str,
    amount: f64,
    customer: &'a str,
    city: &'a str,
}

type Upserts<T, V> = Vec<Tup2<T, Update<V, V>>>;

pub enum Rows<T: Text> {
    Orders(Upserts<T, Order<T>>),
    Customers(Upserts<T, Customer<T>>),
}

pub struct Handles<T: Text> {
    orders: MapHandle<T, Order<T>, Order<T>>,
    customers: MapHandle<T, Customer<T>, Customer<T>>,
}

impl<T: Text> Query for Fk<T> {
    type Rows = Rows<T>;
    type Handles = Handles<T>;
    type Key = T;
    /// Item, amount, name, city.
    type Row = Tup4<T, F64, T, T>;

    fn circuit(circuit: &mut RootCircuit, whole_keys: bool) -> (Handles<T>, Results<Self>) {
        let (orders, orders_in) = circuit.add_input_map::<T, Order<T>, Order<T>, _>(|row, new| *row = new.clone());
        let (customers, customers_in) = circuit.add_input_map::<T, Customer<T>, Customer<T>, _>(|row, new| *row = new.clone());
        let by_customer = orders.map_index(|(id, Tup3(customer, item, amount))| {
            (customer.clone(), Tup3(id.clone(), item.clone(), *amount))
        });
        let joined = by_customer.join_index(&customers, |_, Tup3(id, item, amount), Tup2(name, city)| {
            Some((id.clone(), Tup4(item.clone(), *amount, name.clone(), city.clone())))
        });
        let results = if whole_keys { joined.shard() } else { joined };
        (Handles { orders: orders_in, customers: customers_in }, results)
    }

    fn decode(lines: Lines) -> Rows<T> {
        if lines.topic() == "orders" {
            return Rows::Orders(upserts(lines, |order: OrderIn| {
                Tup3(T::from(&order.customer_id), T::from(&order.item), F64::new(order.amount))
            }));
        }
        Rows::Customers(upserts(lines, |customer: CustomerIn| {
            Tup2(T::from(&customer.name), T::from(&customer.city))
        }))
    }

    fn feed(handles: &mut Handles<T>, rows: Rows<T>) {
        match rows {
            Rows::Orders(mut rows) => handles.orders.append(&mut rows),
            Rows::Customers(mut rows) => handles.customers.append(&mut rows),
        }
    }

    fn encode_key(key: &T, out: &mut Vec<u8>) {
        out.extend_from_slice(key.as_ref().as_bytes());
    }

    fn encode_row(_: &T, Tup4(item, amount, name, city): &Self::Row, out: &mut Vec<u8>) {
        let row = Joined {
            item: item.as_ref(),
            amount: amount.into_inner(),
            customer: name.as_ref(),
            city: city.as_ref(),
        };
        serde_json::to_writer(out, &row).expect("a row is JSON");
    }
}

/// Lines `key TAB value`, or a key alone, which deletes.
fn upserts<'a, T: Text, V, R: dbsp::DBData>(lines: Lines<'a>, row: impl Fn(V) -> R) -> Upserts<T, R>
where
    V: Deserialize<'a>,
{
    lines
        .iter()
        .map(|line| match line.split_once('\t') {
            Some((key, value)) => {
                let value = serde_json::from_str(value).expect("the value is JSON as it should be");
                Tup2(T::from(key), Update::Insert(row(value)))
            }
            None => Tup2(T::from(line), Update::Delete),
        })
        .collect()
}
