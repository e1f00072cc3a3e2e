package jobbench

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// cpuSeconds is the processors' time that a process has used, as proc(5) counts it, in hundredths of a second; NaN of none.
func cpuSeconds(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return math.NaN()
	}
	// The second field is a name in brackets; utime and stime are 14 and 15.
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return math.NaN()
	}
	user, err := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	if err != nil || err2 != nil {
		return math.NaN()
	}
	return (user + system) / 100
}
