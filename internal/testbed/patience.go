package testbed

import "time"

// Patience is how long a test may wait for what must happen: as long as the limit of the test binary (go test -timeout) leaves, but for what ending takes. A limit of its own would
// be one of the machine's speed: with its processes on one core beside other work a Flink session cluster takes minutes for what takes seconds otherwise. An hour where there is no limit.
func Patience(t TB) time.Duration {
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, limited := d.Deadline(); limited {
			left := time.Until(at)
			return left - min(time.Minute, left/4)
		}
	}
	return time.Hour
}
