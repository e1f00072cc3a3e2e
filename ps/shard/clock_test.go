package shard_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/table"
)

// aging is a shard whose rows expire 100 after their last update, and how far its only split is.
type aging struct {
	*shard.Shard

	t  *testing.T
	to int64
}

func newAging(t *testing.T, maxStep int64) *aging {
	t.Helper()
	l := pstest.CountingLayout()
	l.Retention = param.Retention{Default: param.SlotRetention{Expire: 100}, MaxJump: 50, MaxStep: maxStep}
	s, err := shard.New(l, 0, 1, 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.Open(1, "w")
	if _, err := s.Acquire(1, ps.SplitID{Source: "s", Split: "x"}, 1); err != nil {
		t.Fatal(err)
	}
	return &aging{Shard: s, t: t}
}

// push applies an update of one fid.
func (a *aging) push(time, fid int64) {
	a.t.Helper()
	l := pstest.CountingLayout()
	u := &param.Update{
		Source: "s", Split: "x", From: a.to, To: a.to + 1, NumRows: 1, Time: time, LR: 1,
		Keys: make([][]int64, len(l.Tables)), Counts: make([][]uint32, len(l.Tables)), Grads: make([][]float32, len(l.Tables)),
	}
	u.Keys[0], u.Counts[0], u.Grads[0] = []int64{fid}, []uint32{1}, make([]float32, l.Tables[0].Dim())
	if err := a.Stage(1, 1, u); err != nil {
		a.t.Fatal(err)
	}
	a.to++
	if _, err := a.Controls(1, []ps.Control{{Kind: ps.Commit, Split: ps.SplitID{Source: "s", Split: "x"}, Epoch: 1, To: a.to}}); err != nil {
		a.t.Fatal(err)
	}
}

// now is what the clock shows.
func (a *aging) now() int64 {
	a.t.Helper()
	b := a.State(ps.ClockState)
	if len(b) < 8 {
		a.t.Fatalf("clock %x", b)
	}
	return int64(binary.LittleEndian.Uint64(b))
}

// has reports whether a fid has a row.
func (a *aging) has(fid int64) bool {
	a.t.Helper()
	var rows table.Rows
	if err := a.Entries(0, []int64{fid}, &rows); err != nil {
		a.t.Fatal(err)
	}
	ok := len(rows.Keys) > 0
	return ok
}

func TestRowsExpireByEventTime(t *testing.T) {
	t.Parallel()
	a := newAging(t, 0)
	a.push(0, 1) // no time: as of the beginning
	for range 8 {
		a.push(1000, 2) // the first time is not believed at once either
	}
	a.push(1040, 3)
	for _, fid := range []int64{1, 2, 3} {
		if !a.has(fid) {
			t.Errorf("fid %d has no row at the beginning", fid)
		}
	}
	a.push(1080, 4)
	if a.push(1099, 5); !a.has(1) || !a.has(2) {
		t.Error("rows are gone after 99, before their time")
	}
	if a.push(1100, 6); a.has(1) || a.has(2) || !a.has(3) {
		t.Error("after 100 the first two rows must be gone, the third not")
	}
	if a.push(500, 3); !a.has(3) { // late, and an occurrence all the same: its time stays
		t.Error("a late update has removed a row")
	}
	if a.push(1141, 7); a.has(3) {
		t.Error("a row of 1040 is there at 1141")
	}
}

// A time of the far future moves nothing, unless all are there.
func TestClockBelievesNoJump(t *testing.T) {
	t.Parallel()
	a := newAging(t, 0)
	for i := range int64(8) {
		a.push(1000+i, 1)
	}
	for i := range int64(40) {
		if a.push(1010, 2); i%8 < 7 {
			a.push(1<<60+i, 3) // bad rows, seven of eight batches
		} else {
			a.push(1010, 3)
		}
	}
	if !a.has(1) || !a.has(3) {
		t.Error("a bad time has expired rows")
	}
	for range 7 {
		a.push(5000, 4)
	}
	if !a.has(1) {
		t.Error("seven updates that are far ahead have moved the clock")
	}
	a.push(1<<60, 5) // one of them is bad: the clock is that of the others
	if a.has(1) || !a.has(5) {
		t.Error("after eight updates that are far ahead the clock has not moved")
	}
	if a.push(5010, 6); !a.has(5) || !a.has(6) {
		t.Error("the clock has gone to the bad time")
	}
	if a.push(5050, 6); !a.has(5) {
		t.Error("a row of a bad time counts as older than the clock was")
	}
	for time := int64(5060); time <= 5120; time += 10 {
		a.push(time, 6)
	}
	if a.has(5) {
		t.Error("a row of a bad time never expires")
	}
}

// One update moves the clock by the largest step at most: a time of the future expires nothing, and after a
// rest the rows that still occur stay.
func TestClockStepsAreBounded(t *testing.T) {
	t.Parallel()
	a := newAging(t, 10)
	is := func(when string, want int64) {
		t.Helper()
		if got := a.now(); got != want {
			t.Errorf("%s: the clock shows %d, want %d", when, got, want)
		}
	}
	for range 8 {
		a.push(1000, 1)
	}
	is("the first time has no bound", 1000)
	a.push(1040, 2)
	is("a time of the future", 1010)
	for range 30 {
		a.push(1002, 3)
	}
	is("the times of before again", 1010)
	a.push(1015, 3)
	is("a short step", 1015)
	for range 7 {
		a.push(5000, 4)
	}
	is("seven updates that are far ahead", 1015)
	for i := range int64(5) {
		a.push(5000+i, 5)
		is("a step for each one that is believed", 1015+10*(i+1))
		if !a.has(1) || !a.has(5) {
			t.Error("rows are gone within some steps")
		}
	}
	a.push(1<<60, 5) // a bad one among them
	is("a time that is further ahead", 1075)
	b := newAging(t, 10) // a restart in the middle
	b.SetState(ps.ClockState, a.State(ps.ClockState))
	for range 392 {
		a.push(6000, 5)
		b.push(6000, 5)
	}
	if is("the last step but one", 4995); !a.has(5) || a.has(1) || b.now() != 4995 {
		t.Errorf("rows of 5: %v, of 1: %v; after a restart the clock shows %d", a.has(5), a.has(1), b.now())
	}
	a.push(6000, 5)
	is("the smallest time that was far ahead", 5000)
	for range 7 {
		a.push(6000, 5)
	}
	is("seven that are far ahead of that", 5000)
	a.push(6000, 5)
	is("the eighth", 5010)
	a.push(5012, 5)
	is("a time that is near", 5012)
}

func TestClockIsWorkerState(t *testing.T) {
	t.Parallel()
	a, b := newAging(t, 0), newAging(t, 0)
	for i := range int64(20) {
		a.push(1000+40*i, 1)
		if i > 10 {
			a.push(1<<50, 2) // on its way to be believed
		}
	}
	state := a.State(ps.ClockState)
	b.SetState(ps.ClockState, state)
	if got := b.State(ps.ClockState); !bytes.Equal(got, state) || len(got) == 0 {
		t.Errorf("clock %x, want %x", got, state)
	}
}

func FuzzClock(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 32))
	f.Add(bytes.Repeat([]byte{255}, 32))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := shard.New(pstest.CountingLayout(), 0, 1, 4, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.SetState(ps.ClockState, b) // what is no clock changes nothing
		if got := s.State(ps.ClockState); len(got) > 0 && !bytes.Equal(got, b) {
			t.Errorf("clock %x was read as %x", b, got)
		}
	})
}
