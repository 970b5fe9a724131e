package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
)

// pages are the documents of the module, by name from its root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{
		"*.md", "docs/*.md", "docs/ko/*.md", "docs/migrate/*.md", "docs/reference/*.md", "docs/internals/*.md", "docs/adr/*.md", "bench/*.md",
		"examples/README.md", "examples/*/README.md",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no page is %s: %v", pattern, err)
		}
		for _, file := range files {
			text := must.Get(os.ReadFile(file))(t)
			all[filepath.ToSlash(file)] = string(text)
		}
	}
	return all
}

// plain is Go code without the space around lines, without directives, without what examples and tests do about
// errors, and with an address, a clock and a timeout as a reader would write them: a busy machine needs a longer one.
func plain(code string) string {
	var lines []string
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "//nolint:") {
			lines = append(lines, line)
		}
	}
	code = strings.Join(lines, "\n") + "\n"
	handling := regexp.MustCompile(`(?m)^if err != nil \{\n((fmt\.Println|t\.Fatal|t\.Error)\(err\)\n(return\n)?|return err\n)\}\n`)
	code = handling.ReplaceAllString(code, "")
	return strings.NewReplacer(
		`"redis://" + server.Addr()`, `"redis://127.0.0.1:6379"`,
		`server.Addr()`, `"127.0.0.1:6379"`,
		`testredis.Start(t).Addr()`, `"127.0.0.1:6379"`,
		"memstore.Config{Now: still}", "memstore.Config{}",
		", Failover: failover.Config{Timeout: time.Minute}", "",
		"goredis.Config{Failover: failover.Config{Timeout: time.Minute}}", "goredis.Config{}",
		", Timeout: time.Minute}", "}",
	).Replace(code)
}

// Every Go snippet of every page stands in a test or an example that is compiled and run.
func TestSnippets(t *testing.T) {
	var compiled strings.Builder
	for _, pattern := range []string{
		"test/docs/*_test.go", "example_test.go", "httplimit/example*_test.go", "httplimit/*/example_test.go",
		"grpclimit/example*_test.go", "bench/migrate/*_test.go", "service/internal/alerts/docs_test.go",
		"test/resp/docs_test.go", "test/resp/migrate_test.go",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no test is %s: %v", pattern, err)
		}
		for _, file := range files {
			text := must.Get(os.ReadFile(file))(t)
			compiled.Write(text)
		}
	}
	code, snippets := plain(compiled.String()), 0
	for name, text := range pages(t) {
		for _, snippet := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1) {
			snippets++
			if !strings.Contains(code, plain(snippet[1])) {
				t.Errorf("%s: no test has\n%s", name, snippet[1])
			}
		}
	}
	if snippets < 20 {
		t.Errorf("only %d snippets were found", snippets)
	}
}

// Whoever opens a store in Redis waits until it is connected, in every snippet and every example: else the first decision
// may take longer than its caller waits.
func TestReady(t *testing.T) {
	opens := regexp.MustCompile(`(rueidis|goredis)\.Open\(`)
	found := 0
	hold := func(where, code string) {
		if opens.MatchString(code) {
			found++
			if !strings.Contains(code, ".Ready(") {
				t.Errorf("%s opens a store and does not wait for it:\n%s", where, code)
			}
			if strings.HasSuffix(where, ".md") && !strings.Contains(code, "log.Print(err)") {
				t.Errorf("%s does not show that the error of Ready is for the log:\n%s", where, code)
			}
		}
	}
	for name, text := range pages(t) {
		for _, snippet := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1) {
			hold(name, snippet[1])
		}
	}
	for _, pattern := range []string{"test/docs/start_test.go", "redisstore/*/example_test.go", "bench/migrate/*_test.go", "examples/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no file is %s: %v", pattern, err)
		}
		for _, file := range files {
			text := must.Get(os.ReadFile(file))(t)
			for function := range strings.SplitSeq(string(text), "\nfunc ") {
				hold(file, function)
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d snippets and functions open a store", found)
	}
}

