package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/internal/kafkawire"
	"github.com/monolith-go/monolith/pipeline"
)

// fetched is what one answer of a broker holds, or the error that ended fetching.
type fetched struct {
	batches  []batch
	from, to int64 // offsets covered: the next answer begins at to
	buf      []byte
	err      error
}

// fetcher reads one partition from its leader and keeps one answer ready. Its fields belong to the goroutine that runs
// it, but for the channels and the atomics.
type fetcher struct {
	cl        *client
	opts      *Options
	log       *slog.Logger
	hooks     *pipeline.Hooks
	source    string
	split     string
	partition int32
	patience  patience

	pos      int64             // offset of the next record to fetch
	begin    int64             // where to begin instead, when that is behind pos
	end      int64             // where the split ends; -1: nowhere
	behind   int64             // offsets that lay behind the end because a transaction was open
	id       kafkawire.TopicID // zero: not known
	cluster  string            // empty: not known
	lastTerm int32
	maxBytes int
	compact  bool // the topic is compacted, so that offsets may be missing
	corrupt  int  // answers in a row that the broker cannot read its log
	// emptySince is since when there are no records although there should be some; zero: there are.
	emptySince time.Time
	empties    int // answers since then

	out  chan fetched
	free chan []byte  // buffers that the consumer has done with
	tail atomic.Int64 // the end of what can be read; -1: not known
	// asked is when the question was put that no broker has answered yet; nil: there is none, because the consumer is behind.
	asked atomic.Pointer[time.Time]
	lost  atomic.Int64 // offsets skipped in gaps
}

// run fetches until the split ends, an error cannot be waited out, or ctx ends. It closes out.
func (f *fetcher) run(ctx context.Context) {
	defer close(f.out)
	defer f.patience.leave(false)
	if f.begin > f.pos { // the position is gone, and it was decided to continue after the gap
		select {
		case f.out <- fetched{from: f.pos, to: f.begin}:
			f.pos = f.begin
		case <-ctx.Done():
			return
		}
	}
	for f.end < 0 || f.pos < f.end {
		got := f.next(ctx)
		select {
		case f.out <- got:
		case <-ctx.Done():
			return
		}
		if got.err != nil {
			return
		}
	}
}

// next returns the next answer with records, or the final error.
func (f *fetcher) next(ctx context.Context) fetched {
	defer f.asked.Store(nil)
	f.asks()
	for {
		got, err := f.once(ctx)
		if err == nil {
			f.patience.answered()
			if got.to == got.from {
				f.asks()
				continue
			}
			f.pos = got.to
			return got
		}
		f.cl.Forget()
		if err = f.patience.after(ctx, err); err != nil {
			return fetched{err: f.name(err)}
		}
	}
}

// asks keeps when a question is put.
func (f *fetcher) asks() {
	now := time.Now()
	f.asked.Store(&now)
}

// name says which source and split an error is about.
func (f *fetcher) name(err error) error {
	if _, ok := errors.AsType[*pipeline.GapError](err); ok {
		return err
	}
	return fmt.Errorf("%s/%s position %d: %w", f.source, f.split, f.pos, err)
}

// dataError says of a fault which source and split it is in.
func (f *fetcher) dataError(e *batchError) *pipeline.DataError {
	return &pipeline.DataError{Source: f.source, Split: f.split, Position: pipeline.Position(e.offset), Reason: e.reason, Err: e.err, Records: e.records}
}

// limits returns the range of offsets [first, last) of the log, after checking the topic's identity.
func (f *fetcher) limits(ctx context.Context) (first, last int64, err error) {
	if _, _, err := f.leader(ctx); err != nil {
		return 0, 0, err
	}
	return f.cl.limits(ctx, f.partition)
}

