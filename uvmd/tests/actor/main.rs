//! Actors of the real program, as processes, in cgroups of this machine. Their calls reach no
//! driver: tests/lab/actor.sh uses the real one.
#![cfg(test)]

mod cgroup;
mod confinement;
mod ends;
mod support;
