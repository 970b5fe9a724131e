package redis

import (
	"reflect"
	"testing"
)

func TestEverybodyGetsTheSameTraffic(t *testing.T) {
	l := loadOf(t, "policy") // has every draw
	if !reflect.DeepEqual(newTraffic(l, 100, 3), newTraffic(l, 100, 3)) {
		t.Error("the traffic differs")
	}
}

func TestCallersDrawForThemselves(t *testing.T) {
	traffic := newTraffic(loadOf(t, "uniform"), 1000, 2)
	if reflect.DeepEqual(traffic.indexes[0], traffic.indexes[1]) {
		t.Error("two callers ask for the same clients in the same order")
	}
}

func TestDrawsAreWhatTheySay(t *testing.T) {
	const keys = 1000
	count := func(load string, quota int) []int {
		counts := make([]int, keys)
		for _, caller := range newTraffic(loadOf(t, load), keys, 4).indexes {
			for _, client := range caller[quota] {
				counts[client]++
			}
		}
		return counts
	}
	uniform := count("uniform", 0)
	for client, n := range uniform {
		if mean := turnsOfAll / keys; n < mean*8/10 || n > mean*12/10 {
			t.Fatalf("client %d is drawn %d times, want about %d", client, n, mean)
		}
	}
	// By Zipf's law with exponent 1.1, the first comes 2^1.1 = 2.14 times as often as
	// the second, and that 1.56 times as often as the third.
	zipf := count("zipf", 0)
	for i, want := range []float64{2.144, 1.562} {
		if got := float64(zipf[i]) / float64(zipf[i+1]); got < want*0.97 || got > want*1.03 {
			t.Errorf("client %d is drawn %.3f times as often as the next, want %.3f", i, got, want)
		}
	}
}

func TestNamesAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, list := range names(loadOf(t, "policy"), 70_000) {
		for _, name := range list {
			if seen[name] {
				t.Fatalf("%s is there twice", name)
			}
			seen[name] = true
		}
	}
}
