// Package filesplit finds and opens the files of file sources: patterns become a sorted list of files ([Expand]), one
// split each, and [Open] reads a file plainly or through gzip. It knows nothing of the pipeline: callers turn its errors
// ([*NoMatchError], [Damaged]) into those of the contract.
package filesplit