// leader finds the partition's leader and makes sure that the topic is still the one we began with.
func (f *fetcher) leader(ctx context.Context) (*kafkawire.Conn, *kafkawire.PartitionMeta, error) {
	cn, meta, err := f.cl.Leader(ctx, f.partition)
	if err != nil {
		return nil, nil, err
	}
	if is := f.cl.Cluster.ID; f.cluster == "" {
		f.cluster = is
	} else if is != "" && is != f.cluster {
		return nil, nil, f.gap(ctx, fmt.Sprintf("the topic was one of the cluster %s, and brokers of the cluster %s answer", f.cluster, is))
	}
	id := f.cl.Cluster.Topic(f.opts.Topic).ID
	if f.id == (kafkawire.TopicID{}) {
		f.id = id
	}
	if id != f.id {
		return nil, nil, f.gap(ctx, recreated)
	}
	return cn, meta, nil
}

// once asks the leader once. The result is empty when there is nothing to read yet.
func (f *fetcher) once(ctx context.Context) (fetched, error) {
	none := fetched{from: f.pos, to: f.pos}
	cn, meta, err := f.leader(ctx)
	if err != nil {
		return none, err
	}
	low, high := cn.Range(kafkawire.Fetch)
	version, err := kafkawire.FetchVersion(low, high, f.id)
	if err != nil {
		return none, fmt.Errorf("broker %s: %w: %w", cn.Addr(), err, pipeline.ErrConfig)
	}
	q := kafkawire.FetchRequest{
		Topic: f.opts.Topic, ID: f.id, Partition: f.partition, Term: meta.LeaderTerm, LastTerm: f.lastTerm,
		Offset: f.pos, MaxWait: f.opts.MaxWait, MaxBytes: int32(f.maxBytes), Committed: f.opts.Isolation == ReadCommitted,
	}
	var buf []byte
	select {
	case buf = <-f.free:
	default:
	}
	body, err := cn.Exchange(ctx, kafkawire.Fetch, version, version >= 12, q.Encode(version), f.opts.MaxWait, buf, f.limit())
	if err != nil {
		if size, ok := errors.AsType[kafkawire.TooLarge](err); ok {
			r := kafkawire.PeekFetch(body, version, f.partition)
			return f.tooLarge(r.Records, fmt.Errorf("the broker sends a batch of about %d bytes; raise source.kafka.max_batch_bytes, now %d", int64(size), f.opts.MaxBatchBytes)), nil
		}
		return none, err
	}
	r, err := kafkawire.DecodeFetch(body, version, f.partition)
	if err != nil {
		return none, fmt.Errorf("broker %s: fetch: %w", cn.Addr(), err)
	}
	if r.Throttle > 0 { // the broker wants to be left alone for that long (KIP-219)
		if err := sleep(ctx, r.Throttle); err != nil {
			return none, err
		}
	}
	got, err := f.accept(ctx, r, q.Committed)
	if err != nil {
		return none, err
	}
	if got.to == got.from {
		f.recycle(body)
	}
	got.buf = body
	return got, nil
}

// limit is the size of the largest answer to take: a broker sends the first batch whole even where it is larger than
// what we ask for.
func (f *fetcher) limit() int64 { return int64(max(f.opts.MaxBatchBytes, f.maxBytes)) + 64<<10 }

// recycle gives a buffer back; it is dropped when there are enough.
func (f *fetcher) recycle(buf []byte) {
	select {
	case f.free <- buf:
	default:
	}
}

