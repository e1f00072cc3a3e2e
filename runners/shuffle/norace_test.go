//go:build !race

package shuffle_test

const raceEnabled = false
