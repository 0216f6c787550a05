// Written by `make reference`.

export const OUTCOMES = ["store", "truncate", "cap", "reject"];
