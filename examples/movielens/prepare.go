package main

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/model/metric"
)

const (
	// remembered is how many likes a history has at most, the newest first.
	remembered = 50
	// visitLikes is for how many likes one history stands: that of before the first of them.
	visitLikes = 10
)

// rating is a row of the data set.
type rating struct {
	user, movie int
	like        bool
	time        int64 // 0 where it is not known
}

// ratings reads a file of the data set, of every nth user.
func ratings(path string, nth int) (rows []rating, err error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	text, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	lines := bufio.NewScanner(text)
	for number := 1; lines.Scan(); number++ {
		if number == 1 {
			continue // the header
		}
		f := strings.Split(lines.Text(), "\t")
		if len(f) != 5 {
			return nil, fmt.Errorf("%s:%d: %d fields, want user_id, movie_id, label, rating and timestamp", path, number, len(f))
		}
		user, err1 := strconv.Atoi(f[0])
		movie, err2 := strconv.Atoi(f[1])
		r := rating{user: user, movie: movie, like: f[2] == "1"}
		var err3 error
		if f[4] != "" {
			r.time, err3 = strconv.ParseInt(f[4], 10, 64)
		}
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		if user%nth == 0 {
			rows = append(rows, r)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows, nil
}

// catalogue reads the movies that there are.
func catalogue(path string) (movies []int, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		id, _, _ := strings.Cut(line, "::")
		movie, err := strconv.Atoi(id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		movies = append(movies, movie)
	}
	return movies, nil
}

// data is the data set as it is told here.
type data struct {
	train, later []rating
	movies       []int
	// liked are the likes of each user that training has, by time.
	liked map[int][]rating
	// first and last are the times of the first and the last like of training, next that of the first later rating.
	first, last, next int64
}

// read reads the data set below a folder, of every nth user.
func read(folder string, nth int) (*data, error) {
	var d data
	var errs [3]error
	d.train, errs[0] = ratings(filepath.Join(folder, "train.tsv.gz"), nth)
	d.later, errs[1] = ratings(filepath.Join(folder, "val.tsv.gz"), nth)
	d.movies, errs[2] = catalogue(filepath.Join(folder, "movies.dat"))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	d.liked = map[int][]rating{}
	for _, r := range d.train {
		if r.like {
			d.liked[r.user] = append(d.liked[r.user], r)
		}
	}
	d.first, d.next = math.MaxInt64, math.MaxInt64
	for _, likes := range d.liked {
		slices.SortStableFunc(likes, func(a, b rating) int { return cmp.Compare(a.time, b.time) })
		d.first, d.last = min(d.first, likes[0].time), max(d.last, likes[len(likes)-1].time)
	}
	for _, r := range d.later {
		d.next = min(d.next, r.time)
	}
	return &d, nil
}

// week counts weeks since the first like. What comes after training has its last week, since of others nothing is learnt.
func (d *data) week(time int64) int64 { return (time - d.first) / (7 * 24 * 3600) }

// pause is how many hours after the last of some likes a visit is; empty where there is none.
func pause(likes []rating, visit int64) string {
	if len(likes) == 0 {
		return ""
	}
	return strconv.FormatInt((visit-likes[len(likes)-1].time)/3600, 10)
}

// newest writes the newest of some likes, which are in the order of time, the oldest first.
func newest(likes []rating) string {
	var b strings.Builder
	for i, r := range likes[max(0, len(likes)-remembered):] {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(r.movie))
	}
	return b.String()
}

// history writes the newest of some likes, the newest first.
func history(likes []rating) string {
	likes = slices.Clone(likes[max(0, len(likes)-remembered):])
	slices.Reverse(likes)
	return newest(likes)
}

// write makes the files of the job with histories.
func (d *data) write(dir string) (err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	out := map[string]*bufio.Writer{}
	for _, name := range []string{"likes", "candidates", "visits", "rated", "later"} {
		f, err := os.Create(filepath.Join(dir, name+".tsv"))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out[name] = bufio.NewWriter(f)
	}
	d.visits(out["visits"], out["likes"], out["candidates"])
	d.rated(out["rated"], out["later"])
	for _, w := range out {
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// visits writes what two towers learn from: likes, each with its visit, whose history visits has, and the candidates to find later likes among. The visit of
// candidates has all likes behind it.
func (d *data) visits(visits, likes, candidates io.Writer) {
	columns(visits, "visit", "likes", "pause", "week", "history")
	columns(likes, "user_id", "visit", "movie_id", "like")
	columns(candidates, "user_id", "visit", "movie_id", "like")
	for _, user := range slices.Sorted(maps.Keys(d.liked)) {
		all := d.liked[user]
		for from := 0; from < len(all); from += visitLikes {
			visit := fmt.Sprintf("%d.%d", user, from/visitLikes)
			columns(visits, visit, from, pause(all[:from], all[from].time), d.week(all[from].time), history(all[:from]))
			for _, r := range all[from:min(from+visitLikes, len(all))] {
				columns(likes, user, visit, r.movie, 1)
			}
		}
		columns(visits, fmt.Sprintf("%d.now", user), len(all), pause(all, d.next), d.week(d.last), history(all))
	}
	d.candidates(func(user, movie int, like bool) {
		label := 0
		if like {
			label = 1
		}
		columns(candidates, user, fmt.Sprintf("%d.now", user), movie, label)
	})
}

// rated writes what models learn from that go through histories: all ratings of training and the later ones, each with the newest of the user's likes, the oldest first. The later ones have all likes
// of training before them. When something was not liked is not known, so that what came before a like must not be told from what came before that: ratings of training have likes up to one of the
// user's by chance, all but the movie itself; what was not liked lacks another like by chance, so that neither how many there are nor what is missing says which is which.
func (d *data) rated(rated, later io.Writer) {
	columns(rated, "user_id", "movie_id", "label", "past")
	columns(later, "user_id", "movie_id", "label", "past")
	chance := rand.New(rand.NewPCG(1, 1))
	label := map[bool]int{true: 1} // and 0
	for _, r := range d.train {
		likes := d.liked[r.user]
		if n := len(likes); n > 0 {
			left := r.movie
			if !r.like {
				left = likes[chance.IntN(n)].movie
			}
			likes = likes[:chance.IntN(n)+1]
			likes = slices.DeleteFunc(slices.Clone(likes), func(o rating) bool { return o.movie == left })
		}
		columns(rated, r.user, r.movie, label[r.like], newest(likes))
	}
	for _, r := range d.later {
		columns(later, r.user, r.movie, label[r.like], newest(d.liked[r.user]))
	}
}

// candidates calls f with each movie that a user who has later likes, and likes before, has not rated in training.
func (d *data) candidates(f func(user, movie int, like bool)) {
	rated, later := map[[2]int]bool{}, map[int]map[int]bool{}
	for _, r := range d.train {
		rated[[2]int{r.user, r.movie}] = true
	}
	for _, r := range d.later {
		if r.like && len(d.liked[r.user]) > 0 {
			if later[r.user] == nil {
				later[r.user] = map[int]bool{}
			}
			later[r.user][r.movie] = true
		}
	}
	for _, user := range slices.Sorted(maps.Keys(later)) {
		for _, movie := range d.movies {
			if !rated[[2]int{user, movie}] {
				f(user, movie, later[user][movie])
			}
		}
	}
}

// columns writes a line of a tsv file.
func columns(w io.Writer, values ...any) {
	for i, v := range values {
		if i > 0 {
			fmt.Fprint(w, "\t") //nolint:errcheck // Flush has it
		}
		fmt.Fprint(w, v) //nolint:errcheck // Flush has it
	}
	fmt.Fprintln(w) //nolint:errcheck // Flush has it
}

// popularity is recall@50 of showing each user the movies that were liked most often, of the last n likes before the later ones, among those that the user has not rated.
func (d *data) popularity(n int) float64 {
	var likes []rating
	for _, user := range slices.Sorted(maps.Keys(d.liked)) {
		likes = append(likes, d.liked[user]...)
	}
	slices.SortStableFunc(likes, func(a, b rating) int { return cmp.Compare(a.time, b.time) })
	counts := map[int]float32{}
	for _, r := range likes[max(0, len(likes)-n):] {
		counts[r.movie]++
	}
	var s metric.Set
	group, last := int32(-1), 0
	d.candidates(func(user, movie int, like bool) {
		if user != last {
			group, last = group+1, user
		}
		label := float32(0)
		if like {
			label = 1
		}
		s.Predictions, s.Labels, s.Groups = append(s.Predictions, counts[movie]), append(s.Labels, label), append(s.Groups, group)
	})
	s.NumGroups = int(group) + 1
	recall, _ := metric.Find("recall@50")
	return recall.Compute(&metric.Workspace{}, &s)
}
