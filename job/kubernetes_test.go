package job_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/monolith-go/monolith/job"
)

// TestKubernetesJob loads the job of the Kubernetes manifests, and finds a shard for each of its addresses. A job on a stream is ended by signals alone, with exit code 0: what starts its submitter does it
// whatever the exit code.
func TestKubernetesJob(t *testing.T) {
	t.Parallel()
	folder := filepath.Join("..", "deploy", "kubernetes")
	b, err := os.ReadFile(filepath.Join(folder, "job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Data map[string]string `yaml:"data"`
	}
	if err := yaml.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	c, err := job.Decode([]byte(m.Data["job.yaml"]), "job.yaml", job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if b, err = os.ReadFile(filepath.Join(folder, "parameter-server.yaml")); err != nil {
		t.Fatal(err)
	}
	replicas := regexp.MustCompile(`(?m)^  replicas: (\d+)$`).FindSubmatch(b)
	if replicas == nil || string(replicas[1]) != strconv.Itoa(len(c.PS.Addresses)) {
		t.Errorf("replicas %q for the addresses %q", replicas, c.PS.Addresses)
	}
	if b, err = os.ReadFile(filepath.Join(folder, "train.yaml")); err != nil {
		t.Fatal(err)
	}
	kinds, want := regexp.MustCompile(`(?m)^kind: (\w+)$`).FindAllSubmatch(b, -1), "StatefulSet" // the last one is its own
	if c.Ends() {
		want = "Job"
	}
	if len(kinds) == 0 || string(kinds[len(kinds)-1][1]) != want {
		t.Errorf("the submitter is one of %q, and the job ends by itself: %v; it must be a %s", kinds, c.Ends(), want)
	}
	if _, err := job.BuildPlan(c); err != nil {
		t.Error(err)
	}
}
