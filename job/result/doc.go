// Package result holds what runs of a job report: plain data, as commands print it and JSON carries it.
package result
