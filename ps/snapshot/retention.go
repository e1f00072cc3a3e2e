package snapshot

import (
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
	// For is for how long a snapshot stays after it was taken, beside those; 0: not longer.
	For time.Duration
	// Exempt are the numbers of snapshots that stay whatever their age, beside pinned ones and the newest of each label.
	Exempt []uint64
}

// Kept returns, for each of the entries of [List], why it stays; "" when it does not. now is the time that ages end at. What cannot be read does not
// count and stays, for its owner to look at.
func (r Retention) Kept(entries []Entry, now time.Time) []string {
	why := make([]string, len(entries))
	labels, keep := map[string]bool{"": true}, r.Keep
	baseOf := map[uint64]uint64{}
	for i, e := range entries { // newest first
		switch {
		case e.Err != nil:
			why[i] = "damaged"
			continue
		case e.Info.Pinned:
			why[i] = "pinned"
		default:
			first := !labels[e.Info.Label]
			labels[e.Info.Label] = true
			keep--
			switch {
			case keep >= 0:
				why[i] = fmt.Sprintf("one of the newest %d", r.Keep)
			case first:
				why[i] = "newest " + e.Info.Label
			case slices.Contains(r.Exempt, e.ID):
				why[i] = "exempt"
			case r.For > 0 && now.Sub(e.Info.Created) < r.For:
				why[i] = fmt.Sprintf("not %v old", r.For)
			}
		}
		if by, ok := baseOf[e.ID]; ok && why[i] == "" {
			why[i] = "base of " + dirName(by)
		}
		if why[i] != "" && e.Info.Base != nil {
			if _, ok := baseOf[e.Info.Base.ID]; !ok {
				baseOf[e.Info.Base.ID] = e.ID
			}
		}
	}
	return why
}

// Prune removes the snapshots of a folder that do not stay and returns their paths. Of a removal that is cut short, nothing is left that
// has lost its base. Nothing is removed while a manifest cannot be read for another reason than damage, [ErrVersion] or a store that does not answer:
// the snapshot may be whole, and nobody knows what it adds to.
func Prune(f fsx.FS, dir string, r Retention, now time.Time) ([]string, error) {
	entries, err := ListIn(f, dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Err != nil && !errors.Is(e.Err, ErrCorrupt) {
			return nil, e.Err
		}
	}
	var gone []string
	var errs []error
	why := r.Kept(entries, now)
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
