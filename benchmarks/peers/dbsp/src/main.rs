//! Runs one query of the benchmarks in dbsp, in memory, and prints what it took.

mod clock;
mod fk;
mod measure;
mod nexmark;
mod query;
mod records;
mod text;

use std::fs::File;
use std::io::{self, BufWriter, Write};

use clap::{Parser, ValueEnum};
use dbsp::mimalloc::MiMalloc;

use crate::fk::Fk;
use crate::measure::{Measured, Plan, measure};
use crate::nexmark::{q3::Q3, q4::Q4, q5::Q5, q8::Q8, q9::Q9, q20::Q20};
use crate::records::{Input, Source, batches};
use crate::text::{Inline, Shared, Text};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[derive(Clone, Copy, ValueEnum)]
enum Strings {
    Inline,
    Shared,
}

#[derive(Parser)]
struct Arguments {
    query: String,
    #[arg(long)]
    strings: Strings,
    /// Decode and encode JSON while the clock runs.
    #[arg(long)]
    json: bool,
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Records of a batch, at most.
    #[arg(long, default_value_t = 500_000)]
    batch: usize,
    /// What is taken in before the clock runs: TOPIC=FILE.
    #[arg(long)]
    before: Vec<Source>,
    /// TOPIC=FILE.
    #[arg(long, required = true)]
    input: Vec<Source>,
    /// Where the final rows go, as lines `key TAB row`.
    #[arg(long)]
    results: String,
    /// Leave the keys out.
    #[arg(long)]
    rows_only: bool,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let before = read(&arguments.before)?;
    let input = read(&arguments.input)?;
    let plan = Plan {
        workers: arguments.workers,
        before: batches(&before, arguments.batch, arguments.workers),
        input: batches(&input, arguments.batch, arguments.workers),
        json: arguments.json,
    };
    let (measured, rows) = match arguments.strings {
        Strings::Inline => run::<Inline>(&arguments.query, &plan),
        Strings::Shared => run::<Shared>(&arguments.query, &plan),
    };
    let mut file = BufWriter::new(File::create(&arguments.results)?);
    for line in rows.iter().flat_map(|part| part.split_inclusive(|byte| *byte == b'\n')) {
        let tab = line.iter().position(|byte| *byte == b'\t').expect("a line is a key, a tab and a row");
        file.write_all(if arguments.rows_only { &line[tab + 1..] } else { line })?;
    }
    file.flush()?;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

fn read(sources: &[Source]) -> io::Result<Vec<Input>> {
    sources.iter().map(Input::read).collect()
}

fn run<T: Text>(query: &str, plan: &Plan) -> (Measured, Vec<Vec<u8>>) {
    match query {
        "fk" => measure::<Fk<T>>(plan),
        "q3" => measure::<Q3<T>>(plan),
        "q4" => measure::<Q4<T>>(plan),
        "q5" => measure::<Q5<T>>(plan),
        "q8" => measure::<Q8<T>>(plan),
        "q9" => measure::<Q9<T>>(plan),
        "q20" => measure::<Q20<T>>(plan),
        _ => panic!("there is no circuit for {query}"),
    }
}
