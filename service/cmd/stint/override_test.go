package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
)

// What is left of an override is said in whole seconds, and never too much.
func TestOverrideLeft(t *testing.T) {
	var o overrideRow
	must.Do(t, json.Unmarshal([]byte(`{"key":"ann","unlimited":true,"until":"2026-12-24T18:00:00Z"}`), &o))
	until := time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)
	for left, want := range map[time.Duration]string{
		2*time.Hour + 700*time.Millisecond: "2026-12-24T18:00:00Z, 2h0m0s left", time.Second: "2026-12-24T18:00:00Z, 1s left", 0: "2026-12-24T18:00:00Z, ended",
	} {
		if row := o.row(until.Add(-left)); row[2] != want {
			t.Errorf("%v before its end: %s, want %s", left, row[2], want)
		}
	}
}
