package fsx_test

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"s3://bucket":             "s3://bucket/",
		"s3://bucket/a//b/":       "s3://bucket/a/b",
		"gs://bucket/a/../../b":   "gs://bucket/b",
		"hdfs://namenode:8020/m":  "hdfs://namenode:8020/m",
		"hdfs://nameservice/m/":   "hdfs://nameservice/m",
		"hdfs:///m":               "hdfs:///m",
		"file:///mnt/models":      "file:///mnt/models",
		"s3://models/a b/%20%25x": "s3://models/a b/ %x",
	} {
		u, err := fsx.ParseURL(text)
		if err != nil || u.String() != want || !fsx.IsURL(text) {
			t.Errorf("%s: %s, %v; want %s", text, u, err, want)
		}
	}
	for text, want := range map[string]string{
		"s3://key:secret@bucket/x":   "environment",
		"s3://key:sec%zzret@buckt/x": "is no URL",
		"s3:///x":                    "names no bucket",
		"s3://bucket:80/x":           "names no bucket",
		"gs://":                      "names no bucket",
		"file://mnt/models":          "file:///PATH",
		"file://":                    "file:///PATH",
		"http://host/x":              "possible are s3://",
		"mnt/models":                 "is no URL; possible are s3://",
		"/mnt/models":                "is a path: write file:///mnt/models",
		"s3://bucket/x?secret=1":     "more than scheme",
		"s3://bucket/x#secret":       "more than scheme",
		"s3:/bucket/x":               "write s3://, or ./s3:",
		"gs:bucket/x":                "write gs://",
		"hdfs:/models":               "write hdfs://",
		"file:/mnt/models":           "write file://",
	} {
		u, err := fsx.ParseURL(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sec") && !strings.Contains(text, "hdfs") {
			t.Errorf("%s: %v, %v; want %q and no secret", text, u, err, want)
		}
		if fsx.IsURL(text) != (text != "mnt/models" && text != "/mnt/models") {
			t.Errorf("%s: IsURL is %v", text, fsx.IsURL(text))
		}
	}
	for _, path := range []string{"runs/click", `C:\runs`, "./s3:/bucket", "s3", "s3/x:", "live=s3:x"} {
		if fsx.IsURL(path) {
			t.Errorf("the path %s is taken for a URL", path)
		}
	}
}
