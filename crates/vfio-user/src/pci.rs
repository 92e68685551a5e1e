//! Configuration space.
