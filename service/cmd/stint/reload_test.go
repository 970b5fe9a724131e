package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
)

// A mount is a folder of rules as Kubernetes mounts a ConfigMap: links to files behind a link that is swapped.
type mount struct {
	folder  string
	version int
}

var mounted = []string{"1.yaml", "2.yaml", "3.yaml"}

func newMount(t *testing.T) *mount {
	t.Helper()
	m := &mount{folder: t.TempDir()}
	for _, name := range mounted {
		must.Do(t, os.Symlink("..data/"+name, filepath.Join(m.folder, name)))
	}
	return m
}

// put mounts the next version, with a rule of its number in the first and in the last file, and one
// that all versions have in between; a faulty one has a fault in the last.
func (m *mount) put(t *testing.T, faulty bool) {
	t.Helper()
	m.version++
	own := fmt.Sprintf("..%d", m.version)
	texts := []string{
		ruleFile(fmt.Sprintf("a%d", m.version), "1000000"), ruleFile("kept", fmt.Sprint(keptLimit)), ruleFile(fmt.Sprintf("z%d", m.version), "1000000"),
	}
	if faulty {
		texts[2] = strings.Replace(texts[2], "per_ip", "per_moon", 1)
	}
	for i, name := range mounted {
		put(t, filepath.Join(m.folder, own, name), texts[i])
	}
	must.Do(t, os.Symlink(own, filepath.Join(m.folder, "..data_tmp")))
	must.Do(t, os.Rename(filepath.Join(m.folder, "..data_tmp"), filepath.Join(m.folder, "..data")))
}

// keptLimit is what the rule admits that all versions have.
const keptLimit = 1500

// A crowd asks for one client, and looks whether every answer is by one whole version.
type crowd struct {
	url      string
	client   http.Client
	admitted atomic.Int64
	answered atomic.Int64
	newest   atomic.Int64 // version by which an answer was
}

func (c *crowd) ask(ctx context.Context) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+apipath.Evaluate, strings.NewReader(login))
	if err != nil {
		return 0, err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	var e api.EvaluateResponse
	if err := json.NewDecoder(response.Body).Decode(&e); err != nil {
		return 0, err
	}
	c.answered.Add(1)
	if response.StatusCode == http.StatusOK {
		c.admitted.Add(1)
	} else if response.StatusCode != http.StatusTooManyRequests || e.Rule != "kept" {
		return 0, fmt.Errorf("%d by %q", response.StatusCode, e.Rule)
	}
	var version int64
	if len(e.Matched) > 0 {
		_, _ = fmt.Sscanf(e.Matched[0], "a%d", &version)
	}
	if want := []string{fmt.Sprintf("a%d", version), "kept", fmt.Sprintf("z%d", version)}; !slices.Equal(e.Matched, want) {
		return 0, fmt.Errorf("matched are %v, not those of one version", e.Matched)
	}
	for newest := c.newest.Load(); newest < version && !c.newest.CompareAndSwap(newest, version); newest = c.newest.Load() {
	}
	return response.StatusCode, nil
}

// Files of rules are swapped under load, every third time for faulty ones. No request is turned away, and each is
// decided by one whole version. Faulty files are refused and counted. A client that all versions count keeps its
// state.
func TestServeSwapsRulesUnderLoad(t *testing.T) {
	const callers, versions = 64, 9
	m := newMount(t)
	m.put(t, false)
	url, _ := start(t, "--rules-from", m.folder)
	c := &crowd{url: url, client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}}
	t.Cleanup(c.client.CloseIdleConnections)
	var done atomic.Bool
	var load sync.WaitGroup
	for range callers {
		load.Go(func() {
			for !done.Load() {
				if _, err := c.ask(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	end := func() {
		done.Store(true)
		load.Wait()
	}
	defer end()
	faulty := 0
	for m.version < versions && !t.Failed() {
		bad := m.version%3 == 2
		m.put(t, bad)
		if !bad {
			eventually(t, "the version is in force", func() bool { return c.newest.Load() == int64(m.version) || t.Failed() })
			continue
		}
		faulty++
		eventually(t, "the faulty version is refused", func() bool {
			_, metrics := get(t, url+apipath.Metrics)
			return strings.Contains(metrics, fmt.Sprintf("rate_limiter_rules_refused_total %d\n", faulty))
		})
	}
	end()
	for status := http.StatusOK; status == http.StatusOK; {
		var err error
		if status, err = c.ask(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.admitted.Load(); n != keptLimit {
		t.Errorf("%d of %d were admitted, want %d", n, c.answered.Load(), keptLimit)
	}
}
