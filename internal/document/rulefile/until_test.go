package rulefile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
)

// The end of an override is read with its zone, written in UTC, and read as the same.
func TestUntil(t *testing.T) {
	const rule = "rules: [{id: a, scope: per_ip, banned: true, overrides: [{key: 192.0.2.1, unlimited: true, until: %s}]}]"
	for text, want := range map[string]time.Time{
		"2026-12-24T18:00:00Z":        time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC),
		"2026-12-24T18:00:00.5+01:00": time.Date(2026, 12, 24, 17, 0, 0, 500_000_000, time.UTC),
		`"2026-12-24T18:00:00Z"`:      time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC),
	} {
		var faults document.Faults
		list := rulefile.Rules(document.Parse("r.yaml", []byte(strings.Replace(rule, "%s", text, 1)), rulefile.MaxBytes, &faults).Fields[0].Value, "rules", &faults)
		if err := faults.Err(); err != nil || !list[0].Overrides[0].Until.Equal(want) {
			t.Errorf("%s: %v, %+v", text, err, list)
			continue
		}
		written, err := rulefile.JSON(list[0])
		if err != nil || !strings.Contains(string(written), `"until":"`+want.Format(time.RFC3339Nano)+`"`) {
			t.Errorf("%s is written as %s, %v", text, written, err)
		}
		again := rulefile.Rules(document.Parse("r.json", append(append([]byte("["), written...), ']'), rulefile.MaxBytes, &faults), "rules", &faults)
		if err := faults.Err(); err != nil || !again[0].Equal(&list[0]) {
			t.Errorf("%s is read as %+v, %v", written, again, err)
		}
	}
	for _, text := range []string{"2026-12-24", "2026-12-24T18:00:00", "2h", "5", "[]", "{}"} {
		var faults document.Faults
		rulefile.Rules(document.Parse("r.yaml", []byte(strings.Replace(rule, "%s", text, 1)), rulefile.MaxBytes, &faults).Fields[0].Value, "rules", &faults)
		if err := faults.Err(); err == nil || !strings.Contains(err.Error(), "until is") ||
			!strings.Contains(err.Error(), "allowed: a time such as 2026-12-24T18:00:00Z, with its time zone") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
