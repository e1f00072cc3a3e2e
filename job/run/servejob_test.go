package run

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/replica"
)

// TestShardsThatAreAwayAreLoggedOnce: a server that tries again and again to follow them says so once, and what is wrong with its job file once for each fault.
func TestShardsThatAreAwayAreLoggedOnce(t *testing.T) {
	t.Parallel()
	cfg, err := spec.Decode([]byte(`
version: 1
name: away
source: synthetic
parse:
  features: [{name: user, slot: 1}]
  label: click
model: lr
ps: {addresses: ["`+testbed.FreeAddr(t)+`"], retry: 0s}
`), "away.yaml", spec.LoadOptions{Components: components.All()})
	if err != nil {
		t.Fatal(err)
	}
	m, err := jobModelOf(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	var broken error
	s := &servedJob{o: &ServeModelsOptions{}, log: slog.New(slog.NewTextHandler(&log, nil)), load: func() (*spec.Config, error) { return cfg, broken }}
	r := replica.New(replica.Options{Layout: m.of.Graph.Layout(), Name: "test"})
	for _, x := range []struct {
		what  string
		fault error
		lines int
		words string
	}{
		{"at first", nil, 1, "not followed"},
		{"with a broken job file", errors.New("line 7"), 1, "line 7"},
		{"with that still", errors.New("line 7"), 0, ""},
		{"with another fault", errors.New("line 8"), 1, "line 8"},
	} {
		broken = x.fault
		log.Reset()
		if next := s.follow(t.Context(), r, m); next != nil {
			t.Errorf("%s: another model", x.what)
		}
		if got := strings.Count(log.String(), "\n"); got != x.lines || !strings.Contains(log.String(), x.words) {
			t.Errorf("%s: %d lines, want %d with %q: %s", x.what, got, x.lines, x.words, &log)
		}
	}
}
