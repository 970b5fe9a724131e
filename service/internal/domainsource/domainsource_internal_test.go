package domainsource

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// A followedFolder is a folder whose domains are followed, and what is logged of it.
type followedFolder struct {
	t       *testing.T
	path    string
	service *rls.Service
	*Follower
	log strings.Builder
}

func newFollowedFolder(t *testing.T, c config.Envoy) *followedFolder {
	t.Helper()
	service := must.Get(rls.New(rls.Config{
		Store: memstore.New(memstore.Config{}), MergeDomains: c.Merge, Accounting: domains.Accounting(c.Accounting),
	}))(t)
	f := &followedFolder{t: t, path: t.TempDir(), service: service}
	c.Config = f.path
	f.Follower = New(c, slog.New(slog.NewTextHandler(&f.log, nil)))
	return f
}

// write writes files; one without text is a link that leads nowhere, which can't be read.
func (f *followedFolder) write(texts map[string]string) {
	f.t.Helper()
	for name, text := range texts {
		path := filepath.Join(f.path, name)
		_ = os.Remove(path) // which may be a link
		err := os.Symlink("nowhere", path)
		if text != "" {
			_ = os.Remove(path)
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		must.Do(f.t, err)
	}
}

// start reads the folder, and no change of it.
func (f *followedFolder) start(strict bool) error {
	ctx, cancel := context.WithCancel(f.t.Context())
	cancel() // so that nothing is read later
	stop, err := f.FollowFiles(ctx, rulefile.Texts{Path: f.path, All: !strict}, f.service, strict)
	if err == nil {
		stop()
	}
	return err
}

// inForce are the names of domains in force, each with its limits.
func (f *followedFolder) inForce() string {
	var names []string
	for _, d := range f.service.Domains() {
		names = append(names, fmt.Sprintf("%s:%d", d.Name, d.Limits[0].Requests))
	}
	return strings.Join(names, " ")
}

// limited is a domain with a limit.
func limited(domain string, requests int) string {
	return fmt.Sprintf("domain: %s\ndescriptors: [{key: %s, rate_limit: {unit: day, requests_per_unit: %d}}]\n", domain, domain, requests)
}

const faulty = "domain: d\ndescriptors: [{key: a, rate_limit: {unit: aeon}}]\n"

// Domains are in force before the first request can come, in the place of the reference service, too. If they have faults
// there, there are none, and that is logged once.
func TestFirstDomains(t *testing.T) {
	for text, loaded := range map[string]bool{limited("d", 2): true, faulty: false} {
		f := newFollowedFolder(t, config.Envoy{})
		f.write(map[string]string{"d.yaml": text})
		must.Do(t, f.start(false))
		if _, _, got := f.service.Loaded(); got != loaded {
			t.Errorf("loaded is %t of %s", got, text)
		}
		if got := strings.Count(f.log.String(), "the domains are refused"); got == 1 == loaded {
			t.Errorf("the log is %s", &f.log)
		}
		if got := f.Refused(); (got == "") != loaded || got != "" && got != "the domains are refused, and there are none; the log says why" {
			t.Errorf("the health says %q", got)
		}
	}
}

// A file that is refused at the start takes no limit from the other files, whatever is wrong with it. The log and the health
// say which it is. Without a good file the service of stint does not start.
func TestRefusedFileOfSeveral(t *testing.T) {
	for name, test := range map[string]struct {
		files         map[string]string
		merge         bool
		want, refused string
		says          string
	}{
		"a fault":               {map[string]string{"b.yaml": faulty}, false, "a:1 c:3", "b.yaml", "b.yaml:2:43: "},
		"no YAML":               {map[string]string{"b.yaml": "domain: ["}, false, "a:1 c:3", "b.yaml", "b.yaml:2:1: not YAML"},
		"no file":               {map[string]string{"b.yaml": ""}, false, "a:1 c:3", "b.yaml", "b.yaml: no such file"},
		"a domain twice":        {map[string]string{"b.yaml": limited("a", 2)}, false, "a:1 c:3", "b.yaml", "b.yaml: the domain \\\"a\\\" is given twice, first in "},
		"a merged key twice":    {map[string]string{"b.yaml": limited("a", 2)}, true, "a:1 c:3", "b.yaml", "b.yaml: the key and value \\\"a\\\" of the domain"},
		"two files":             {map[string]string{"b.yaml": faulty, "d.yaml": "[]"}, false, "a:1 c:3", "b.yaml, d.yaml", "d.yaml:1:1: "},
		"a fault and a clash":   {map[string]string{"b.yaml": limited("a", 2), "d.yaml": "[]"}, false, "a:1 c:3", "b.yaml, d.yaml", "d.yaml:1:1: "},
		"nothing that is wrong": {map[string]string{"b.yaml": limited("b", 2)}, false, "a:1 b:2 c:3", "", "domains=3"},
	} {
		for _, strict := range []bool{true, false} {
			f := newFollowedFolder(t, config.Envoy{Merge: test.merge})
			all := map[string]string{"a.yaml": limited("a", 1), "c.yaml": limited("c", 3)}
			maps.Copy(all, test.files)
			f.write(all)
			if err := f.start(strict); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := f.inForce(); got != test.want {
				t.Errorf("%s: in force are %q, want %q", name, got, test.want)
			}
			want, details := "", map[string]any{"state": "current"}
			if test.refused != "" {
				want = test.refused + " refused; the domains of the other files are in force; the log says why"
				var files []string
				for file := range strings.SplitSeq(test.refused, ", ") {
					files = append(files, filepath.Join(f.path, file))
				}
				details = map[string]any{"state": "partial", "refused": files, "reason": f.Details()["reason"]}
			}
			if f.Refused() != want || fmt.Sprint(f.Details()) != fmt.Sprint(details) {
				t.Errorf("%s: the health says %q and %v, want %q and %v", name, f.Refused(), f.Details(), want, details)
			}
			log := f.log.String()
			if strings.Contains(log, "level=ERROR msg=\"files of domains are refused;") != (want != "") || !strings.Contains(log, test.says) {
				t.Errorf("%s: the log is %s", name, log)
			}
		}
	}
	f := newFollowedFolder(t, config.Envoy{})
	f.write(map[string]string{"b.yaml": faulty})
	if err := f.start(true); err == nil || !strings.Contains(err.Error(), "b.yaml:2:43: ") {
		t.Errorf("with no good file: %v", err)
	}
}

// A change with a fault is refused as a whole if it would take away a domain, or a part of one, that is in force. Else what
// is good of it is taken.
func TestChangedFilesWithFaults(t *testing.T) {
	f := newFollowedFolder(t, config.Envoy{Merge: true})
	watch := must.Get(rulefile.Texts{Path: f.path, All: true}.Watch(nil, f.take))(t)
	f.Follower.service = f.service
	for _, step := range []struct {
		files       map[string]string
		want, state string
	}{
		{map[string]string{"a.yaml": limited("a", 1), "b.yaml": faulty}, "a:1", "partial"},
		{map[string]string{"a.yaml": limited("a", 2)}, "a:2", "partial"}, // which b.yaml does not hinder
		{map[string]string{"a.yaml": faulty, "c.yaml": limited("c", 3)}, "a:2", "refused"},
		{map[string]string{"a.yaml": limited("a", 4)}, "a:4 c:3", "partial"},
		{map[string]string{"b.yaml": limited("b", 5)}, "a:4 b:5 c:3", "current"},
		{map[string]string{"b.yaml": faulty, "a.yaml": limited("a", 6)}, "a:4 b:5 c:3", "refused"},
		{map[string]string{"b.yaml": limited("b", 5)}, "a:6 b:5 c:3", "current"},
		{map[string]string{"d.yaml": "domain: a\ndescriptors: [{key: z}]\n"}, "a:6 b:5 c:3", "current"},
		{map[string]string{"d.yaml": faulty, "a.yaml": limited("a", 7)}, "a:6 b:5 c:3", "refused"}, // the part with z
		{map[string]string{"d.yaml": "domain: a\ndescriptors: [{key: z}]\n"}, "a:7 b:5 c:3", "current"},
	} {
		f.write(step.files)
		if err := watch.Read(); err != nil {
			f.Refuse(err)
		}
		if got, state := f.inForce(), f.Details()["state"]; got != step.want || state != step.state {
			t.Errorf("%v: in force are %s, %s, want %s, %s", step.files, got, state, step.want, step.state)
		}
		if got := f.Refused(); strings.Contains(got, "the current ones stay in force") != (step.state == "refused") {
			t.Errorf("%v: the health says %q", step.files, got)
		}
	}
	if got := strings.Count(f.log.String(), "the domains are accepted again"); got != 3 {
		t.Errorf("they are accepted again %d times:\n%s", got, &f.log)
	}
}

// In the reference accounting the log warns of a key that another one reaches by its value.
func TestJoinedKeysAreLogged(t *testing.T) {
	for accounting, want := range map[string]bool{"reference": true, "atomic": false} {
		f := newFollowedFolder(t, config.Envoy{Accounting: accounting})
		f.write(map[string]string{"d.yaml": "domain: d\ndescriptors: [{key: user}, {key: user_internal, rate_limit: {unlimited: true}}]\n"})
		must.Do(t, f.start(true))
		if got := strings.Contains(f.log.String(), `the key \"user_internal\" also counts user=internal`); got != want {
			t.Errorf("%s: the log is %s", accounting, &f.log)
		}
	}
}

// Whatever a control plane sends, and however often, the log has some lines of it at once, and then one a minute.
func TestPlaneDoesNotFillTheLog(t *testing.T) {
	f := newFollowedFolder(t, config.Envoy{})
	f.Follower.service = f.service
	for i := range 1000 {
		f.Refuse(fmt.Errorf("fault %d", i))
		must.Do(t, f.put(nil))
	}
	for text, most := range map[string]int{"refused": 10, "are in force": 10} {
		if lines := strings.Count(f.log.String(), text); lines == 0 || lines > most {
			t.Errorf("%d lines of what is %s, want 1 to %d", lines, text, most)
		}
	}
	if !strings.Contains(f.Refused(), "refused") {
		t.Errorf("the health says %q", f.Refused())
	}
}
