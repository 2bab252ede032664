//! Actors of the real daemon's own program, as processes, in cgroups of this machine. What they call is no driver: tests/lab/actor.sh has the real one.
#![cfg(test)]

mod cgroup;
mod confinement;
mod ends;
mod support;
