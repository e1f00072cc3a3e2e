package wal_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/ps/wal"
)

// followed is what somebody has of a shard's log who follows it.
type followed struct {
	place wal.Place
	got   []string
}

// add takes a piece.
func (f *followed) add(t *testing.T, shard uint32, p wal.Piece) {
	t.Helper()
	place, err := wal.ReadPiece(shard, f.place, p, func(r wal.Followed) error {
		switch {
		case r.Border:
			f.got = append(f.got, fmt.Sprint("border ", r.Base))
		case r.Reset:
			f.got = append(f.got, fmt.Sprint("reset ", r.Base))
		default:
			f.got = append(f.got, fmt.Sprint(r.Kind, " ", string(r.Payload)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.place = place
}

// TestFollow: who follows a log while it grows gets each record of the shard once and in order, over files, borders and broken connections, and over a new
// start of the process that writes it; and nothing that is not durable. (The disks of the other tests do not show a reader what is written later.)
func TestFollow(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		o := wal.Options{Dir: t.TempDir(), SegmentBytes: 600, NoSync: seed%4 > 0}
		var want []string
		f := &followed{place: wal.Place{}}
		for life := range 3 {
			l, err := wal.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			other, s := l.Shard(0), l.Shard(7)
			for _, x := range []*wal.ShardLog{other, s} {
				base := uint64(0)
				if b := x.Bases(); len(b) > 0 {
					base = b[0]
				}
				if _, err := x.Replay(t.Context(), base, func(byte, []byte) error { return nil }); err != nil {
					t.Fatal(err)
				}
				if err := x.Begin(); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			upto := make(chan uint64, 1)
			var wg sync.WaitGroup
			wg.Go(func() {
				var in *wal.Follower
				target, done := uint64(0), false
				for {
					select {
					case target = <-upto:
						done = true
					default:
					}
					if done && f.place.LSN >= target {
						break
					}
					if in == nil {
						again, err := s.Follow(f.place)
						if err != nil {
							t.Error(err)
							return
						}
						in = again
					}
					p, err := in.Next(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					if d := l.Stats().Durable; p.Upto > d {
						t.Errorf("record %d was read, %d is durable", p.Upto, d)
					}
					f.add(t, 7, p)
					if p.Upto%5 == 0 { // the connection breaks
						if err := in.Close(); err != nil {
							t.Error(err)
						}
						in = nil
					}
				}
				if in != nil {
					_ = in.Close()
				}
			})
			for i := range 60 {
				switch at := r.IntN(12); {
				case at == 0:
					if err := s.Rotate(s.Base() + 1); err != nil {
						t.Fatal(err)
					}
					want = append(want, fmt.Sprint("border ", s.Base()))
				case at < 4:
					if _, err := other.Append(9, []byte("others")); err != nil {
						t.Fatal(err)
					}
				default:
					text := strings.Repeat("x", r.IntN(200)) + fmt.Sprint(life, "/", i)
					if _, err := s.Append(byte(at), []byte(text)); err != nil {
						t.Fatal(err)
					}
					want = append(want, fmt.Sprint(at, " ", text))
				}
				if r.IntN(4) == 0 {
					if err := s.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			last, err := s.Append(1, []byte("last"))
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, "1 last")
			upto <- last
			if _, err := other.Append(9, []byte("so that it looks")); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			cancel()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, f.got); diff != "" {
			t.Fatalf("seed %d (-written +followed):\n%s", seed, diff)
		}
	}
}

// TestFollowFromWhereItIsNot: a place that the log has not, or not any more, is refused, and so is one of another life of it.
func TestFollowFromWhereItIsNot(t *testing.T) {
	t.Parallel()
	begin := func(records int) (*wal.Log, *wal.ShardLog, uint64) {
		l, err := wal.Open(wal.Options{Dir: t.TempDir(), SegmentBytes: 300, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		s := l.Shard(0)
		if err := s.Reset(3); err != nil {
			t.Fatal(err)
		}
		var last uint64
		for range records {
			if last, err = s.Append(1, []byte(strings.Repeat("y", 100))); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		return l, s, last
	}
	l, s, last := begin(5)
	another, other, _ := begin(5)
	f, err := s.Follow(wal.Place{Base: 3})
	if err != nil {
		t.Fatal(err)
	}
	at := &followed{}
	for at.place.LSN < last {
		p, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		at.add(t, 0, p)
	}
	for what, try := range map[string]struct {
		of    *wal.ShardLog
		place wal.Place
	}{
		"no such border": {s, wal.Place{Base: 4}}, "a record to come": {s, wal.Place{LSN: last + 1, Salt: at.place.Salt}},
		"another life": {other, at.place}, "before the first": {s, wal.Place{}},
	} {
		if _, err := try.of.Follow(try.place); !errors.Is(err, wal.ErrBase) {
			t.Errorf("%s: %v, want ErrBase", what, err)
		}
	}
	slow, err := s.Follow(wal.Place{Base: 3})
	if err != nil {
		t.Fatal(err)
	}
	for base := uint64(4); base < 8; base++ { // two snapshots later its records are gone
		for range 4 {
			if _, err := s.Append(1, []byte(strings.Repeat("z", 100))); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(s.Rotate(base), s.Flush(t.Context()), s.Trim(base)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := slow.Next(t.Context()); !errors.Is(err, wal.ErrBase) {
		t.Errorf("a follower of what was trimmed: %v, want ErrBase", err)
	}
	waits, err := s.Follow(wal.Place{Base: 7})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := waits.Next(t.Context()); err != nil || !p.End || len(p.Bytes) > 0 {
		t.Errorf("the first piece of nothing: %+v, %v", p, err)
	}
	ended := make(chan error)
	go func() { _, err := waits.Next(t.Context()); ended <- err }()
	if err := errors.Join(l.Close(), another.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, wal.ErrClosed) {
		t.Errorf("following a log that is closed: %v, want ErrClosed", err)
	}
	for _, f := range []*wal.Follower{f, slow, waits} {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzReadPiece: what another process sends is taken as written or refused.
func FuzzReadPiece(f *testing.F) {
	seg := wal.EncodeSegment("", 1, 5, 77, 4, wal.ResetOf(2, 1), wal.Entry{Shard: 2, Kind: 3, Payload: []byte("abc")}, wal.BorderOf(2, 9))
	records := seg[60-4:]
	f.Add(uint64(4), uint64(77), uint64(7), records)
	f.Add(uint64(4), uint64(77), uint64(7), records[:len(records)-1])
	f.Fuzz(func(t *testing.T, from, salt, upto uint64, b []byte) {
		last, n := from, 0
		place, err := wal.ReadPiece(2, wal.Place{LSN: from, Salt: 1}, wal.Piece{Salt: salt, Upto: upto, Bytes: b}, func(r wal.Followed) error {
			if r.LSN <= last || r.LSN > upto || r.Border && r.Reset || (r.Border || r.Reset) && len(r.Payload) > 0 {
				t.Errorf("record %+v after %d, up to %d", r, last, upto)
			}
			last, n = r.LSN, n+len(r.Payload)
			return nil
		})
		switch {
		case err != nil && !errors.Is(err, wal.ErrCorrupt):
			t.Errorf("refused with %v", err)
		case err == nil && (place != wal.Place{LSN: upto, Salt: salt} || upto < from || n > len(b)):
			t.Errorf("at %+v after %d of %d bytes", place, n, len(b))
		}
	})
}
