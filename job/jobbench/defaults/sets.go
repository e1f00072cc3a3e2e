package main

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// kind says what a column's cells are.
type kind int

const (
	idColumn     kind = iota // a text, or none
	numberColumn             // a number, or none
	listColumn               // ids between "|", the oldest first
)

// column is a feature of a data set.
type column struct {
	name string
	kind kind
}

// row is an example. p is the probability that it is positive, where the truth is known.
type row struct {
	cells    []string
	positive bool
	p        float64
}

// data is a data set in the order in which it is trained on.
type data struct {
	columns      []column
	train, valid []row
	truth        bool // rows have p
}

// dataSet is a data set that models are tried on.
type dataSet struct {
	name string
	// linear reports that no model can be better than logistic regression, by the truth.
	linear bool
	// item and history name the columns that dssm's second tower has and that histories attend from; empty: the last
	// column, and none.
	item, history string
	// make reads or generates it; seed makes the draw of the rows or the truth. Errors: those that wrap fs.ErrNotExist
	// where its files are not there.
	make func(seed uint64) (*data, error)
}

// dataSets are all data sets. Files are read below a folder; those generated have a share of their usual rows.
func dataSets(folder string, share float64) []dataSet {
	n := func(rows int) int { return max(int(share*float64(rows)), 64) }
	generated := func(train, valid int, positives float64, make func(rng *rand.Rand) law) func(uint64) (*data, error) {
		return func(seed uint64) (*data, error) {
			rng := rand.New(rand.NewPCG(seed, 36))
			return generate(rng, make(rng), n(train), n(valid), positives), nil
		}
	}
	many := func(linear, products float64) func(*rand.Rand) law {
		return func(rng *rand.Rand) law { return manyIDs(rng, 39, linear, products) }
	}
	files := func(read func(folder string, rng *rand.Rand) (*data, error), name string) func(uint64) (*data, error) {
		return func(seed uint64) (*data, error) {
			return read(filepath.Join(folder, name), rand.New(rand.NewPCG(seed, 36)))
		}
	}
	return []dataSet{
		{name: "criteo8k", make: files(criteo, "criteo8k")},
		{name: "chicago_taxi", make: files(taxi, "chicago_taxi")},
		{name: "frappe", item: "item", make: files(frappe, "frappe")},
		{name: "ml1m", item: "movie", make: files(ml1m, "ml1m-bin")},
		{name: "ml100k", item: "movie", make: files(ml100k, "ml-100k")},
		{name: "two-ids", item: "item", make: generated(100_000, 20_000, .3, func(rng *rand.Rand) law { return twoIDs(rng, 1000, 300, 2, 1) })},
		{name: "two-ids-weak", item: "item", make: generated(100_000, 20_000, .3, func(rng *rand.Rand) law { return twoIDs(rng, 2000, 1000, 4, .7) })},
		{name: "ids39-linear", linear: true, make: generated(8_000, 20_000, .25, many(1.2, 0))},
		{name: "ids39", make: generated(8_000, 20_000, .25, many(.9, 1))},
		{name: "ids39-large", make: generated(80_000, 20_000, .25, many(.9, 1))},
		{name: "rare", linear: true, make: generated(200_000, 100_000, .005, func(rng *rand.Rand) law { return manyIDs(rng, 10, 1.2, 0) })},
		{name: "numbers", make: generated(20_000, 20_000, .3, numbers)},
		{name: "histories", item: "item", history: "history", make: generated(60_000, 20_000, .3, histories)},
		{name: "drift", linear: true, make: generated(100_000, 10_000, .3, drift)},
	}
}

