//! One run of a query over batches, twice: the first pass warms up, the second one counts.

use std::collections::HashMap;
use std::thread;

use dbsp::ZWeight;
use serde::Serialize;

use crate::clock::{Clock, peak_memory};
use crate::query::{Changes, Query, Running, each, encode, line};
use crate::records::{Batch, Lines};

#[derive(Serialize)]
pub struct Measured {
    seconds: f64,
    core_seconds: f64,
    batches: usize,
    /// Changes of the result that came out while the clock ran.
    changes: usize,
    peak_memory: i64,
}

pub struct Plan<'a> {
    pub workers: usize,
    /// What the circuit takes in before the clock runs.
    pub before: Vec<Batch<'a>>,
    pub input: Vec<Batch<'a>>,
    /// Whether JSON is decoded and encoded while the clock runs.
    pub json: bool,
}

/// Returns the final rows of the result, too, as lines `key TAB row`.
pub fn measure<Q: Query>(plan: &Plan) -> (Measured, Vec<Vec<u8>>) {
    pass::<Q>(plan);
    pass::<Q>(plan)
}

fn pass<Q: Query>(plan: &Plan) -> (Measured, Vec<Vec<u8>>) {
    let mut running = Running::<Q>::start(plan.workers, plan.json);
    let before: Vec<_> = plan.before.iter().map(|batch| running.step(decode::<Q>(batch))).collect();
    let (measured, rows) = if plan.json { in_json(&mut running, plan, before) } else { in_rows(&mut running, plan, before) };
    running.stop();
    (measured, rows)
}

/// The clock runs while the circuit takes decoded rows in and gives its changes out.
fn in_rows<Q: Query>(running: &mut Running<Q>, plan: &Plan, before: Vec<Vec<Changes<Q>>>) -> (Measured, Vec<Vec<u8>>) {
    let decoded: Vec<_> = plan.input.iter().map(decode::<Q>).collect();
    let mut changes = Vec::with_capacity(decoded.len());
    let clock = Clock::start();
    for rows in decoded {
        changes.push(running.step(rows));
    }
    let (seconds, core_seconds) = clock.read();
    let mut counted = 0;
    let mut weights: HashMap<(Q::Key, Q::Row), ZWeight> = HashMap::new();
    for (number, changed) in before.iter().chain(&changes).enumerate() {
        for part in changed {
            each::<Q, _>(
                part,
                &mut weights,
                |weights, key, row, weight| {
                    counted += usize::from(number >= before.len());
                    *weights.entry((key.clone(), row.clone())).or_default() += weight;
                },
                |_, _| (),
            );
        }
    }
    let mut rows = Vec::new();
    for ((key, row), weight) in weights {
        assert!(weight >= 0, "a row of {key:?} is taken away that is not there");
        for _ in 0..weight {
            line::<Q>(&key, &row, &mut rows);
        }
    }
    let measured = Measured { seconds, core_seconds, batches: plan.input.len(), changes: counted, peak_memory: peak_memory() };
    (measured, vec![rows])
}

/// The clock runs from the first line in to the last line out.
fn in_json<Q: Query>(running: &mut Running<Q>, plan: &Plan, before: Vec<Vec<Changes<Q>>>) -> (Measured, Vec<Vec<u8>>) {
    let mut lines: Vec<Vec<u8>> = before.iter().flat_map(|changes| encoded::<Q>(changes)).collect();
    let first = lines.len();
    let clock = Clock::start();
    for batch in &plan.input {
        let rows = decode::<Q>(batch);
        let changes = running.step(rows);
        lines.extend(encoded::<Q>(&changes));
    }
    let (seconds, core_seconds) = clock.read();
    let changes = lines[first..].iter().map(|part| part.iter().filter(|byte| **byte == b'\n').count()).sum();
    let measured = Measured { seconds, core_seconds, batches: plan.input.len(), changes, peak_memory: peak_memory() };
    (measured, if Q::APPENDS { lines } else { vec![newest(&lines)] })
}

/// The parts of a batch side by side, a thread for each.
fn decode<Q: Query>(batch: &Batch) -> Vec<Q::Rows> {
    let part = |part: &Vec<Lines>| part.iter().map(|lines| Q::decode(*lines)).collect::<Vec<_>>();
    thread::scope(|scope| {
        let threads: Vec<_> = batch.iter().map(|lines| scope.spawn(move || part(lines))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("the records are decoded")).collect()
    })
}

/// The changes of each worker side by side.
fn encoded<Q: Query>(changes: &[Changes<Q>]) -> Vec<Vec<u8>> {
    thread::scope(|scope| {
        let threads: Vec<_> = changes.iter().map(|part| scope.spawn(move || encode::<Q>(part))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the changes are encoded")).collect()
    })
}

/// The last line of each key, if it has a row.
fn newest(lines: &[Vec<u8>]) -> Vec<u8> {
    let mut last: HashMap<&[u8], &[u8]> = HashMap::new();
    for part in lines {
        for line in part.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let tab = line.iter().position(|byte| *byte == b'\t');
            last.insert(&line[..tab.unwrap_or(line.len())], line);
        }
    }
    let with_row = last.values().filter(|line| line.contains(&b'\t'));
    with_row.flat_map(|line| line.iter().copied().chain([b'\n'])).collect()
}
