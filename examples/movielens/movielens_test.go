package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
)

// TestJobsAndTable: each job of this folder is in the program's list, loads, and has a row in docs/quality.md; and the other way round.
func TestJobsAndTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/quality.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		name := strings.TrimSuffix(file, ".yaml")
		names = append(names, name)
		cfg, err := options{data: "data", jobs: ".", dir: "dir"}.load(name)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if !cfg.Deterministic || cfg.Eval.Source == nil {
			t.Errorf("%s: deterministic %v, evaluation %v; want both", file, cfg.Deterministic, cfg.Eval.Source)
		}
		if row := fmt.Sprintf("\n| `%s` |", name); !strings.Contains(string(page), row) {
			t.Errorf("docs/quality.md has no row %q", row)
		}
	}
	want := slices.Sorted(slices.Values(jobs()))
	if !slices.Equal(names, want) {
		t.Errorf("job files %q, the program's list has %q", names, want)
	}
}

// writeSet writes a data set of three users and six movies.
func writeSet(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	dir := filepath.Join(folder, "datasets/ml1m-bin")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	const header = "user_id\tmovie_id\tlabel\trating\ttimestamp\n"
	for name, text := range map[string]string{
		"train.tsv.gz": header + "1\t12\t1\t4\t300\n1\t11\t1\t5\t100\n1\t10\t1\t4\t200\n1\t13\t0\t\t\n2\t10\t1\t5\t604900\n2\t14\t0\t\t\n3\t15\t0\t\t\n",
		"val.tsv.gz":   header + "1\t14\t1\t4\t609000\n1\t15\t0\t2\t609001\n2\t11\t1\t4\t609002\n2\t12\t1\t4\t609003\n3\t10\t1\t4\t609004\n",
	} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		z := gzip.NewWriter(f)
		if _, err := io.WriteString(z, text); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(z.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	var movies string
	for id := 10; id < 16; id++ {
		movies += fmt.Sprintf("%d::Movie (1999)::Drama|War\n", id)
	}
	for name, text := range map[string]string{"movies.dat": movies, "users.dat": "1::F::1::10::48067\n2::M::25::3::1\n3::M::25::3::1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestFiles: a history has what was liked before the visit, the newest first; candidates are what the user has not rated.
func TestFiles(t *testing.T) {
	t.Parallel()
	d, err := read(filepath.Join(writeSet(t), "datasets/ml1m-bin"), 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := d.write(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"visits":     "visit\tlikes\tpause\tweek\thistory\n1.0\t0\t\t0\t\n1.now\t3\t169\t1\t12,10,11\n2.0\t0\t\t1\t\n2.now\t1\t1\t1\t10\n",
		"likes":      "user_id\tvisit\tmovie_id\tlike\n1\t1.0\t11\t1\n1\t1.0\t10\t1\n1\t1.0\t12\t1\n2\t2.0\t10\t1\n",
		"later":      "user_id\tmovie_id\tlabel\tpast\n1\t14\t1\t11,10,12\n1\t15\t0\t11,10,12\n2\t11\t1\t10\n2\t12\t1\t10\n3\t10\t1\t\n",
		"candidates": "user_id\tvisit\tmovie_id\tlike\n1\t1.now\t14\t1\n1\t1.now\t15\t0\n2\t2.now\t11\t1\n2\t2.now\t12\t1\n2\t2.now\t13\t0\n2\t2.now\t15\t0\n",
	} {
		got, err := os.ReadFile(filepath.Join(dir, name+".tsv"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestHistoriesAreShort: of more likes than are remembered the newest are there, and each visit sees those before it.
func TestHistoriesAreShort(t *testing.T) {
	t.Parallel()
	var likes []rating
	for i := range remembered + visitLikes + 3 {
		likes = append(likes, rating{user: 7, movie: i, like: true, time: int64(i)})
	}
	d := &data{liked: map[int][]rating{7: likes}}
	var visits, rows, candidates strings.Builder
	d.visits(&visits, &rows, &candidates)
	lines := strings.Split(visits.String(), "\n")
	if want := "7.6\t60\t0\t0\t59,58,"; !strings.HasPrefix(lines[7], want) || !strings.HasSuffix(lines[7], ",11,10") {
		t.Errorf("the last visit is %q, want %s to 10", lines[7], want)
	}
	if n := strings.Count(lines[1], ","); n > 0 || strings.Count(lines[7], ",") != remembered-1 {
		t.Errorf("the first visit has a history, or the last not %d likes: %q", remembered, lines)
	}
	for line := range strings.Lines(rows.String()) {
		var user, visit, movie, like int
		if _, err := fmt.Sscanf(line, "%d\t7.%d\t%d\t%d", &user, &visit, &movie, &like); err == nil && visit != movie/visitLikes {
			t.Errorf("%q is of another visit", line)
		}
	}
}

// TestPastsDoNotTellLikes: the likes beside a rating are in the order of time and without the movie itself, and there are as many beside what was liked as beside what was not.
func TestPastsDoNotTellLikes(t *testing.T) {
	t.Parallel()
	const users, each = 200, 30
	d := &data{liked: map[int][]rating{}}
	for user := range users {
		for i := range each {
			r := rating{user: user, movie: i, like: true, time: int64(i)}
			d.liked[user] = append(d.liked[user], r)
			d.train = append(d.train, r, rating{user: user, movie: 100 + i})
		}
	}
	var rated, later strings.Builder
	d.rated(&rated, &later)
	var rows, likes [2]int
	for i, line := range strings.Split(strings.TrimSuffix(rated.String(), "\n"), "\n")[1:] {
		f := strings.Split(line, "\t")
		label, past := i%2, []string{}
		if len(f) != 4 || f[2] != fmt.Sprint(1-label) {
			t.Fatalf("row %d is %q", i, line)
		}
		if f[3] != "" {
			past = strings.Split(f[3], ",")
		}
		if slices.Contains(past, f[1]) || !slices.IsSortedFunc(past, cmpNumbers) {
			t.Fatalf("row %d is %q", i, line)
		}
		rows[label]++
		likes[label] += len(past)
	}
	liked, not := float64(likes[0])/float64(rows[0]), float64(likes[1])/float64(rows[1])
	if rows != [2]int{users * each, users * each} || math.Abs(liked-not) > 0.25 || liked < each/3 {
		t.Errorf("%v rows; %.2f likes beside what was liked, %.2f beside what was not", rows, liked, not)
	}
}

// cmpNumbers compares numbers that are text.
func cmpNumbers(a, b string) int {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return x - y
}

// TestPopularity compares with what is to be counted by hand: of all likes movie 10 has two, 11 and 12 one; places are those among 50.
func TestPopularity(t *testing.T) {
	t.Parallel()
	d, err := read(filepath.Join(writeSet(t), "datasets/ml1m-bin"), 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.popularity(100); got != 1 {
		t.Errorf("recall %v, and there are six movies", got)
	}
	// User 7 has liked one of 100 movies and later likes 60 of the others, of which one is popular; the others have places by chance.
	d = &data{liked: map[int][]rating{}}
	add := func(rows *[]rating, user, movie int) {
		*rows = append(*rows, rating{user: user, movie: movie, like: true})
	}
	for movie := range 100 {
		d.movies = append(d.movies, movie)
		if movie > 0 && movie <= 60 {
			add(&d.later, 7, movie)
		}
	}
	for user, movie := range map[int]int{7: 0, 8: 1, 9: 1} {
		add(&d.train, user, movie)
		d.liked[user] = []rating{{user: user, movie: movie, like: true}}
	}
	if got, want := d.popularity(100), (1+59*49./98)/60; math.Abs(got-want) > 1e-12 {
		t.Errorf("recall %v, want %v", got, want)
	}
}

// TestCommand: faults are said before anything is read.
func TestCommand(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`there is no job "tower"; the jobs are two_tower, `: {"-data", "x", "tower"},
		"-nth is 0":    {"-data", "x", "-nth", "0"},
		"no such file": {"-data", t.TempDir()},
	} {
		if err := command(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// TestRealDataTowers: two towers find more of what is liked later among their first 50 movies than popularity does.
func TestRealDataTowers(t *testing.T) {
	folder := testbed.Data(t, ".")
	testbed.Data(t, "datasets/ml1m-bin")
	o := options{data: folder, jobs: ".", dir: t.TempDir(), nth: 1, seed: 1}
	d, err := read(filepath.Join(folder, "datasets/ml1m-bin"), o.nth)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.write(o.files()); err != nil {
		t.Fatal(err)
	}
	cfg, err := o.load("two_tower")
	if err != nil {
		t.Fatal(err)
	}
	r, err := job.Run(t.Context(), cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	recall, popular := r.Metrics["like.recall@50"], d.popularity(len(d.train))
	t.Logf("recall@50 %.4f, popularity %.4f, %d examples, %.0f s", recall, popular, r.Examples, r.Seconds)
	if !(recall > popular) {
		t.Errorf("recall@50 %.4f, popularity has %.4f", recall, popular)
	}
}
