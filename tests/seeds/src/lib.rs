//! Nothing: the tests beside it run every fuzz target on its seeds.
