package job

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/telemetry"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/wire"
)

// newTelemetry makes the metrics of a run; nil without a registerer.
func newTelemetry(r prometheus.Registerer) (*telemetry.Metrics, error) {
	if r == nil {
		return nil, nil
	}
	return telemetry.New(r)
}

// pipelineHooks keeps a nil *Metrics from becoming a non-nil interface.
func pipelineHooks(m *telemetry.Metrics) pipeline.Hooks {
	if m == nil {
		return nil
	}
	return m
}

func psHooks(m *telemetry.Metrics) ps.Hooks {
	if m == nil {
		return nil
	}
	return m
}

// unavailable marks what the machine or its disk is to blame for, so that the command exits with 3.
func unavailable(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
		return errors.Join(err, pipeline.ErrUnavailable)
	}
	switch {
	case errors.Is(err, ps.ErrLayout), errors.Is(err, ps.ErrMismatch), errors.Is(err, wire.ErrVersion), errors.Is(err, wire.ErrNotAdmitted):
		return fmt.Errorf("%w: %w", err, pipeline.ErrConfig)
	case errors.Is(err, ps.ErrUnreachable), errors.Is(err, wire.ErrUnreachable), errors.Is(err, ps.ErrNoSpace):
		return fmt.Errorf("%w: %w", err, pipeline.ErrUnavailable)
	}
	return err
}

// text renders metrics on one line, in alphabetical order.
func (m Scores) text() string {
	parts := make([]string, 0, len(m))
	for _, name := range m.Names() {
		parts = append(parts, name+" "+strconv.FormatFloat(m[name], 'f', 5, 64))
	}
	return strings.Join(parts, ", ")
}
