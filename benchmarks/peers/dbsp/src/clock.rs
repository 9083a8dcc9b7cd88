//! What a piece of work takes: seconds, and seconds of user and system time of all threads.

use std::mem::MaybeUninit;
use std::time::Instant;

pub struct Clock {
    began: Instant,
    core_seconds: f64,
}

impl Clock {
    pub fn start() -> Self {
        Self { began: Instant::now(), core_seconds: core_seconds() }
    }

    /// Seconds and core-seconds since the start.
    pub fn read(&self) -> (f64, f64) {
        (self.began.elapsed().as_secs_f64(), core_seconds() - self.core_seconds)
    }
}

fn core_seconds() -> f64 {
    let usage = usage();
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// The most memory that the process has had, in bytes.
pub fn peak_memory() -> i64 {
    usage().ru_maxrss * 1024
}

fn usage() -> libc::rusage {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: getrusage fills the structure that it is given.
    unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
        usage.assume_init()
    }
}