// accept makes sense of an answer.
func (f *fetcher) accept(ctx context.Context, r kafkawire.FetchResponse, committed bool) (fetched, error) {
	none := fetched{from: f.pos, to: f.pos}
	switch {
	case r.Err == kafka.OffsetOutOfRange:
		return f.outOfRange(ctx)
	case r.Err == kafka.InvalidMessage:
		return f.unreadable()
	case r.Err == kafka.UnknownTopicID || r.Err == kafka.InconsistentTopicID:
		// The topic was deleted, and perhaps re-created: looking up the leader shows which. Or the broker does not know it yet.
		return none, r.Err
	case r.Err != 0:
		return none, r.Err
	case r.Diverges && r.DivergedAt < f.pos:
		return none, f.truncated(ctx, r.DivergedAt)
	case !r.Present:
		return none, nil
	}
	stable := r.HighWatermark
	if committed && r.Stable >= 0 {
		stable = r.Stable
	}
	f.tail.Store(stable)

	f.corrupt = 0
	got := scan(r.Records, f.pos, r.HighWatermark, r.Aborted, committed)
	if len(got.batches) == 0 {
		if got.partial && f.maxBytes >= f.opts.MaxBatchBytes {
			return f.tooLarge(r.Records, fmt.Errorf("it does not fit into source.kafka.max_batch_bytes, %d; raise it", f.opts.MaxBatchBytes)), nil
		}
		return f.empty(ctx, got.partial, r.Throttle > 0, stable)
	}
	f.emptySince, f.maxBytes = time.Time{}, f.opts.MaxBytes
	if got.hole.from != got.hole.to {
		if err := f.hole(ctx, got.hole); err != nil {
			return none, err
		}
	}
	if got.term >= 0 {
		f.lastTerm = got.term
	}
	return fetched{batches: got.batches, from: f.pos, to: got.next}, nil
}

// unreadable handles a broker that cannot read its own log at the position. It may know better soon, from another replica.
func (f *fetcher) unreadable() (fetched, error) {
	if f.corrupt++; f.corrupt < 3 {
		return fetched{from: f.pos, to: f.pos}, kafka.InvalidMessage
	}
	b := damaged(f.pos, f.pos, &batchError{offset: f.pos, reason: reasonCorrupt, err: errors.New("the broker cannot read its own log here; its disk may be damaged")}, nil)
	return fetched{batches: []batch{b}, from: f.pos, to: f.pos + 1}, nil
}

// tooLarge makes a damaged part of a batch of which only the beginning is here.
func (f *fetcher) tooLarge(head []byte, err error) fetched {
	f.maxBytes = f.opts.MaxBytes
	last := max(f.pos, lastOf(head[:min(len(head), batchOverhead)], f.pos, f.tail.Load(), nil))
	b := damaged(f.pos, last, &batchError{offset: f.pos, reason: reasonTooLarge, err: err}, nil)
	return fetched{batches: []batch{b}, from: f.pos, to: last + 1}
}

// empty handles an answer without a whole batch.
func (f *fetcher) empty(ctx context.Context, partial, throttled bool, stable int64) (fetched, error) {
	none := fetched{from: f.pos, to: f.pos}
	if partial {
		f.maxBytes = int(min(int64(f.maxBytes)*4, int64(f.opts.MaxBatchBytes)))
		return none, nil
	}
	// A bounded split of a compacted topic may end in offsets that compaction took away: the log continues past our
	// position, yet there is nothing. A broker that is busy or behind may answer the same for a while, so it takes time to
	// believe it, and of a topic that is not compacted it is never believed.
	if f.end < 0 || stable < f.end || throttled {
		f.emptySince = time.Time{}
		return none, nil
	}
	if f.emptySince.IsZero() {
		f.emptySince, f.empties = time.Now(), 0
	}
	f.empties++
	lasted := time.Since(f.emptySince)
	// Time alone says nothing: it passes while this process is stopped, or an answer takes long.
	if f.empties < emptyAnswers || lasted < emptyAnswers*f.opts.MaxWait {
		return none, sleep(ctx, f.opts.MaxWait)
	}
	h := span{f.pos, f.end}
	compact, err := f.compacted(ctx, h)
	switch {
	case err != nil:
		return none, err
	case compact:
		f.emptySince = time.Time{}
		return fetched{from: f.pos, to: f.end}, nil
	case lasted > f.opts.RetryFor:
		return none, fmt.Errorf("the broker says that its log continues to offset %d, and has given nothing of it for %s, see source.kafka.retry_for: %w",
			stable, lasted.Round(time.Millisecond), pipeline.ErrUnavailable)
	}
	return none, sleep(ctx, f.opts.MaxWait)
}

// emptyAnswers is how often in a row, as long as a broker may hold a request back each time, there must be nothing where
// its log should continue.
const emptyAnswers = 10

