// Package beamuser gives the process a user while Beam's packages initialise.
//
// One of them (xlangx/expansionx) asks os/user for the home of the user in a package variable, and takes it for granted that
// there is one: in a container whose user is a number without an entry in /etc/passwd, and whose environment has no USER or no
// HOME, any program that links Beam would panic before main. A static binary takes both from the environment where there is no
// entry; one that is linked with the C library does not, and cannot be helped.
//
// A program imports this package beside Beam. It is initialised first, because packages that are ready to be are taken in the
// order of their paths (The Go Programming Language Specification, "Package initialization"), this one is ready once package os
// is, and Beam waits for net/http, whose path comes later. It must import nothing else.
package beamuser

import "os"

// lent are the variables that the environment did not have. They are here because nothing can be handed to an init function.
var lent []string

func init() {
	for _, v := range [...][2]string{{"USER", "monolith"}, {"HOME", "/"}} {
		if os.Getenv(v[0]) == "" && os.Setenv(v[0], v[1]) == nil {
			lent = append(lent, v[0])
		}
	}
}

// TakeBack makes the environment what the process was started with, for jobs that name its variables and for programs that the
// process starts. os/user remembers what it has found. It is called once Beam is initialised.
func TakeBack() {
	for _, name := range lent {
		_ = os.Unsetenv(name) // fails for names alone that there cannot be
	}
	lent = nil
}
