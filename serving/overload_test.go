package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
)

// TestOverload: with the thread taken one request waits, the next is refused at once, and who waited gets the thread or gives up with its context.
func TestOverload(t *testing.T) {
	t.Parallel()
	s := NewServer(Options{Threads: 1, Waiting: 1})
	if err := s.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() { waits <- s.enter(t.Context()) }()
	for s.waiting.Load() == 0 {
		select {
		case err := <-waits:
			t.Fatalf("the second did not wait: %v", err)
		default:
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.enter(gone); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the third: %v", err)
	}
	<-s.threads
	if err := <-waits; err != nil {
		t.Errorf("who waited: %v", err)
	}
	if err := s.enter(gone); status.Code(err) != codes.Canceled || s.waiting.Load() != 0 {
		t.Errorf("whose caller has gone: %v, and %d wait", err, s.waiting.Load())
	}
}

// TestFaultOfCall: a call that panics is an error which does not say with what, in the log alone, and gives its thread and its version back.
func TestFaultOfCall(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	m := NewModels(ModelsOptions{})
	h := &held{model: "a", number: 1, version: &Version{}, state: Available}
	m.models["a"] = &servable{versions: map[int64]*held{1: h}}
	s := NewServer(Options{Models: m, Threads: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 2 {
		err := s.do(t.Context(), call{model: "a", api: "Predict", input: func(*Version, limits) (*Input, error) { panic("secret") }}, nil)
		if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	}
	if h.uses != 0 || len(s.threads) != 0 || !strings.Contains(log.String(), "secret") {
		t.Errorf("%d uses, %d threads, log %s", h.uses, len(s.threads), &log)
	}
}

// TestSmallRequestsThatBecomeLarge are refused before memory is taken for what they stand for.
func TestSmallRequestsThatBecomeLarge(t *testing.T) {
	t.Parallel()
	one := func(sizes ...int64) *tensorflow.TensorProto {
		return &tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_INT64, TensorShape: shapeOf(sizes...), Int64Val: []int64{7}}
	}
	context := &tensorflow.Example{Features: &tensorflow.Features{Feature: map[string]*tensorflow.Feature{
		"a": {Kind: &tensorflow.Feature_BytesList{BytesList: &tensorflow.BytesList{Value: [][]byte{make([]byte, 1000)}}}},
	}}}
	examples := make([]*tensorflow.Example, 100)
	in := &inputs{raw: []string{"a"}}
	v := &Version{in: in}
	many := &question{Context: map[string]json.RawMessage{"a": json.RawMessage(`"` + strings.Repeat("x", 1000) + `"`)}}
	for range 100 {
		many.Examples = append(many.Examples, json.RawMessage("{}"))
	}
	for name, read := range map[string]func(limits) error{
		"a number for many": func(l limits) error { _, err := readTensor("a", one(100, 40), &l); return err },
		"examples of nothing": func(l limits) error {
			_, err := readTensor("a", &tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_INT64, TensorShape: shapeOf(101, 0)}, &l)
			return err
		},
		"a context for many": func(l limits) error {
			_, err := readInput(&tfs.Input{Kind: &tfs.Input_ExampleListWithContext{ExampleListWithContext: &tfs.ExampleListWithContext{Context: context, Examples: examples}}}, l)
			return err
		},
		"too many examples": func(l limits) error {
			_, err := readInput(&tfs.Input{Kind: &tfs.Input_ExampleList{ExampleList: &tfs.ExampleList{Examples: make([]*tensorflow.Example, 101)}}}, l)
			return err
		},
		"a context for many, as JSON": func(l limits) error { _, err := v.readExamples(many, l); return err },
		"too many instances": func(l limits) error {
			_, err := (&question{Instances: make([]json.RawMessage, 101)}).rows(l)
			return err
		},
		"too many values of a column": func(l limits) error {
			_, err := (&question{Inputs: json.RawMessage(`{"a": [` + strings.Repeat("1,", 100) + `1]}`)}).rows(l)
			return err
		},
	} {
		if err := read(limits{examples: 100, bytes: 50_000}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: %v", name, err)
		}
	}
	l := limits{examples: 100, bytes: 100_000} // what there is room for
	if c, err := readTensor("a", one(100, 40), &l); err != nil || len(c.Ints) != 4000 || c.Ints[3999] != 7 {
		t.Errorf("%v", err)
	}
}
