package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
)

func ExampleParseSet() {
	_, err := file.ParseSet("rules.yaml", []byte(`
rules:
  - id: api
    scope: per_ip
    limits: [{algorithm: fixed_window, limit: 0, window: 1m}]
`), rules.Options{})
	fmt.Println(err)
	// Output: stint: rules.yaml:5:47: rule "api": limits[0].limit is 0; allowed: 1 to 1000000000
}

// A folder is read as one set, and followed as it is read.
func TestFolder(t *testing.T) {
	folder := t.TempDir()
	for name, id := range map[string]string{"a.yaml": "first", "b.yaml": "second"} {
		text := "- {id: " + id + ", scope: per_ip, limits: [{algorithm: fixed_window, limit: 5, window: 1m}]}\n"
		must.Do(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	set, err := file.ReadSet(folder, rules.Options{})
	if err != nil || set.Len() != 2 {
		t.Fatal(set, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var followed *rules.Set
	err = file.Source{Path: folder}.Follow(ctx, func(set *rules.Set) { followed = set; stop() }, func(err error) { t.Error(err) })
	if err != nil || followed.Len() != 2 {
		t.Error(followed, err)
	}
}
