//go:build race

package wal_test

const raceEnabled = true
