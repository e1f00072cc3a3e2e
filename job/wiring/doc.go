// Package wiring builds what a job describes: its source, parsing, model, parameter server and the graphs of training and
// evaluation. It runs nothing.
package wiring
