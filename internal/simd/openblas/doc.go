// Package openblas is OpenBLAS's product of matrices, in programs that are built with cgo and the tag openblas; it is empty in others.
package openblas
