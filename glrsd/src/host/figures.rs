//! What the operating system tells of this process: memory and descriptors.

/// Resident memory in bytes; 0 where the platform does not tell.
pub fn rss() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/statm") else { return 0 };
    let pages: u64 = text.split_whitespace().nth(1).and_then(|w| w.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Open file descriptors; 0 where the platform does not tell.
pub fn open_fds() -> u64 {
    // The directory's own descriptor is among them while it is read.
    std::fs::read_dir("/proc/self/fd").map_or(0, |d| (d.count() as u64).saturating_sub(1))
}
