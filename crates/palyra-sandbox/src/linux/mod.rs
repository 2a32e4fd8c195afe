//! Linux: Tier B from the kernel's own parts, Tier C with bubblewrap.

mod aside;
mod bwrap;
mod cgroup;
mod child;
mod container;
mod doorway;
mod gate;
mod grants;
mod guards;
mod host;
mod identity;
mod landlock;
mod launch;
mod lease;
mod limits;
mod minimum;
mod mounts;
mod plan;
mod preview;
mod profile;
mod raw;
mod report;
mod run;
mod seccomp;
mod sensitive;
mod sys;
mod tier_b;
mod tier_c;
mod view;
mod way_out;
mod workplace;

pub(crate) use host::detect;
pub(crate) use preview::explain;
pub(crate) use profile::describe as seccomp_profile;
pub(crate) use run::run;
