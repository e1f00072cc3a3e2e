package snapshot

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
)

// Retention says which snapshots of a folder stay. What stays has its bases, whatever they are.
type Retention struct {
	// Keep is how many of the newest stay; pinned ones do not count.
	Keep int
	// For is for how long a snapshot stays beside those, by its age (see [Ages]); 0: not longer.
	For time.Duration
	// Exempt are the numbers of snapshots that stay whatever their age, beside pinned ones and the newest of each label.
	Exempt []uint64
}

// Kept returns, for each of the entries of [List], why it stays; "" when it does not. A damaged snapshot
// does not count and stays, for its owner to look at, with its bases. ages nil: see [Ages].
func (r Retention) Kept(entries []Entry, ages *Ages) []string {
	why, _ := r.kept(entries, ages)
	return why
}

// kept is [Retention.Kept]; counted are the entries that others may go for.
func (r Retention) kept(entries []Entry, ages *Ages) (why []string, counted []bool) {
	if ages == nil {
		ages = &Ages{}
	}
	age := ages.of(entries)
	why, counted = make([]string, len(entries)), make([]bool, len(entries))
	labels, keep := map[string]bool{"": true}, r.Keep
	baseOf := map[uint64]uint64{}
	for i, e := range entries { // newest first
		switch {
		case e.Err != nil:
			why[i] = "damaged"
		case e.Info.Pinned:
			why[i] = "pinned"
		default:
			first := !labels[e.Info.Label]
			labels[e.Info.Label] = true
			keep--
			counted[i] = keep >= 0 || first
			switch {
			case keep >= 0:
				why[i] = fmt.Sprintf("one of the newest %d", r.Keep)
			case first:
				why[i] = "newest " + e.Info.Label
			case slices.Contains(r.Exempt, e.ID):
				why[i] = "exempt"
			case r.For > 0 && age[i] < r.For:
				why[i] = fmt.Sprintf("not %v old", r.For)
			}
		}
		if by, ok := baseOf[e.ID]; ok && why[i] == "" {
			why[i] = "base of " + dirName(by)
		}
		if why[i] != "" && e.Info != nil && e.Info.Base != nil {
			if _, ok := baseOf[e.Info.Base.ID]; !ok {
				baseOf[e.Info.Base.ID] = e.ID
			}
		}
	}
	return why, counted
}

// Check says what is wrong with a snapshot that others are to be removed for. Errors: [ErrCorrupt]; others mean that it is not known.
type Check func(ctx context.Context, info *Info) error

// Plan is [Retention.Kept] after check has read the snapshots that count. A damaged one does not count, so
// another one stays, and its entry gets the error. Nothing is checked where all stay. check nil: sizes are
// enough. Errors: those of check that are not [ErrCorrupt].
func (r Retention) Plan(ctx context.Context, entries []Entry, ages *Ages, check Check) ([]string, error) {
	checked := make([]bool, len(entries))
	for {
		why, counted := r.kept(entries, ages)
		if check == nil || !slices.Contains(why, "") {
			return why, nil
		}
		damaged := false
		for i := range entries {
			if !counted[i] || checked[i] {
				continue
			}
			checked[i] = true
			if err := check(ctx, entries[i].Info); errors.Is(err, ErrCorrupt) {
				entries[i].Err, damaged = err, true
				break
			} else if err != nil {
				return nil, err
			}
		}
		if !damaged {
			return why, nil
		}
	}
}

// PruneOptions say how [Prune] goes about it.
type PruneOptions struct {
	// Ages are those of earlier lists of the folder in this process; nil: there are none.
	Ages *Ages
	// Check is asked for each snapshot that another one goes for, before anything is removed; nil: names and sizes of files are enough.
	Check Check
}

// Prune removes the snapshots of a folder that do not stay and returns their paths. Of a removal that is cut short, nothing is left that
// has lost its base. Nothing is removed while a snapshot cannot be read for another reason than damage, [ErrVersion] or a store that does not answer:
// it may be whole, and nobody knows what it adds to.
func Prune(ctx context.Context, f fsx.FS, dir string, r Retention, o PruneOptions) ([]string, error) {
	entries, err := ListIn(f, dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Err != nil && !errors.Is(e.Err, ErrCorrupt) {
			return nil, e.Err
		}
	}
	why, err := r.Plan(ctx, entries, o.Ages, o.Check)
	if err != nil {
		return nil, err
	}
	var gone []string
	var errs []error
	for i, e := range entries { // newest first: what adds to another one goes before it
		if why[i] != "" {
			continue
		}
		// The manifest goes first: of a removal that is cut short no snapshot is left.
		if err := remove(f, filepath.Join(e.Path, ManifestName)); err != nil {
			errs = append(errs, err)
			break // its base must stay
		}
		errs = append(errs, remove(f, e.Path))
		gone = append(gone, e.Path)
	}
	return gone, errors.Join(errs...)
}
