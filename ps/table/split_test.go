package table

import "testing"

// TestSplitsLeaveTheIndexWhole: whatever the keys of a segment have in common, behind each split every key is found by its number, lines say how many searches continue from
// them, segments how many keys they have, and the index what it takes.
func TestSplitsLeaveTheIndexWhole(t *testing.T) {
	t.Parallel()
	const full = maxLines * slots * 3 / 4
	for name, hash := range map[string]func(i uint64) uint64{
		"even":                  func(i uint64) uint64 { return Hash(int64(i)) },
		"all above":             func(i uint64) uint64 { return Hash(int64(i)) | 15<<60 },
		"all below":             func(i uint64) uint64 { return Hash(int64(i)) & (1<<60 - 1) },
		"few above":             func(i uint64) uint64 { return Hash(int64(i))&(1<<63-1) | i&31/31<<63 },
		"few below":             func(i uint64) uint64 { return Hash(int64(i)) | min(i&31, 1)<<63 },
		"few home lines":        func(i uint64) uint64 { return i<<51 | i*2654435761&^1023 | i%400 },
		"one home line":         func(i uint64) uint64 { return Hash(int64(i)) &^ (maxLines - 1) },
		"one line and its next": func(i uint64) uint64 { return Hash(int64(i)) &^ (1<<20 - 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newIndex()
			defer x.store.close()
			defer x.populate.close()
			numbers := map[int64]uint32{}
			splits := 0
			for i := range uint64(3 * full) {
				h := hash(i)
				key := Unhash(h)
				if _, ok := numbers[key]; ok {
					continue
				}
				numbers[key] = uint32(i)
				before := x.segs
				x.insert(h, key, uint32(i))
				if x.segs > before {
					if splits++; splits <= 16 {
						whole(t, &x, numbers)
					}
				}
			}
			whole(t, &x, numbers)
			x.part(3<<61 + 1<<40) // segments that are not full
			whole(t, &x, numbers)
			if name == "even" && splits == 0 {
				t.Error("no segment was split")
			}
		})
	}
}

// TestSplitBringsKeysHome: keys that had no room in their home lines have it when their segment is split, and are there.
func TestSplitBringsKeysHome(t *testing.T) {
	t.Parallel()
	x := newIndex()
	defer x.store.close()
	defer x.populate.close()
	numbers := map[int64]uint32{}
	away := 0
	for i := int64(0); x.segs == 1; i++ {
		away = whole(t, &x, nil)
		for range 64 {
			if x.segs == 1 {
				x.insert(Hash(i), i, uint32(i))
				numbers[i] = uint32(i)
				i++
			}
		}
	}
	after := whole(t, &x, numbers)
	t.Logf("of %d keys %d were not at home before, and %d are not behind the split", len(numbers), away, after)
	if away < len(numbers)/20 || after > len(numbers)/50 {
		t.Errorf("of %d keys %d were not at home before the split, and %d are not behind it", len(numbers), away, after)
	}
}

// whole checks an index, which has these keys and no others unless numbers is nil, and returns how many are not in their home lines.
func whole(t *testing.T, x *index, numbers map[int64]uint32) (away int) {
	t.Helper()
	keys, bytes, segs := len(x.over), int64(0), 0
	for _, s := range x.all(nil, nowhere(), false) {
		passed := make([]int, len(s.lines))
		mask := uint64(len(s.lines) - 1)
		n := 0
		for i := range s.lines {
			l := &s.lines[i]
			n += int(l.n)
			for j := range int(l.n) {
				h := Hash(l.key[j])
				if h < s.first || h-s.first > 1<<(63-s.depth)<<1-1 {
					t.Fatalf("key %d is in a segment of others", l.key[j])
				}
				if h&mask != uint64(i) {
					away++
				}
				for p := uint64(0); probe(h, p)&mask != uint64(i); p++ {
					passed[probe(h, p)&mask]++
				}
			}
		}
		for i := range s.lines {
			if got := int(s.lines[i].passed); got != passed[i] && got < 255 {
				t.Fatalf("line %d: %d searches continue from there, and it says %d", i, passed[i], got)
			}
		}
		if s.n != n {
			t.Fatalf("a segment has %d keys and says %d", n, s.n)
		}
		keys, bytes, segs = keys+n, bytes+int64(len(s.lines)*lineBytes), segs+1
		if l := x.linesOf(s.first); len(l) != len(s.lines) || &l[0] != &s.lines[0] {
			t.Fatal("the directory has other lines of a segment")
		}
	}
	if x.bytes != bytes || x.segs != segs {
		t.Fatalf("%d segments take %d bytes, and the index says %d and %d", segs, bytes, x.segs, x.bytes)
	}
	if numbers == nil {
		return away
	}
	if keys != len(numbers) {
		t.Fatalf("%d keys are there, and %d were entered", keys, len(numbers))
	}
	for k, id := range numbers {
		if got, ok := x.find(Hash(k), k); !ok || got != id {
			t.Fatalf("key %d has number %d; found: %v, %d", k, id, ok, got)
		}
	}
	return away
}
