package shard

import (
	"encoding/binary"
	"fmt"

	"github.com/monolith-go/monolith/ps"
)

// clock is the event time of the updates applied, in microseconds since 1970: the largest that can be believed. Every shard gets every update,
// so all have the same.
type clock struct {
	// now is 0 until it is known, began what it was first.
	now, began int64
	// ahead is the smallest time of the last far updates, which were too far ahead to be believed, one after the other.
	ahead, far int64
}

// believed is how many updates in a row must be far ahead before time has really gone on: streams rest, but bad rows are rare.
const believed = 8

// next takes note of an update of a time, 0: it has none, and returns what counts as its time.
func (c *clock) next(time, maxJump int64) int64 {
	switch {
	case time <= 0:
		return c.now
	case maxJump == 0 || c.now > 0 && time-c.now <= maxJump:
		c.ahead, c.far = 0, 0
		c.now = max(c.now, time)
	default:
		if c.far++; c.far == 1 || time < c.ahead {
			c.ahead = time
		}
		if c.far >= believed {
			c.now, c.ahead, c.far = c.ahead, 0, 0
		}
	}
	if c.began == 0 {
		c.began = c.now
	}
	return min(time, c.now)
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
	if c.now < c.began || c.began < 0 || c.ahead < 0 || c.far < 0 || c.far >= believed {
		return clock{}, fmt.Errorf("ps: worker state %q: %v is no clock: %w", ps.ClockState, v, ps.ErrLayout)
	}
	return c, nil
}
