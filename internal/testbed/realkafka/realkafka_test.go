package realkafka

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testbed/jvm"
)

// The broker itself is tested where it is used, in the tests of the Kafka source.

func TestClusterID(t *testing.T) {
	t.Parallel()
	for range 200 {
		if id := clusterID(); len(id) != 22 || strings.HasPrefix(id, "-") {
			t.Fatalf("%q", id)
		}
	}
}

func TestCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, both := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := certificate(cert, both); err != nil {
		t.Fatal(err)
	}
	if _, err := tls.LoadX509KeyPair(cert, both); err != nil {
		t.Error(err)
	}
	if err := certificate(filepath.Join(dir, "none", "a"), both); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestFreePorts(t *testing.T) {
	t.Parallel()
	ports, err := jvm.FreePorts(3)
	if err != nil || len(ports) != 3 || ports[0] == ports[1] || ports[1] == ports[2] || ports[0] == ports[2] {
		t.Errorf("%v, %v", ports, err)
	}
}
