package testbed_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testbed"
)

// tb records how a test would have ended.
type tb struct{ ended string }

func (*tb) Helper() {}
func (t *tb) Fatalf(format string, args ...any) {
	t.ended = "fail: " + fmt.Sprintf(format, args...)
}

func (t *tb) Skipf(format string, args ...any) {
	t.ended = "skip: " + fmt.Sprintf(format, args...)
}

func TestRequire(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"", "skip: needs kafka: there is no java"},
		{"data", "skip: needs kafka: there is no java"},
		{"kafkaesque", "skip: needs kafka: there is no java"},
		{"kafka", "fail: kafka is required by $MONOLITH_REQUIRE, but there is no java"},
		{"data, kafka", "fail: kafka is required by $MONOLITH_REQUIRE, but there is no java"},
	} {
		t.Run("require="+c.env, func(t *testing.T) {
			t.Setenv(testbed.EnvRequire, c.env)
			var got tb
			testbed.Require(&got, "kafka", "there is no java")
			if got.ended != c.want {
				t.Errorf("got %q, want %q", got.ended, c.want)
			}
		})
	}
}

func TestData(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "frappe"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, env, set, dir, ended string }{
		{name: "there", env: root, set: "frappe", dir: filepath.Join(root, "frappe")},
		{name: "another", env: root, set: "criteo", ended: "it holds frappe"},
		{name: "no root", env: filepath.Join(root, "none"), set: "frappe", ended: "it holds nothing"},
		{name: "no variable", env: "", set: "frappe", ended: "does not name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(testbed.EnvData, c.env)
			t.Setenv(testbed.EnvRequire, "")
			var got tb
			dir := testbed.Data(&got, c.set)
			if dir != c.dir || !strings.Contains(got.ended, c.ended) || (c.ended == "") != (got.ended == "") {
				t.Errorf("got %q and %q, want %q and %q", dir, got.ended, c.dir, c.ended)
			}
		})
	}
}
