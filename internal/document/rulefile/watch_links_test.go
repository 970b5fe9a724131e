package rulefile_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
)

// A tree is a folder of a test, with paths in it.
type tree struct {
	*testing.T
	root string
}

func newTree(t *testing.T) tree { return tree{t, t.TempDir()} }

func (t tree) at(path string) string { return filepath.Join(t.root, path) }

// put replaces a file by one with a rule of this ID, as editors and deployments do: in one step.
func (t tree) put(path, id string) {
	t.Helper()
	t.over(path+".new", id)
	t.move(path+".new", path)
}

// over writes over a file, or makes it with its folders.
func (t tree) over(path, id string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(t.at(path)), 0o700))
	text := fmt.Appendf(nil, "- {id: %s, scope: global, banned: true}", id)
	must.Do(t, os.WriteFile(t.at(path), text, 0o600))
}

// link makes a link, or swaps it in one step. A target that begins with a slash is absolute, in the tree.
func (t tree) link(path, target string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(t.at(path)), 0o700))
	if strings.HasPrefix(target, "/") {
		target = t.at(target)
	}
	must.Do(t, os.Symlink(target, t.at(path+".link")))
	t.move(path+".link", path)
}

func (t tree) move(from, to string) {
	t.Helper()
	must.Do(t, os.Rename(t.at(from), t.at(to)))
}

func (t tree) remove(path string) {
	t.Helper()
	must.Do(t, os.RemoveAll(t.at(path)))
}

// Kubernetes mounts a ConfigMap as links to files in a folder that is itself behind a link, ..data, which is replaced in
// one step.
func kubernetes(t tree) {
	t.put("mount/..1/rules.yaml", "a")
	t.link("mount/..data", "..1")
	t.link("mount/rules.yaml", "..data/rules.yaml")
	t.link("etc/rules.yaml", "/mount/rules.yaml")
}

func TestWatchAConfigMap(t *testing.T) {
	for _, path := range []string{"mount", "mount/rules.yaml"} {
		folder := newTree(t)
		kubernetes(folder)
		w := watch(t, notified(folder.at(path)))
		w.next("a")
		folder.put("mount/..2/rules.yaml", "b")
		folder.link("mount/..data", "..2")
		w.next("b")
		folder.remove("mount/..1")
		folder.put("mount/..3/rules.yaml", "c")
		folder.link("mount/..data", "..3")
		w.next("c")
	}
}

