package epochsource

// Permutation is the order of a window, for the tests' own reckoning.
var Permutation = permutation
