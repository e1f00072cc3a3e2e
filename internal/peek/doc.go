// Package peek finds out what records of unknown shape hold: in which format they are written, which columns they have, what is
// in them, and how a job's parse section could read them.
package peek
