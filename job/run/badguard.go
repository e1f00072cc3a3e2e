package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/pipeline"
)

// ErrBadRows means that a run read its source and found nothing, or too little, that can be used: the format, the label or
// another part of the job's parse section does not fit the data.
var ErrBadRows = errors.New("the records are not what the job says")

const (
	// badWindow is how many records the share of bad ones is taken over.
	badWindow = 1000
	// badFew is how many records, none of them good, are enough to say so; after badPatience one is.
	badFew      = 10
	badPatience = 10 * time.Second
	// badEvery is how often it is logged that all are bad.
	badEvery = time.Minute
)

// badGuard is a policy for bad rows that ends the run when too many are bad. Records are counted when the block that they
// came in is done, so that the bad ones of a block do not weigh before its good ones. Its methods may overlap.
type badGuard struct {
	next   pipeline.BadRowPolicy
	count  *pipeline.SkipBadRows
	share  float64 // 1: never ends it
	format string
	log    *slog.Logger
	now    func() time.Time

	mu     sync.Mutex
	blocks map[[2]string]int64 // bad rows of each split whose block is not done
	// good and bad are of the window, allGood and allBad of the run.
	good, bad, allGood, allBad int64
	first                      string // what the first bad row was
	firstAt                    time.Time
	// checkedAt is when it was last checked whether all are bad, goodThen and badThen what there was.
	checkedAt         time.Time
	goodThen, badThen int64
}

var _ pipeline.GoodRowCounter = (*badGuard)(nil)

// BadRow implements [pipeline.BadRowPolicy].
func (g *badGuard) BadRow(ctx context.Context, err *pipeline.DataError, payload []byte) error {
	g.mu.Lock()
	g.blocks[[2]string{err.Source, err.Split}] += err.Rows()
	if g.allBad += err.Rows(); g.first == "" {
		g.first, g.firstAt, g.checkedAt = err.Error(), g.now(), g.now()
	}
	g.mu.Unlock()
	return g.next.BadRow(ctx, err, payload)
}

// GoodRows implements [pipeline.GoodRowCounter]. Errors: [ErrBadRows].
func (g *badGuard) GoodRows(source, split string, rows int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := [2]string{source, split}
	g.bad += g.blocks[key]
	delete(g.blocks, key)
	g.good += int64(rows)
	g.allGood += int64(rows)
	g.warn()
	n := g.good + g.bad
	if n < badWindow {
		return nil
	}
	bad := g.bad
	g.good, g.bad = 0, 0
	if float64(bad) <= g.share*float64(n) {
		return nil
	}
	return g.fault(fmt.Sprintf("%d of %d records are bad, more than train.max_bad_share, %g", bad, n, g.share), g.count.Counts())
}

// warn says, once and then every minute, that no record can be used. The lock is held.
func (g *badGuard) warn() {
	now := g.now()
	switch {
	case g.allBad == g.badThen:
		return
	case g.badThen == 0: // nothing was logged yet
		if g.allGood > 0 || g.allBad < badFew && now.Sub(g.firstAt) < badPatience {
			return
		}
	case now.Sub(g.checkedAt) < badEvery:
		return
	}
	if g.allGood == g.goodThen {
		g.log.Warn("no record can be used: parse.format or the label does not fit them", "records", g.allBad-g.badThen, "format", g.format, "first", g.first)
	}
	g.checkedAt, g.goodThen, g.badThen = now, g.allGood, g.allBad
}

// nothing is the error of a run that has come to an end and found only bad records; nil when there was a good one, or none
// at all. What executors in other processes met is known by the run's statistics alone.
func (g *badGuard) nothing(stats pipeline.RunStats) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	bad, counts := g.allBad, g.count.Counts()
	if bad == 0 {
		counts = stats.BadRows
		for _, n := range counts {
			bad += n
		}
	}
	if g.allGood+stats.Rows+stats.LeftOut > 0 || bad == 0 {
		return nil
	}
	what := fmt.Sprintf("all %d records are bad", bad)
	if bad == 1 {
		what = "the only record is bad"
	}
	return g.fault(what, counts)
}

// fault is the error of too many bad rows, with reasons and the first of them.
func (g *badGuard) fault(what string, counts map[string]int64) error {
	reasons := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) // the same text for the same run
	})
	for i, r := range reasons {
		reasons[i] = fmt.Sprintf("%s %d", r, counts[r])
	}
	first := "the executors' logs have each"
	if g.first != "" {
		first = "the first: " + g.first
	}
	return fmt.Errorf("job: %s (%s); %s; is parse.format %s right, and the label's name? %w",
		what, strings.Join(reasons, ", "), first, g.format, ErrBadRows)
}
