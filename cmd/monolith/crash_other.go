//go:build !unix

package main

// noCore has nothing to do where there are no core files.
func noCore() {}
