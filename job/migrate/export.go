package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/entrydump"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/internal/tfbundle"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// ExportOptions say what is written. Snapshot and To are required; the zero value of everything else works.
type ExportOptions struct {
	// Snapshot is a snapshot's folder, or a job's dir or a folder of snapshots for the newest good one in it.
	Snapshot string
	// To is the model's folder that the checkpoint comes into, as model.ckpt-STEP.assets, which must not be there.
	To string
	// Step is the number of the checkpoint; 0: that of the snapshot.
	Step int64
	// Names are what tables are called there, by table. Default: MonolithHashTable_TABLE, or TABLE in a file that holds many.
	Names map[string]string
	// Multi, if not empty, is the name of the file that holds all tables.
	Multi string
	// Shards is how many files each is written to; 0: as upstream, one for each million rows, at most four.
	Shards int
	// Servers, if not 0, is how many parameter servers the model has there: what a server has is in files of its own, _0 and so on
	// behind their name. Rows go by their id modulo the number.
	Servers int
	// Serving leaves out the optimizers' state, times and counts.
	Serving bool
}

// maxFiles bounds the files that are written side by side.
const maxFiles = 4096

// Export writes the tables of a snapshot, and its dense tensors, as a checkpoint of bytedance/monolith. Rows have the weights, state and times that they have, and
// beside them, where upstream's reader passes over it, their count and the microseconds of their time, so that importing what was exported
// gives the same rows. Nothing is left behind after an error.
//
// Errors: [pipeline.ErrConfig]; [snapshot.ErrCorrupt], which names the file; [pipeline.ErrUnavailable]; the context's.
func Export(ctx context.Context, o ExportOptions) (_ *result.Exported, err error) {
	began := time.Now()
	s, path, damaged, closing, err := stored.OpenNewest(ctx, o.Snapshot, snapshot.OpenOptions{WeightsOnly: o.Serving})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(), closing()) }()
	x, err := newExporter(ctx, s, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, x.close())
		if err != nil {
			for _, name := range x.made() {
				err = errors.Join(err, fsx.RemoveAll(context.WithoutCancel(ctx), fsx.Local{}, name))
			}
		}
	}()
	if err := x.write(); err != nil {
		return nil, err
	}
	r := &result.Exported{Snapshot: path, Damaged: damaged, Assets: x.assets, Tables: x.tables, Dense: x.variables, Bytes: x.bytes}
	for _, t := range r.Tables {
		r.Rows += t.Rows
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// exporter is one export.
type exporter struct {
	ctx     context.Context
	from    *snapshot.Snapshot
	info    *snapshot.Info
	o       ExportOptions
	assets  string
	step    int64
	names   []string
	tables  []result.ExportedTable
	files   []*entrydump.Writer // by server and shard
	servers int
	shards  int
	bytes   int64
	// variables are the names of the dense tensors.
	variables []string
	entry     entrydump.Entry
}

func newExporter(ctx context.Context, s *snapshot.Snapshot, o ExportOptions) (*exporter, error) {
	x := &exporter{ctx: ctx, from: s, info: s.Info(), o: o, servers: max(o.Servers, 1)}
	var faults []error
	bad := func(text string, args ...any) { faults = append(faults, fault.Config("job: "+text, args...)) }
	if o.To == "" {
		bad("no folder for the checkpoint is named")
	}
	if o.Shards < 0 || o.Servers < 0 || o.Step < 0 {
		bad("%d shards, %d servers and step %d must not be negative", o.Shards, o.Servers, o.Step)
	}
	if max(o.Shards, 1)*x.servers > maxFiles {
		bad("%d shards of %d servers are more than the %d files that are written at once", o.Shards, x.servers, maxFiles)
	}
	var known []string
	for _, t := range x.info.Tables {
		known = append(known, t.Name)
		name := o.Names[t.Name]
		switch {
		case name != "":
		case o.Multi != "":
			name = t.Name
		default:
			name = "MonolithHashTable_" + t.Name
		}
		if slices.Contains(x.names, name) {
			bad("two tables would be called %q", name)
		}
		x.names = append(x.names, name)
	}
	for name := range o.Names {
		if !slices.Contains(known, name) {
			bad("the snapshot has no table %q; it has %q%s", name, known, nearest.Suggest(name, known))
		}
	}
	files := x.names
	if o.Multi != "" {
		files = []string{o.Multi}
	}
	for _, name := range files {
		if strings.ContainsAny(name, `/\:`) || strings.HasPrefix(name, ".") {
			bad("the table name %q cannot be a file's: name another", name)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if x.step = o.Step; x.step == 0 {
		x.step = int64(x.info.ID)
	}
	x.assets = filepath.Join(o.To, fmt.Sprintf("model.ckpt-%d.assets", x.step))
	for _, name := range x.made() {
		if _, err := (fsx.Local{}).Stat(ctx, name); !errors.Is(err, fs.ErrNotExist) {
			return nil, fault.Config("job: %s is there already: name another folder, or another step", name)
		}
	}
	return x, nil
}

// made are the files and the folder that an export makes.
func (x *exporter) made() []string {
	prefix := strings.TrimSuffix(x.assets, ".assets")
	return []string{x.assets, prefix + ".data-00000-of-00001", prefix + ".index"}
}

// write writes all tables, and then the dense tensors.
func (x *exporter) write() error {
	if x.o.Multi != "" {
		if err := x.create(x.o.Multi, true, x.info.Rows()); err != nil {
			return err
		}
	}
	for t := range x.info.Tables {
		if err := x.table(t); err != nil {
			return err
		}
	}
	if x.o.Multi != "" {
		if err := x.commit(); err != nil {
			return err
		}
	}
	return x.dense()
}

// dense writes the dense tensors as variables of the same names. What the step counts as is the checkpoint's number.
func (x *exporter) dense() error {
	tensors, err := x.from.Tensors()
	if err != nil {
		return err
	}
	var variables []tfbundle.Variable
	for _, t := range tensors {
		variables = append(variables, tfbundle.Variable{Name: t.Name, Shape: t.Shape, Values: t.Weights})
		x.variables = append(x.variables, t.Name)
	}
	if err := tfbundle.Write(x.ctx, fsx.Local{}, strings.TrimSuffix(x.assets, ".assets"), x.step, variables); err != nil {
		return unavailable(err)
	}
	return nil
}

// create begins the files of a name, for so many rows.
func (x *exporter) create(name string, multi bool, rows int64) error {
	x.shards = x.o.Shards
	if x.shards == 0 {
		x.shards = int(min(4, max(1, rows/int64(x.servers)/1_000_000)))
	}
	x.files = nil
	for server := range x.servers {
		for shard := range x.shards {
			w, err := entrydump.Create(x.ctx, fsx.Local{}, x.assets, entrydump.File{Name: x.as(name, server), Multi: multi, Shards: x.shards}, shard)
			if err != nil {
				return unavailable(err)
			}
			x.files = append(x.files, w)
		}
	}
	return nil
}

// as is what a server calls its part.
func (x *exporter) as(name string, server int) string {
	if x.o.Servers == 0 {
		return name
	}
	return fmt.Sprintf("%s_%d", name, server)
}

// table writes one table.
func (x *exporter) table(t int) error {
	spec := x.info.Tables[t]
	if x.o.Multi == "" {
		if err := x.create(x.names[t], false, spec.Rows); err != nil {
			return err
		}
	} else {
		for _, w := range x.files {
			if err := w.Table(x.names[t]); err != nil {
				return unavailable(err)
			}
		}
	}
	keepers, restarted, err := x.keepers(spec.TableShape)
	if err != nil {
		return err
	}
	out := result.ExportedTable{Name: spec.Name, As: x.as(x.names[t], 0), Files: len(x.files), Rows: spec.Rows, Restarted: restarted}
	if x.o.Multi != "" {
		out.As = x.names[t]
	}
	x.tables = append(x.tables, out)
	dim, stateDim := spec.Dim(), spec.StateDim()
	err = x.from.Rows(t, func(r *table.Rows) error {
		if err := context.Cause(x.ctx); err != nil {
			return err
		}
		for i, id := range r.Keys {
			var state []float32
			if !x.o.Serving {
				state = r.State[i*stateDim:][:stateDim]
			}
			x.fill(spec.TableShape, keepers, id, r.Times[i], r.Counts[i], r.Weights[i*dim:][:dim], state)
			if err := x.file(id).Write(&x.entry); err != nil {
				return unavailable(err)
			}
		}
		return nil
	})
	if err == nil && x.o.Multi == "" {
		err = x.commit()
	}
	return err
}

// keepers are the rules of a table's segments; restarted says of which the state is not written.
func (x *exporter) keepers(t param.TableShape) (out []*keeper, restarted []string, err error) {
	for _, s := range t.Segments {
		name := param.SegmentName(t.Name, s.Name)
		at := slices.IndexFunc(x.info.Rules.Parameters, func(r param.Rule) bool { return r.Name == name })
		if at < 0 {
			return nil, nil, fmt.Errorf("job: snapshot %s has no rule of %s: %w", x.info.Path, name, snapshot.ErrCorrupt)
		}
		k := &keeper{rule: optim.Frozen{}}
		if o, err := x.info.Rules.Parameters[at].Optimizer.Optimizer(); err == nil { // else it is a program's own
			k = newKeeper(o)
		}
		if k.kind == 0 && s.StateDim > 0 && !x.o.Serving {
			restarted = append(restarted, fmt.Sprintf("%s: upstream has no rule like %s", s.Name, s.Optimizer))
		}
		out = append(out, k)
	}
	return out, restarted, nil
}

// fill makes the entry of a row; state is nil where it is not wanted.
func (x *exporter) fill(t param.TableShape, keepers []*keeper, id, micros int64, count uint64, weights, state []float32) {
	e := &x.entry
	e.Reset()
	e.ID, e.Num = id, append(e.Num, weights...)
	if x.o.Serving {
		return
	}
	e.HasOpt, e.HasTime, e.Count = true, true, count
	if micros > 0 {
		e.Time, e.Micros = micros/1_000_000, uint32(micros%1_000_000)
	}
	for k, s := range t.Segments {
		if keepers[k].dumps() {
			keepers[k].give(s.Dim, state[:s.StateDim], e.Add())
		}
		weights, state = weights[s.Dim:], state[s.StateDim:]
	}
}

// file is where a row goes: to a server by its id (floormod, as upstream's workers have it), to a shard of that by its place in the table.
func (x *exporter) file(id int64) *entrydump.Writer {
	server := int(id % int64(x.servers))
	if server < 0 {
		server += x.servers
	}
	shard := int(table.Hash(id) >> 32 * uint64(x.shards) >> 32)
	return x.files[server*x.shards+shard]
}

func (x *exporter) commit() error {
	for _, w := range x.files {
		if err := w.Commit(x.ctx); err != nil {
			return unavailable(err)
		}
		x.bytes += w.Bytes()
	}
	return x.close()
}

// close discards files that are not complete.
func (x *exporter) close() error {
	var errs []error
	for _, w := range x.files {
		errs = append(errs, w.Close())
	}
	x.files = nil
	return errors.Join(errs...)
}

// unavailable marks what the disk is to blame for.
func unavailable(err error) error {
	return fault.Mark(fmt.Errorf("job: %w", err), pipeline.ErrUnavailable, "make room or give the right to write there, or name another folder")
}
