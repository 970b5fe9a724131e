package document_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/document"
)

// allocated is how many bytes reading a document takes, all together.
func allocated(source, text string) (uint64, int, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var faults document.Faults
	v := document.Parse(source, []byte(text), 1<<23, &faults)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, len(v.Items), faults.Err()
}

// A text of twice the length takes no more than about twice the memory, whatever is repeated in it:
// memory that grows by the square would be four times as much. TestBounds has the texts whose time,
// and not memory, could grow by the square.
func TestLinear(t *testing.T) {
	const size, slack = 24 << 10, 8 << 20 // bytes; slack is for buffers that the scanner may have kept, or not
	around := [][2]string{{"", ""}, {"[", "]"}, {"- \"", "\""}, {"- |\n  ", "\n- a"}}
	for i, unit := range []string{
		"@", "]", "[,,,", "%", "&a ", "'' ", "[? a,", `["a":b,`, "- !a\n", "[{a},", "{a},", "- ? a\n", "- a:\n", "-\n", "-\na:\n",
		"[]", "}", "{a: ", "{\"a\":\n", "a:\n", "a: b\n", "- - ", "- a\n", "\n- ", " ", "\n", " \n", "\t", "\r", "\\", "'", "\"", "\\u0041", "# a\n", "|\n",
		">\n ", "<<", "<<: *a\n", "---\n", "...\n", "...", "%a\n", "!a ", "*a ", "? ", ": ", ":", ", ", "a: b: ", "é", "0", "0x1_", ".", "~\n", "`", "&", "!",
	} {
		if testing.Short() && i%10 > 0 {
			continue
		}
		for _, w := range around {
			text := func(n int) string { return w[0] + strings.Repeat(unit, n/len(unit)) + w[1] }
			once, _, _ := allocated("y.yaml", text(size))
			twice, _, err := allocated("y.yaml", text(2*size))
			if twice > 3*once+slack {
				t.Errorf("%q between %q: %d KB, and %d KB for twice as much: %.200v", unit, w, once>>10, twice>>10, err)
			}
		}
	}
}

// Rules are read in all forms that they come in, and in memory by their number.
func TestLinearRules(t *testing.T) {
	const block = "- id: rule-%d\n  labels:\n    team: shop\n  match: {path: \"/v1/**\", methods: [GET, POST]}\n  scope: per_ip\n" +
		"  limits:\n  - algorithm: token_bucket\n    capacity: 100\n    refill: 10/s\n  on_exceed: reject\n"
	const flow = "{id: rule-%d, labels: {team: shop}, match: {path: \"/v1/**\", methods: [GET, POST]}, scope: per_ip,\n" +
		" limits: [{algorithm: token_bucket, capacity: 100, refill: 10/s}], on_exceed: reject}\n"
	const object = `{"id":"rule-%d","labels":{"team":"shop"},"match":{"path":"/v1/**","methods":["GET","POST"]},"scope":"per_ip",` +
		`"limits":[{"algorithm":"token_bucket","capacity":100,"refill":"10/s"}],"on_exceed":"reject"}`
	list := func(n int) string { return "[" + strings.TrimSuffix(lines(n, object+","), ",") + "]" }
	for name, c := range map[string]struct {
		source string
		text   func(n int) string
	}{
		"lines":        {"r.yaml", func(n int) string { return lines(n, block) }},
		"in braces":    {"r.yaml", func(n int) string { return lines(n, "- "+flow) }},
		"JSON":         {"r.json", list},
		"JSON as YAML": {"r.yaml", list},
	} {
		n := 10_000
		if testing.Short() {
			n = 500
		}
		once, got, err := allocated(c.source, c.text(n/2))
		if err != nil || got != n/2 {
			t.Errorf("%s: %d rules, %.200v; want %d", name, got, err, n/2)
		}
		twice, got, err := allocated(c.source, c.text(n))
		if err != nil || got != n || twice > 3*once {
			t.Errorf("%s: %d rules, %.200v; want %d; %d MB, and %d MB for twice as much", name, got, err, n, once>>20, twice>>20)
		}
		t.Logf("%s: %d bytes, %d MB", name, len(c.text(n)), twice>>20)
	}
	// Cut short, it is one fault, and no more work.
	text := list(1500)
	for cut := range 3 {
		_, got, err := allocated("r.yaml", text[:len(text)-1-cut])
		if err == nil || got != 0 || len(fmt.Sprint(err)) > 300 {
			t.Errorf("without the last %d bytes: %d rules, %.400v", cut+1, got, err)
		}
	}
}
