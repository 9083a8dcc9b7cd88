//! The input: a file of lines for each topic, cut into batches that hold as much of every topic.

use std::fs;
use std::io;
use std::ops::Range;
use std::str::FromStr;

/// A topic with the file of its records.
#[derive(Clone, Debug)]
pub struct Source {
    topic: String,
    file: String,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let (topic, file) = word.split_once('=').ok_or("wanted: TOPIC=FILE")?;
        Ok(Self { topic: topic.into(), file: file.into() })
    }
}

/// The lines of a topic.
pub struct Input {
    pub topic: String,
    text: String,
    lines: Vec<Range<usize>>,
}

impl Input {
    pub fn read(source: &Source) -> io::Result<Self> {
        let text = fs::read_to_string(&source.file)?;
        let start = text.as_ptr() as usize;
        let lines = text
            .lines()
            .map(|line| {
                let first = line.as_ptr() as usize - start;
                first..first + line.len()
            })
            .collect();
        Ok(Self { topic: source.topic.clone(), text, lines })
    }

    pub fn len(&self) -> usize {
        self.lines.len()
    }
}

/// Some lines of a topic.
#[derive(Clone, Copy)]
pub struct Lines<'a> {
    input: &'a Input,
    lines: &'a [Range<usize>],
}

impl<'a> Lines<'a> {
    pub fn topic(&self) -> &'a str {
        &self.input.topic
    }

    pub fn iter(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let text = &self.input.text;
        self.lines.iter().map(move |line| &text[line.clone()])
    }

    /// The same in `parts` of equal size, in order.
    fn split(&self, parts: usize) -> Vec<Lines<'a>> {
        (0..parts).map(|part| Lines { input: self.input, lines: share(self.lines, part, parts) }).collect()
    }
}

/// A batch, in parts that can be decoded side by side and are then fed one after the other.
pub type Batch<'a> = Vec<Vec<Lines<'a>>>;

/// Batches of `size` lines at most, of `parts` each.
pub fn batches(inputs: &[Input], size: usize, parts: usize) -> Vec<Batch<'_>> {
    let number = inputs.iter().map(Input::len).sum::<usize>().div_ceil(size);
    (0..number)
        .map(|batch| {
            let mut shares: Batch<'_> = vec![Vec::new(); parts];
            for input in inputs {
                let lines = Lines { input, lines: share(&input.lines, batch, number) };
                for (part, lines) in lines.split(parts).into_iter().enumerate() {
                    shares[part].push(lines);
                }
            }
            shares
        })
        .collect()
}

fn share<T>(whole: &[T], part: usize, parts: usize) -> &[T] {
    &whole[whole.len() * part / parts..whole.len() * (part + 1) / parts]
}