// hole decides about offsets that are missing inside the log.
func (f *fetcher) hole(ctx context.Context, h span) error {
	compact, err := f.compacted(ctx, h)
	if err != nil || compact {
		return err
	}
	return f.lose(h.to, &pipeline.GapError{
		Source: f.source, Split: f.split, Want: pipeline.Position(h.from), First: pipeline.Position(h.to), Last: pipeline.Position(f.tail.Load()),
		Hint: "offsets are missing inside the log of a topic that is not compacted; if it was once, or was copied from one that is, set source.kafka.on_gap to skip",
	})
}

// compacted reports whether compaction explains that offsets are missing.
func (f *fetcher) compacted(ctx context.Context, h span) (bool, error) {
	if f.compact {
		return true, nil
	}
	var err error
	if f.compact, err = f.cl.compacted(ctx); err != nil {
		var code kafka.Error
		if !errors.As(err, &code) || !isDenied(code) {
			return false, err
		}
		f.log.Warn("offsets are missing and the broker does not let us look up why; taking the topic for a compacted one",
			"offset", h.from, "until", h.to, "err", err)
		f.compact = true
	}
	return f.compact, nil
}

func isDenied(code kafka.Error) bool {
	return code == kafka.TopicAuthorizationFailed || code == kafka.ClusterAuthorizationFailed
}

// lose applies the gap policy to a gap between our position and offset to. It returns nil when reading may continue there.
func (f *fetcher) lose(to int64, gap *pipeline.GapError) error {
	if f.opts.OnGap != SkipGap {
		return gap
	}
	from := int64(gap.Want)
	f.log.Warn("records are gone, skipping", "split", f.split, "offset", from, "until", to, "lost", to-from)
	f.hooks.RowDropped(f.source, "gap", 1)
	f.hooks.RecordsLost(f.source, f.split, from, to)
	f.lost.Add(to - from)
	return nil
}

// outOfRange handles a position that the log does not have. Brokers differ in what else their answer says, so the log's
// limits are asked for.
func (f *fetcher) outOfRange(ctx context.Context) (fetched, error) {
	none := fetched{from: f.pos, to: f.pos}
	f.cl.Forget() // so that the topic's identity is looked at again
	first, last, err := f.limits(ctx)
	if err != nil {
		return none, err
	}
	switch err := f.judge(first, last); {
	case err != nil:
		return none, err
	case f.pos < first:
		return fetched{from: f.pos, to: first}, nil
	}
	// In range after all: a record came or retention was undone in between, or the broker has no history of the leader
	// epoch we named.
	f.lastTerm = -1
	return none, kafka.OffsetOutOfRange
}

// judge compares the position with the log's limits: nil when it lies inside, or before them and may be skipped.
func (f *fetcher) judge(first, last int64) error {
	gap := &pipeline.GapError{
		Source: f.source, Split: f.split, Want: pipeline.Position(f.pos), First: pipeline.Position(first), Last: pipeline.Position(last),
	}
	switch {
	case f.pos < first:
		gap.Hint = "retention or DeleteRecords has passed the position; set source.kafka.on_gap to skip to continue at its first record, or read the missing ones from elsewhere"
		return f.lose(first, gap)
	case f.pos > last:
		gap.Hint = "the log was truncated, or the topic deleted and re-created: " + otherRecords
		return gap
	}
	return nil
}

// truncated is the error for a log that ends, or continues otherwise, before what was read of it.
func (f *fetcher) truncated(ctx context.Context, at int64) error {
	f.cl.Forget()
	return f.gap(ctx, fmt.Sprintf("the log was truncated to offset %d after it had been read further (an unclean leader election?)", at))
}

// gap makes an error that no policy skips, with the log's limits as far as a broker reports them.
func (f *fetcher) gap(ctx context.Context, other string) error {
	first, last, err := f.cl.limits(ctx, f.partition)
	if err != nil {
		first, last = int64(pipeline.NoPosition), int64(pipeline.NoPosition)
	}
	return &pipeline.GapError{
		Source: f.source, Split: f.split, Want: pipeline.Position(f.pos),
		First: pipeline.Position(first), Last: pipeline.Position(last), Other: other, Hint: otherRecords,
	}
}
