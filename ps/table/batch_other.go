//go:build !amd64

package table

// vectors reports that there is nothing in assembly for this architecture.
func vectors() bool { return false }

// chunk is of no use here.
type chunk struct{}

func (t *Mem) lookupVector(keys []int64, dst []float32, _ []uint32) (found int) {
	return t.lookupPortable(keys, dst)
}

func (t *Mem) applyVector(u *Update) { t.applyPortable(u) }

// fetch would ask for rows ahead of their use.
func (t *Mem) fetch([]entry, int) {}

// ask would ask for memory ahead of its use.
func (t *Mem) ask([]uintptr, int) {}

// updateSpread is of no use here.
type updateSpread struct{}
