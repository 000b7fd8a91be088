//! Randomness, from the operating system.

/// `N` random bytes.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0u8; N];
    let uuid = uuid::Uuid::new_v4();
    for (i, b) in out.iter_mut().enumerate() {
        // A v4 UUID has 122 random bits; bytes 6 and 8 carry its version, so they are skipped.
        const FREE: [usize; 14] = [0, 1, 2, 3, 4, 5, 7, 9, 10, 11, 12, 13, 14, 15];
        *b = uuid.as_bytes()[FREE[i % FREE.len()]];
    }
    out
}

/// A new session id: 8 hex digits.
pub fn session_id() -> glrs_protocol::SessionId {
    glrs_protocol::SessionId::from_random(bytes::<4>())
}

/// A short word that is unique enough for a boot, an epoch or a request: 12 hex digits.
pub fn word() -> String {
    bytes::<6>().iter().map(|b| format!("{b:02x}")).collect()
}

/// A fraction in 0..1, for jitter.
pub fn fraction() -> f64 {
    f64::from(u32::from_be_bytes(bytes::<4>())) / f64::from(u32::MAX)
}
