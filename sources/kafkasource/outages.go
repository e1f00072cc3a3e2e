package kafkasource

import (
	"log/slog"
	"sync"
	"time"
)

// logAfter is how long brokers may not answer as they should without a word: a partition that changes its leader is away for less.
const logAfter = time.Second

// outages log that the brokers of a source do not answer as they should, and that they do again: each once for all who
// wait, however many partitions these are. Methods may overlap; those of nil tell nobody.
type outages struct {
	mu      sync.Mutex
	readers int
	away    map[string]bool // who waits, and whether that is a partition
	since   time.Time       // the first of them
	logged  bool
	most    int // partitions that waited at the same time
}

// opened and closed count the readers of partitions.
func (o *outages) opened() { o.count(1) }
func (o *outages) closed() { o.count(-1) }

func (o *outages) count(by int) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.readers += by
}

// failed notes that who waits, since a time, for as long as limit, because of err.
func (o *outages) failed(log *slog.Logger, who string, partition bool, since time.Time, limit time.Duration, err error) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.away) == 0 {
		o.away, o.since, o.logged, o.most = map[string]bool{}, since, false, 0
	}
	o.away[who] = partition
	n := 0
	for _, is := range o.away {
		if is {
			n++
		}
	}
	o.most = max(o.most, n)
	if o.logged || time.Since(o.since) < logAfter {
		return
	}
	o.logged = true
	if partition {
		log = log.With("partitions", n, "of", o.readers)
	}
	log.Warn("kafka does not answer as it should, trying again", "err", err, "patience", limit)
}

// left notes that who does not wait any more: the brokers have answered, or it has given up. That they answer again is logged when nobody waits.
func (o *outages) left(log *slog.Logger, who string, answered bool) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, waits := o.away[who]; !waits {
		return
	}
	if delete(o.away, who); len(o.away) > 0 || !o.logged || !answered {
		return
	}
	if o.most > 0 {
		log = log.With("partitions", o.most)
	}
	log.Info("kafka answers again", "duration", time.Since(o.since).Round(time.Millisecond))
}
