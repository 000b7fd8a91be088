//! Tests of a server's life against programs of a few lines.
