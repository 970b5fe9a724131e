package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestServeRecords replays what a service decided.
func TestServeRecords(t *testing.T) {
	record := filepath.Join(t.TempDir(), "record")
	t.Run("service", func(t *testing.T) { // which ends with it
		url, _ := start(t, "--record", record)
		for i := range 40 {
			for _, algorithm := range []string{"TOKEN_BUCKET", "SLIDING_WINDOW_LOG", "FIXED_WINDOW"} {
				status, body := get(t, fmt.Sprintf("%s/api/v1/rate-limit/check?key=user:%d&algorithm=%s&permits=7", url, i%2, algorithm))
				if status != http.StatusOK && status != http.StatusTooManyRequests {
					t.Fatal(status, body)
				}
			}
		}
	})
	code, out, stderr := do(t, nil, "simulate", "--replay", record)
	if code != exitOK || !strings.HasPrefix(out, "120 decisions") {
		t.Errorf("exit %d: %s%s", code, out, stderr)
	}
	text := readFile(t, record)
	if strings.Contains(text, "user:") || len(regexp.MustCompile(`"allowed":true`).FindAllString(text, -1)) == 120 {
		t.Errorf("the record has keys, or no denial:\n%.500s", text)
	}
}
