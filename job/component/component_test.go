package component_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/pipeline"
)

// TestSinksMustStorePositions: what a section of a sink opens has the methods of an OutputWriter by its type, so a program
// whose sink lacks one does not compile.
func TestSinksMustStorePositions(t *testing.T) {
	t.Parallel()
	method, _ := reflect.TypeFor[component.SinkConfig]().MethodByName("Sink")
	open, ok := method.Type.Out(0).MethodByName("Open")
	if !ok {
		t.Fatal("a sink has no method Open")
	}
	for _, name := range []string{"Write", "Flush", "Close", "Resume", "Stored", "Idle", "Totals"} {
		if _, ok := open.Type.Out(0).MethodByName(name); !ok {
			t.Errorf("a writer of an output need not have the method %s", name)
		}
	}
}

// failing is a sink that cannot be opened.
type failing struct{}

var errOpen = errors.New("cannot be opened")

func (failing) OpenWriter(context.Context, *pipeline.Env) (*writer, error) { return nil, errOpen }
func (failing) String() string                                             { return "failing" }
func (failing) Fingerprint() string                                        { return "failing print" }

type writer struct{ component.OutputWriter }

// TestOutputOf: an output's sink keeps names and errors, and a writer that was not opened is nil.
func TestOutputOf(t *testing.T) {
	t.Parallel()
	out := component.OutputOf(failing{})
	sink := component.AsSink(out)
	if w, err := out.Open(t.Context(), nil); w != nil || !errors.Is(err, errOpen) {
		t.Errorf("%v, %v", w, err)
	}
	if w, err := sink.Open(t.Context(), nil); w != nil || !errors.Is(err, errOpen) {
		t.Errorf("%v, %v", w, err)
	}
	if sink.String() != "failing" || sink.Fingerprint() != "failing print" {
		t.Errorf("%s, %s", sink, sink.Fingerprint())
	}
	if e, ok := sink.(component.EmptyWriter); !ok || e.WriteEmpty(t.Context(), nil) != nil {
		t.Error("a sink without a form for no rows writes none")
	}
}