// Rules that a page shows are rules.
func TestRulesShown(t *testing.T) {
	shown := 0
	for name, text := range pages(t) {
		for _, block := range regexp.MustCompile("(?s)```yaml\n((?:rules:|- \\{id).*?)```").FindAllStringSubmatch(text, -1) {
			shown++
			if _, err := file.ParseSet(name, []byte(block[1]), rules.Options{}); err != nil {
				t.Error(err)
			}
		}
	}
	if shown < 3 {
		t.Errorf("only %d documents of rules were found", shown)
	}
}

// Every link from a page to a file of the module leads to one, and to a heading of it.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	all := pages(t)
	links := 0
	for name, text := range all {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target, heading, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			path := name
			if target != "" {
				path = filepath.Join(filepath.Dir(name), target)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if heading != "" && !info.IsDir() && !headings(all[filepath.ToSlash(path)])[heading] {
				t.Errorf("%s: %s has no heading #%s", name, path, heading)
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links were found", links)
	}
}

// headings are the names by which links find the headings of a page.
func headings(text string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			names[strings.ReplaceAll(name, " ", "-")] = true
		}
	}
	return names
}

// A page fits on three screens of 50 lines, except those that show code before and after, and the changelog.
func TestLength(t *testing.T) {
	for name, text := range pages(t) {
		if lines := strings.Count(text, "\n"); lines > 150 && !strings.HasPrefix(name, "docs/migrate/") && name != "CHANGELOG.md" {
			t.Errorf("%s has %d lines; at most 150", name, lines)
		}
	}
}

// Every metric has a row on its page, and every row a metric.
func TestMetrics(t *testing.T) {
	page := must.Get(os.ReadFile("docs/reference/metrics.md"))(t)
	envoy := must.Get(os.ReadFile("docs/envoy.md"))(t) // which has those that the reference service has, too
	page = append(page, envoy...)
	made, tree := map[string]bool{}, os.DirFS(".")
	must.Do(t, fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "bench/") {
			return err
		}
		text, err := fs.ReadFile(tree, path)
		for _, name := range regexp.MustCompile(`(?:"|//\t)((?:rate_limiter|ratelimit_service)_[a-z0-9_]+[a-z])["{ ]`).FindAllStringSubmatch(string(text), -1) {
			made[name[1]] = true
		}
		return err
	}))
	told := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|"); strings.HasPrefix(line, "|") && !strings.Contains(first, "(") {
			for _, name := range regexp.MustCompile("`((?:rate_limiter|ratelimit_service)_[a-z_]+)").FindAllStringSubmatch(first, -1) {
				told[name[1]] = true
			}
		}
	}
	for name := range made {
		if !told[name] {
			t.Errorf("%s has no row", name)
		}
	}
	for name := range told {
		if !made[name] {
			t.Errorf("no code makes %s", name)
		}
	}
	if len(made) < 20 {
		t.Errorf("only %d metrics were found", len(made))
	}
}

// The index names every page, but those that a page of it lists: decisions, pages in Korean, and those on other limiters.
func TestIndex(t *testing.T) {
	index := must.Get(os.ReadFile("docs/README.md"))(t)
	err := fs.WalkDir(os.DirFS("docs"), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" || filepath.Dir(path) == "adr" || path == "README.md" {
			return err
		}
		if filepath.Dir(path) == "ko" && filepath.Base(path) != "README.md" {
			return nil // the Korean index names those
		}
		if filepath.Dir(path) == "migrate" {
			if !strings.Contains(pages(t)["docs/migrate.md"], "]("+filepath.ToSlash(path)+")") {
				t.Errorf("docs/migrate.md does not link to %s", path)
			}
			return nil
		}
		if !strings.Contains(string(index), "]("+filepath.ToSlash(path)+")") {
			t.Errorf("docs/README.md does not link to %s", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The glossary is in alphabetical order, and each word has a meaning and a link.
func TestGlossary(t *testing.T) {
	words, before := 0, ""
	for line := range strings.Lines(pages(t)["docs/glossary.md"]) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || cells[1] == " word " || strings.HasPrefix(cells[1], "---") {
			continue
		}
		word, meaning := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		if word < before {
			t.Errorf("%s stands behind %s", word, before)
		}
		if len(meaning) < 20 || !strings.Contains(meaning, "](") {
			t.Errorf("%s means %q; want a sentence, and a link to where it is explained", word, meaning)
		}
		words, before = words+1, word
	}
	if words < 60 {
		t.Errorf("only %d words were found", words)
	}
}