// What is behind links is followed without a look at intervals: what is written there, and each link on the way.
func TestWatchBehindLinks(t *testing.T) {
	for name, test := range map[string]struct {
		begin func(t tree)
		path  string
		// each makes the rule b, c and so on
		steps []func(t tree, id string)
	}{
		"a file elsewhere": {
			func(t tree) { t.put("there/rules.yaml", "a"); t.link("here/rules.yaml", "/there/rules.yaml") },
			"here/rules.yaml",
			[]func(t tree, id string){
				func(t tree, id string) { t.put("there/rules.yaml", id) },
				func(t tree, id string) { t.over("there/rules.yaml", id) },
				func(t tree, id string) { t.put("other/x.yaml", id); t.link("here/rules.yaml", "../other/x.yaml") },
				func(t tree, id string) { t.put("other/x.yaml", id) },
			},
		},
		"a folder elsewhere": {
			func(t tree) { t.put("there/rules.yaml", "a"); t.link("here/rules", "/there") },
			"here/rules",
			[]func(t tree, id string){
				func(t tree, id string) { t.put("there/rules.yaml", id) },
				func(t tree, id string) { t.put("other/x.yaml", id); t.link("here/rules", "../other") },
				func(t tree, id string) { t.put("other/x.yaml", id) },
			},
		},
		"a file of a folder elsewhere": {
			func(t tree) { t.put("there/rules.yaml", "a"); t.link("here/rules.yaml", "/there/rules.yaml") },
			"here",
			[]func(t tree, id string){
				func(t tree, id string) { t.put("there/rules.yaml", id) },
				func(t tree, id string) { t.put("other/x.yaml", id); t.link("here/rules.yaml", "../other/x.yaml") },
				func(t tree, id string) { t.put("other/x.yaml", id) },
			},
		},
		"links of several levels": {
			func(t tree) {
				t.put("4/version/rules.yaml", "a")
				t.link("3/data", "../4/version")
				t.link("2/middle", "/3/data")
				t.link("1/rules.yaml", "../2/middle/rules.yaml")
			},
			"1/rules.yaml",
			[]func(t tree, id string){
				func(t tree, id string) { t.put("4/version/rules.yaml", id) },
				func(t tree, id string) { t.put("4/next/rules.yaml", id); t.link("3/data", "../4/next") },
				func(t tree, id string) { t.put("4/next/rules.yaml", id) },
				func(t tree, id string) { t.put("5/rules.yaml", id); t.link("2/middle", "/5") },
				func(t tree, id string) { t.put("5/rules.yaml", id) },
				func(t tree, id string) { t.put("6/rules.yaml", id); t.link("1/rules.yaml", "/6/rules.yaml") },
				func(t tree, id string) { t.put("6/rules.yaml", id) },
			},
		},
		"over a parent": {
			func(t tree) {
				t.put("there/below/rules.yaml", "a")
				t.link("here/below", "/there/below/../below")
				t.link("here/rules.yaml", "below/rules.yaml")
			},
			"here/../here/rules.yaml",
			[]func(t tree, id string){
				func(t tree, id string) { t.put("there/below/rules.yaml", id) },
			},
		},
		"Kubernetes, and a link to it": {
			kubernetes,
			"etc",
			[]func(t tree, id string){
				func(t tree, id string) {
					t.put("mount/..2/rules.yaml", id)
					t.link("mount/..data", "..2")
					t.remove("mount/..1")
				},
				func(t tree, id string) {
					t.put("mount/..3/rules.yaml", id)
					t.link("mount/..data", "..3")
					t.remove("mount/..2")
				},
			},
		},
		"a link above, as deployments have that make a folder for each version": {
			func(t tree) { t.put("1/below/rules/rules.yaml", "a"); t.link("current", "1") },
			"current/below/rules",
			[]func(t tree, id string){
				func(t tree, id string) { t.put("2/below/rules/rules.yaml", id); t.link("current", "2") },
				func(t tree, id string) { t.over("current/below/rules/rules.yaml", id) },
			},
		},
		"what is missing for a while": {
			func(t tree) { t.put("there/deep/rules.yaml", "a"); t.link("here/rules.yaml", "/there/deep/rules.yaml") },
			"here/rules.yaml",
			[]func(t tree, id string){
				func(t tree, id string) { t.remove("there/deep/rules.yaml"); t.put("there/deep/rules.yaml", id) },
				func(t tree, id string) { t.remove("there/deep"); t.put("there/deep/rules.yaml", id) },
				func(t tree, id string) { t.remove("there"); t.put("there/deep/rules.yaml", id) },
				func(t tree, id string) {
					t.move("there/deep", "before")
					t.put("next/rules.yaml", id)
					t.move("next", "there/deep")
				},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := newTree(t)
			test.begin(folder)
			w := watch(t, notified(folder.at(test.path)))
			w.next("a")
			for i, step := range test.steps {
				id := string(rune('b' + i))
				step(folder, id)
				w.until(id)
			}
		})
	}
}

// Of all files below a folder, too, those are followed that come with folders of their own.
func TestWatchATree(t *testing.T) {
	folder := newTree(t)
	folder.put("real/a.yaml", "a")
	folder.link("root", "real")
	folder.put("there/x.yaml", "x")
	told := make(chan string, 100)
	s, err := rulefile.Texts{Path: folder.at("root"), All: true}.Watch(nil, func(texts []rulefile.Text) error {
		var all []string
		for _, text := range texts {
			all = append(all, strings.TrimSuffix(strings.TrimPrefix(string(text.Data), "- {id: "), ", scope: global, banned: true}"))
		}
		told <- strings.Join(all, " ")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Follow(ctx, func(err error) { told <- err.Error() })
	}()
	defer func() { stop(); <-ended }()
	w := watched{t, told}
	w.next("a")
	folder.put("real/deep/er/b.yaml", "b")
	w.until("a b")
	folder.put("real/deep/er/b.yaml", "c")
	w.until("a c")
	folder.link("real/deep/x.yaml", "/there/x.yaml")
	w.until("a c x")
	folder.put("there/x.yaml", "y")
	w.until("a c y")
	folder.put("next/z.yaml", "z")
	folder.link("root", "next")
	w.until("z")
	folder.put("next/z.yaml", "0")
	w.until("0")
}
