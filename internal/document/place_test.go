package document_test

import (
	"testing"

	"github.com/stint-go/stint/internal/document"
)

func TestPlace(t *testing.T) {
	var faults document.Faults
	v := document.JSON("s", []byte("{\"id\":\n\"a\",\"match\":\n{\"path\":\n\"/\"},\"overrides\":[{},\n{\"key\":\n5}]}"), &faults)
	for path, want := range map[string]string{
		"":                 "s:1:1",
		"id":               "s:2:1",
		"match":            "s:3:1",
		"match.path":       "s:4:1",
		"match.host":       "s:3:1",
		"overrides[1]":     "s:5:1",
		"overrides[1].key": "s:6:1",
		"overrides[2].key": "s:1:1",
		"overrides[-1]":    "s:1:1",
		"id[0]":            "s:1:1",
		"max_wait":         "s:1:1",
	} {
		if got := v.Place(path).String(); got != want {
			t.Errorf("%s is at %s, want %s", path, got, want)
		}
	}
	if len(faults) > 0 {
		t.Error(faults)
	}
}
