// Package upgrade runs two versions of the program at once on one Redis, as a rolling upgrade does.
package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testprogram"
	"github.com/stint-go/stint/internal/testredis"
)

// previous is the release before this one. Until there is one, it is the commit before releases were made.
const previous = "05e3a38e6cb7ca7d7594660b615c465c24614fa3"

// capacity is what each client may have of each policy, nearly none of which comes back while the test runs.
const capacity = 300

const policies = `
policies:
  bucket: [{algorithm: token_bucket, capacity: 300, refill: 1/24h}]
  queue: [{algorithm: leaky_bucket, capacity: 300, leak: 1/24h}]
  window: [{algorithm: fixed_window, limit: 300, window: 8760h}]
  log: [{algorithm: sliding_window_log, limit: 300, window: 8760h}]
  counter: [{algorithm: sliding_window_counter, limit: 300, window: 8760h}]
  both: [{algorithm: token_bucket, capacity: 300, refill: 1/24h}, {algorithm: fixed_window, limit: 1000, window: 8760h}]
`

var policyNames = []string{"bucket", "queue", "window", "log", "counter", "both"}

// patience is how long a test waits for what should come soon.
const patience = 5 * time.Minute

// build builds the program of a folder.
func build(t *testing.T, folder string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stint")
	must.Do(t, testprogram.Build(folder, "-o", file, "./service/cmd/stint"))
	return file
}

// checkout is a folder with the files of a commit.
func checkout(t *testing.T, commit string) string {
	t.Helper()
	folder := t.TempDir()
	command := exec.CommandContext(t.Context(), "sh", "-c", `git -C ../.. archive "$0" | tar -x -C "$1"`, commit, folder)
	output, err := command.CombinedOutput()
	if err == nil {
		_, err = os.Stat(filepath.Join(folder, "go.work"))
	}
	if err != nil {
		t.Fatalf("the history lacks %s (git fetch --unshallow gets it): %v\n%s", commit, err, output)
	}
	return folder
}

// A process is one of the program.
type process struct {
	*testprogram.Process
	service, admin string
}

// start starts a program on a Redis.
func start(t *testing.T, file string, redis *testredis.Server) *process {
	t.Helper()
	config := filepath.Join(t.TempDir(), "stint.yaml")
	must.Do(t, os.WriteFile(config, []byte(policies), 0o600))
	started, at := testprogram.Start(t, exec.CommandContext(context.WithoutCancel(t.Context()), file, "serve", "--config", config,
		"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store", redis.URL(), "--store-timeout=30s",
		"--drain-delay=3s", "--drain-keep-alive=1s"), testprogram.Listeners("http", "admin")...)
	p := &process{started, at[0], at[1]}
	until(t, p.service+" is ready", func() bool {
		status, _, err := send(http.MethodGet, "http://"+p.service+"/actuator/health/readiness", "", "")
		return err == nil && status == http.StatusOK
	})
	return p
}

// until waits for something that will come.
var until = testprogram.Until

var client = &http.Client{Timeout: patience}

// send sends a request, with an ETag if it is not "".
func send(method, url, body, tag string) (status int, answer string, err error) {
	request, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if tag != "" {
		request.Header.Set("If-Match", tag)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), errors.Join(err, response.Body.Close())
}

// A crowd asks two processes, whichever they are, and counts what each client was admitted of each policy.
type crowd struct {
	places   [2]atomic.Pointer[process]
	admitted sync.Map // *atomic.Int64 by policy and client
	asked    atomic.Int64
	failed   atomic.Int64
	ended    atomic.Bool
	callers  sync.WaitGroup
}

const clients = 4

// ask asks until the end.
func (c *crowd) ask(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	for !c.ended.Load() {
		policy, client := policyNames[random.IntN(len(policyNames))], fmt.Sprint("client-", random.IntN(clients))
		permits := 1 + random.IntN(3)
		url := fmt.Sprintf("http://%s/api/v1/rate-limit/check?policy=%s&key=%s&permits=%d", c.places[random.IntN(2)].Load().service, policy, client, permits)
		status, body, err := send(http.MethodGet, url, "", "")
		if err != nil || status != http.StatusOK && status != http.StatusTooManyRequests || strings.Contains(body, `"degraded"`) {
			t.Errorf("%s: %d %s %v", url, status, body, err)
			c.failed.Add(1)
			return
		}
		if status == http.StatusOK {
			count, _ := c.admitted.LoadOrStore(policy+" of "+client, new(atomic.Int64))
			count.(*atomic.Int64).Add(int64(permits))
		}
		c.asked.Add(1)
	}
}

// waitFor lets the crowd ask so often.
func (c *crowd) waitFor(t *testing.T, more int64) {
	t.Helper()
	from := c.asked.Load()
	until(t, "the crowd has asked", func() bool { return c.asked.Load() >= from+more || c.failed.Load() > 0 })
}

