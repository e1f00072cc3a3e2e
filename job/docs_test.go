package job_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// documents are the project's Markdown files, by path from the root.
func documents(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "runs"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, path)
			out[filepath.ToSlash(rel)] = string(text)
			return err
		}
		return nil
	})
	if err != nil || len(out) < 8 {
		t.Fatalf("%d documents, %v", len(out), err)
	}
	return out
}

var (
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	mdCode    = regexp.MustCompile("`([^`\n]+)`")
	repoPath  = regexp.MustCompile(`^(?:cmd|docs|examples|export|internal|job|model|pipeline|proto|ps|runners|sinks|sources|tools|transforms)/[\w./*-]+$|^[A-Z]+\.md$|^\.ci/\w+$`)
	goWord    = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark)[A-Z]\w+$`)
	makeWord  = regexp.MustCompile(`^make ([a-z-]+)`)
)

// headings are the anchors of a document.
func headings(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range mdHeading.FindAllStringSubmatch(text, -1) {
		out[strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return out
}

// TestDocumentsNameWhatIsThere: links lead somewhere, and files, tests and targets that documents name are there. Decision records
// and the changelog say what was; their links alone are followed.
func TestDocumentsNameWhatIsThere(t *testing.T) {
	t.Parallel()
	const root = ".."
	docs := documents(t, root)
	tests := testNames(t, root)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	exists := func(path string) bool {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(path)))
		return err == nil && len(found) > 0
	}
	for name, text := range docs {
		for _, m := range mdLink.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := name
			if target != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(name), target))
			}
			if !exists(path) {
				t.Errorf("%s: the link %s leads nowhere", name, m[1])
			} else if anchor != "" && !headings(docs[path])[anchor] {
				t.Errorf("%s: the link %s leads to no heading", name, m[1])
			}
		}
		if strings.HasPrefix(name, "docs/decisions/") || name == "CHANGELOG.md" {
			continue
		}
		for _, m := range mdCode.FindAllStringSubmatch(text, -1) {
			word := m[1]
			switch {
			case repoPath.MatchString(word) && !exists(strings.ReplaceAll(word, "NAME", "*")) && !exists(filepath.Join(filepath.Dir(name), word)):
				t.Errorf("%s: there is no %s", name, word)
			case goWord.MatchString(word) && !strings.Contains(tests, "func "+word):
				t.Errorf("%s: there is no %s", name, word)
			case makeWord.MatchString(word) && !strings.Contains(string(makefile), "\n"+makeWord.FindStringSubmatch(word)[1]+":"):
				t.Errorf("%s: there is no %s", name, word)
			}
		}
	}
}

// testNames are the lines of all test functions.
func testNames(t *testing.T, root string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "func ") {
				out.WriteString(line)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// fence is a block of a document, and heredoc a file that a command in one writes.
var (
	fence   = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	heredoc = regexp.MustCompile(`(?ms)^\$ cat > \S+\.yaml <<'JOB'\n(.*?)^JOB$`)
)

// TestJobsOfDocuments loads every job that a document shows. What begins with `version:` is a whole job; other YAML is some of
// one, which is laid over a job that has the rest.
func TestJobsOfDocuments(t *testing.T) {
	t.Parallel()
	const rest = "source: synthetic\nparse: {features: [{name: user}], label: click}\nmodel: lr\n"
	sections := regexp.MustCompile(`(?m)^[a-z]+:`)
	jobs := 0
	load := func(name, text string) {
		jobs++
		if !regexp.MustCompile(`(?m)^version: 1$`).MatchString(text) {
			text = "version: 1\n" + text
			for line := range strings.Lines(rest) {
				if key := sections.FindString(line); !strings.Contains("\n"+text, "\n"+key) {
					text += line
				}
			}
		}
		if _, err := job.Decode([]byte(text), name, job.LoadOptions{Env: []string{"MONOLITH_DATA=data"}}); err != nil {
			t.Errorf("%s shows a job that does not load: %v\n%s", name, err, text)
		}
	}
	for name, text := range documents(t, "..") {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			if m[1] == "yaml" {
				load(name, m[2])
			}
			for _, h := range heredoc.FindAllStringSubmatch(m[2], -1) {
				load(name, h[1])
			}
		}
	}
	if jobs < 5 {
		t.Errorf("%d jobs were found", jobs)
	}
}

// TestJobsOfExamples loads every job file of the examples and builds its model.
func TestJobsOfExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../examples/*/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		cfg, err := job.Load(file, job.LoadOptions{Env: []string{"MONOLITH_DATA=data", "MOVIELENS_BROKER=localhost:9092", "SHOP_BROKER=localhost:9092"}})
		if err == nil {
			_, err = job.BuildModel(cfg)
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
