package job_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
)

// TestRowsOfRunningShards looks up, edits, describes and follows the rows of shards that run, and compares them with those of snapshots.
func TestRowsOfRunningShards(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), testbed.FreeAddr(t)
	var lines bytes.Buffer
	for i := range 300 {
		fmt.Fprintf(&lines, "{\"y\": %d, \"user\": %d, \"item\": %d}\n", i%2, i%20, i%7)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.jsonl"), lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := rolesJob(t, dir, address, fmt.Sprintf("{text: {files: [%q]}}", filepath.Join(dir, "a.jsonl")), "jsonl")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		_, err := job.Serve(ctx, cfg, job.ServeOptions{})
		served <- err
	}()
	defer func() {
		cancel()
		if err := <-served; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	r, err := job.Run(ctx, cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]map[int64]*job.Entry{}
	// follow takes what has changed, and returns how many lines brought everything.
	follow := func() (lines, anew int) {
		t.Helper()
		err := job.FollowChanges(ctx, cfg, job.ChangesOptions{
			Consumer: "test", Weights: true, Flush: func() error { return nil },
			Give: func(c *job.Change) error {
				switch {
				case c.Entry == nil:
					return nil
				case c.Removed:
					return errors.New("a row has gone")
				case rows[c.Table] == nil:
					rows[c.Table] = map[int64]*job.Entry{}
				}
				rows[c.Table][c.ID] = c.Entry
				lines++
				if c.All {
					anew++
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return lines, anew
	}
	if lines, anew := follow(); lines == 0 || anew != lines {
		t.Fatalf("%d lines at first, %d of them of everything", lines, anew)
	}
	if lines, _ := follow(); lines != 0 {
		t.Errorf("%d lines though nothing has changed", lines)
	}
	var tbl string // one with weights and state
	for name, of := range rows {
		if tbl == "" || len(of[slices.Collect(maps.Keys(of))[0]].Weights) > 1 {
			tbl = name
		}
	}
	ids := slices.Sorted(maps.Keys(rows[tbl]))
	compare := func(what string, got *job.LookedUp, err error, missing int) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if len(got.Entries) != len(ids) || len(got.Missing) != missing {
			t.Fatalf("%s: %d rows of %d, %d missing", what, len(got.Entries), len(ids), len(got.Missing))
		}
		for i, e := range got.Entries {
			if diff := cmp.Diff(*rows[tbl][ids[i]], e, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: row %d (-changes +lookup):\n%s", what, ids[i], diff)
			}
		}
	}
	got, err := job.LookUp(ctx, cfg, job.LookUpOptions{Table: tbl, IDs: append(slices.Clone(ids), -5)})
	compare("shards", got, err, 1)
	got, err = job.LookUpStored(ctx, r.Snapshot, tbl, append(slices.Clone(ids), -5))
	compare("snapshot", got, err, 1)
	running, err := job.InspectShards(ctx, cfg, job.Asking{})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := job.InspectSlots(ctx, r.Snapshot, job.SlotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stored.Slots, running.Slots, cmpopts.EquateApprox(1e-9, 0)); diff != "" || running.Rows != stored.Rows || !cmp.Equal(stored.Newest, running.Newest) {
		t.Errorf("%d rows, want %d; newest %v, want %v; slots (-snapshot +shards):\n%s", running.Rows, stored.Rows, running.Newest, stored.Newest, diff)
	}
	// Edits, made again under the request's name, and refused ones.
	var file bytes.Buffer
	edited := append(slices.Clone(ids[:3]), 1<<48|77)
	for i, id := range edited {
		w := make([]float32, len(rows[tbl][ids[0]].Weights))
		w[0] = float32(i) + 0.25
		if err := json.NewEncoder(&file).Encode(map[string]any{"id": id, "weights": w}); err != nil {
			t.Fatal(err)
		}
	}
	edit := func(op param.Op, request, from string, dry bool) (*job.Edited, error) {
		return job.Edit(ctx, cfg, job.EditOptions{Op: op, Table: tbl, Request: request, From: strings.NewReader(from), DryRun: dry})
	}
	for i, want := range []job.Edited{{Existed: 3, DryRun: true}, {Edited: 4, Existed: 3}, {Before: 4}} {
		want.Table, want.Operation, want.Request, want.IDs = tbl, "assign", "a", 4
		got, err := edit(param.Assign, "a", file.String(), want.DryRun)
		if err != nil || *got != want {
			t.Fatalf("edit %d: %+v, want %+v: %v", i, got, want, err)
		}
	}
	if got, err := edit(param.AssignAdd, "", file.String(), false); err != nil || got.Edited != 4 || got.Existed != 4 || got.Request == "" {
		t.Fatalf("addition: %+v, %v", got, err)
	}
	if lines, anew := follow(); lines != 4 || anew != 0 {
		t.Errorf("%d lines of 4 edits, %d of them of everything", lines, anew)
	}
	for i, id := range edited {
		if w := rows[tbl][id].Weights; w[0] != 2*(float32(i)+0.25) || w[1] != 0 {
			t.Errorf("row %d has weights %v", id, w)
		}
	}
	ids = edited
	got, err = job.LookUp(ctx, cfg, job.LookUpOptions{Table: tbl, IDs: ids})
	compare("edited", got, err, 0)
	if got, err := job.Edit(ctx, cfg, job.EditOptions{Op: param.Reinitialize, Table: tbl, IDs: ids[:1]}); err != nil || got.Existed != 1 {
		t.Fatalf("reinitialize: %+v, %v", got, err)
	}
	if follow(); rows[tbl][ids[0]].Occurrences != 0 || rows[tbl][ids[0]].Weights[0] == .5 {
		t.Errorf("reinitialized: %+v", rows[tbl][ids[0]])
	}
	for what, from := range map[string]string{
		"no weights": `{"id": 1}`, "no id": `{"weights": [1]}`, "no JSON": `id: 1`, "an id twice": file.String() + file.String(),
	} {
		if _, err := edit(param.Assign, "", from, false); !errors.Is(err, pipeline.ErrConfig) {
			t.Errorf("%s: %v, want ErrConfig", what, err)
		}
	}
	if _, err := edit(param.Assign, "a", strings.SplitAfter(file.String(), "\n")[0], false); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("another request of a name: %v, want ErrConfig", err)
	}
	if _, err := job.LookUp(ctx, cfg, job.LookUpOptions{Table: "none", IDs: ids}); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("a table that is not there: %v, want ErrConfig", err)
	}
	if err := job.FollowChanges(ctx, cfg, job.ChangesOptions{Consumer: "test", Leave: true}); err != nil {
		t.Error(err)
	}
	if _, anew := follow(); anew == 0 {
		t.Error("who has left is given changes alone")
	}
}

// TestChangesFollowedWhileShardsChange follows the rows of a job that goes from 2 to 3 shards and to 1: the follower has what the shards have, each time.
func TestChangesFollowedWhileShardsChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var lines bytes.Buffer
	for i := range 300 {
		fmt.Fprintf(&lines, "{\"y\": %d, \"user\": %d, \"item\": %d}\n", i%2, i%20, i%7)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.jsonl"), lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	addrs := []string{testbed.FreeAddr(t), testbed.FreeAddr(t), testbed.FreeAddr(t)}
	with := func(n int) *job.Config {
		return rolesJob(t, dir, "", fmt.Sprintf("{text: {files: [%q]}}", filepath.Join(dir, "a.jsonl")), "jsonl", "ps.addresses=["+strings.Join(addrs[:n], ", ")+"]")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	served := make(chan error, 3)
	for i := range 3 {
		cfg := with(max(2, i+1))
		go func() {
			_, err := job.Serve(ctx, cfg, job.ServeOptions{Shards: []int{i}})
			served <- err
		}()
	}
	defer func() {
		cancel()
		for range 3 {
			if err := <-served; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	}()
	cfg := with(2)
	if _, err := job.Run(ctx, cfg, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	rows := map[int64]*job.Entry{}
	tbl, given := "", make(chan struct{}, 1)
	following, stop := context.WithCancel(ctx)
	defer stop()
	followed := make(chan error, 1)
	go func() {
		followed <- job.FollowChanges(following, cfg, job.ChangesOptions{
			Consumer: "test", Weights: true, Follow: true, Every: time.Millisecond, Flush: func() error { return nil },
			Give: func(c *job.Change) error {
				mu.Lock()
				defer mu.Unlock()
				if c.Entry != nil && len(c.Weights) > 1 {
					tbl, rows[c.ID] = c.Table, c.Entry
				}
				select {
				case given <- struct{}{}:
				default:
				}
				return nil
			},
		})
	}()
	// current returns once the follower has the rows that the shards have.
	current := func(n int) (name string, ids []int64, first job.Entry) {
		t.Helper()
		for {
			select {
			case <-given:
			case err := <-followed:
				t.Fatalf("following ended: %v", err)
			case <-ctx.Done():
				t.Fatalf("with %d shards, the follower does not get what they have", n)
			}
			mu.Lock()
			name, ids = tbl, slices.Sorted(maps.Keys(rows))
			have := make([]job.Entry, len(ids))
			for i, id := range ids {
				have[i] = *rows[id]
			}
			mu.Unlock()
			if name == "" || len(ids) < 27 {
				continue
			}
			got, err := job.LookUp(ctx, cfg, job.LookUpOptions{Table: name, IDs: ids})
			if err != nil {
				t.Fatal(err)
			}
			if cmp.Equal(have, got.Entries, cmpopts.EquateEmpty()) {
				return name, ids, have[0]
			}
		}
	}
	name, ids, first := current(2)
	width := len(first.Weights)
	for _, n := range []int{3, 1} {
		var last job.ScaleProgress
		s, err := job.Scale(ctx, cfg, job.ScaleOptions{To: addrs[:n], Progress: func(p job.ScaleProgress) { last = p }})
		if err != nil || s.Shards != n {
			t.Fatalf("%+v, %v", s, err)
		}
		if last.Shards != n || n == 1 && last.Snapshots < 1 || // there are edits since the one before
			last.Took.Seconds() < s.Took || last.Rows < 0 || last.Rows > 2*s.Rows {
			t.Errorf("to %d shards of %d rows: told %+v at the end", n, s.Rows, last)
		}
		// What is edited now only the shards of now have.
		var file bytes.Buffer
		for _, id := range ids {
			w := make([]float32, width)
			w[0] = float32(n)
			if err := json.NewEncoder(&file).Encode(map[string]any{"id": id, "weights": w}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := job.Edit(ctx, cfg, job.EditOptions{Op: param.Assign, Table: name, From: &file}); err != nil {
			t.Fatal(err)
		}
		if _, _, first := current(n); first.Weights[0] != float32(n) {
			t.Errorf("with %d shards: %+v", n, first)
		}
	}
	stop()
	if err := <-followed; err != nil {
		t.Error(err)
	}
}
