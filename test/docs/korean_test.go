package docs_test

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// follows is the first line of a Korean page: the English page that it translates, and which revision of it.
var follows = regexp.MustCompile(`^<!-- 원문: (\S+) ([0-9a-f]{12}) -->\n`)

// figures are what `make figures` writes, into the translation, too.
var figures = regexp.MustCompile(`(?s)(<!-- figures:\S+ -->).*?<!-- /figures -->`)

// revision names what a page says, whatever the commit, and whatever was measured.
func revision(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(figures.ReplaceAllString(text, "$1"))))[:12]
}

// koreanPages are the pages in Korean that translate one in English. The index translates none.
func koreanPages(t *testing.T) map[string]string {
	t.Helper()
	all := pages(t)
	for name := range all {
		if name == "docs/ko/README.md" || name != "README.ko.md" && filepath.ToSlash(filepath.Dir(name)) != "docs/ko" {
			delete(all, name)
		}
	}
	return all
}

// A Korean page follows the English one as it is now, with the same headings, tables and code.
func TestKorean(t *testing.T) {
	all := pages(t)
	found := 0
	for name, text := range koreanPages(t) {
		found++
		marker := follows.FindStringSubmatch(text)
		if marker == nil {
			t.Errorf("%s does not say on its first line which page it follows: <!-- 원문: docs/PAGE.md REVISION -->", name)
			continue
		}
		english, ok := all[marker[1]]
		if !ok {
			t.Errorf("%s follows %s, which is no page", name, marker[1])
			continue
		}
		if now := revision(english); marker[2] != now {
			t.Errorf("%s follows %s as it was (%s); translate what has changed, and write %s", name, marker[1], marker[2], now)
		}
		if got, want := outline(text), outline(english); !slices.Equal(got, want) {
			t.Errorf("%s has the outline\n%s\nand %s\n%s", name, strings.Join(got, "\n"), marker[1], strings.Join(want, "\n"))
		}
		got, want := codeBlocks(text), codeBlocks(english)
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Errorf("code block %d of %s differs from that of %s", i+1, name, marker[1])
				break
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d pages are in Korean", found)
	}
}

// outline are the levels of a page's headings, and how many rows each table has, in order.
func outline(text string) (lines []string) {
	inCode, rows := false, 0
	for line := range strings.Lines(text + "\n") {
		if strings.HasPrefix(line, "```") {
			inCode = !inCode
		}
		if !inCode && strings.HasPrefix(line, "|") {
			rows++
			continue
		}
		if rows > 0 {
			lines = append(lines, fmt.Sprintf("a table of %d lines", rows))
			rows = 0
		}
		if level := len(line) - len(strings.TrimLeft(line, "#")); !inCode && level > 0 {
			lines = append(lines, strings.Repeat("#", level))
		}
	}
	return lines
}

var comment = regexp.MustCompile(`(?m)[ \t]*(//|#) .*$`)

// codeBlocks are a page's code blocks without their comments, which a translation may translate.
func codeBlocks(text string) (blocks []string) {
	for _, block := range regexp.MustCompile("(?ms)^```.*?^```").FindAllString(text, -1) {
		blocks = append(blocks, comment.ReplaceAllString(block, ""))
	}
	return blocks
}

// The Korean index leads to every Korean page.
func TestKoreanIndex(t *testing.T) {
	index := pages(t)["docs/ko/README.md"]
	for name := range koreanPages(t) {
		if base := filepath.Base(name); name != "README.ko.md" && !strings.Contains(index, "]("+base+")") {
			t.Errorf("docs/ko/README.md does not link to %s", base)
		}
	}
}
