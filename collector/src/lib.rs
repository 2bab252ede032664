//! Sources of driver events, and the per-process state made of them.
