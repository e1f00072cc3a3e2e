package run

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc/status"

	serve "github.com/monolith-go/monolith/serving"
)

// configFile has models that are served beside others, which change with it.
type configFile struct {
	path   string // empty: there is none
	beside []serve.ModelConfig
	policy serve.Policy
	log    *slog.Logger
	text   []byte // as it was read last
	failed string // why it could not be read last
	// mayBeEmpty: callers may name models later.
	mayBeEmpty bool
}

// mostConfig bounds the file.
const mostConfig = 16 << 20

// read returns all models that are to be served.
func (f *configFile) read() ([]serve.ModelConfig, error) {
	if f.path == "" {
		return f.beside, nil
	}
	text, err := f.bytes()
	if err != nil {
		return nil, err
	}
	return f.decode(text)
}

func (f *configFile) bytes() ([]byte, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, err
	}
	if info.Size() > mostConfig {
		return nil, fmt.Errorf("%s has %d bytes, %d are the most", f.path, info.Size(), mostConfig)
	}
	return os.ReadFile(f.path)
}

func (f *configFile) decode(text []byte) ([]serve.ModelConfig, error) {
	f.text = text
	if f.mayBeEmpty && len(bytes.TrimSpace(text)) == 0 {
		return f.beside, nil
	}
	own, passedOver, err := serve.ReadModelConfigs(text, f.policy)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", f.path, status.Convert(err).Message())
	}
	if passedOver != nil {
		f.log.Warn("not all of a file of models is read", "file", f.path, "err", status.Convert(passedOver).Message())
	}
	for _, c := range own {
		if err := checkName(c.Name, fmt.Sprintf("name: %q", c.Name)); err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return slices.Concat(f.beside, own), nil
}

// watch serves what the file has when it has changed. What cannot be served is logged, and changes nothing.
func (f *configFile) watch(ctx context.Context, models *serve.Models, every time.Duration) {
	if f.path == "" {
		return
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		text, err := f.bytes()
		if err == nil && bytes.Equal(text, f.text) {
			f.failed = ""
			continue
		}
		var all []serve.ModelConfig
		if err == nil {
			all, err = f.decode(text)
		}
		if err == nil {
			f.log.Info("a file of models has changed", "file", f.path, "models", len(all))
			err = models.Configure(ctx, all)
		}
		if err != nil && ctx.Err() == nil && err.Error() != f.failed {
			f.failed = err.Error()
			f.log.Error("a file of models cannot be served", "file", f.path, "err", err)
		}
	}
}
