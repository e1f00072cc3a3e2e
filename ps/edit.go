package ps

import (
	"context"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/model/param"
)

// EditSource is the source under which positions of edits are kept. No source of a job is called so.
const EditSource = "(edits)"

// Editor changes rows in place of training them, under the name of a request. Edits are pushes like those of a worker: each call is applied on all
// shards or on none, once, logged and part of cuts; it is applied when the call returns. The shards keep, under the request's name, how many fids were
// edited, as the position of a split: who is cut off opens an editor of the same name and continues from [Editor.Done].
//
// Without a write-ahead log edits last, as pushes do, from the next snapshot on; when the shards go back to one before, Done goes back too.
//
// Its methods may not overlap. While nobody calls one for longer, call [Client.Idle] as workers do, or close the client: a
// snapshot waits for it.
type Editor struct {
	c    *Client
	u    param.Update
	done int64
}

// Edit makes an editor of this client, which must be a trainer's. A former editor of that name is refused from then on. Errors: those of
// [Client.Resume], [ErrReadOnly].
func (c *Client) Edit(ctx context.Context, request string) (*Editor, error) {
	p, err := c.Resume(ctx, EditSource, []string{request})
	if err != nil {
		return nil, err
	}
	e := &Editor{c: c, done: max(int64(p[request].Position), 0)}
	n := len(c.place.dims)
	e.u = param.Update{
		Source: EditSource, Split: request, LR: 1, Keys: make([][]int64, n), Counts: make([][]uint32, n), Grads: make([][]float32, n),
	}
	return e, nil
}

// Done is how many fids were edited under the request's name, of all calls, those of former editors included.
func (e *Editor) Done() int64 { return e.done }

// Apply edits rows of table number tbl of the layout: op is not [param.Train], fids are distinct, values are [len(fids), its Width(op)]. Neither is kept. A
// call that failed may be made again. Errors: [ErrLayout], those of [Client.Push] and [Client.Flush].
func (e *Editor) Apply(ctx context.Context, op param.Op, tbl int, fids []int64, values []float32) error {
	if op == param.Train || tbl < 0 || tbl >= len(e.u.Keys) {
		return fmt.Errorf("ps: %v of rows of table %d of %d: %w", op, tbl, len(e.u.Keys), ErrLayout)
	}
	if len(fids) == 0 {
		return nil
	}
	for t := range e.u.Keys {
		e.u.Keys[t], e.u.Counts[t], e.u.Grads[t] = nil, nil, nil
	}
	e.u.Op, e.u.From, e.u.To = op, e.done, e.done+int64(len(fids))
	e.u.Keys[tbl], e.u.Counts[tbl], e.u.Grads[tbl] = fids, make([]uint32, len(fids)), values
	if sorted := slices.Sorted(slices.Values(fids)); len(slices.Compact(sorted)) != len(fids) {
		return fmt.Errorf("ps: some of %d fids to %v are there twice: %w", len(fids), op, ErrLayout)
	}
	if err := e.c.Push(ctx, &e.u); err != nil {
		return err
	}
	if err := e.c.Flush(ctx); err != nil {
		return err
	}
	e.done = e.u.To
	return nil
}
