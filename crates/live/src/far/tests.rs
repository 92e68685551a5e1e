//! Tests of both halves together.
