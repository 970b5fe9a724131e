package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
)

// pages are the documents of the module.
func pages(t *testing.T) map[string]string {
	t.Helper()
	return read(t, "*.md", "docs/*.md", "docs/ko/*.md", "docs/migrate/*.md", "docs/reference/*.md",
		"docs/internals/*.md", "docs/adr/*.md", "bench/*.md", "examples/README.md", "examples/*/README.md")
}

// Files of code that pages name are there.
func TestNamedFiles(t *testing.T) {
	var files []string
	must.Do(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		files = append(files, filepath.ToSlash(path))
		return err
	}))
	names, found := regexp.MustCompile("`([a-z_/]+\\.(?:go|lua))`"), 0
	for page, text := range pages(t) {
		for _, name := range names.FindAllStringSubmatch(text, -1) {
			found++
			if !slices.ContainsFunc(files, func(file string) bool { return strings.HasSuffix("/"+file, "/"+name[1]) }) {
				t.Errorf("%s names %s, which is not there", page, name[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("%d names were found", found)
	}
}

// plain is Go code without the space around lines, without directives and the package of a program, without what examples and tests do about
// errors, and with an address, a clock and a timeout as a reader would write them: a busy machine needs a longer one.
func plain(code string) string {
	var lines []string
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "package main" && !strings.HasPrefix(line, "//nolint:") {
			lines = append(lines, line)
		}
	}
	code = strings.Join(lines, "\n") + "\n"
	handling := regexp.MustCompile(`(?m)^if err != nil \{\n((fmt\.Println|log\.Fatal|t\.Fatal|t\.Error)\(err\)\n(return\n)?|return err\n)\}\n`)
	code = handling.ReplaceAllString(code, "")
	const ended = `\)\((?:t|b|example\{\})\)$`
	code = regexp.MustCompile(`(?m)^must\.Get\((.*)`+ended).ReplaceAllString(code, "_, err = $1")
	code = regexp.MustCompile(`(?ms)^(\w+) (:?=) must\.Get\(\n?(.*?)`+ended).ReplaceAllString(code, "$1, err $2 $3")
	return strings.NewReplacer(
		`"redis://" + server.Addr()`, `"redis://127.0.0.1:6379"`,
		`server.Addr()`, `"127.0.0.1:6379"`,
		`testredis.Start(t).Addr()`, `"127.0.0.1:6379"`,
		"memstore.Config{Now: still}", "memstore.Config{}",
		"stillStore()", "memstore.New(memstore.Config{})",
		"newStore()", "memstore.New(memstore.Config{})",
		", Failover: patient", "",
		"goredis.Config{Failover: patient}", "goredis.Config{}",
		"goredis.Config{Failover: failover.Config{Timeout: time.Minute}}", "goredis.Config{}",
		", Timeout: time.Minute}", "}",
	).Replace(code)
}

// goBlock is a snippet of Go in a page.
const goBlock = "(?s)```go\n(.*?)```"

// Every Go snippet of every page stands in a test or an example that is compiled and run.
func TestSnippets(t *testing.T) {
	var compiled strings.Builder
	for _, text := range read(t, "test/docs/*_test.go", "example_test.go", "httplimit/example*_test.go",
		"httplimit/*/example_test.go", "grpclimit/example*_test.go", "bench/migrate/*_test.go",
		"service/internal/alerts/docs_test.go", "test/resp/docs_test.go", "test/resp/migrate_test.go") {
		compiled.WriteString(text)
	}
	code, snippets := plain(compiled.String()), 0
	for name, text := range pages(t) {
		for _, snippet := range groups(goBlock, text) {
			snippets++
			if !strings.Contains(code, plain(snippet)) {
				t.Errorf("%s: no test has\n%s", name, snippet)
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
		for _, snippet := range groups(goBlock, text) {
			hold(name, snippet)
		}
	}
	for name, text := range read(t, "test/docs/start_test.go", "redisstore/*/example_test.go",
		"bench/migrate/*_test.go", "examples/*/*.go") {
		for function := range strings.SplitSeq(text, "\nfunc ") {
			hold(name, function)
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
		for _, block := range groups("(?s)```yaml\n((?:rules:|- \\{id).*?)```", text) {
			shown++
			if _, err := file.ParseSet(name, []byte(block), rules.Options{}); err != nil {
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
	all := pages(t)
	links := 0
	for name, text := range all {
		for _, link := range groups(`\]\(([^)\s]+)\)`, text) {
			target, heading, _ := strings.Cut(link, "#")
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
			} else if heading != "" && !info.IsDir() && !headings(all[filepath.ToSlash(path)])[heading] {
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
	all := pages(t)
	page := all["docs/reference/metrics.md"] + all["docs/envoy.md"] // which has those of the reference service, too
	made, tree := map[string]bool{}, os.DirFS(".")
	must.Do(t, fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "bench/") {
			return err
		}
		text, err := fs.ReadFile(tree, path)
		for _, name := range groups(`(?:"|//\t)((?:rate_limiter|ratelimit_service)_[a-z0-9_]+[a-z])["{ ]`, string(text)) {
			made[name] = true
		}
		return err
	}))
	told := map[string]bool{}
	for line := range strings.Lines(page) {
		if first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|"); strings.HasPrefix(line, "|") && !strings.Contains(first, "(") {
			for _, name := range groups("`((?:rate_limiter|ratelimit_service)_[a-z_]+)", first) {
				told[name] = true
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
	all := pages(t)
	must.Do(t, fs.WalkDir(os.DirFS("docs"), ".", func(path string, entry fs.DirEntry, err error) error {
		index, folder := "docs/README.md", filepath.Dir(path)
		switch {
		case err != nil || entry.IsDir() || filepath.Ext(path) != ".md" || folder == "adr" || path == "README.md":
			return err
		case folder == "ko" && filepath.Base(path) != "README.md":
			return nil // the Korean index names those
		case folder == "migrate":
			index = "docs/migrate.md"
		}
		if !strings.Contains(all[index], "]("+filepath.ToSlash(path)+")") {
			t.Errorf("%s does not link to %s", index, path)
		}
		return nil
	}))
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

// read are the files of patterns, by name from the module's root. There is one of each pattern.
func read(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("no file is %s: %v", pattern, err)
		}
		for _, name := range names {
			all[filepath.ToSlash(name)] = string(must.Get(os.ReadFile(name))(t))
		}
	}
	return all
}

// groups are the first groups of a pattern's matches in a text.
func groups(pattern, text string) (found []string) {
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}
