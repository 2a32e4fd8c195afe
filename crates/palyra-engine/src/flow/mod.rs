//! The one path of a tool call, a file for each step.
//!
//! Open [`propose`] first: it is the path as one function. [`resolve`] makes a call of a proposal, [`decide`] asks
//! policy, [`clear`] takes the decision to a recorded [`permit`], [`execute`] carries it out, [`attest`] signs what
//! happened. What ends a call before that is a [`stop`]. [`recover`] takes up what the last end left open; [`handover`]
//! is about calls that a client starts or carries out; [`unrecorded`] keeps what is not on record yet.

pub(crate) mod attest;
pub(crate) mod clear;
pub(crate) mod decide;
pub(crate) mod execute;
pub(crate) mod handover;
pub(crate) mod permit;
pub(crate) mod propose;
pub(crate) mod recover;
pub(crate) mod resolve;
pub(crate) mod stop;
pub(crate) mod unrecorded;

#[cfg(test)]
pub(crate) mod tests;
