//! What a circuit of the benchmarks is, how it runs, and how its results leave.

use dbsp::circuit::CircuitConfig;
use dbsp::dynamic::DowncastTrait;
use dbsp::trace::{BatchReader as _, Cursor};
use dbsp::typed_batch::SpineSnapshot;
use dbsp::{BatchReader, DBData, DBSPHandle, OrdIndexedZSet, OutputHandle, RootCircuit, Runtime, Stream, ZWeight};

use crate::records::Lines;

/// A query: its inputs, its circuit, and its results as keys and rows.
pub trait Query: Sized + 'static {
    /// Decoded records, as the handles take them.
    type Rows: Send;
    type Handles: Send + 'static;
    type Key: DBData;
    type Row: DBData;

    /// Whether every result is a row of its own; if not, a new row of a key takes the place of the one before.
    const APPENDS: bool = false;

    /// The circuit. `whole_keys`: all changes of a key of the result must come out of one worker.
    fn circuit(circuit: &mut RootCircuit, whole_keys: bool) -> (Self::Handles, Results<Self>);

    fn decode(lines: Lines) -> Self::Rows;

    fn feed(handles: &mut Self::Handles, rows: Self::Rows);

    fn encode_key(key: &Self::Key, out: &mut Vec<u8>);

    /// Writes the row in JSON.
    fn encode_row(key: &Self::Key, row: &Self::Row, out: &mut Vec<u8>);
}

pub type Results<Q> = Stream<RootCircuit, OrdIndexedZSet<<Q as Query>::Key, <Q as Query>::Row>>;
pub type Changes<Q> = SpineSnapshot<OrdIndexedZSet<<Q as Query>::Key, <Q as Query>::Row>>;

pub struct Running<Q: Query> {
    circuit: DBSPHandle,
    handles: Q::Handles,
    results: OutputHandle<Changes<Q>>,
}

impl<Q: Query> Running<Q> {
    pub fn start(workers: usize, whole_keys: bool) -> Self {
        // All input of a transaction is there before it commits: dbsp is quicker if it may rely on that.
        let config = CircuitConfig::with_workers(workers).with_allow_input_during_commit(false);
        let (circuit, (handles, results)) = Runtime::init_circuit(config, move |circuit| {
            let (handles, results) = Q::circuit(circuit, whole_keys);
            Ok((handles, results.accumulate_output()))
        })
        .expect("the circuit is built");
        Self { circuit, handles, results }
    }

    /// One batch, in one transaction. Returns the changes of the result by worker.
    pub fn step(&mut self, rows: impl IntoIterator<Item = Q::Rows>) -> Vec<Changes<Q>> {
        for part in rows {
            Q::feed(&mut self.handles, part);
        }
        self.circuit.transaction().expect("the transaction commits");
        self.results.take_from_all()
    }

    pub fn stop(self) {
        self.circuit.kill().expect("the circuit ends");
    }
}

/// Calls `row` with each changed row, its key, and by how many it has become more or fewer, in the order of the keys;
/// and `end` at the end of each key.
pub fn each<Q: Query, S>(
    changes: &Changes<Q>,
    state: &mut S,
    mut row: impl FnMut(&mut S, &Q::Key, &Q::Row, ZWeight),
    mut end: impl FnMut(&mut S, &Q::Key),
) {
    let mut cursor = BatchReader::inner(changes).cursor();
    while cursor.key_valid() {
        while cursor.val_valid() {
            let weight = **cursor.weight();
            // SAFETY: the changes are of these types.
            let (key, value) = unsafe { (cursor.key().downcast::<Q::Key>(), cursor.val().downcast::<Q::Row>()) };
            row(state, key, value, weight);
            cursor.step_val();
        }
        // SAFETY: as before.
        end(state, unsafe { cursor.key().downcast::<Q::Key>() });
        cursor.step_key();
    }
}

/// The changes as lines, `key TAB row`: the new rows of each key, or the key alone if it has none.
pub fn encode<Q: Query>(changes: &Changes<Q>) -> Vec<u8> {
    struct Lines {
        out: Vec<u8>,
        rows: usize,
    }
    let mut lines = Lines { out: Vec::new(), rows: 0 };
    each::<Q, Lines>(
        changes,
        &mut lines,
        |lines, key, row, weight| {
            for _ in 0..weight {
                line::<Q>(key, row, &mut lines.out);
                lines.rows += 1;
            }
        },
        |lines, key| {
            if lines.rows == 0 {
                Q::encode_key(key, &mut lines.out);
                lines.out.push(b'\n');
            }
            lines.rows = 0;
        },
    );
    lines.out
}

pub fn line<Q: Query>(key: &Q::Key, row: &Q::Row, out: &mut Vec<u8>) {
    Q::encode_key(key, out);
    out.push(b'\t');
    Q::encode_row(key, row, out);
    out.push(b'\n');
}
