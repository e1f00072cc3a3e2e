package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestAlias suggests the flag of ours for one that other programs have.
func TestAlias(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"serve", "--rest", "x"}, "--http"},
		{[]string{"serve", "--port=8501"}, "--http"},
		{[]string{"serve", "--rest_api_port=8501"}, "--http"},
		{[]string{"serve", "--config", "x"}, "--model-config"},
		{[]string{"serve", "--gprc", "x"}, "--grpc"},
		{[]string{"export", "--output", "x"}, "--dir"},
		{[]string{"predict", "--output", "x"}, "--to"},
		{[]string{"model", "nearest", "--limit", "5"}, "--number"},
	} {
		root := new(App).root(&outcome{})
		root.SetArgs(c.args)
		cmd, _, err := root.Find(c.args)
		if err != nil {
			t.Fatal(err)
		}
		cmd.RunE = func(*cobra.Command, []string) error { return nil }
		var usage *usageError
		if err := root.Execute(); !errors.As(err, &usage) || usage.suggestion != c.want {
			t.Errorf("%v: %v, want %s suggested, got %+v", c.args, err, c.want, usage)
		}
	}
}

// TestDurationWithoutUnit: an error says how to write the number.
func TestDurationWithoutUnit(t *testing.T) {
	t.Parallel()
	cmd := &cobra.Command{}
	cmd.Flags().Duration("timeout", 0, "")
	err := flagError(cmd, cmd.ParseFlags([]string{"--timeout", "30"}))
	if !strings.Contains(err.Error(), "--timeout") || !strings.Contains(err.Error(), "write 30s, 30m or 30ms") {
		t.Error(err)
	}
}
