package beam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/sdf"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/io/rtrackers/offsetrange"
	df "google.golang.org/api/dataflow/v1b3"
	"google.golang.org/api/option"

	"github.com/monolith-go/monolith/pipeline"
)

// RunAs is Run on a runner with other capabilities.
func RunAs(ctx context.Context, r Recipe, plan *pipeline.Plan, o Options, resumesBounded, oneProcess bool) ([]pipeline.RunStats, error) {
	return run(ctx, r, plan, o.withDefaults(), capability{resumesBounded: resumesBounded, oneProcess: oneProcess})
}

// Reaches has a Dataflow submit to another place than Google Cloud.
func (d *Dataflow) Reaches(endpoint string, upload func(ctx context.Context, url string, content []byte) error) {
	d.upload, d.poll = upload, time.Millisecond
	d.service = func(ctx context.Context) (*df.Service, error) {
		return df.NewService(ctx, option.WithEndpoint(endpoint), option.WithoutAuthentication())
	}
}

// Deal returns the names of the splits of each task.
func Deal(splits []pipeline.Split, o Options, oneProcess bool) (names [][]string) {
	for _, t := range deal(splits, o.withDefaults(), capability{oneProcess: oneProcess}) {
		var of []string
		for _, s := range t.Splits {
			of = append(of, s.Name)
		}
		names = append(names, of)
	}
	return names
}

// DecodeTask decodes a task and asks it for its restriction.
func DecodeTask(b []byte) (start, end int64, err error) {
	t, err := decodeTask(b)
	if err != nil {
		return 0, 0, err
	}
	r := t.restriction()
	return r.Start, r.End, nil
}

// IsWorker reports whether arguments are those of a worker's boot program.
func IsWorker(args []string) bool {
	_, ok := parseBoot(args)
	return ok
}

// Parcels are examples of what travels between segments.
func Parcels() [][]byte {
	return [][]byte{parcel{task: []byte("{}")}.encode(), parcel{shuffle: "users", partition: 300, rows: []byte("rows")}.encode()}
}

// DecodeParcel decodes a parcel and encodes it again.
func DecodeParcel(b []byte) ([]byte, error) {
	p, err := decodeParcel(b)
	return p.encode(), err
}

// Feed runs the first task of a plan that begins at sources and ends in a shuffle, in a bundle of another process than the one that submitted it.
func Feed(ctx context.Context, r Recipe, plan *pipeline.Plan, splits []pipeline.Split, rows func(string, []byte), records func([]byte)) error {
	o := (Options{}).withDefaults()
	s := spec{Run: fmt.Sprintf("%p", plan), Process: "another", Recipe: r, Hash: plan.Hash(), Lease: int64(o.Lease), Renew: int64(o.Renew)}
	tasks, err := dealAll(plan, splits, o, capability{})
	if err != nil {
		return err
	}
	b, err := tasks[0].encode()
	if err != nil {
		return err
	}
	return (&feedFn{s}).ProcessElement(ctx, b, rows, records)
}

// Element is one element of a run in another process than the one that submitted it, with what a runner keeps of it.
type Element struct {
	fn        leaseFn
	elem      []byte
	Rest      offsetrange.Restriction
	watermark int64
	// Stats are what the element's executor did; valid when Process has returned that it ended.
	Stats pipeline.RunStats
}

// Elements makes the elements of a run of a submitted plan.
func Elements(r Recipe, plan *pipeline.Plan, splits []pipeline.Split, o Options) ([]*Element, error) {
	o = o.withDefaults()
	s := spec{
		Run: fmt.Sprintf("%p", plan), Process: "another", Recipe: r, Hash: plan.Hash(), Deterministic: o.Deterministic, MaxRows: o.MaxRows,
		Lease: int64(o.Lease), Renew: int64(o.Renew),
	}
	var out []*Element
	tasks, err := dealAll(plan, splits, o, capability{resumesBounded: true, oneProcess: true})
	if err != nil {
		return nil, err
	}
	for _, t := range tasks {
		b, err := t.encode()
		if err != nil {
			return nil, err
		}
		e := &Element{fn: leaseFn{segmentFn{s}}, elem: b}
		if e.Rest, err = e.fn.CreateInitialRestriction(b); err != nil {
			return nil, err
		}
		e.watermark = e.fn.InitialWatermarkEstimatorState(0, e.Rest, b)
		out = append(out, e)
	}
	return out, nil
}

// Watermark is the element's watermark.
func (e *Element) Watermark() time.Time {
	return e.fn.CreateWatermarkEstimator(e.watermark).State
}

// Truncate does what a runner does that drains.
func (e *Element) Truncate() error {
	rt, err := e.fn.CreateTracker(e.Rest)
	if err == nil {
		e.Rest = e.fn.TruncateRestriction(rt, e.elem)
	}
	return err
}

// Expire ends the element's executor as if its lease had run out.
func (e *Element) Expire() error {
	t, err := decodeTask(e.elem)
	if err != nil {
		return err
	}
	r, err := process.enter(e.fn.Spec)
	if err != nil {
		return err
	}
	defer process.leave(r)
	l := r.anyLease()
	if l == nil || l.task.Index != t.Index {
		return errors.New("the element has no executor")
	}
	l.cancel(ErrLease)
	<-l.done
	return nil
}

// Process is one bundle with the element. It fails when the tracker is not left as Beam wants it.
func (e *Element) Process(ctx context.Context) (ended bool, err error) {
	rt, err := e.fn.CreateTracker(e.Rest)
	if err != nil {
		return false, err
	}
	we := e.fn.CreateWatermarkEstimator(e.watermark)
	var records []record
	c, err := e.fn.ProcessElement(ctx, we, rt, e.elem, func(b []byte) {
		var r record
		if uerr := json.Unmarshal(b, &r); uerr != nil {
			panic(uerr)
		}
		records = append(records, r)
	})
	if err != nil {
		return false, err
	}
	if _, residual, err := rt.TrySplit(0.5); err != nil || residual != nil {
		return false, fmt.Errorf("a runner could cut the restriction: %v, %w", residual, err)
	}
	e.watermark = e.fn.WatermarkEstimatorState(we)
	if !c.ShouldResume() {
		for _, r := range records {
			e.Stats = r.whole()
		}
		if !rt.IsDone() {
			return true, errors.New("the restriction is not done")
		}
		return true, rt.GetError()
	}
	_, residual, err := rt.TrySplit(0)
	if err != nil || residual == nil || !rt.IsDone() {
		return false, fmt.Errorf("checkpoint of %v: %v, %w", rt, residual, err)
	}
	e.Rest = residual.(offsetrange.Restriction)
	return false, nil
}

var _ sdf.RTracker = (*tracker)(nil)
