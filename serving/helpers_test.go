package serving_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"
)

// unzipped reads a file that may be compressed.
func unzipped(t testing.TB, r io.Reader) io.Reader {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
		return z
	}
	return bytes.NewReader(b)
}
