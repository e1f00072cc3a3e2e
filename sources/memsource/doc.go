// Package memsource is a source of rows that are in memory already, for tests, examples and programs that make their data
// themselves.
package memsource
