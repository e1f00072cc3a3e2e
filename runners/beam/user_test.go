package beam_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestUserWithoutAName: what Beam asks for when it initialises is there before, also where the environment has no user; and the environment is
// as it was once that is done. (The test binary may be linked with the C library, which takes no user from the environment, so the order is what
// is looked at.)
func TestUserWithoutAName(t *testing.T) {
	t.Parallel()
	if os.Getenv("BEAM_TEST_ENVIRONMENT") != "" {
		t.Log("environment:", strings.Join(os.Environ(), " "))
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestUserWithoutAName$", "-test.v")
	cmd.Env = []string{"BEAM_TEST_ENVIRONMENT=1", "GODEBUG=inittrace=1", "TMPDIR=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	ours, theirs := strings.Index(text, "init github.com/monolith-go/monolith/internal/beamuser @"), strings.Index(text, "/xlangx/expansionx @")
	if ours < 0 || theirs < 0 || ours > theirs {
		t.Errorf("beamuser is initialised at byte %d of the trace, Beam at %d:\n%s", ours, theirs, text)
	}
	_, environment, _ := strings.Cut(text, "environment:")
	if !strings.Contains(environment, "BEAM_TEST_ENVIRONMENT=1") || strings.Contains(environment, "USER=") || strings.Contains(environment, "HOME=") {
		t.Errorf("the environment is %q", environment)
	}
}