// replace puts a fresh process in the place of another, which ends when nobody asks it any more.
func (c *crowd) replace(t *testing.T, place int, fresh *process) {
	t.Helper()
	must.Do(t, c.places[place].Swap(fresh).Stop())
}

// TestRollingUpgrade: two processes are upgraded one after the other under load, one of them goes back, and forth again. No
// request fails, and each client gets of each policy what its limit says, to the permit.
func TestRollingUpgrade(t *testing.T) {
	old, fresh := build(t, checkout(t, previous)), build(t, "../..")
	redis := testredis.Start(t)
	c := &crowd{}
	for i := range c.places {
		c.places[i].Store(start(t, old, redis))
	}
	const callers = 8
	for i := range callers {
		c.callers.Go(func() { c.ask(t, uint64(i)) })
	}
	const phase = 500
	c.waitFor(t, phase)
	for _, step := range []struct {
		place   int
		program string
	}{{0, fresh}, {1, fresh}, {0, old}, {0, fresh}} {
		c.replace(t, step.place, start(t, step.program, redis))
		c.waitFor(t, phase)
	}
	// Until each client has been denied the least of each policy.
	until(t, "nothing is left", func() bool {
		for _, policy := range policyNames {
			for client := range clients {
				url := fmt.Sprintf("http://%s/api/v1/rate-limit/remaining?policy=%s&key=client-%d", c.places[1].Load().service, policy, client)
				var left struct{ Remaining int64 }
				if _, body, err := send(http.MethodGet, url, "", ""); err != nil || json.Unmarshal([]byte(body), &left) != nil || left.Remaining > 0 {
					return c.failed.Load() > 0
				}
			}
		}
		return true
	})
	c.ended.Store(true)
	c.callers.Wait()
	for _, policy := range policyNames {
		for client := range clients {
			name := fmt.Sprintf("%s of client-%d", policy, client)
			count, _ := c.admitted.LoadOrStore(name, new(atomic.Int64))
			if got := count.(*atomic.Int64).Load(); got != capacity {
				t.Errorf("%s admitted %d, want %d", name, got, capacity)
			}
		}
	}
	t.Logf("%d requests", c.asked.Load())
}

// rulesOf are the rules that a process lists.
func rulesOf(p *process) string {
	_, body, _ := send(http.MethodGet, "http://"+p.admin+"/api/v1/rules", "", "")
	return body
}

// TestRulesOfTwoVersions: rules that one version puts are in force in the other. What the older one does not know stays out
// of force there, said in its health, and the rest goes on; once the rules are put back, it follows again.
func TestRulesOfTwoVersions(t *testing.T) {
	old, fresh := build(t, checkout(t, previous)), build(t, "../..")
	redis := testredis.Start(t)
	older, newer := start(t, old, redis), start(t, fresh, redis)
	put := func(p *process, rule string) {
		t.Helper()
		if status, body, err := send(http.MethodPost, "http://"+p.admin+"/api/v1/rules", rule, ""); err != nil || status/100 != 2 {
			t.Fatalf("%s: %d %s %v", rule, status, body, err)
		}
	}
	limit := `"limits":[{"algorithm":"fixed_window","limit":5,"window":"8760h"}]`
	put(older, `{"id":"first","scope":"global",`+limit+`}`)
	until(t, "the newer one has the older one's rule", func() bool { return strings.Contains(rulesOf(newer), `"first"`) })
	put(newer, `{"id":"second","scope":"per_ip",`+limit+`}`)
	until(t, "the older one has the newer one's rule", func() bool { return strings.Contains(rulesOf(older), `"second"`) })
	put(newer, `{"id":"third","match":{"attributes":{"plan":"free"}},"scope":"global",`+limit+`}`)
	health := func() string {
		_, body, _ := send(http.MethodGet, "http://"+older.service+"/actuator/health", "", "")
		return body
	}
	const refused = "the new rules are refused; the current rules stay in force"
	until(t, "the older one's health says that it refuses the rules", func() bool { return strings.Contains(health(), refused) })
	status, body, err := send(http.MethodPost, "http://"+older.service+"/api/v1/rate-limit/evaluate", `{"path":"/","ip":"192.0.2.1"}`, "")
	if err != nil || status != http.StatusOK || !strings.Contains(body, `"matched":["first","second"]`) {
		t.Errorf("meanwhile it answers %d %s %v", status, body, err)
	}
	if status, body, err := send(http.MethodDelete, "http://"+newer.admin+"/api/v1/rules/third", "", "*"); err != nil || status/100 != 2 {
		t.Fatalf("%d %s %v", status, body, err)
	}
	until(t, "the older one follows again", func() bool { return !strings.Contains(health(), refused) })
	if rules := rulesOf(older); !strings.Contains(rules, `"second"`) || strings.Contains(rules, `"third"`) {
		t.Errorf("it has the rules %s", rules)
	}
}