// lines calls f for the fields of each line of a file in gzip.
func lines(path, delimiter string, f func(fields []string) error) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	text, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	scan := bufio.NewScanner(text)
	for n := 1; scan.Scan(); n++ {
		if err := f(strings.Split(scan.Text(), delimiter)); err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	if err := scan.Err(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

var errFields = errors.New("too few fields")

// divide shuffles rows and holds a share of them out.
func (d *data) divide(rng *rand.Rand, rows []row, share float64) *data {
	shuffle(rng, rows)
	n := int(share * float64(len(rows)))
	d.valid, d.train = rows[:n], rows[n:]
	return d
}

func shuffle(rng *rand.Rand, rows []row) {
	rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
}

// criteo reads a sample of Criteo's rows: 13 counts and 26 ids. A quarter is held out.
func criteo(folder string, rng *rand.Rand) (*data, error) {
	d := &data{}
	for i := range 39 {
		if i < 13 {
			d.columns = append(d.columns, column{"I" + strconv.Itoa(i+1), numberColumn})
		} else {
			d.columns = append(d.columns, column{"C" + strconv.Itoa(i-12), idColumn})
		}
	}
	var rows []row
	err := lines(filepath.Join(folder, "train.tsv.gz"), "\t", func(f []string) error {
		if len(f) != 40 {
			return errFields
		}
		rows = append(rows, row{cells: f[1:], positive: f[0] == "1"})
		return nil
	})
	return d.divide(rng, rows, .25), err
}

// taxi reads trips in Chicago, whose label is a tip of more than a fifth of the fare. A fifth is held out.
func taxi(folder string, rng *rand.Rand) (*data, error) {
	d := &data{}
	var header []string
	var rows []row
	err := lines(filepath.Join(folder, "data.csv.gz"), ",", func(f []string) error {
		if header == nil {
			for header = f; len(d.columns) < len(f); {
				c := column{name: f[len(d.columns)]}
				if slices.Contains([]string{"fare", "trip_miles", "trip_seconds", "pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude"}, c.name) {
					c.kind = numberColumn
				}
				d.columns = append(d.columns, c)
			}
			return nil
		}
		if len(f) != len(header) {
			return errFields
		}
		fare, _ := strconv.ParseFloat(f[slices.Index(header, "fare")], 64) // none: 0
		tips, _ := strconv.ParseFloat(f[slices.Index(header, "tips")], 64)
		rows = append(rows, row{cells: f, positive: tips > .2*fare})
		return nil
	})
	for _, name := range []string{"tips", "trip_start_timestamp"} { // the label; what another column says
		at := slices.Index(header, name)
		if at < 0 {
			continue
		}
		d.columns, header = slices.Delete(d.columns, at, at+1), slices.Delete(header, at, at+1)
		for i := range rows {
			rows[i].cells = slices.Delete(rows[i].cells, at, at+1)
		}
	}
	return d.divide(rng, rows, .2), err
}

// frappe reads the contexts of apps, each of ten fields, with the official validation.
func frappe(folder string, rng *rand.Rand) (*data, error) {
	d := &data{}
	values, at := map[string]string{}, map[string]int{} // by index
	err := lines(filepath.Join(folder, "feature_map.tsv.gz"), "\t", func(f []string) error {
		if len(f) != 3 {
			return errFields
		}
		if f[0] == "feature" {
			return nil
		}
		c := slices.IndexFunc(d.columns, func(c column) bool { return c.name == f[1] })
		if c < 0 {
			c, d.columns = len(d.columns), append(d.columns, column{name: f[1]})
		}
		values[f[0]], at[f[0]] = f[2], c
		return nil
	})
	if err != nil {
		return nil, err
	}
	read := func(name string, rows *[]row) error {
		return lines(filepath.Join(folder, name), " ", func(f []string) error {
			r := row{cells: make([]string, len(d.columns)), positive: f[0] == "1"}
			for _, entry := range f[1:] {
				if index, _, ok := strings.Cut(entry, ":"); ok {
					r.cells[at[index]] = values[index]
				}
			}
			*rows = append(*rows, r)
			return nil
		})
	}
	if err := read("frappe.train.rebuilt.libfm.gz", &d.train); err != nil {
		return nil, err
	}
	shuffle(rng, d.train)
	return d, read("frappe.validation.libfm.gz", &d.valid)
}

// ml1m reads an eighth of the likes of MovieLens-1M, of users and movies alone, with a validation of later ones.
func ml1m(folder string, rng *rand.Rand) (*data, error) {
	d := &data{columns: []column{{"user", idColumn}, {"movie", idColumn}}}
	read := func(name string, rows *[]row) error {
		return lines(filepath.Join(folder, name), "\t", func(f []string) error {
			if len(f) < 3 {
				return errFields
			}
			if f[0] != "user_id" {
				*rows = append(*rows, row{cells: f[:2:2], positive: f[2] == "1"})
			}
			return nil
		})
	}
	if err := read("train.tsv.gz", &d.train); err != nil {
		return nil, err
	}
	shuffle(rng, d.train)
	d.train = d.train[:len(d.train)/8]
	return d, read("val.tsv.gz", &d.valid)
}

// ml100k reads the ratings of MovieLens-100K with what is known of users and movies; 4 stars are a like. A tenth is
// held out.
func ml100k(folder string, rng *rand.Rand) (*data, error) {
	type rating struct {
		User  int64   `parquet:"user_id"`
		Movie int64   `parquet:"movie_id"`
		Stars float64 `parquet:"rating"`
	}
	type user struct {
		ID         int64  `parquet:"user_id"`
		Age        int64  `parquet:"age"`
		Gender     string `parquet:"gender"`
		Occupation string `parquet:"occupation"`
		Zip        string `parquet:"zip_code"`
	}
	type movie struct {
		ID     int64  `parquet:"movie_id"`
		Genres string `parquet:"genres"`
		Year   *int64 `parquet:"year,optional"`
	}
	ratings, err1 := parquet.ReadFile[rating](filepath.Join(folder, "ratings.parquet"))
	users, err2 := parquet.ReadFile[user](filepath.Join(folder, "users.parquet"))
	movies, err3 := parquet.ReadFile[movie](filepath.Join(folder, "movies.parquet"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	d := &data{columns: []column{{"user", idColumn}, {"movie", idColumn}, {"gender", idColumn}, {"occupation", idColumn}, {"zip", idColumn}, {"genres", listColumn}, {"age", numberColumn}, {"year", numberColumn}}}
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	userCells, movieCells := map[int64][]string{}, map[int64][]string{}
	for _, u := range users {
		userCells[u.ID] = []string{u.Gender, u.Occupation, u.Zip, text(u.Age)}
	}
	for _, m := range movies {
		year := ""
		if m.Year != nil {
			year = text(*m.Year)
		}
		movieCells[m.ID] = []string{m.Genres, year}
	}
	var rows []row
	for i, r := range ratings {
		u, m := userCells[r.User], movieCells[r.Movie]
		if u == nil || m == nil {
			return nil, fmt.Errorf("%s: ratings.parquet, row %d: no such user or movie", folder, i)
		}
		rows = append(rows, row{cells: []string{text(r.User), text(r.Movie), u[0], u[1], u[2], m[0], u[3], m[1]}, positive: r.Stars >= 4})
	}
	return d.divide(rng, rows, .1), nil
}

// trainFiles is how many files the training rows lie in, one row in each in turn, so that several workers have some.
const trainFiles = 8

// write writes the rows below a folder: train/*.tsv, and valid.tsv.
func (d *data) write(folder string) error {
	dir := filepath.Join(folder, "train")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for k := range trainFiles {
		var rows []row
		for i := k; i < len(d.train); i += trainFiles {
			rows = append(rows, d.train[i])
		}
		if err := d.writeFile(filepath.Join(dir, strconv.Itoa(k)+".tsv"), rows); err != nil {
			return err
		}
	}
	return d.writeFile(filepath.Join(folder, "valid.tsv"), d.valid)
}

func (d *data) writeFile(path string, rows []row) error {
	var b strings.Builder
	b.WriteString("label")
	for _, c := range d.columns {
		b.WriteString("\t" + c.name)
	}
	for _, r := range rows {
		b.WriteString("\n" + []string{"0", "1"}[bit(r.positive)])
		for _, cell := range r.cells {
			b.WriteString("\t" + cell)
		}
	}
	b.WriteString("\n")
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
