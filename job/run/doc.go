// Package run trains, evaluates and serves jobs.
package run
