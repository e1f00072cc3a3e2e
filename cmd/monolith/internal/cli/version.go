package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/telemetry"
)

// build is what the program knows about itself.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *App) buildInfo() build {
	b := build{Version: a.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info := a.BuildInfo
	if info == nil {
		var ok bool
		if info, ok = debug.ReadBuildInfo(); !ok {
			return b
		}
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	return b
}

func (b build) telemetry() telemetry.Build {
	return telemetry.Build{Version: b.Version, Revision: b.Revision, Go: b.Go}
}

func (a *App) versionCommand(out *outcome) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the program's version",
		Example: `  monolith version
  monolith version --json`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			b := a.buildInfo()
			out.result = b
			out.text = func(w io.Writer) error {
				rev := ""
				if b.Revision != "" {
					rev = ", revision " + b.Revision
					if b.Modified {
						rev += " with changes"
					}
				}
				_, err := fmt.Fprintf(w, "monolith %s (%s, %s%s)\n", b.Version, b.Go, b.Platform, rev)
				return err
			}
			return nil
		},
	}
}
