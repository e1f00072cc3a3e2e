package shard

import (
	"encoding/binary"
	"fmt"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

// clock is the event time of the updates applied, in microseconds since 1970: the largest that can be
// believed. Every shard gets every update, so all shards have the same clock.
type clock struct {
	// now is 0 until it is known, began what it was first.
	now, began int64
	// far counts the latest updates in a row that were too far ahead to be believed, up to believed.
	// ahead is their smallest time.
	ahead, far int64
}

// believed is how many updates in a row must be far ahead before time has really gone on: streams rest, but bad rows are rare.
const believed = 8

// next applies an update's time to the clock and returns the time that its rows get. 0 means that the
// update has no time.
//
// An update moves the clock by rules.MaxStep at most. Once the updates that are far ahead are believed,
// each of them moves it, until the clock shows the smallest of their times.
func (c *clock) next(time int64, rules *param.Retention) int64 {
	switch {
	case time <= 0:
		return c.now
	case rules.MaxJump == 0 || c.now > 0 && time-c.now <= rules.MaxJump:
		c.ahead, c.far = 0, 0
		c.move(time, rules.MaxStep)
	default:
		if c.far == 0 || time < c.ahead {
			c.ahead = time
		}
		if c.far = min(c.far+1, believed); c.far == believed {
			if c.move(c.ahead, rules.MaxStep); c.now >= c.ahead {
				c.ahead, c.far = 0, 0
			}
		}
	}
	if c.began == 0 {
		c.began = c.now
	}
	return min(time, c.now)
}

// move sets the clock forward to a time, by maxStep at most; 0: without a bound. Its first time has none.
func (c *clock) move(to, maxStep int64) {
	switch {
	case to <= c.now:
	case maxStep > 0 && c.now > 0 && to-c.now > maxStep:
		c.now += maxStep
	default:
		c.now = to
	}
}

// bytes is the clock as worker state; nil when no update had a time.
func (c *clock) bytes() []byte {
	if *c == (clock{}) {
		return nil
	}
	b := make([]byte, 0, clockBytes)
	for _, v := range []int64{c.now, c.began, c.ahead, c.far} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

const clockBytes = 32

// readClock reads what bytes gives. Errors: [ps.ErrLayout].
func readClock(b []byte) (clock, error) {
	if len(b) == 0 {
		return clock{}, nil
	}
	var v [4]int64
	if len(b) != clockBytes {
		return clock{}, fmt.Errorf("ps: worker state %q: %d bytes instead of %d: %w", ps.ClockState, len(b), clockBytes, ps.ErrLayout)
	}
	for i := range v {
		v[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	c := clock{v[0], v[1], v[2], v[3]}
	if c.now < c.began || c.began < 0 || c.ahead < 0 || c.far < 0 || c.far > believed {
		return clock{}, fmt.Errorf("ps: worker state %q: %v is no clock: %w", ps.ClockState, v, ps.ErrLayout)
	}
	return c, nil
}
