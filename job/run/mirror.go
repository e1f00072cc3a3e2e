package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/pipeline"
	serve "github.com/monolith-go/monolith/serving"
)

// mirrored keeps on this machine what is to be served of a folder of exports in a store. It is not for concurrent use.
type mirrored struct {
	*copies
	policy serve.Policy
	log    *slog.Logger
	bad    map[string]badExport
	logged string // what was logged last
}

// badExport is one that was damaged when its manifest was this. It is fetched again when that is another, or after a while.
type badExport struct {
	manifest fsx.Info
	at       time.Time
}

// badFor is how long an export that is damaged is not fetched again.
const badFor = 5 * time.Minute

func (b badExport) still(manifest fsx.Info) bool {
	return b.manifest.Size == manifest.Size && b.manifest.ModTime.Equal(manifest.ModTime) && time.Since(b.at) < badFor
}

// openMirror makes the mirror of a URL, or of what is no rows of its exports, or of the rows of a part.
func openMirror(text string, policy serve.Policy, modelOnly bool, part *native.Part, o ExportCache, log *slog.Logger) (*mirrored, error) {
	says := fmt.Sprintf("served %+v", policy)
	if modelOnly {
		says += " without rows"
	}
	if part != nil {
		says += fmt.Sprintf(" rows %s", part)
	}
	c, err := openCopies(text, says, o)
	if err != nil {
		return nil, err
	}
	c.modelOnly, c.part = modelOnly, part
	return &mirrored{copies: c, policy: policy, log: log, bad: map[string]badExport{}}, nil
}

// sync makes the folder have what the store has and the policy asks for. Where the store has nothing that is whole, what is here stays. Errors: the last reason why an export is not here.
func (m *mirrored) sync(ctx context.Context) (err error) {
	there, err := m.places(ctx)
	if err != nil {
		return errors.Join(err, m.close())
	}
	var wanted []string
	var faults []error
	for _, p := range there {
		if asked := m.policy.All || p.Dir == "." || slices.Contains(m.policy.Specific, int64(p.Number)); !asked && (len(m.policy.Specific) > 0 || len(wanted) >= max(m.policy.Latest, 1)) {
			continue
		}
		manifest, err := m.store.Stat(ctx, filepath.Join(p.Dir, native.ManifestName))
		if err == nil && m.bad[p.Dir].still(manifest) {
			continue
		}
		dir := ""
		if err == nil {
			dir, err = m.fetch(ctx, p, wanted...)
		}
		switch {
		case err == nil:
			delete(m.bad, p.Dir)
			wanted = append(wanted, dir)
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, native.ErrNone): // it is being written, or removed
		case errors.Is(err, native.ErrCorrupt), errors.Is(err, native.ErrVersion), errors.Is(err, pipeline.ErrConfig):
			m.bad[p.Dir] = badExport{manifest, time.Now()}
			m.log.Error("an export of a store cannot be served", "url", m.called(p), "err", err)
			faults = append(faults, err)
		default:
			return errors.Join(err, m.close())
		}
	}
	if len(wanted) == 0 {
		return errors.Join(faults...)
	}
	if err := m.prune(there, wanted); err != nil {
		return cacheFault(err)
	}
	return m.warmup(ctx)
}

// prune removes copies that are not wanted, but for the newest other one that the store still has: it is what there is if a wanted one does not open.
func (m *mirrored) prune(there []native.Place, wanted []string) error {
	stay := wanted
	for _, p := range there {
		dir := filepath.Join(m.dir, strconv.FormatUint(p.Number, 10))
		if _, err := os.Stat(dir); err == nil && !slices.Contains(wanted, dir) {
			stay = slices.Concat(wanted, []string{dir})
			break
		}
	}
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return err
	}
	for _, d := range entries {
		if dir := filepath.Join(m.dir, d.Name()); isNumber(d.Name()) && !slices.Contains(stay, dir) {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// warmup brings the requests that warm versions up which have none of their own.
func (m *mirrored) warmup(ctx context.Context) error {
	name := filepath.FromSlash(serve.WarmupName)
	here := filepath.Join(m.dir, name)
	info, err := m.store.Stat(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Remove(here); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if err != nil {
		return errors.Join(fault.Unavailable(fmt.Errorf("job: %w", err)), m.close())
	}
	if has, err := os.Stat(here); err == nil && has.Size() == info.Size && has.ModTime().Equal(info.ModTime) {
		return nil
	}
	b, err := fsx.ReadFile(ctx, m.store, name, maxWarmup)
	if err == nil {
		err = fsx.WriteFile(ctx, fsx.Local{}, here, b)
	}
	if err == nil {
		err = os.Chtimes(here, info.ModTime, info.ModTime)
	}
	return err
}

// maxWarmup bounds the requests that warm up.
const maxWarmup = 1 << 30

// begin fetches what is there. Where the store cannot be asked, what was fetched earlier serves.
func (m *mirrored) begin(ctx context.Context) error {
	m.notice = func(text string) { m.log.Info("exports of a store", "now", text) }
	err := m.sync(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if here, none := native.Find(ctx, fsx.Local{}, m.dir); none == nil {
		m.complain(err, fmt.Sprintf("what was fetched earlier is served, the newest of it %d", here[0].Number))
		return nil
	}
	return err
}

// run follows the store until ctx ends.
func (m *mirrored) run(ctx context.Context, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	_ = m.close() // the next one ends with this context
	defer func() { _ = m.close() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := m.sync(ctx); err != nil && ctx.Err() == nil {
			m.complain(err, "what is here is served, and it is tried again")
		} else {
			m.logged = ""
		}
	}
}

// complain logs a fault that is another than the one before.
func (m *mirrored) complain(err error, then string) {
	if text := err.Error(); text != m.logged {
		m.logged = text
		m.log.Error("a store's exports are not followed", "url", m.url.String(), "err", err, "then", then)
	}
}
