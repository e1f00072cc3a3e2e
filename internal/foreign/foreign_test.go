package foreign_test

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/foreign"
)

func TestWhatAndWhatToDo(t *testing.T) {
	t.Parallel()
	const text = "user,item\n1,2\n"
	tar := "name" + strings.Repeat("\x00", 253) + "ustar\x00"
	for head, want := range map[string][2]string{
		"\xff\xfeu\x00":           {"text in UTF-16, and UTF-8 is read; convert it: iconv -f UTF-16 -t UTF-8", "text in UTF-16, and UTF-8 is read; convert it: iconv -f UTF-16 -t UTF-8"},
		"\xfe\xff\x00u":           {"text in UTF-16, ", "text in UTF-16, "},
		"\xff\xfe\x00\x00":        {"text in UTF-32, ", "text in UTF-32, "},
		"\x00\x00\xfe\xff":        {"text in UTF-32, ", "text in UTF-32, "},
		"\x1f\x8b\x08":            {"", "compressed by gzip, and what is not compressed is read; convert it: gzip -dc"},
		"\x28\xb5\x2f\xfd":        {"compressed by zstd, and gzip is read, or what is not compressed; convert it: zstd -dc | gzip", "compressed by zstd, and what is not compressed is read; convert it: zstd -dc"},
		"\xfd7zXZ\x00":            {"compressed by xz", "compressed by xz"},
		"BZh91AY&SY":              {"compressed by bzip2, and gzip is read", "compressed by bzip2, and what is not compressed is read; convert it: bzip2 -dc"},
		"PK\x03\x04":              {"a zip archive, and gzip is read", "a zip archive, and what is not compressed is read; convert it: unzip -p"},
		tar:                       {"a tar archive, and the files in it are read; convert it: tar -x", "a tar archive, and the files in it are read; convert it: tar -x"},
		"PAR1\x15\x04":            {"in Parquet, which source.parquet reads", "in Parquet, and text is read; convert it: pyarrow.csv.write_csv"},
		"ARROW1\x00\x00":          {"in Arrow's format, and text is read; convert it: pyarrow.parquet.write_table, for source.parquet", "in Arrow's format, and text is read; convert it: pyarrow.csv.write_csv"},
		"Obj\x01":                 {"in Avro, and text is read; convert it: avro-tools tojson", "in Avro, and text is read; convert it: avro-tools tojson"},
		"SQLite format 3\x00":     {"a database of SQLite", "a database of SQLite, and text is read; convert it: sqlite3 -csv -header"},
		"":                        {},
		text:                      {},
		"\xef\xbb\xbf" + text:     {},
		"BZh" + text:              {},
		"BZh":                     {},
		"PAR1,2":                  {},
		"PK,2":                    {},
		"\xff":                    {},
		tar[:foreign.HeadBytes-1]: {},
	} {
		for i, got := range []string{foreign.Source([]byte(head)), foreign.Table([]byte(head))} {
			if !strings.HasPrefix(got, want[i]) || want[i] == "" && got != "" {
				t.Errorf("%.20q, table %v: %q, want %q", head, i == 1, got, want[i])
			}
		}
	}
	if got := foreign.Source([]byte(tar[:foreign.HeadBytes])); got == "" {
		t.Error("HeadBytes are too few to know a tar archive by")
	}
}
