package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/tfrecord"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
)

// TestFullDiskUnderTheRequestLog fills the disk of a server's request log: each request is answered all the same, what is not kept is counted and said once, and files continue when there is room. What is in files
// is whole, and as much as the metric says.
func TestFullDiskUnderTheRequestLog(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t)
	log := filepath.Join(dir, "log")
	s := newShop(t)
	server := s.serve(t, "logs", "--request-log", log, "--log-rate", "1", "--log-file-bytes", "200000", "--log-max-bytes", "2000000")
	body, err := json.Marshal(map[string]any{"instances": s.rows})
	if err != nil {
		t.Fatal(err)
	}
	request := func(method, path, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+server.http+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(a.Body)
		if err := errors.Join(err, a.Body.Close()); err != nil || a.StatusCode != http.StatusOK {
			t.Fatalf("%d, %v: %s", a.StatusCode, err, b)
		}
		return string(b)
	}
	asked := 0
	ask := func() {
		t.Helper()
		for range 50 {
			asked++
			if got := request(http.MethodPost, "/v1/models/shop:predict", string(body)); !strings.HasPrefix(got, `{"predictions":[`) {
				t.Fatal(got)
			}
		}
	}
	count := func(result string) int {
		t.Helper()
		line := regexp.MustCompile(`(?m)^monolith_serving_logged_requests_total\{result="` + result + `"\} (\S+)$`).FindStringSubmatch(request(http.MethodGet, "/metrics", ""))
		if line == nil {
			return 0
		}
		n, err := strconv.ParseFloat(line[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	files := func() []string {
		t.Helper()
		list, err := filepath.Glob(filepath.Join(log, "requests-*.tfrecord"))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	// until asks until something holds.
	until := func(holds func() bool) {
		t.Helper()
		waitFor(t, func() bool { ask(); return holds() })
	}
	until(func() bool { return len(files()) > 1 })
	free := fill()
	until(func() bool { return strings.Contains(server.process.text(), "requests cannot be kept") })
	full, dropped := len(files()), count("dropped")
	until(func() bool { return count("dropped") > dropped+500 }) // several files could not be written
	if n := len(files()); n != full {
		t.Errorf("%d files are complete on a full disk, before %d", n, full)
	}
	server.process.says("no space left")
	free()
	until(func() bool { return len(files()) > full+1 })
	waitFor(t, func() bool { // what was asked last waits for the disk, and is counted behind the rename
		kept := 0
		for _, name := range files() {
			kept += records(t, name)
		}
		return kept == count("kept")
	})
	if n := count("kept") + count("dropped"); n > asked {
		t.Errorf("%d requests are counted of %d", n, asked)
	}
	free = fill() // the last file is lost too
	ask()
	o := server.process.end(syscall.SIGTERM)
	o.wants(t, 0)
	free()
	if n := strings.Count(o.stderr, "requests cannot be kept"); n != 2 {
		t.Errorf("full disks are said %d times:\n%s", n, o.stderr)
	}
	if left, err := filepath.Glob(filepath.Join(log, ".requests-*")); err != nil || len(left) > 0 {
		t.Errorf("%q are left, %v", left, err)
	}
	again := s.serve(t, "again", "--request-log", log, "--log-rate", "1", "--log-file-bytes", "200000", "--log-max-bytes", "2000000")
	again.process.end(syscall.SIGTERM).wants(t, 0)
}

// records reads a file of the request log, whose requests are those that were asked, and counts them.
func records(t *testing.T, name string) (n int) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // read only
	for r := tfrecord.NewReader(f, nil); ; n++ {
		b, err := r.Next()
		if errors.Is(err, io.EOF) {
			return n
		}
		p := &tfs.PredictionLog{}
		if err == nil {
			err = proto.Unmarshal(b, p)
		}
		if heads := p.GetPredictLog().GetResponse().GetOutputs(); err != nil || len(heads) != 2 {
			t.Fatal(fmt.Errorf("%s: record %d: %w, with answers of %d heads", name, n, err, len(heads)))
		}
	}
}
