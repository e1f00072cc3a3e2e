package components_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/pipeline"
)

// TestOneFolderIsOnePlace: however a folder is written, and whether it is there yet, it is one place for outputs.
func TestOneFolderIsOnePlace(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if err := os.Mkdir("there", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("there", "link"); err != nil {
		t.Skipf("needs a file system with symbolic links: %v", err)
	}
	for written, want := range map[string]string{
		"there": "there", "./there/": "there", "link": "there", filepath.Join(dir, "link"): "there",
		"link/new/rows": "there/new/rows", "x/../there": "there", "new": "new", "there2": "there2",
	} {
		p := components.ParquetSink{}
		p.Dir = written
		if key, got := p.Place(); key != "dir" || got != filepath.Join(dir, want) {
			t.Errorf("%s is %s, want %s", written, got, want)
		}
	}
}

// TestTopicIsLookedFor: a check of a job finds a topic that is missing, and brokers that do not answer.
func TestTopicIsLookedFor(t *testing.T) {
	t.Parallel()
	bed, err := broker.Start(broker.Options{Topics: map[string]int{"there": 1}})
	if err != nil {
		t.Fatal(err)
	}
	k := components.KafkaSink{Brokers: bed.Addrs(), Topic: "there", Compression: "none"}
	if key, err := k.CanOpen(); key != "" || err != nil {
		t.Errorf("%s: %v", key, err)
	}
	k.Topic = "missing"
	if key, err := k.CanOpen(); key != "topic" || !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("%s: %v", key, err)
	}
	if err := bed.Close(); err != nil {
		t.Fatal(err)
	}
	if key, err := k.CanOpen(); key != "brokers" || !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("%s: %v", key, err)
	}
}
