package job_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
)

// expiring are the files whose certificates are watched, by the metrics of a run.
func expiring(t *testing.T, reg prometheus.Gatherer) map[string]bool {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, f := range families {
		if f.GetName() != "monolith_tls_expiry_timestamp_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			out[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue() > 0
		}
	}
	return out
}

// TestCertificatesAreWatched: shards, workers, predictions and servers of models say when the certificates of their files expire, also those of what a job writes to.
func TestCertificatesAreWatched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testbed.NewAuthority(t, dir, "authority")
	node, nodeKey := a.Issue(t, "node")
	web, webKey := a.Issue(t, "web")
	topic, topicKey := a.Issue(t, "topic")
	cfg, err := job.Decode([]byte(`
version: 1
name: watched
source: {synthetic: {examples: 2000, splits: 2}}
parse:
  features: [{name: user, slot: 1}, {name: item, slot: 2}]
  label: click
model: {lr: {}}
ps: {addresses: ["`+testbed.FreeAddr(t)+`"], tls: {cert: "`+node+`", key: "`+nodeKey+`", ca: "`+a.File+`"}}
train: {on_bad_row: dead_letter, dead_letter: {kafka: {brokers: ["127.0.0.1:1"], topic: bad, tls: {cert: "`+topic+`", key: "`+topicKey+`"}}}}
predict: {to: {jsonl: {dir: "`+filepath.Join(dir, "scores")+`"}}}
`), "watched.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(dir, "run")}})
	if err != nil {
		t.Fatal(err)
	}
	wants := func(who string, reg prometheus.Gatherer, files ...string) {
		t.Helper()
		got := expiring(t, reg)
		for _, file := range files {
			if !got[file] {
				t.Errorf("%s says nothing of %s: %v", who, file, got)
			}
		}
		if len(got) != len(files) {
			t.Errorf("%s: %v", who, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	shards, served := prometheus.NewRegistry(), make(chan error, 1)
	go func() {
		_, err := job.Serve(ctx, cfg, job.ServeOptions{Registerer: shards})
		served <- err
	}()
	worker := prometheus.NewRegistry()
	if _, err := job.Run(ctx, cfg, job.RunOptions{Registerer: worker}); err != nil {
		t.Fatal(err)
	}
	wants("a worker", worker, node, a.File, topic)
	wants("a shard", shards, node, a.File, topic)
	predicted := prometheus.NewRegistry()
	if _, err := job.Predict(ctx, cfg, job.PredictOptions{Options: job.RunOptions{Registerer: predicted}}); err != nil {
		t.Fatal(err)
	}
	wants("predict", predicted, node, a.File, topic)
	exports := filepath.Join(dir, "watched")
	if _, err := job.ExportModel(ctx, job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Dir: exports, RowsPerFile: 1000, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	var models *prometheus.Registry
	drain := make(chan struct{})
	close(drain)
	err = job.ServeModels(t.Context(), job.ServeModelsOptions{
		Exports: []string{exports}, HTTP: "127.0.0.1:0", TLS: &secure.TLS{Cert: web, Key: webKey}, Drain: drain,
		Register: func(r prometheus.Registerer) error { models = r.(*prometheus.Registry); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	wants("a server of models", models, web)
}
