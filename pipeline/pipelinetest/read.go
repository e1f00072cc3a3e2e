package pipelinetest

import (
	"errors"
	"io"
	"testing"

	"github.com/monolith-go/monolith/pipeline"
)

// ReadAll reads the splits of a source one after the other, each from its start to its end, and calls each with what they give, which
// it releases afterwards. An error ends the test.
func ReadAll[T pipeline.Element](tb testing.TB, src pipeline.Source[T], env *pipeline.Env, each func(split pipeline.Split, e T)) {
	tb.Helper()
	splits, err := src.Splits(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	for _, split := range splits {
		r, err := src.Open(tb.Context(), env, split, split.Start)
		if err != nil {
			tb.Fatal(err)
		}
		for {
			e, err := r.Next(tb.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				tb.Fatal(err)
			}
			each(split, e)
			e.Release()
		}
		if err := r.Close(); err != nil {
			tb.Fatal(err)
		}
	}
}
