package main

import "runtime/debug"

// abortOnCrash makes a crash of the program (a panic, a fault that the Go runtime finds, SIGQUIT) end it by SIGABRT. Go's
// own way is to exit with 2, which is also the code of a job that cannot work, and that no supervisor should start again.
// The stacks of all goroutines are printed first, as ever. No core file is written, which would hold all parameters of a
// shard, unless GOTRACEBACK asks for one.
func abortOnCrash(env func(string) string) {
	if env("GOTRACEBACK") == "" {
		noCore()
	}
	debug.SetTraceback("crash")
}
