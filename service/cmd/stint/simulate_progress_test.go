package main

import (
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	p := progress{total: 400_000_000, done: 100_000_000}
	if got, want := p.text(5*time.Second), "[=======                       ]  25%  100 MB, 20 MB/s, 15s left"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	p.total = 0
	if got, want := p.text(5*time.Second), "100 MB, 20 MB/s"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
