// Package arch holds checks on the shape of the repository; all of them are tests.
package arch
